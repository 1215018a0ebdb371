"""Int8 pages: the codec, writing and attention, against float64 over the same codes."""

from __future__ import annotations

import functools
import re
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from pallas_kernels import append_kv, attention_decode, attention_prefill
from pallas_kernels.attention import (
    APPEND_IMPLEMENTATIONS,
    DECODE_IMPLEMENTATIONS,
    PREFILL_IMPLEMENTATIONS,
    Int8Pages,
    pages,
    reference,
)
from tests.pallas_kernels.support import DTYPES, assert_same_bits, normal, run
from tests.pallas_kernels.test_attention import SHAPES, close, pools

encode, decode = jax.jit(pages.encode), jax.jit(pages.decode)
append = functools.partial(jax.jit, static_argnames="implementation")(append_kv)
jitted = functools.partial(jax.jit, static_argnames=("scale", "implementation"))
prefill_op, decode_op = jitted(attention_prefill), jitted(attention_decode)

DIMS = [1, 16, 64, 96, 256]
SMALLEST = 2.0**-14
"""Float16 is subnormal below: scales lose precision."""


def same(actual: Int8Pages, expected: Int8Pages) -> None:
    assert_same_bits(actual.codes, expected.codes)
    assert_same_bits(actual.scales, expected.scales)


def rows(seed: int, dim: int, low: float, high: float, count: int = 64) -> np.ndarray:
    """Normal rows [count, dim] times powers of two between the exponents."""
    rng = np.random.default_rng(seed)
    return normal(rng, count, dim) * np.exp2(rng.uniform(low, high, (count, 1))).astype(np.float32)


@pytest.mark.parametrize("dim", DIMS)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(DTYPES))
def test_codec(dim: int, seed: int, dtype: Any) -> None:
    """The bits of the rule; the round trip is off by half a step, the clamp of a rounded-down scale
    and of a subnormal one included."""
    x = rows(seed, dim, -36, 20).astype(dtype)
    coded = encode(x)
    same(coded, reference.encode(x))
    groups = -(-dim // 64)
    assert coded.shape == x.shape and coded.scales.shape == (64, groups)
    back = np.asarray(decode(coded))
    assert_same_bits(back, reference.decode(coded).astype(np.float32))  # exact in float32
    step = np.repeat(wide_scales(coded), 64, -1)[:, :dim]
    bound = np.maximum(step / 2, 127 * 2.0**-25) * (1 + 2.0**-20)
    assert (np.abs(back - x.astype(np.float64)) <= bound).all()


def wide_scales(coded: Int8Pages) -> np.ndarray:
    return np.asarray(coded.scales).astype(np.float64)


@pytest.mark.parametrize("dim", DIMS)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_coding_what_was_decoded_changes_nothing(dim: int, seed: int) -> None:
    x = rows(seed, dim, -6, 20)
    coded = encode(x)
    hypothesis.assume((wide_scales(coded) >= SMALLEST).all())
    same(encode(decode(coded)), coded)


def test_zeros_and_extremes() -> None:
    x = np.zeros((8, 96), np.float32)
    x[1] = 2.0**-18  # the scale rounds to the smallest float16
    x[2] = 127 * 2.0**-25  # the scale rounds to zero
    x[3, :64], x[3, 64:] = 1e-3, -1e3  # groups do not see each other
    x[4] = 65504.0 * 127
    x[5, 0], x[6, 0], x[7, 0] = np.nan, np.inf, 3e38
    coded = encode(x)
    codes, back = np.asarray(coded.codes), np.asarray(decode(coded))
    assert not codes[0].any() and not back[0].any() and not wide_scales(coded)[0].any()
    assert wide_scales(coded)[1, 0] == 2.0**-24 and (codes[1] == 64).all()
    assert not back[2].any()
    np.testing.assert_allclose(back[3], x[3], rtol=1 / 254)
    assert (back[4] == x[4]).all()
    assert codes.min() == -127 and codes.max() == 127
    # What no scale can hold is seen, in its own group alone.
    assert np.isnan(back[5:, :64]).all() and not back[5:, 64:].any()


def test_rows_do_not_see_each_other() -> None:
    x = rows(0, 96, -10, 10, 300)
    whole = encode(x)
    for first, last in ((0, 1), (7, 9), (100, 300)):
        part = encode(x[first:last])
        same(part, jax.tree.map(lambda a, s=slice(first, last): a[s], whole))


def scrambled(rng: np.random.Generator, *shape: int) -> Int8Pages:
    """Pages of any codes and scales, NaN too: what was in memory before."""
    groups = (*shape[:-1], -(-shape[-1] // 64))
    scales = rng.integers(0, 1 << 16, groups).astype(np.uint16).view(np.float16)
    return Int8Pages(jnp.asarray(rng.integers(-128, 128, shape), jnp.int8), jnp.asarray(scales))


@pytest.mark.parametrize("implementation", APPEND_IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("t", "start", "lengths"),
    [(1, [0, 63, 64, 500], [0, 1, 0, 1]), (128, [0, 64, 130, 384], [128, 127, 65, 128])],
)
def test_append(
    t: int, start: list[int], lengths: list[int], dtype: Any, implementation: str
) -> None:
    rng = np.random.default_rng(t)
    pool = [scrambled(rng, 40, 2, 64, 80) for _ in range(2)]
    new = [normal(rng, 4, t, 2, 80, dtype=dtype) for _ in range(2)]
    table = rng.permutation(np.arange(1, 40))[:32].reshape(4, 8).astype(np.int32)
    args = *pool, *new, table, np.asarray(start, np.int32), np.asarray(lengths, np.int32)
    actual = run(append, *args, implementation=implementation)
    for got, wanted in zip(actual, reference.append_kv(*args), strict=True):
        same(*(jax.tree.map(lambda leaf: np.asarray(leaf)[1:], p) for p in (got, wanted)))


@pytest.mark.parametrize("implementation", APPEND_IMPLEMENTATIONS)
@pytest.mark.parametrize(("b", "t"), [(4, 1), (1, 512)])
def test_donated_pools_are_written_in_place(b: int, t: int, implementation: str) -> None:
    rng = np.random.default_rng(0)
    pool = [scrambled(rng, 3000, 2, 64, 64) for _ in range(2)]
    new = [normal(rng, b, t, 2, 64) for _ in range(2)]
    table = np.arange(1, 1 + b * 8, dtype=np.int32).reshape(b, 8)
    args = *pool, *new, table, jnp.zeros(b, jnp.int32), jnp.full(b, t)
    donating = jax.jit(append_kv, static_argnames="implementation", donate_argnums=(0, 1))
    compiled = run(donating.lower, *args, implementation=implementation).compile()
    pool_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(pool))
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= pool_bytes
    assert memory.temp_size_in_bytes < pool_bytes // 20
    assert not re.search(r"\[3000,2,64,\d+\]\S* (copy|convert)\(", compiled.as_text())
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(pool)]
    written = jax.tree.leaves(compiled(*args)[:2])
    assert [leaf.unsafe_buffer_pointer() for leaf in written] == pointers


def int8_pools(seed: int, lengths: list[int], shape: Any) -> tuple[Int8Pages, Int8Pages, Any]:
    """As `pools`: rows that no sequence owns decode to NaN."""
    k, v, table = pools(seed, lengths, shape, jnp.float32)
    return encode(k), encode(v), table


# The codes are given, so the bounds are those of the plain pools: float32 sums, one rounding.
@pytest.mark.parametrize("implementation", PREFILL_IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (2, 1, 96)])
def test_prefill(shape: Any, dtype: Any, implementation: str) -> None:
    k, v, table = int8_pools(0, [256, 70, 8], shape)
    q = normal(np.random.default_rng(1), 3, 128, shape[0], shape[2], dtype=dtype)
    lengths = np.asarray([128, 70, 0], np.int32)
    args = q, k, v, table, np.asarray([128, 0, 8], np.int32), lengths
    scale = shape[2] ** -0.5
    out = np.asarray(run(prefill_op, *args, scale=scale, implementation=implementation))
    assert out.dtype == dtype and np.isfinite(out.astype(np.float32)).all()
    expected = reference.attention_prefill(*args, scale=scale)
    for b, length in enumerate(lengths):
        close(out[b, :length], expected[b, :length], 5.0)


