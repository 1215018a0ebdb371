"""What a numeric profile may cost the bundled model, on answers of the held-out split.

Perplexity is over the tokens that the model has to write, where a right answer leaves it near 1, so
a small absolute change is a small number of wrong answers. Measured values are in MODEL_CARD.md;
the bounds are two to three times those.
"""

from __future__ import annotations

import pytest

from njax.demo import load_demo
from njax.demo.data.held_out import held_out_lines
from njax.evaluation import Scorer, read_corpus, score_sequences, summarize
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer

WINDOW = {"size": 1024, "stride": 512}
CONVERSATIONS = 60


@pytest.fixture(scope="module")
def models():
    return load_demo("nvfp4"), load_demo("bfloat16")


@pytest.fixture(scope="module")
def original(models):
    return Scorer(models[1], WINDOW["size"])


@pytest.fixture(scope="module")
def sequences(models, tmp_path_factory):
    path = tmp_path_factory.mktemp("gates") / "held_out.jsonl"
    path.write_text("\n".join(held_out_lines(CONVERSATIONS)))
    template = ChatTemplate(models[0].chat_template, models[0].tokenizer_config)
    tokenizer = Tokenizer.from_json(models[0].tokenizer_json)
    return read_corpus(path, tokenizer, template, answers_only=True)


def test_nvfp4_against_bf16(models, original, sequences):
    quantised = Scorer(models[0], WINDOW["size"])
    figures = summarize(score_sequences(sequences, quantised, original, **WINDOW))
    assert figures["tokens"] > 1500
    assert 0 < figures["divergence_mean"] < 0.005
    assert figures["perplexity"] < 1.1 and figures["perplexity_ratio"] < 1.01
    assert figures["agreement"] > 0.99 and figures["top_1"] > 0.985


def test_int8_cache_against_bf16(models, original, sequences):
    rounded = Scorer(models[1], WINDOW["size"], kv_dtype="int8")
    figures = summarize(score_sequences(sequences, rounded, original, **WINDOW))
    assert 0 < figures["divergence_mean"] < 0.0005
    assert figures["perplexity_ratio"] < 1.002 and figures["agreement"] > 0.998
