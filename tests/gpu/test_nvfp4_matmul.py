"""`nvfp4_matmul` on the card: `pytest -m gpu tests/gpu`. Only here does the inline PTX run."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.nvfp4_matmul import nvfp4_matmul, pack, reference, unpack
from pallas_kernels.weights import NVFP4Weight
from tests.pallas_kernels.hopper.support import random_nvfp4
from tests.pallas_kernels.support import assert_close, assert_same_bits, normal, wide

pytestmark = pytest.mark.gpu

# n, k: one tile; both ragged; n smaller than a tile; the shapes of real projections, thinned.
MATRICES = [(128, 256), (1000, 5008), (100, 16), (2560, 5120), (5120, 6144), (640, 17408)]
SKINNY_ROWS = (1, 2, 5, 8, 16, 17, 33, 64)
WIDE_ROWS = (64, 65, 100, 128, 300, 1024)


@functools.cache
def case(n: int, k: int) -> tuple[NVFP4Weight, Any, np.ndarray]:
    """A weight, packed, and decoded in float64."""
    weight = random_nvfp4(np.random.default_rng(n + k), n, k)
    decoded = reference.decode(weight.codes, weight.scales, float(weight.global_scale))
    return weight, pack(weight), decoded


def check(x: jax.Array, packed: Any, decoded: np.ndarray, implementation: str) -> jax.Array:
    """Against float64, in both output dtypes, twice; returns the float32 result."""
    run = functools.partial(nvfp4_matmul, implementation=implementation)
    expected = wide(x) @ decoded.T
    # What float32 sums in any order, with the tensor cores' truncation, may lose.
    sizes = np.abs(wide(x)) @ np.abs(decoded).T
    y = run(x, packed, out_dtype=jnp.float32)
    assert_close(y, expected, 2.0**-18 * sizes + 1e-30)
    assert_same_bits(run(x, packed, out_dtype=jnp.float32), y)
    rounded = run(x, packed)
    assert rounded.dtype == jnp.bfloat16
    assert_same_bits(rounded, y.astype(jnp.bfloat16))
    return y


@pytest.mark.parametrize("n,k", MATRICES)
def test_skinny(n, k):
    _, packed, decoded = case(n, k)
    x = normal(np.random.default_rng(1), max(SKINNY_ROWS), k, dtype=jnp.bfloat16)
    every = check(x, packed, decoded, "hopper_skinny")
    for rows in SKINNY_ROWS:
        some = nvfp4_matmul(
            x[-rows:], packed, out_dtype=jnp.float32, implementation="hopper_skinny"
        )
        assert_same_bits(some, every[-rows:])


@pytest.mark.parametrize("n,k", MATRICES)
def test_wide(n, k):
    _, packed, decoded = case(n, k)
    x = normal(np.random.default_rng(2), max(WIDE_ROWS), k, dtype=jnp.bfloat16)
    every = check(x, packed, decoded, "hopper_wide")
    for rows in WIDE_ROWS:
        some = nvfp4_matmul(x[-rows:], packed, out_dtype=jnp.float32, implementation="hopper_wide")
        assert_same_bits(some, every[-rows:])


@pytest.mark.parametrize("implementation", ["hopper_skinny", "hopper_wide"])
@pytest.mark.parametrize("fill", ["zeros", "largest", "smallest", "large x", "tiny x"])
def test_extremes(implementation, fill):
    n, k, rows = 256, 512, 64
    rng = np.random.default_rng(3)
    signs = 0x08 * rng.integers(0, 2, (n, k // 2), np.uint8)
    codes = np.full((n, k // 2), 0x77, np.uint8) ^ signs  # 6 and minus 6
    scales = np.full((n, k // 16), 0x7E, np.uint8)  # 448
    x = normal(rng, rows, k, dtype=jnp.bfloat16)
    if fill == "zeros":
        scales[:, ::2] = 0
        x = x.at[::2].set(0)
    elif fill == "smallest":
        codes[:] = 0x91  # half and minus half
        scales[:] = 1  # 2**-9
    elif fill == "large x":
        x = x * jnp.bfloat16(2.0**100)
    elif fill == "tiny x":
        x = x * jnp.bfloat16(2.0**-90)
    weight = NVFP4Weight(jnp.asarray(codes), jnp.asarray(scales), jnp.float32(1))
    decoded = reference.decode(codes, scales, 1.0)
    check(x, pack(weight), decoded, implementation)


@pytest.mark.parametrize("implementation,rows", [("hopper_skinny", 3), ("hopper_wide", 100)])
def test_memory_around_the_result_is_untouched(implementation, rows):
    n, k = 1000, 1040
    _, packed, _ = case(n, k)
    x = normal(np.random.default_rng(4), rows, k, dtype=jnp.bfloat16)
    pattern = np.random.default_rng(5).integers(0, 2**16, (rows, n), dtype=np.uint16)
    # Results of the kernel land in the holes between the guards.
    buffers = [jax.device_put(pattern).block_until_ready() for _ in range(64)]
    guards = buffers[::2]
    del buffers
    results = [nvfp4_matmul(x, packed, implementation=implementation) for _ in range(16)]
    for guard in guards:
        assert_same_bits(guard, pattern)
    for result in results[1:]:
        assert_same_bits(result, results[0])


def test_the_default_choice_by_rows():
    """Fewer than 64 rows are the skinny kernel's, more the wide one's."""
    _, packed, _ = case(1000, 5008)
    x = normal(np.random.default_rng(6), 64, 5008, dtype=jnp.bfloat16)
    for rows, name in ((63, "hopper_skinny"), (64, "hopper_wide")):
        named = nvfp4_matmul(x[:rows], packed, implementation=name)
        assert_same_bits(nvfp4_matmul(x[:rows], packed), named)


def test_packing_on_the_card_is_the_same_bijection():
    weight, packed, _ = case(1000, 5008)
    back = unpack(packed)
    kept = jnp.where(jnp.repeat(weight.scales, 8, axis=1) == 0, jnp.uint8(0), weight.codes)
    assert_same_bits(back.codes, kept)
    assert_same_bits(back.scales, weight.scales)
