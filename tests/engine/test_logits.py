"""Penalties, biases and log probabilities: the functions against NumPy, then the whole engine."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from njax.engine.logits import TokenCounts, adjust, count_token, log_probabilities
from njax.engine.sampling import LaneSampling
from njax.engine.types import MAX_BIASES, Delta, SamplingParams
from njax.errors import InvalidRequest
from tests.engine.conftest import ask, ask_together, random_prompt

VOCAB = 40
jitted = jax.jit(adjust)


def counts(generated: np.ndarray, prompt: np.ndarray) -> TokenCounts:
    return TokenCounts(generated=generated.astype(np.int32), prompt=prompt)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(repetition_penalty=1.3),
        SamplingParams(repetition_penalty=0.7),
        SamplingParams(presence_penalty=1.5),
        SamplingParams(frequency_penalty=-0.5),
        SamplingParams(logit_bias=((3, 2.5), (7, -100.0), (39, 0.25))),
        SamplingParams(
            repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.2,
            logit_bias=((0, 1.0),),
        ),
    ],
)  # fmt: skip
def test_adjustments_match_their_definition(params):
    rng = np.random.default_rng()
    logits = rng.normal(size=(2, VOCAB)).astype(np.float32)
    generated = rng.integers(0, 4, (2, VOCAB))
    prompt = rng.random((2, VOCAB)) < 0.3
    lanes = LaneSampling.greedy(2).with_lane(1, params)
    out = np.asarray(jitted(logits, lanes, counts(generated, prompt)))
    expected = logits[1].astype(np.float64)
    for token in range(VOCAB):
        value = expected[token]
        if generated[1, token] or prompt[1, token]:
            penalty = params.repetition_penalty
            value = value / penalty if value > 0 else value * penalty
        value -= params.presence_penalty * (generated[1, token] > 0)
        value -= params.frequency_penalty * generated[1, token]
        expected[token] = value + dict(params.logit_bias).get(token, 0.0)
    np.testing.assert_allclose(out[1], expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(out[0], logits[0], "a neighbour without penalties changed")


def test_bias_beyond_the_vocabulary_is_dropped():
    lanes = LaneSampling.greedy(1).with_lane(0, SamplingParams(logit_bias=((VOCAB, 5.0),)))
    logits = np.ones((1, VOCAB), np.float32)
    none = counts(np.zeros((1, VOCAB)), np.zeros((1, VOCAB), bool))
    np.testing.assert_array_equal(jitted(logits, lanes, none), logits)


def test_counting_leaves_idle_lanes_alone():
    start = counts(np.zeros((2, 5)), np.zeros((2, 5), bool))
    out = jax.jit(count_token)(start, np.array([3, 3], np.int32), np.array([True, False]))
    np.testing.assert_array_equal(out.generated, [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]])


def test_log_probabilities_match_numpy():
    rng = np.random.default_rng()
    logits = (3 * rng.normal(size=(3, VOCAB))).astype(np.float32)
    token = np.array([1, 5, 39], np.int32)
    lanes = LaneSampling.greedy(3).with_lane(0, SamplingParams(logprobs=3))
    out = jax.jit(log_probabilities)(logits, token, lanes)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
    np.testing.assert_allclose(out.chosen, exact[np.arange(3), token], rtol=1e-5)
    order = np.argsort(-exact, axis=-1, kind="stable")[:, :20]
    np.testing.assert_array_equal(out.top_ids, order)
    np.testing.assert_allclose(out.top, np.take_along_axis(exact, order, -1), rtol=1e-5)


@pytest.mark.parametrize(
    "bad",
    [
        {"repetition_penalty": 0.0}, {"presence_penalty": 2.5}, {"frequency_penalty": float("nan")},
        {"logit_bias": ((1, 101.0),)}, {"logit_bias": ((-1, 1.0),)},
        {"logit_bias": ((1, 1.0), (1, 2.0))}, {"logprobs": 21}, {"logprobs": -1},
        {"logit_bias": tuple((i, 0.5) for i in range(MAX_BIASES + 1))},
    ],
)  # fmt: skip
def test_bad_parameters_are_named(bad):
    (name,) = bad
    with pytest.raises(InvalidRequest, match=name):
        SamplingParams(**bad)


def test_a_banned_token_never_comes_and_a_forced_one_always(make_engine):
    engine = make_engine()
    prompt = tuple(range(30))
    free = ask(engine, prompt, max_tokens=12).tokens
    ban = SamplingParams(temperature=0.0, logit_bias=((free[0], -100.0),))
    assert free[0] not in ask(engine, prompt, max_tokens=12, sampling=ban).tokens
    force = SamplingParams(temperature=1.0, seed=3, logit_bias=((9, 100.0),))
    assert set(ask(engine, prompt, max_tokens=12, sampling=force).tokens) == {9}


def test_a_frequency_penalty_ends_a_loop_and_is_forgotten_with_the_lane(make_engine):
    engine = make_engine()
    prompt = tuple(range(30))
    force = ((9, 60.0),)
    looping = SamplingParams(temperature=0.0, logit_bias=force)
    tamed = SamplingParams(temperature=0.0, logit_bias=force, frequency_penalty=2.0)
    assert set(ask(engine, prompt, max_tokens=60, sampling=looping).tokens) == {9}
    for _ in range(6):  # more often than there are lanes: counts start anew each time
        answer = ask(engine, prompt, max_tokens=60, sampling=tamed).tokens
        assert answer[:20] == [9] * 20 and set(answer) != {9}


def test_repetition_penalty_sees_the_whole_prompt_also_when_seeded(make_engine):
    rng = np.random.default_rng()
    engine = make_engine(prefix_cache_bytes=256 << 20)
    head = random_prompt(rng, 300)
    sampling = SamplingParams(temperature=0.0, repetition_penalty=5.0)
    ask(engine, (*head, 1), max_tokens=1, frontiers=(300,))
    warm = ask(engine, (*head, 2), max_tokens=20, sampling=sampling)
    cold = ask(engine, (*head, 2), max_tokens=20, sampling=sampling, reuse_prefix=False)
    assert warm.usage.cached_tokens == 256 and warm.tokens == cold.tokens
    assert len(set(warm.tokens)) == len(warm.tokens), "a penalty of 5 forbids repeating"


def test_logprobs_come_with_their_tokens_and_only_where_asked(make_engine):
    engine = make_engine()
    sampling = SamplingParams(temperature=0.0, logprobs=4)
    answer = ask(engine, range(40), max_tokens=10, sampling=sampling)
    found = [entry for e in answer.events if isinstance(e, Delta) for entry in e.logprobs]
    assert [entry.token_id for entry in found] == answer.tokens
    for entry in found:
        assert len(entry.top) == 4 and entry.top[0] == (entry.token_id, entry.logprob)
        assert sorted(entry.top, key=lambda pair: -pair[1]) == list(entry.top)
        assert entry.logprob <= 0
    silent, loud = ask_together(engine, [range(40), range(40)], max_tokens=3)
    assert silent.tokens == loud.tokens == answer.tokens[:3]
    assert not any(e.logprobs for e in silent.events if isinstance(e, Delta))
