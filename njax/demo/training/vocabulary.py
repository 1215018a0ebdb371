"""The trained demo's tokenizer: byte-level BPE over text of its own world.

The family's word pattern lets a word swallow the character before it (`"Mira`, `_Mira`, ` Mira`),
which gives one name several spellings in tokens. This model is too small to learn that they are
one name, and copying names is most of what it does. So here words begin at their first letter;
only small letters may take a space along, which keeps ordinary text short. Digits stand alone, as
in the family.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from njax.demo.data.mixture import sample
from njax.demo.data.render import Renderer
from njax.demo.tokens import ADDED_TOKENS, PLAIN_TOKENS
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer

WORDS = (
    r" ?[\p{Ll}][\p{Ll}\p{M}]*|\p{Lu}[\p{Ll}\p{M}]*|[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEMPLATE = Path(__file__).parent.parent / "chat_template.jinja"


def chat_template() -> ChatTemplate:
    """The demo's own template."""
    return ChatTemplate(TEMPLATE.read_text(encoding="utf-8"))


def make_vocabulary(size: int, seed: int, samples: int = 16_000) -> str:
    """The text of a `tokenizer.json` with `size` ids, learned from training conversations."""
    return train_bpe(_texts(seed, samples), size)


def train_bpe(texts: Iterable[str], size: int, words: str = WORDS) -> str:
    """The text of a byte-level BPE tokenizer with `size` ids, the added tokens last.

    Args:
      texts: what the merges are learned from.
      words: pattern of the pieces that merges stay within.

    Raises:
      ValueError: the texts are too few for so many merges.
    """
    rust = RustTokenizer(BPE())
    rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    rust.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=size - len(ADDED_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rust.train_from_iterator(texts, trainer)
    rust.add_tokens(
        [
            AddedToken(token, normalized=False, special=token not in PLAIN_TOKENS)
            for token in ADDED_TOKENS
        ]
    )
    if rust.get_vocab_size() != size:
        raise ValueError(f"the texts give {rust.get_vocab_size()} tokens only, not {size}")
    return json.dumps(json.loads(rust.to_str()), ensure_ascii=False, indent=1) + "\n"


def make_renderer(tokenizer_json: str) -> Renderer:
    return Renderer(Tokenizer.from_json(tokenizer_json), chat_template())


def _texts(seed: int, samples: int) -> Iterator[str]:
    template = chat_template()
    for index in range(samples):
        # Long texts repeat what the shorter ones have.
        one = sample(seed, "train", index, "medium" if index % 8 == 0 else "short")
        yield template.render(one.messages, one.tools, add_generation_prompt=False, **one.options())
