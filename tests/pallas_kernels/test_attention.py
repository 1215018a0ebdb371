"""Paged attention against float64, with pages in any order and rubbish where nobody may look."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import attention_decode, attention_prefill
from pallas_kernels.attention import DECODE_IMPLEMENTATIONS, PREFILL_IMPLEMENTATIONS, reference
from tests.pallas_kernels.support import DTYPES, ROUNDING, assert_close, normal, run

jitted = functools.partial(jax.jit, static_argnames=("scale", "first", "implementation"))
prefill = jitted(attention_prefill)
decode = jitted(attention_decode)
by_prefill = pytest.mark.parametrize("implementation", PREFILL_IMPLEMENTATIONS)
by_decode = pytest.mark.parametrize("implementation", DECODE_IMPLEMENTATIONS)

# Hq, Hkv, D
SHAPES = [(1, 1, 16), (4, 2, 64), (3, 1, 48), (2, 2, 128)]
ERROR = 2.0**-17
"""Error of an output in units of the largest value: float32 scores of a few units in the exponent
and sums over some hundred tokens."""


def pools(
    seed: int, lengths: list[int], shape: tuple[int, int, int], dtype: Any, *, spare: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pages with NaN in every row that no sequence owns, and the page table [B, N]."""
    rng = np.random.default_rng(seed)
    _, hkv, d = shape
    longest = max(-(-n // 64) for n in lengths) + spare
    table = np.zeros((len(lengths), longest), np.int32)
    count = 1 + sum(-(-n // 64) for n in lengths) + 3
    free = list(rng.permutation(np.arange(1, count)))
    k, v = (np.full((count, hkv, 64, d), np.nan, np.float32) for _ in range(2))
    for b, length in enumerate(lengths):
        for page in range(-(-length // 64)):
            table[b, page] = free.pop()
            used = min(64, length - 64 * page)
            for pool in (k, v):
                pool[table[b, page], :, :used] = rng.standard_normal((hkv, used, d))
    return k.astype(dtype), v.astype(dtype), table


def close(actual: Any, expected: np.ndarray, largest: float) -> None:
    actual = np.asarray(actual)
    rounding = 1.01 * ROUNDING[actual.dtype.type]
    assert_close(actual, expected, ERROR * largest + rounding * np.abs(expected))


def check_prefill(
    shape: tuple[int, int, int],
    dtype: Any,
    start: list[int],
    lengths: list[int],
    t: int,
    implementation: str,
    *,
    seed: int = 0,
    scale: float | None = None,
    q_scale: float = 1.0,
) -> None:
    ends = [s + n for s, n in zip(start, lengths, strict=True)]
    k, v, table = pools(seed, ends, shape, dtype)
    rng = np.random.default_rng(seed + 1)
    q = normal(rng, len(start), t, shape[0], shape[2]) * np.float32(q_scale)
    args = q.astype(dtype), k, v, table, np.asarray(start, np.int32), np.asarray(lengths, np.int32)
    scale = shape[2] ** -0.5 if scale is None else scale
    out = run(prefill, *args, scale=scale, implementation=implementation)
    assert out.dtype == dtype
    assert np.isfinite(np.asarray(out)).all()
    expected = reference.attention_prefill(*args, scale=scale)
    out = np.asarray(out)
    for b, length in enumerate(lengths):
        close(out[b, :length], expected[b, :length], 5.0)


@by_prefill
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_prefill(shape: Any, dtype: Any, seed: int, implementation: str) -> None:
    check_prefill(shape, dtype, [128, 0], [128, 70], 128, implementation, seed=seed)


@by_prefill
def test_prefill_lengths(implementation: str) -> None:
    for t in (1, 63, 64, 65, 200):
        check_prefill((2, 1, 32), jnp.float32, [0], [t], t, implementation)
    # Starts need not be multiples of the page; lanes may have nothing to do.
    check_prefill((2, 1, 32), jnp.float32, [5, 200, 64], [64, 0, 3], 64, implementation)
    check_prefill((2, 1, 32), jnp.float32, [600], [8], 8, implementation)


@by_prefill
def test_prefill_extremes(implementation: str) -> None:
    shape = (2, 1, 32)
    check_prefill(shape, jnp.float32, [0], [64], 64, implementation, q_scale=0.0)
    check_prefill(shape, jnp.float32, [0], [64], 64, implementation, scale=0.0)
    check_prefill(shape, jnp.float32, [0], [64], 64, implementation, q_scale=2.0**-60)


@by_prefill
def test_a_sharp_softmax_picks_one_value(implementation: str) -> None:
    """Scores thousands apart give the value of the best token, without overflow."""
    k, v, table = pools(3, [100], (1, 1, 16), jnp.float32)
    page, row = table[0, 0], 37
    q = (k[page, 0, row] * 1000)[None, None, None]
    k[page, 0, row] *= 10
    args = q, k, v, table, np.asarray([99], np.int32), np.asarray([1], np.int32)
    out = run(prefill, *args, scale=1.0, implementation=implementation)
    close(np.asarray(out)[0, 0, 0], np.asarray(v[page, 0, row], np.float64), 5.0)


def check_decode(
    shape: tuple[int, int, int],
    dtype: Any,
    lengths: list[int],
    implementation: str,
    *,
    seed: int = 0,
    q_scale: float = 1.0,
) -> None:
    k, v, table = pools(seed, lengths, shape, dtype)
    q = normal(np.random.default_rng(seed + 1), len(lengths), shape[0], shape[2]) * np.float32(
        q_scale
    )
    args = q.astype(dtype), k, v, table, np.asarray(lengths, np.int32)
    scale = shape[2] ** -0.5
    out = run(decode, *args, scale=scale, implementation=implementation)
    assert out.dtype == dtype
    close(out, reference.attention_decode(*args, scale=scale), 5.0)
    assert not np.asarray(out)[np.asarray(lengths) == 0].any()


@by_decode
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_decode(shape: Any, dtype: Any, seed: int, implementation: str) -> None:
    check_decode(shape, dtype, [200, 0, 64, 65], implementation, seed=seed)


@by_decode
def test_decode_lengths_and_extremes(implementation: str) -> None:
    for lengths in ([0, 0], [1, 0], [63, 256], [257, 1000]):
        check_decode((2, 1, 32), jnp.float32, lengths, implementation)
    for q_scale in (0.0, 2.0**-60):
        check_decode((2, 1, 32), jnp.float32, [100], implementation, q_scale=q_scale)


def test_what_lies_before_the_first_position_is_not_seen() -> None:
    """Position 0 holds NaN: as if the sequence began at 1."""
    (hq, hkv, d), lengths = (4, 2, 64), [70, 2]
    k, v, table = pools(3, lengths, (hq, hkv, d), np.float32)
    for pool in (k, v):
        pool[table[:, 0], :, 0] = np.nan
    q = normal(np.random.default_rng(4), 2, 64, hq, d)
    start = np.array([6, 1])
    counts = np.array(lengths) - start
    out = prefill(q, k, v, table, start, counts, scale=0.1, first=1)
    rows = q[np.arange(2), counts - 1]
    newest = decode(rows, k, v, table, np.array(lengths), scale=0.1, first=1)
    for b, length in enumerate(lengths):
        keys, values = (
            pool[table[b]].swapaxes(1, 2).reshape(-1, hkv, d)[1:length].repeat(hq // hkv, axis=1)
            for pool in (k, v)
        )
        scores = np.einsum("hd,thd->ht", rows[b], keys.astype(np.float64)) * 0.1
        share = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected = np.einsum("ht,thd->hd", share / share.sum(axis=1, keepdims=True), values)
        close(newest[b], expected, 5.0)
        close(out[b, counts[b] - 1], expected, 5.0)


def test_shapes_that_do_not_fit_are_named() -> None:
    k, v, table = pools(0, [64], (2, 1, 32), jnp.float32)
    one = np.ones(1, np.int32)
    q = np.zeros((1, 64, 2, 32), np.float32)
    for wrong, message in (
        ((q[0], k, v, table, one, one), "q is"),
        ((q, k, v[:1], table, one, one), "pages are"),
        ((q, k, v, table[0], one, one), "page_table is"),
        ((q, k, v, table, np.ones(2, np.int32), one), "start is"),
        ((q, k, v, table, one, np.ones(2, np.int32)), "lengths is"),
        ((q[..., :16], k, v, table, one, one), "does not fit pages"),
    ):
        with pytest.raises(ValueError, match=f"attention_prefill: .*{message}"):
            attention_prefill(*wrong, scale=1.0)
    with pytest.raises(ValueError, match="attention_decode: q is"):
        attention_decode(q, k, v, table, one, scale=1.0)