@pytest.mark.parametrize("implementation", DECODE_IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (2, 1, 96)])
def test_decode(shape: Any, dtype: Any, implementation: str) -> None:
    lengths = [200, 0, 64, 65, 600]
    k, v, table = int8_pools(0, lengths, shape)
    q = normal(np.random.default_rng(1), len(lengths), shape[0], shape[2], dtype=dtype)
    args = q, k, v, table, np.asarray(lengths, np.int32)
    scale = shape[2] ** -0.5
    out = run(decode_op, *args, scale=scale, implementation=implementation)
    assert out.dtype == dtype
    close(out, reference.attention_decode(*args, scale=scale), 5.0)
    assert not np.asarray(out)[1].any()


def test_the_pool_is_never_decoded_whole() -> None:
    k = jax.ShapeDtypeStruct((3000, 2, 64, 64), jnp.float32)
    k = jax.eval_shape(pages.encode, k)
    table, one = jnp.zeros((1, 8), jnp.int32), jnp.ones(1, jnp.int32)
    q = jnp.zeros((1, 4, 64), jnp.bfloat16)
    compiled = decode_op.lower(q, k, k, table, one, scale=0.125).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 3000 * 2 * 64 * 64 // 20


def test_pools_that_do_not_fit_are_named() -> None:
    k, v, table = int8_pools(0, [64], (2, 1, 96))
    q, one = np.zeros((1, 2, 96), np.float32), np.ones(1, np.int32)
    with pytest.raises(ValueError, match="one pool is int8, the other is not"):
        attention_decode(q, k, decode(v), table, one, scale=1.0)
    wrong = Int8Pages(v.codes, v.scales[..., :1])
    with pytest.raises(ValueError, match=r"scales are .*, expected \(\d+, 1, 64, 2\)"):
        attention_decode(q, k, wrong, table, one, scale=1.0)
