"""Quantised weights as value types: frozen pytrees that an op can take in place of an array.

Both describe a matrix of logical shape [N, K] (rows are outputs) and never hold it decoded.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

NVFP4_GROUP = 16
"""Elements along K that share one block scale."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NVFP4Weight:
    """A matrix in NVFP4: value = e2m1(code) * e4m3(scale) * global_scale.

    Attributes:
      codes: uint8 [N, K/2], two 4-bit codes a byte, the low nibble is the smaller K index. A code
        is sign (bit 3) and one of the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 (bits 0 to 2).
      scales: uint8 [N, K/16], the bits of a non-negative finite float8_e4m3fn.
      global_scale: float32 [], a multiplier.
    """

    codes: jax.Array
    scales: jax.Array
    global_scale: jax.Array

    @property
    def shape(self) -> tuple[int, int]:
        """Logical (N, K)."""
        return self.codes.shape[0], 2 * self.codes.shape[1]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FP8Weight:
    """A matrix in FP8 with one scale a row: value[n, k] = values[n, k] * scale[n].

    Attributes:
      values: float8_e4m3fn [N, K].
      scale: float32 [N], a multiplier.
    """

    values: jax.Array
    scale: jax.Array

    @property
    def shape(self) -> tuple[int, int]:
        """Logical (N, K)."""
        return self.values.shape[0], self.values.shape[1]


def decode_nvfp4(weight: NVFP4Weight, dtype: jnp.dtype) -> jax.Array:
    """code * block scale as `dtype` [N, K], without the global scale; exact, see the halves."""
    halves = decode_nvfp4_halves(weight, dtype)
    return jnp.stack(halves, axis=-1).reshape(weight.shape)


def decode_nvfp4_halves(weight: NVFP4Weight, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """code * block scale of the even and of the odd columns, `dtype` [N, K/2] each.

    Without the global scale. Exact in bfloat16 and float32: the product has at most 6 significant
    bits and is 0 or lies between 2**-10 and 2688.
    """
    n, k = weight.shape
    byte = weight.codes.reshape(n, k // NVFP4_GROUP, NVFP4_GROUP // 2).astype(jnp.uint32)
    scale = jax.lax.bitcast_convert_type(weight.scales, jnp.float8_e4m3fn).astype(jnp.float32)
    half_scale = (scale * 0.5)[..., None]

    def values(code: jax.Array) -> jax.Array:
        # Twice the magnitude is an integer below 16: the eight of them are the nibbles of one
        # constant, which vectorises where a table lookup would be a gather.
        doubled = (jnp.uint32(0xC8643210) >> ((code & 7) << 2)) & 15
        magnitude = doubled.astype(jnp.int32).astype(jnp.float32) * half_scale
        bits = jax.lax.bitcast_convert_type(magnitude, jnp.uint32) | ((code & 8) << 28)
        return jax.lax.bitcast_convert_type(bits, jnp.float32).astype(dtype).reshape(n, k // 2)

    return values(byte & 15), values(byte >> 4)
