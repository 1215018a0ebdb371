"""The sampler against its definition in NumPy, and its independence of everything else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from njax.engine.sampling import LaneSampling, sample
from njax.engine.types import SamplingParams
from njax.errors import InvalidRequest

jitted = jax.jit(sample)


def expected_distribution(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The distribution of the issue's rules, in float64, by the slow direct way."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if params.top_k:
        order = order[: params.top_k]
    scaled = logits[order].astype(np.float64) / params.temperature
    weight = np.exp(scaled - scaled[0])
    kept, mass = [], 0.0
    for rank, token in enumerate(order):
        if weight[rank] >= params.min_p and mass < params.top_p * weight.sum():
            kept.append((token, weight[rank]))
        mass += weight[rank]
    result = np.zeros(len(logits))
    for token, w in kept:
        result[token] = w
    return result / result.sum()


def lanes(params: SamplingParams, count: int, seeds: bool = True) -> LaneSampling:
    state = LaneSampling.greedy(count)
    for lane in range(count):
        state = state.with_lane(lane, params)
        if seeds:
            state.seed[lane] = (0, lane)
    return state


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.5),
        SamplingParams(top_k=3),
        SamplingParams(top_p=0.6),
        SamplingParams(min_p=0.2),
        SamplingParams(temperature=1.7, top_k=9, top_p=0.8, min_p=0.05),
        SamplingParams(top_p=1e-9),
        SamplingParams(top_k=1000),
    ],
)
def test_frequencies_match_the_definition(params):
    rng = np.random.default_rng()
    logits = rng.normal(size=12).astype(np.float32) * 2
    logits[3] = logits[7]  # a tie
    draws = 20_000
    chunk = 2_000
    state = lanes(params, chunk)
    counts = np.zeros(12)
    for start in range(0, draws, chunk):
        tokens = jitted(np.tile(logits, (chunk, 1)), state, np.full(chunk, start, np.int32))
        counts += np.bincount(np.asarray(tokens), minlength=12)
    expected = expected_distribution(logits, params)
    assert counts[expected == 0].sum() == 0
    live = expected > 0
    chi = ((counts[live] - draws * expected[live]) ** 2 / (draws * expected[live])).sum()
    # 5 sigma above the mean of a chi-square with `freedom` degrees.
    freedom = live.sum() - 1
    assert chi <= freedom + 5 * np.sqrt(2 * max(freedom, 1)) + 1e-9


def test_greedy_takes_the_lowest_of_equal_ids():
    logits = np.zeros((2, 9), np.float32)
    logits[0, [4, 6]] = 1.0
    assert jitted(logits, LaneSampling.greedy(2), np.zeros(2, np.int32)).tolist() == [4, 0]


def test_draw_depends_on_seed_and_index_alone():
    rng = np.random.default_rng()
    logits = rng.normal(size=(1, 300)).astype(np.float32)
    params = SamplingParams(temperature=1.0, seed=2**63 + 12345)

    def draw(lane: int, count: int, index: int) -> int:
        state = LaneSampling.greedy(count).with_lane(lane, params)
        rows = rng.normal(size=(count, 300)).astype(np.float32)
        rows[lane] = logits
        return int(jitted(rows, state, np.full(count, index, np.int32))[lane])

    alone = [draw(0, 1, index) for index in range(20)]
    assert alone == [draw(2, 4, index) for index in range(20)]
    assert len(set(alone)) > 1


def test_unseeded_lanes_differ():
    first = LaneSampling.greedy(1).with_lane(0, SamplingParams())
    second = LaneSampling.greedy(1).with_lane(0, SamplingParams())
    assert not np.array_equal(first.seed, second.seed)


def test_strict_dtypes_and_types():
    logits = jnp.zeros((1, 5), jnp.float32)
    assert jitted(logits, lanes(SamplingParams(), 1), np.zeros(1, np.int32)).dtype == jnp.int32


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1.0}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"temperature": 10**400}, {"min_p": -(10**400)},
        {"top_p": 0.0}, {"top_p": 1.1}, {"top_p": float("nan")}, {"min_p": -0.1}, {"min_p": 2.0},
        {"top_k": -1}, {"seed": -1}, {"seed": 2**64},
    ],
)  # fmt: skip
def test_bad_parameters_are_named(bad):
    (name,) = bad
    with pytest.raises(InvalidRequest, match=name) as error:
        SamplingParams(**bad)
    assert error.value.param == name
