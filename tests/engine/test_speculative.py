"""Speculation: the tokens and the law of plain decoding, whatever is drafted."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from njax.cli.bench.spec import PLAIN, measure
from njax.config import EngineConfig
from njax.engine.engine import Engine
from njax.engine.logits import init_counts
from njax.engine.sampling import LaneSampling
from njax.engine.speculative import DraftRecord, choose_window, round_shape, round_shapes, verify
from njax.engine.types import GenerationRequest, SamplingParams
from njax.errors import StartupError
from tests.engine.conftest import ask, ask_together, random_prompt
from tests.tiny import load_tiny

CONTEXT = 1024


@pytest.fixture(scope="module")
def engines():
    """A model of two layers, decoding plainly and with drafts."""
    shape = {"max_context": CONTEXT, "prefill_chunk": 64}
    drafting = {
        "spec": "mtp", "draft_tokens": 2, "draft_lanes": 3, "prefix_cache_bytes": 64 << 20
    }  # fmt: skip
    with (
        Engine(load_tiny(layer_kinds=KINDS), EngineConfig(**shape)) as plain,
        Engine(load_tiny(mtp=True, layer_kinds=KINDS), EngineConfig(**shape, **drafting)) as spec,
    ):
        yield plain, spec


KINDS = ("delta", "attention")

# --- the law ---------------------------------------------------------------------------------

LANES, WORDS, LENGTH = 100_000, 4, 3


@pytest.mark.parametrize("draft", ["likeliest", "unlikeliest", "any"])
def test_chi_square_of_sequences(draft):
    """Three tokens of a Markov chain over four words, in rounds of at most two drafts."""
    rng = np.random.default_rng(5)
    table = jnp.asarray(rng.normal(size=(WORDS, WORDS)).astype(np.float32) * 1.5)
    lanes = LaneSampling.greedy(LANES).with_lane(0, SamplingParams())
    lanes.temperature[:] = 1.0
    lanes.seed[:] = rng.integers(0, 2**32, (LANES, 2), dtype=np.uint32)

    def guess(word: np.ndarray) -> np.ndarray:
        if draft == "any":
            return rng.integers(0, WORDS, LANES).astype(np.int32)
        order = np.argsort(np.asarray(table), axis=1)[:, -1 if draft == "likeliest" else 0]
        return order[word].astype(np.int32)

    @jax.jit
    def step(word, drafts, window, active, position):
        before = jnp.concatenate([word[:, None], drafts], axis=1)
        output, _ = verify(
            table[before], drafts, window, active, lanes, init_counts(LANES, WORDS), position
        )
        return output.token, output.count

    word, position = np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)
    written, taken = np.zeros((LANES, LENGTH), np.int32), []
    while (position < LENGTH).any():
        first = guess(word)
        drafts = np.stack([first, guess(first)], axis=1)
        window = np.clip(LENGTH - position - 1, 0, 2).astype(np.int32)
        active = position < LENGTH
        token, count = map(np.asarray, step(word, drafts, window, active, position))
        taken.append((count[active] - 1).sum() / max(1, window[active].sum()))
        for row in range(3):
            new = row < count
            written[new, position[new] + row] = token[new, row]
        word = np.where(count > 0, token[np.arange(LANES), np.maximum(count - 1, 0)], word)
        position = position + count
    chance = np.exp(np.asarray(table))
    chance /= chance.sum(axis=1, keepdims=True)
    expected, seen = [], []
    for path in itertools.product(range(WORDS), repeat=LENGTH):
        steps = zip((0, *path), path, strict=False)
        expected.append(LANES * np.prod([chance[a, b] for a, b in steps]))
        seen.append((written == path).all(axis=1).sum())
    assert stats.chisquare(seen, np.array(expected) * (LANES / np.sum(expected))).pvalue > 1e-3
    low, high = {"likeliest": (0.4, 0.9), "unlikeliest": (0.01, 0.1), "any": (0.1, 0.4)}[draft]
    assert low < taken[0] < high


# --- the window ------------------------------------------------------------------------------


def test_the_window_follows_acceptance():
    record = DraftRecord.of(5)
    assert choose_window(record, 5) == 5
    for _ in range(4):
        record.add(5, 5)
    assert record.drafted == record.accepted == [4] * 5 and choose_window(record, 5) == 5
    windows = []
    for _ in range(40):
        windows.append(choose_window(record, 5))
        record.add(windows[-1], 0)
    assert (
        windows == sorted(windows, reverse=True)[: windows.index(0)] + windows[windows.index(0) :]
    )
    assert 0 < windows[windows.index(0) :].count(1) < 4  # it tries again, seldom
    assert record.accepted == [4] * 5
    for _ in range(200):
        window = choose_window(record, 5)
        record.add(window, window)
    assert choose_window(record, 5) == 5


def test_options():
    def shapes(**options) -> tuple[tuple[int, int], ...]:
        return round_shapes(EngineConfig(spec="mtp", **options))

    assert shapes(draft_tokens=3, max_concurrency=1) == ((0, 1), (3, 1))
    wide = shapes(draft_tokens=5, draft_lanes=4, max_concurrency=16)
    assert wide == ((0, 16), (2, 1), (2, 4), (5, 1), (5, 4))
    asked = [(0, 1), (0, 16), (1, 1), (2, 2), (3, 4), (5, 1)]
    given = [(0, 16), (0, 16), (2, 1), (2, 4), (5, 4), (5, 1)]
    assert [round_shape(wide, *one) for one in asked] == given
    for wrong in ({"spec": "eagle"}, {"draft_tokens": 0}, {"draft_tokens": 6}, {"draft_lanes": 0}):
        with pytest.raises(StartupError):
            EngineConfig(**wrong)


# --- the engine ------------------------------------------------------------------------------

SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(seed=7, top_p=0.95),
    # Two words: the random drafts, which obey biases too, are right about half of the time.
    "two words": SamplingParams(
        seed=3, temperature=3.0, logit_bias=((300, 100.0), (400, 99.0)), logprobs=3
    ),
    "penalties": SamplingParams(
        temperature=0.0, logit_bias=((300, 99.0), (400, 100.0), (500, 98.0)),
        frequency_penalty=0.7, presence_penalty=0.5, repetition_penalty=1.1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLINGS)
def test_tokens_and_logprobs_of_plain_decoding(engines, name):
    rng = np.random.default_rng(11)
    plain, spec = engines
    for length in (1, 63, 64, 130):
        prompt = random_prompt(rng, length)
        want, got = (ask(e, prompt, 60, sampling=SAMPLINGS[name]) for e in (plain, spec))
        assert got.tokens == want.tokens and len(got.tokens) == 60
        assert got.text == want.text and got.end.reason == want.end.reason
        if SAMPLINGS[name].logprobs:
            pairs = zip(logprobs_of(got), logprobs_of(want), strict=True)
            assert all(a == pytest.approx(b, abs=1e-4) for a, b in pairs)
        drafts = got.usage.drafts
        assert drafts.drafted[0] and not want.usage.drafts.drafted
        assert all(a <= b for a, b in zip(drafts.accepted, drafts.drafted, strict=True))
        if name in ("two words", "penalties"):
            assert 0 < drafts.accepted[0] < drafts.drafted[0]


def logprobs_of(answer) -> list[float]:
    entries = [e for event in answer.events for e in getattr(event, "logprobs", ())]
    return [p for e in entries for p in (e.logprob, *(value for _, value in e.top))]


def test_ends_at_every_limit(engines):
    """Answers of 1 to 6 tokens, and up to the last place of the context."""
    rng = np.random.default_rng(12)
    plain, spec = engines
    prompt = random_prompt(rng, 62)
    want = ask(plain, prompt, 6).tokens
    for limit in range(1, 7):
        answer = ask(spec, prompt, limit)
        assert answer.tokens == want[:limit] and answer.end.reason == "output_limit"
    prompt = random_prompt(rng, CONTEXT - 7)
    answer = ask(spec, prompt, 50)
    assert answer.end.reason == "context_capacity" and len(answer.tokens) == 8
    assert answer.tokens == ask(plain, prompt, 8).tokens
    assert spec.stats()["pages_used"] == 0 and spec.stats()["compiles_after_ready"] == 0


def test_neighbours_do_not_matter(engines):
    """Three lanes draft, four do not; every lane writes what it writes alone."""
    rng = np.random.default_rng(13)
    plain, spec = engines
    prompts = [random_prompt(rng, int(length)) for length in rng.integers(1, 200, 4)]
    sampling = SAMPLINGS["two words"]
    for count in (3, 4):
        got = ask_together(spec, prompts[:count], 40, sampling=sampling)
        for prompt, answer in zip(prompts, got, strict=False):
            assert answer.tokens == ask(plain, prompt, 40, sampling=sampling).tokens
        # At the end of an answer there is nothing left to draft; more rounds without drafts come
        # from a crowd alone.
        idle = [answer.usage.drafts.rounds - answer.usage.drafts.drafted[0] for answer in got]
        assert max(idle) <= 1 if count == 3 else max(idle) > 5


def test_a_restored_snapshot_drafts_as_a_cold_prompt_does(engines):
    """Tail and pages come back as they were, also where entries share the pages before."""
    rng = np.random.default_rng(14)
    engine = engines[1]
    head = random_prompt(rng, 512)
    ask(engine, head[:256] + random_prompt(rng, 9), 1, frontiers=(256,))
    ask(engine, head + random_prompt(rng, 9), 1, frontiers=(256, 512))
    prompt = head + random_prompt(rng, 70)
    sampling = SAMPLINGS["two words"]
    warm = ask(engine, prompt, 60, sampling=sampling)
    cold = ask(engine, prompt, 60, sampling=sampling, reuse_prefix=False, capture_prefix=False)
    assert warm.usage.cached_tokens == 512 and cold.usage.cached_tokens == 0
    assert warm.tokens == cold.tokens and warm.usage.drafts == cold.usage.drafts


def test_usage_of_a_chat_answer_says_how_drafts_fared(engines):
    from litestar.testing import TestClient

    from server.app import create_app
    from server.settings import Settings

    plain, spec = engines
    body = {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 20,
        "temperature": 3, "seed": 3, "logit_bias": {"300": 100, "400": 99},
    }  # fmt: skip
    answers = []
    for engine in (plain, spec):
        with TestClient(create_app(engine, Settings(model_id="m"))) as client:
            answers.append(client.post("/v1/chat/completions", json=body).json())
    assert answers[0]["choices"] == answers[1]["choices"] and "timings" not in answers[0]
    timings = answers[1]["timings"]
    assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]
    assert timings["draft_n"] == sum(timings["draft_n_by_position"])
    assert timings["draft_n_accepted"] == sum(timings["draft_n_accepted_by_position"])
    totals = spec.stats()["drafts"]
    assert totals["draft_n"] >= timings["draft_n"] and plain.stats()["drafts"]["draft_n"] == 0


def test_bench_spec_measures_both_in_turn(engines):
    rng = np.random.default_rng(15)
    requests = [
        GenerationRequest(random_prompt(rng, 20), 12, SAMPLINGS["two words"], ignore_eos=True)
        for _ in range(3)
    ]
    said = []
    sides = dict(zip((PLAIN, "mtp 2"), engines, strict=True))
    found = measure(sides, requests, [1, 2], 2, lambda *what: said.append(what))
    assert [(one["lanes"], one["name"]) for one in found] == [
        (1, PLAIN), (1, "mtp 2"), (2, PLAIN), (2, "mtp 2")
    ]  # fmt: skip
    assert len(said) == 12 and said[-1][1:] == (12, 12)
    for one in found:
        assert one["same_answers"] and one["tokens"] == 33 and len(one["tokens_per_s"]) == 2
        if one["name"] == PLAIN:
            assert one["rounds"] == 0 and one["ratio"]["median"] == 1.0
        else:
            assert 0 < sum(one["accepted"]) == one["tokens"] - one["rounds"]
