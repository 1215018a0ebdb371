"""How well a model predicts a text, and how far two models or numeric profiles are apart.

- `corpus`: texts and conversations of a file, as sequences of tokens.
- `windows`: long sequences in overlapping windows, so that each token is scored once.
- `scorer`: a model that runs windows: hidden states in, figures of each token out.
- `summary`: figures of tokens to perplexity, divergence and agreement.
"""

from njax.evaluation.corpus import TokenSequence, read_corpus
from njax.evaluation.scorer import Scorer, TokenFigures, score_sequences
from njax.evaluation.summary import summarize

__all__ = [
    "Scorer",
    "TokenFigures",
    "TokenSequence",
    "read_corpus",
    "score_sequences",
    "summarize",
]
