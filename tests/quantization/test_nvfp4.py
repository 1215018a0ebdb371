"""The NVFP4 codec and quantizer against exhaustive enumeration and float64 arithmetic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.quantization import NVFP4Weight, dequantize_nvfp4, quantize_nvfp4
from njax.quantization.nvfp4 import GRID, dequantize_rows, global_scale, pack, quantize_rows, unpack

E4M3 = ml_dtypes.float8_e4m3fn
VALUES = np.concatenate([GRID, -GRID]).astype(np.float64)
seeds = st.integers(0, 2**32 - 1)


def parts(weight: NVFP4Weight):
    return [np.asarray(x) for x in (weight.codes, weight.scales, weight.global_scale)]


def random_matrix(seed: int, magnitude: float, blocks: float = 0.0) -> np.ndarray:
    """[8, 64] float32; `blocks` spreads the blocks' sizes over that many powers of two."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((8, 4, 16)) * 2.0 ** (-blocks * rng.random((8, 4, 1)))
    return (w.reshape(8, 64) * magnitude).astype(np.float32)


def test_decoding_is_exact_for_all_codes_and_scales():
    codes = np.tile(np.arange(16, dtype=np.uint8), (127, 1))
    scales = np.arange(127, dtype=np.uint8)[:, None]
    expected = VALUES[codes] * scales.view(E4M3).astype(np.float64)
    np.testing.assert_array_equal(dequantize_rows(pack(codes), scales, np.float32(1)), expected)


def test_packing_is_a_bijection_with_the_low_nibble_first():
    every = np.arange(256, dtype=np.uint8)[None]
    np.testing.assert_array_equal(pack(unpack(every)), every)
    np.testing.assert_array_equal(pack(np.array([[1, 2]], np.uint8)), [[0x21]])


@given(seeds, st.floats(1e-28, 1e30), st.floats(0, 20))
def test_requantising_changes_nothing(seed, magnitude, blocks):
    first = quantize_nvfp4(random_matrix(seed, magnitude, blocks))
    second = quantize_nvfp4(dequantize_nvfp4(first))
    for a, b in zip(parts(first), parts(second), strict=True):
        np.testing.assert_array_equal(a, b)


@given(seeds, st.integers(-90, 100), st.integers(1 << 17, (1 << 18) - 1))
def test_representable_values_survive(seed, exponent, significand):
    """Values that are code * scale * global_scale, with the largest code and scale in use."""
    rng = np.random.default_rng(seed)
    g = np.float32(significand * 2.0 ** (exponent - 17))
    codes = rng.integers(0, 16, (4, 32)).astype(np.uint8)
    codes[:, ::16] = 7  # every block uses its range, else a smaller scale is as good
    scales = rng.integers(0x20, 0x7F, (4, 2)).astype(np.uint8)
    scales[0, 0] = 0x7E
    w = dequantize_rows(pack(codes), scales, g)
    exact = VALUES[codes] * np.repeat(scales.view(E4M3).astype(np.float64), 16, 1) * float(g)
    np.testing.assert_array_equal(w, exact)
    again = quantize_nvfp4(w)
    assert np.asarray(again.global_scale) == g
    np.testing.assert_array_equal(np.asarray(again.scales), scales)
    np.testing.assert_array_equal(dequantize_nvfp4(again), w)


@given(seeds, st.floats(1e-25, 1e35), st.floats(0, 12))
def test_every_code_is_the_nearest_and_errors_are_bounded(seed, magnitude, blocks):
    w = random_matrix(seed, magnitude, blocks)
    codes, scales, g = parts(quantize_nvfp4(w))
    step = np.repeat(scales.view(E4M3).astype(np.float64), 16, axis=1) * float(g)
    got = VALUES[unpack(codes)] * step
    best = np.abs(w.astype(np.float64)[..., None] - VALUES * step[..., None]).min(-1)
    error = np.abs(w - got)
    assert (error <= best * (1 + 1e-6)).all()
    # Half the widest gap of the grid is 1/6 of its end; rounding the scale costs 2**-4 at most
    # (for a subnormal scale, half its smallest step: 2**-10 * 6).
    amax = np.repeat(np.abs(w.reshape(8, 4, 16)).max(-1), 16, axis=1).astype(np.float64)
    assert (error <= amax * (1 / 6) * (1 + 2**-4) + 6 * 2**-10 * float(g)).all()


