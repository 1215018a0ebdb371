"""The causal convolution against float64; splits, padding and neighbours leave the bits alone."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from pallas_kernels import causal_conv
from pallas_kernels.causal_conv import IMPLEMENTATIONS, reference
from tests.pallas_kernels.support import (
    DTYPES,
    ROUNDING,
    assert_close,
    assert_same_bits,
    normal,
    run,
    wide,
)

pytestmark = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
conv = functools.partial(jax.jit, static_argnames="implementation")(causal_conv)


def inputs(
    seed: int, b: int, t: int, c: int, w: int, dtype: Any, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, weight, state = (normal(rng, *s) for s in ((b, t, c), (c, w), (b, w - 1, c)))
    scale = np.float32(scale)
    return (x * scale).astype(dtype), weight.astype(dtype), (state * scale).astype(dtype)


def check(arrays: Any, lengths: list[int], implementation: str) -> None:
    """Outputs within 2**-19 of the sum of |products| and one rounding; the state exactly."""
    x, weight, state = arrays
    y, new_state = run(conv, *arrays, jnp.asarray(lengths), implementation=implementation)
    assert y.dtype == x.dtype and new_state.dtype == state.dtype
    expected, expected_state = reference.causal_conv(x, weight, state, np.asarray(lengths))
    products = np.abs(np.concatenate([wide(state), wide(x)], axis=1))
    w = weight.shape[1]
    sums = sum(products[:, i : i + x.shape[1]] * np.abs(wide(weight))[:, i] for i in range(w))
    bound = 2.0**-19 * sums + 1.01 * ROUNDING[x.dtype.type] * np.abs(expected) + 1e-37
    y = np.asarray(y)
    for b, length in enumerate(lengths):
        assert_close(y[b, :length], expected[b, :length], bound[b, :length])
    np.testing.assert_array_equal(wide(new_state), expected_state)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
def test_against_float64(dtype: Any, seed: int, implementation: str) -> None:
    for t in (1, 2, 63, 64, 65, 200):
        check(inputs(seed, 2, t, 40, 4, dtype), [t, t // 2], implementation)
    check(inputs(seed, 1, 64, 33, 2, dtype), [64], implementation)
    check(inputs(seed, 3, 64, 16, 7, dtype), [3, 6, 64], implementation)


@pytest.mark.parametrize("scale", [0.0, 2.0**-60, 2.0**40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_extreme_scales(dtype: Any, scale: float, implementation: str) -> None:
    check(inputs(3, 2, 64, 24, 4, dtype, scale), [64, 5], implementation)


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_rows_reach_back_into_the_old_state(dtype: Any, implementation: str) -> None:
    arrays = inputs(4, 5, 64, 24, 4, dtype)
    check(arrays, [0, 1, 2, 3, 4], implementation)
    _, state = run(conv, *arrays, jnp.arange(5), implementation=implementation)
    assert_same_bits(state[0], arrays[2][0])
    assert_same_bits(state[1], np.concatenate([arrays[2][1, 1:], arrays[0][1, :1]]))


def test_what_lies_behind_the_length_does_not_matter(implementation: str) -> None:
    x, weight, state = inputs(5, 2, 64, 24, 4, jnp.float32)
    lengths = jnp.asarray([10, 0])
    y, new = run(conv, x, weight, state, lengths, implementation=implementation)
    x[0, 10:] = x[1] = np.nan
    y_nan, new_nan = conv(x, weight, state, lengths, implementation=implementation)
    assert_same_bits(y_nan[0, :10], y[0, :10])
    assert_same_bits(new_nan, new)


@hypothesis.settings(max_examples=8)
@hypothesis.given(data=st.data())
def test_splits_buckets_and_neighbours(implementation: str, data: st.DataObject) -> None:
    """A sequence in one call, alone = in any pieces, each padded, beside others."""
    dtype = data.draw(st.sampled_from(DTYPES))
    c = data.draw(st.sampled_from([16, 24, 33, 100, 160, 257]))
    total = data.draw(st.integers(1, 200))
    x, weight, state = inputs(data.draw(st.integers(0, 99)), 1, total, c, 4, dtype)
    length = np.asarray([total], np.int32)
    expected, end = run(conv, x, weight, state, length, implementation=implementation)
    others, _, other_states = inputs(7, 3, 256, c, 4, dtype)
    lane = data.draw(st.integers(0, 2))
    states: Any = other_states
    states[lane] = state[0]
    done, pieces = 0, []
    while done < total:
        bucket = data.draw(st.sampled_from([1, 64, 128, 256]))
        count = data.draw(st.integers(1, min(bucket, total - done)))
        batch = others[:, :bucket].copy()
        batch[lane, :count] = x[0, done : done + count]
        lengths = np.asarray([min(i, bucket) for i in (5, 1, 77)], np.int32)
        lengths[lane] = count
        y, states = conv(batch, weight, states, lengths, implementation=implementation)
        pieces.append(np.asarray(y)[lane, :count])
        done += count
    assert_same_bits(np.concatenate(pieces), np.asarray(expected)[0])
    assert_same_bits(states[lane], end[0])


def test_shapes_that_do_not_fit_are_named(implementation: str) -> None:
    x, weight, state = inputs(0, 2, 8, 16, 4, jnp.float32)
    with pytest.raises(ValueError, match="causal_conv: weight"):
        causal_conv(x, weight[:8], state, jnp.zeros(2, jnp.int32), implementation=implementation)
    with pytest.raises(ValueError, match="causal_conv: expected state"):
        causal_conv(x, weight, state[:, :2], jnp.zeros(2, jnp.int32), implementation=implementation)
