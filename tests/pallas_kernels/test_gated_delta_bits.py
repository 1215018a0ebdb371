"""Outputs and states of the delta rule are bit-equal however a prompt is cut, padded or batched."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st

from pallas_kernels import gated_delta_rule, gated_delta_step, gated_delta_window
from pallas_kernels.gated_delta import (
    RULE_IMPLEMENTATIONS,
    STEP_IMPLEMENTATIONS,
    WINDOW_IMPLEMENTATIONS,
)
from tests.pallas_kernels.support import DTYPES, assert_same_bits, normal, run

rule = functools.partial(jax.jit, static_argnames="implementation")(gated_delta_rule)
step = functools.partial(jax.jit, static_argnames="implementation")(gated_delta_step)
window = functools.partial(jax.jit, static_argnames="implementation")(gated_delta_window)

SHAPES = [(1, 1, 16, 16), (2, 4, 32, 16), (1, 3, 48, 80), (2, 2, 64, 64), (1, 2, 128, 128)]


def rows(seed: int, b: int, t: int, shape: tuple[int, ...], dtype: Any) -> list[np.ndarray]:
    """q, k, v, log_decay, beta of b sequences of t tokens."""
    rng = np.random.default_rng(seed)
    hk, hv, dk, dv = shape
    return [
        normal(rng, b, t, hk, dk, dtype=dtype),
        normal(rng, b, t, hk, dk, dtype=dtype),
        normal(rng, b, t, hv, dv, dtype=dtype),
        -np.abs(normal(rng, b, t, hv)),
        rng.uniform(0, 1, (b, t, hv)).astype(np.float32),
    ]


def states(seed: int, b: int, shape: tuple[int, ...]) -> np.ndarray:
    return normal(np.random.default_rng(seed), b, *shape[1:])


@pytest.mark.parametrize("implementation", RULE_IMPLEMENTATIONS)
@hypothesis.settings(max_examples=6)
@hypothesis.given(data=st.data())
def test_rule(implementation: str, data: st.DataObject) -> None:
    """One call, alone, without padding = any cut at blocks, each padded, beside others."""
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(st.sampled_from(SHAPES))
    total = data.draw(st.integers(1, 512))
    whole = -(-total // 64) * 64
    seed = data.draw(st.integers(0, 99))
    arrays, state = rows(seed, 1, whole, shape, dtype), states(seed, 1, shape)
    length = np.asarray([total], np.int32)
    expected, end = run(rule, *arrays, state, length, implementation=implementation)

    batch = data.draw(st.sampled_from([1, 3]))
    lane = data.draw(st.integers(0, batch - 1))
    carried: Any = states(7, batch, shape)
    carried[lane] = state[0]
    done, pieces = 0, []
    while done < total:
        bucket = data.draw(st.sampled_from([64, 128, 256, 512]))
        blocks = data.draw(st.integers(1, bucket // 64))
        count = min(64 * blocks, total - done)
        piece = rows(done, batch, bucket, shape, dtype)
        for mixed, x in zip(piece, arrays, strict=True):
            mixed[lane, :count] = x[0, done : done + count]
        lengths = np.asarray([0, 33, bucket][:batch], np.int32)
        lengths[lane] = count
        out, carried = rule(*piece, carried, lengths, implementation=implementation)
        pieces.append(np.asarray(out)[lane, :count])
        done += count
    assert_same_bits(np.concatenate(pieces), np.asarray(expected)[0, :total])
    assert_same_bits(carried[lane], end[0])


@pytest.mark.parametrize("implementation", STEP_IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_step_does_not_see_its_neighbours(
    shape: tuple[int, ...], dtype: Any, implementation: str
) -> None:
    """A lane's bits: the same in any place, beside anything, active or not."""
    b = 4
    first = [x[:, 0] for x in rows(1, b, 1, shape, dtype)]
    state = states(1, b, shape)
    expected, end = run(step, *first, state, np.ones(b, bool), implementation=implementation)
    second = [x[:, 0] for x in rows(2, b, 1, shape, dtype)]
    for lane in range(b):
        arrays = [y.copy() for y in second]
        for x, y in zip(first, arrays, strict=True):
            y[lane] = x[1]
        carried = states(2, b, shape) * 100
        carried[lane] = state[1]
        active = np.arange(b) == lane
        out, new = step(*arrays, carried, active, implementation=implementation)
        assert_same_bits(out[lane], expected[1])
        assert_same_bits(new[lane], end[1])
        for other in set(range(b)) - {lane}:
            assert_same_bits(new[other], carried[other])


@pytest.mark.parametrize("implementation", STEP_IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(1, 3, 24, 40), *SHAPES[1:]])
def test_step_does_not_depend_on_the_number_of_lanes(
    shape: tuple[int, ...], implementation: str
) -> None:
    """float32, so that rounding hides nothing."""
    b = 16
    arrays = [x[:, 0] for x in rows(4, b, 1, shape, np.float32)]
    arrays.append(states(4, b, shape))
    expected = run(step, *arrays, np.ones(b, bool), implementation=implementation)
    for count in (1, 2, 3, 8):
        part = [x[:count] for x in arrays]
        got = run(step, *part, np.ones(count, bool), implementation=implementation)
        for a, whole in zip(got, expected, strict=True):
            assert_same_bits(a, whole[:count])


@pytest.mark.parametrize("implementation", WINDOW_IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(1, 3, 24, 40), (2, 2, 64, 64), (1, 2, 128, 128)])
def test_a_window_is_as_many_steps(shape: tuple[int, ...], implementation: str) -> None:
    """Beside lanes that take fewer tokens, against single steps of one lane alone."""
    arrays, state = rows(3, 3, 4, shape, np.float32), states(3, 3, shape)
    lengths = np.asarray([4, 0, 3], np.int32)
    out, ends = run(window, *arrays, state, lengths, implementation=implementation)
    assert np.isfinite(out).all() and np.isfinite(ends).all()
    for lane, length in enumerate(lengths):
        carried = state[lane : lane + 1]
        for t in range(length):
            token = [x[lane : lane + 1, t] for x in arrays]
            single, carried = run(
                step, *token, carried, np.ones(1, bool), implementation=implementation
            )
            assert_same_bits(single[0], out[lane, t])
            assert_same_bits(carried[0], ends[t, lane])
