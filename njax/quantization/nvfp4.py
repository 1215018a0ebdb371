"""NVFP4: 4-bit codes (E2M1), one E4M3 scale per 16 elements along K, one float32 scale a matrix.

value = e2m1(code) * e4m3(scale) * global_scale. The quantizer runs on the host in NumPy, so that a
checkpoint has the same bits wherever it was converted:

* global_scale = amax / (6 * 448), so that the largest element is 6 (the largest code) times 448
  (the largest block scale); cut to 18 significant bits (a relative change below 2**-17), which
  makes every product code * scale * global_scale exact in float32; and not below 2**-100, which
  keeps all of them normal numbers.
* scale = amax of the block / (6 * global_scale), rounded to nearest even. At the very bottom of
  E4M3, where its steps are as large as its numbers, two rules keep the error small: a block that
  does not round to zeros gets at least the smallest scale, and from 7/6 of it on (half-way between
  the elements 6 * 1 and 4 * 2) the second smallest. A block of zeros has scale 0.
* code = element / (scale * global_scale), rounded to the nearest value of the grid, ties to the
  even code.

With these rules quantising decoded values again gives the same codes and scales.

An all-zero matrix gets global scale 1 and zero scales.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from pallas_kernels.weights import NVFP4_GROUP, NVFP4Weight

GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""Magnitudes of codes 0 to 7; bit 3 is the sign."""

_E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
_MAX_SCALE = np.float32(448)
_MIN_SCALE = np.float32(2.0**-9)
_MIN_GLOBAL = np.float32(2.0**-100)

Array = np.ndarray[Any, Any]


def quantize_nvfp4(w: Any) -> NVFP4Weight:
    """Quantises a matrix.

    Args:
      w: [N, K] floating point, all finite, K % 16 == 0.

    Raises:
      ValueError: another shape, or an element that is not finite.
    """
    w = np.asarray(w)
    if w.ndim != 2 or w.shape[1] % NVFP4_GROUP:
        raise ValueError(
            f"NVFP4 needs a matrix [N, K] with K a multiple of {NVFP4_GROUP}, got {list(w.shape)}"
        )
    w = w.astype(np.float32)
    if not np.isfinite(w).all():
        raise ValueError("NVFP4 needs finite elements")
    scale = global_scale(np.abs(w).max(initial=0))
    codes, scales = quantize_rows(w, scale)
    return NVFP4Weight(jnp.asarray(codes), jnp.asarray(scales), jnp.asarray(scale))


def dequantize_nvfp4(weight: NVFP4Weight) -> Array:
    """The values as float32 [N, K]; exact for weights that `quantize_nvfp4` made."""
    return dequantize_rows(
        np.asarray(weight.codes), np.asarray(weight.scales), np.asarray(weight.global_scale)
    )


def global_scale(amax: Any) -> np.float32:
    """The matrix scale for a largest magnitude `amax` >= 0."""
    if amax == 0:
        return np.float32(1)
    exact = np.float32(amax) / np.float32(6 * 448)
    cut = np.float32((exact.view(np.uint32) & np.uint32(0xFFFFFFC0)).view(np.float32))
    return max(cut, _MIN_GLOBAL)


def quantize_rows(w: Array, scale: np.float32) -> tuple[Array, Array]:
    """Quantises rows under a given matrix scale.

    Args:
      w: float32 [R, K].

    Returns:
      codes uint8 [R, K/2], scales uint8 [R, K/16].
    """
    blocks = w.reshape(w.shape[0], w.shape[1] // NVFP4_GROUP, NVFP4_GROUP)
    amax = np.abs(blocks).max(axis=-1)
    ratio = np.minimum(amax / (np.float32(6) * scale), _MAX_SCALE)
    second = (ratio >= _MIN_SCALE * np.float32(7 / 6)) & (ratio < 2 * _MIN_SCALE)
    ratio = np.where(second, 2 * _MIN_SCALE, np.maximum(ratio, _MIN_SCALE))
    steps = np.where(amax > 0, ratio, np.float32(0)).astype(_E4M3)
    divisor = steps.astype(np.float32) * scale
    codes = _encode(blocks / np.where(divisor > 0, divisor, np.float32(1))[..., None])
    empty = ((codes & 7) == 0).all(axis=-1)
    scales = np.where(empty, np.uint8(0), steps.view(np.uint8))
    return pack(codes.reshape(w.shape)), scales


def dequantize_rows(codes: Array, scales: Array, scale: Any) -> Array:
    """float32 [R, K] of packed codes [R, K/2] and scale bits [R, K/16]."""
    nibbles = unpack(codes)
    values = np.where(nibbles & 8, -GRID[nibbles & 7], GRID[nibbles & 7])
    steps = scales.view(_E4M3).astype(np.float32)
    blocks = values.reshape(*scales.shape, NVFP4_GROUP) * steps[..., None]
    return (blocks * np.float32(scale)).reshape(nibbles.shape)


def pack(codes: Array) -> Array:
    """Codes uint8 [R, K] below 16 -> bytes uint8 [R, K/2]; the low nibble is the smaller K."""
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def unpack(packed: Array) -> Array:
    """Inverse of `pack`."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def _encode(x: Array) -> Array:
    """Nearest codes (uint8) of float32 values; beyond 6 saturates; a zero gets code 0."""
    magnitude = np.abs(x)
    # Half-way points of the grid; ">=" where the tie goes up to the even code, ">" where down.
    code = (magnitude > 0.25).astype(np.uint8)
    for up, point in enumerate((0.75, 1.25, 1.75, 2.5, 3.5, 5.0)):
        code += magnitude >= point if up % 2 == 0 else magnitude > point
    return code | ((x < 0) & (code > 0)).astype(np.uint8) << 3
