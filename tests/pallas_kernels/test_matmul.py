"""The three matmuls against float64, and the independence of their rows."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from pallas_kernels import (
    FP8Weight,
    NVFP4Weight,
    dense_matmul,
    fp8_matmul,
    nvfp4_matmul,
)
from pallas_kernels.dense_matmul import IMPLEMENTATIONS as DENSE
from pallas_kernels.dense_matmul import reference as dense_reference
from pallas_kernels.fp8_matmul import IMPLEMENTATIONS as FP8
from pallas_kernels.fp8_matmul import reference as fp8_reference
from pallas_kernels.nvfp4_matmul import IMPLEMENTATIONS as NVFP4
from pallas_kernels.nvfp4_matmul import reference as nvfp4_reference
from tests.pallas_kernels.support import (
    DTYPES,
    ROUNDING,
    assert_close,
    assert_same_bits,
    normal,
    run,
    wide,
)

KINDS = {"dense": DENSE, "nvfp4": NVFP4, "fp8": FP8}
CASES = [(kind, name) for kind, names in KINDS.items() for name in names]


def make_weight(kind: str, rng: np.random.Generator, n: int, k: int, dtype: Any) -> Any:
    if kind == "dense":
        return normal(rng, n, k, dtype=dtype)
    if kind == "fp8":
        return FP8Weight(normal(rng, n, k, dtype=jnp.float8_e4m3fn), np.abs(normal(rng, n)))
    return NVFP4Weight(
        rng.integers(0, 256, (n, k // 2), dtype=np.uint8),
        rng.integers(0, 127, (n, k // 16), dtype=np.uint8),
        np.float32(rng.uniform(0.001, 1)),
    )


def matrix(weight: Any) -> np.ndarray:
    """The weight as float64 [N, K], by the reference."""
    if isinstance(weight, NVFP4Weight):
        return nvfp4_reference.decode(weight.codes, weight.scales, float(weight.global_scale))
    if isinstance(weight, FP8Weight):
        return fp8_reference.fp8_matmul(np.eye(weight.shape[1]), weight.values, weight.scale).T
    return wide(weight)


@functools.partial(jax.jit, static_argnames=("out_dtype", "implementation"))
def matmul(x: jax.Array, weight: Any, implementation: Any = None, out_dtype: Any = None) -> Any:
    op: Any = dense_matmul
    if isinstance(weight, NVFP4Weight):
        op = nvfp4_matmul
    elif isinstance(weight, FP8Weight):
        op = fp8_matmul
    return op(x, weight, out_dtype=out_dtype, implementation=implementation)


def check(x: jax.Array, weight: Any, implementation: Any = None, out_dtype: Any = None) -> None:
    """Within the rounding of K float32 sums (in proportion to |x| |w|) and of the result."""
    actual = run(matmul, x, weight, implementation, out_dtype)
    out = out_dtype or x.dtype.type
    assert actual.dtype == out
    full = matrix(weight)
    expected = dense_reference.dense_matmul(x, full)
    sums = dense_reference.dense_matmul(np.abs(wide(x)), np.abs(full))
    tiny = float(jnp.finfo(jnp.float32).tiny)
    assert_close(actual, expected, 2.0**-20 * sums + ROUNDING[out] * 1.01 * np.abs(expected) + tiny)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "implementation"), CASES)
def test_against_float64(kind: str, implementation: str, dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for leading, n, k in (((1,), 8, 16), ((2, 3), 100, 48), ((65,), 33, 512), ((200,), 128, 192)):
        x = normal(rng, *leading, k, dtype=dtype)
        weight = make_weight(kind, rng, n, k, dtype)
        check(x, weight, implementation)
    check(x, weight, implementation, jnp.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_references_agree_with_the_decoded_matrix(kind: str) -> None:
    rng = np.random.default_rng(0)
    x, weight = normal(rng, 3, 32), make_weight(kind, rng, 5, 32, jnp.float32)
    expected = dense_reference.dense_matmul(x, matrix(weight))
    if isinstance(weight, NVFP4Weight):
        actual = nvfp4_reference.nvfp4_matmul(x, weight.codes, weight.scales, weight.global_scale)
    elif isinstance(weight, FP8Weight):
        actual = fp8_reference.fp8_matmul(x, weight.values, weight.scale)
    else:
        actual = dense_reference.dense_matmul(x, weight)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "implementation"), CASES)
def test_zeros_and_extreme_scales(kind: str, implementation: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    n, k = 24, 64
    weight = make_weight(kind, rng, n, k, dtype)
    assert not wide(run(matmul, jnp.zeros((4, k), dtype), weight, implementation)).any()
    for factor in (2.0**-60, 2.0**60):
        x = (normal(rng, 4, k) * np.float32(factor)).astype(dtype)
        check(x, weight, implementation, jnp.float32)


@pytest.mark.parametrize(("x_dtype", "w_dtype"), [DTYPES, DTYPES[::-1]])
def test_mixed_dtypes_multiply_in_the_wider_one(x_dtype: Any, w_dtype: Any) -> None:
    rng = np.random.default_rng(6)
    check(normal(rng, 5, 32, dtype=x_dtype), normal(rng, 20, 32, dtype=w_dtype))


def test_shapes_that_do_not_fit_are_named() -> None:
    rng = np.random.default_rng(8)
    x = normal(rng, 3, 32)
    for kind in KINDS:
        with pytest.raises(ValueError, match=rf"{kind}_matmul: x \(3, 32\) does not fit w"):
            matmul(x, make_weight(kind, rng, 4, 48, jnp.float32))
    weight = make_weight("nvfp4", rng, 4, 32, jnp.float32)
    with pytest.raises(ValueError, match="need scales"):
        matmul(x, NVFP4Weight(weight.codes, weight.scales[:, :1], weight.global_scale))
    with pytest.raises(ValueError, match="need scale"):
        matmul(x, FP8Weight(jnp.zeros((4, 32), jnp.float8_e4m3fn), jnp.ones(3)))


@pytest.mark.parametrize(("kind", "implementation"), CASES)
@hypothesis.settings(max_examples=6)
@hypothesis.given(data=st.data())
def test_a_row_does_not_know_the_others(
    kind: str, implementation: str, data: st.DataObject
) -> None:
    """Bits of a row: the same for any row count, position and neighbours."""
    dtype = data.draw(st.sampled_from(DTYPES))
    n = data.draw(st.integers(1, 12).map(lambda i: i * 8) | st.sampled_from([1, 2, 17, 384, 1000]))
    k = 16 * data.draw(st.integers(1, 40) | st.sampled_from([64, 128, 320, 512, 1024]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    weight = make_weight(kind, rng, n, k, dtype)
    x = normal(rng, 256, k, dtype=dtype)
    expected = np.asarray(run(matmul, x, weight, implementation, jnp.float32))
    for count in (1, 2, 4, 31, 65, 200):
        first = int(rng.integers(0, 256 - count + 1))
        part = x[first : first + count]
        assert_same_bits(
            matmul(part, weight, implementation, jnp.float32), expected[first : first + count]
        )
    others = (normal(rng, 256, k) * 100).astype(dtype)
    row = int(rng.integers(0, 256))
    others[row] = x[7]
    mixed = np.asarray(matmul(others, weight, implementation, jnp.float32))
    assert_same_bits(mixed[row], expected[7])
