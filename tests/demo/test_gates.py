"""What a numeric profile may cost the bundled model on answers of the held-out split, and what
drafts and seeds may: nothing.

Perplexity is over the tokens that the model has to write, where a right answer leaves it near 1, so
a small absolute change is a small number of wrong answers. Measured values are in MODEL_CARD.md;
the bounds are two to three times those.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from njax.config import EngineConfig
from njax.demo import load_demo
from njax.demo.data.held_out import held_out_lines
from njax.engine.engine import Engine
from njax.engine.types import Delta, Drafts, Event, Finished, GenerationRequest, SamplingParams
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


@pytest.fixture(scope="module")
def engines():
    """The served model, plain and with drafts."""
    shape = {"max_context": 2048, "prefill_chunk": 64, "prefix_cache_bytes": 1 << 28}
    with (
        Engine(load_demo(), EngineConfig(**shape)) as plain,
        Engine(load_demo(mtp=True), EngineConfig(**shape, spec="mtp", draft_tokens=3)) as spec,
    ):
        yield plain, spec


def request(engine, line) -> GenerationRequest:
    prompt = engine.render(line["messages"][:-1], line["tools"], **line["options"])
    return GenerationRequest(
        token_ids=tuple(prompt.token_ids),
        max_tokens=64,
        sampling=SamplingParams(temperature=0.0),
        frontiers=(*prompt.frontiers, prompt.live_turn),
    )


def test_speculative_greedy_is_plain(engines):
    """On the last question of held-out conversations."""
    plain, _ = engines
    tokens, drafts = 0, Drafts()
    for line in map(json.loads, held_out_lines(24)):
        asked = dataclasses.replace(request(plain, line), capture_prefix=False)
        want, got = (list(engine.generate(asked)) for engine in engines)
        assert answer_tokens(got) == answer_tokens(want)
        assert isinstance(got[-1], Finished)
        tokens, drafts = tokens + len(answer_tokens(got)), drafts + got[-1].usage.drafts
    assert tokens > 300
    assert sum(drafts.accepted) > 0.95 * sum(drafts.drafted) > 0
    assert drafts.accepted[2] > 0.9 * drafts.drafted[2] > 0


def test_seeded_is_cold(engines):
    """With drafts or without, also in how many of them are accepted; on prompts with long heads."""
    reused = 0
    for line in map(json.loads, held_out_lines(4, "medium")):
        for engine in engines:
            asked = request(engine, line)
            unseeded = dataclasses.replace(asked, reuse_prefix=False)
            cold, seeded = (list(engine.generate(one)) for one in (unseeded, asked))
            assert answer_tokens(seeded) == answer_tokens(cold)
            assert isinstance(cold[-1], Finished) and isinstance(seeded[-1], Finished)
            assert seeded[-1].usage.drafts == cold[-1].usage.drafts
            assert cold[-1].usage.cached_tokens == 0
            reused += seeded[-1].usage.cached_tokens
    assert reused > 1000


def answer_tokens(events: list[Event]) -> list[int]:
    return [token for e in events if isinstance(e, Delta) for token in e.token_ids]
