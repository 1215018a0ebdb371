"""The quantised weight types: exact decoding, and their life as pytrees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import FP8Weight, NVFP4Weight, fp8_matmul, nvfp4_matmul
from pallas_kernels.nvfp4_matmul import reference
from pallas_kernels.weights import decode_nvfp4
from tests.pallas_kernels.support import DTYPES, assert_same_bits, wide


def every_code_and_scale() -> NVFP4Weight:
    """[127, 16]: row s holds all 16 codes under the scale with bits s."""
    byte = np.arange(0, 16, 2) | np.arange(1, 16, 2) << 4
    codes = np.broadcast_to(byte.astype(np.uint8), (127, 8))
    scales = np.arange(127, dtype=np.uint8)[:, None]
    return NVFP4Weight(jnp.asarray(codes), jnp.asarray(scales), jnp.float32(1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_code_and_scale_decodes_exactly(dtype: jnp.dtype) -> None:
    weight = every_code_and_scale()
    expected = reference.decode(weight.codes, weight.scales, 1.0)
    for decode in (decode_nvfp4, jax.jit(decode_nvfp4, static_argnums=1)):
        actual = decode(weight, dtype)
        assert actual.dtype == dtype
        np.testing.assert_array_equal(wide(actual), expected)
    # Negative zero is a code of its own.
    assert (np.signbit(wide(actual)) == (np.arange(16) >= 8)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_code_and_scale_passes_the_matmul_exactly(dtype: jnp.dtype) -> None:
    weight = every_code_and_scale()
    columns = nvfp4_matmul(jnp.eye(16, dtype=dtype), weight, out_dtype=jnp.float32)
    np.testing.assert_array_equal(
        wide(columns).T, reference.decode(weight.codes, weight.scales, 1.0)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_fp8_value_passes_the_matmul_exactly(dtype: jnp.dtype) -> None:
    bits = np.setdiff1d(np.arange(256), [0x7F, 0xFF]).astype(np.uint8)
    values = jax.lax.bitcast_convert_type(jnp.asarray(bits), jnp.float8_e4m3fn)[:, None]
    weight = FP8Weight(values, jnp.full(bits.size, 0.25))
    actual = fp8_matmul(jnp.ones((1, 1), dtype), weight, out_dtype=jnp.float32)
    np.testing.assert_array_equal(wide(actual)[0], wide(values)[:, 0] * 0.25)


def test_they_are_pytrees_with_a_logical_shape() -> None:
    fp4 = every_code_and_scale()
    fp8 = FP8Weight(jnp.zeros((4, 6), jnp.float8_e4m3fn), jnp.ones(4))
    assert fp4.shape == (127, 16)
    assert fp8.shape == (4, 6)
    for weight in (fp4, fp8):
        leaves, tree = jax.tree.flatten(weight)
        again = jax.jit(lambda w: w)(jax.tree.unflatten(tree, leaves))
        assert type(again) is type(weight)
        for a, b in zip(leaves, jax.tree.leaves(again), strict=True):
            assert_same_bits(a, b)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(fp4)]
    assert names == [".codes", ".scales", ".global_scale"]
    abstract = jax.eval_shape(lambda w: w, fp4)
    assert abstract.shape == (127, 16)