@given(seeds)
def test_global_scale_is_amax_over_2688(seed):
    w = random_matrix(seed, 3.0)
    _, scales, g = parts(quantize_nvfp4(w))
    assert np.isclose(float(g), np.abs(w).max() / (6 * 448), rtol=2**-17, atol=0)
    assert scales.max() == 0x7E


def test_block_scales_round_to_nearest_even():
    rng = np.random.default_rng(0)
    w = np.abs(rng.standard_normal((64, 32))).astype(np.float32)
    w[0, 0] = 6 * 448 * 2.0**-9
    _, scales, g = parts(quantize_nvfp4(w))
    assert g == 2.0**-9
    amax = w.reshape(64, 2, 16).max(-1).astype(np.float64) / (6 * 2.0**-9)
    all_scales = np.arange(127, dtype=np.uint8).view(E4M3).astype(np.float64)
    distance = np.abs(amax[..., None] - all_scales)
    np.testing.assert_array_equal(scales, distance.argmin(-1))
    # A tie goes to the even neighbour: 17 is half-way between 16 (even) and 18, 19 between 18, 20.
    ties = np.zeros((3, 16), np.float32)
    ties[:, 0] = np.array([17, 19, 448]) * 6
    _, scales, g = parts(quantize_nvfp4(ties))
    assert g == 1
    np.testing.assert_array_equal(scales[:2].view(E4M3).astype(np.float32)[:, 0], [16, 20])


def test_ties_of_codes_go_to_even():
    w = np.zeros((1, 16), np.float32)
    w[0, :8] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6]
    w[0, 8:15] = -w[0, :7]
    codes, scales = quantize_rows(w, np.float32(1))
    np.testing.assert_array_equal(unpack(codes)[0, :8], [0, 2, 2, 4, 4, 6, 6, 7])
    np.testing.assert_array_equal(unpack(codes)[0, 8:15], [0, 10, 10, 12, 12, 14, 14])
    assert scales[0, 0] == 0x38


def test_zeros():
    weight = quantize_nvfp4(np.zeros((2, 32), np.float32))
    codes, scales, g = parts(weight)
    assert not codes.any() and not scales.any() and g == 1
    assert not dequantize_nvfp4(weight).any()
    w = np.ones((2, 32), np.float32)
    w[0, :16] = 0
    codes, scales, _ = parts(quantize_nvfp4(w))
    assert scales[0, 0] == 0 and scales[0, 1] != 0
    assert quantize_nvfp4(np.zeros((0, 16), np.float32)).shape == (0, 16)


@given(seeds, st.floats(-149, 127.9))
def test_tiny_and_huge_magnitudes_stay_finite(seed, exponent):
    w = random_matrix(seed, 1.0)
    w = (w / np.abs(w).max() * np.float64(2) ** exponent).astype(np.float32)
    weight = quantize_nvfp4(w)
    _, scales, g = parts(weight)
    assert np.isfinite(g) and g >= 2.0**-100
    assert (scales <= 0x7E).all()
    decoded = dequantize_nvfp4(weight)
    assert np.isfinite(decoded).all()
    assert (np.abs(decoded) <= np.abs(w).max() * 1.07 + 2.0**-109).all()


@pytest.mark.parametrize("largest", [np.finfo(np.float32).max, 1e38, 1.0, 2.0**-120])
def test_the_largest_product_never_overflows(largest):
    assert np.isfinite(np.float32(6 * 448) * global_scale(np.float32(largest)))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_other_floats_are_taken(dtype):
    w = random_matrix(0, 1.0).astype(dtype)
    for a, b in zip(
        parts(quantize_nvfp4(w)), parts(quantize_nvfp4(w.astype(np.float32))), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(4, 15), (4, 24), (16,), (2, 2, 16)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="multiple of 16"):
        quantize_nvfp4(np.ones(shape, np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad):
    w = np.ones((2, 16), np.float32)
    w[1, 3] = bad
    with pytest.raises(ValueError, match="finite"):
        quantize_nvfp4(w)
