"""The device layout of an NVFP4 weight for the Hopper kernels: a pure permutation of its bits.

Why not the canonical bytes: a tensor-core operand must reach registers as bfloat16 pairs, and on
Hopper 4-bit floats have no hardware conversion. In this layout a lane turns one 32-bit word into
eight bfloat16 with nine integer instructions, without a shuffle, and finds one scale for sixteen
weights.

**A word** holds the 8 codes of 8 consecutive k, pair `q` being codes 2q and 2q+1, one for each half
of a bfloat16x2 register. A code s e1 e0 m must end with s at bit 15 and e1 e0 m at bits 8, 7, 6 of
its half: that bfloat16 is exactly the value times 2**-126 (codes 0 and 0.5 as zero and subnormal).
So pairs 0, 1, 2 are `rotl(word, 6 | 2 | 28) & 0x81C081C0` and pair 3, whose fields must fill the
gaps, is `(word & 0x81808180) | (rotl(word, 8) & 0x00400040)`.

**A scale byte** is the e4m3 scale s as an unsigned E5M3 number (bias 10, never subnormal):
`(byte << 4) + 0x7580` are the bits of the bfloat16 s * 2**118, whose product with the pair above
is value * s * 2**-8, exactly. A zero scale has no such form: byte 0, and all codes of its group 0.

**Memory**: matrices are cut into tiles of 128 rows x 256 k, padded with zeros, and a tile is
contiguous, so that a block's share of a matrix is one sequential stream without tensor maps.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels.weights import NVFP4Weight

ROWS = 128
"""Rows (output features) of a tile."""

DEPTH = 256
"""k of a tile."""

VALUE_SCALE = 2.0**8
"""What a sum over unpacked weights must be multiplied by (besides the global scale)."""

# Left rotation that brings each pair of a word home; pair 3 is put together from two parts.
ROTATIONS = (6, 2, 28)
_SIGN, _MAGNITUDE = 0x8000, 0x01C0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PackedNVFP4Weight:
    """An NVFP4 matrix of logical shape [n, k] in the layout described in this module.

    Attributes:
      words: uint32 [ceil(n/128), ceil(k/256), 2, 128, 16]; the last axes of a tile are half of the
        depth, row, and 4 x 2 x 2 for (16-group of a 64-group, 64-group, word of the 16-group).
      scales: uint8 [ceil(n/128), ceil(k/256), 128, 16]; the last axis is 4 x 2 x 2 for (16-group of
        a 64-group, half of the depth, 64-group).
      global_scale: float32 [], a multiplier.
      n, k: logical size.
    """

    words: jax.Array
    scales: jax.Array
    global_scale: jax.Array
    n: int = dataclasses.field(metadata={"static": True})
    k: int = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """Logical (n, k)."""
        return self.n, self.k


def _rotl(x: jax.Array, by: int) -> jax.Array:
    by %= 32
    return x if by == 0 else (x << by) | (x >> (32 - by))


def _u32(value: int) -> Any:
    return jnp.uint32(value & 0xFFFFFFFF)


def _rotl_int(x: int, by: int) -> int:
    by %= 32
    return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF


@functools.cache
def _moves() -> tuple[tuple[int, int], ...]:
    """(mask in the canonical word, left rotation) of each field; together they are a bijection."""
    moves = []
    for nibble in range(8):
        pair, half = divmod(nibble, 2)
        fields = [(3, 1, 15), (0, 3, 6)]  # (lowest bit in the nibble, width, home bit in the half)
        back = ROTATIONS[pair] if pair < 3 else 0
        if pair == 3:
            fields = [(3, 1, 15), (1, 2, 7), (0, 1, 6 - 8)]
        for low, width, home in fields:
            source = 4 * nibble + low
            target = (home + 16 * half - back) % 32
            moves.append((((1 << width) - 1) << source, (target - source) % 32))
    return tuple(moves)


def _pack_words(canonical: jax.Array) -> jax.Array:
    out = jnp.zeros_like(canonical)
    for mask, by in _moves():
        out |= _rotl(canonical & _u32(mask), by)
    return out


def _unpack_words(words: jax.Array) -> jax.Array:
    out = jnp.zeros_like(words)
    for mask, by in _moves():
        out |= _rotl(words & _u32(_rotl_int(mask, by)), -by)
    return out


def _e4m3_to_e5m3(bits: jax.Array) -> jax.Array:
    """Normal numbers shift their exponent; subnormals 1..7 (times 2**-9) become normal."""
    b = bits.astype(jnp.uint32)
    subnormal = ((_u32(0xFEDCA840) >> ((b & 7) * 4)) & 15) * 2
    return jnp.where(b >= 8, b + 24, subnormal).astype(jnp.uint8)


def _e5m3_to_e4m3(byte: jax.Array) -> jax.Array:
    b = byte.astype(jnp.uint32)
    # 8, 16, 20, 24, 26, 28, 30 -> 1..7: the significand 8 + m shifted by the exponent below 1.
    shift = 4 - jnp.clip(b >> 3, 1, 3)
    subnormal = (8 + (b & 7)) >> shift
    return jnp.where(b >= 32, b - 24, jnp.where(b == 0, 0, subnormal)).astype(jnp.uint8)


@jax.jit
def pack(weight: NVFP4Weight) -> PackedNVFP4Weight:
    """Canonical -> packed, on the device that holds the weight.

    K must be a multiple of 16. Codes under a zero scale become 0 (the value is 0 either way).
    """
    n, k = weight.shape
    if k % 16:
        raise ValueError(f"pack: k = {k} is not a multiple of 16")
    pad_n, pad_k = -n % ROWS, -k % DEPTH
    codes = jnp.pad(weight.codes, ((0, pad_n), (0, pad_k // 2)))
    scales = jnp.pad(weight.scales, ((0, pad_n), (0, pad_k // 16)))
    tiles, steps = (n + pad_n) // ROWS, (k + pad_k) // DEPTH
    canonical = lax.bitcast_convert_type(
        codes.reshape(tiles * ROWS, steps * DEPTH // 8, 4), jnp.uint32
    )
    canonical = jnp.where(jnp.repeat(scales, 2, axis=1) == 0, _u32(0), canonical)
    words = _pack_words(canonical).reshape(tiles, ROWS, steps, 2, 2, 4, 2)  # half, 64, 16, word
    words = words.transpose(0, 2, 3, 1, 5, 4, 6).reshape(tiles, steps, 2, ROWS, 16)
    bytes_ = _e4m3_to_e5m3(scales).reshape(tiles, ROWS, steps, 2, 2, 4)
    bytes_ = bytes_.transpose(0, 2, 1, 5, 3, 4).reshape(tiles, steps, ROWS, 16)
    return PackedNVFP4Weight(words, bytes_, jnp.float32(weight.global_scale), n, k)


@jax.jit
def unpack(packed: PackedNVFP4Weight) -> NVFP4Weight:
    """The inverse of `pack`."""
    n, k = packed.shape
    tiles, steps = packed.words.shape[:2]
    words = packed.words.reshape(tiles, steps, 2, ROWS, 4, 2, 2).transpose(0, 3, 1, 2, 5, 4, 6)
    codes = lax.bitcast_convert_type(_unpack_words(words), jnp.uint8)
    codes = codes.reshape(tiles * ROWS, steps * DEPTH // 2)[:n, : k // 2]
    scales = packed.scales.reshape(tiles, steps, ROWS, 4, 2, 2).transpose(0, 2, 1, 4, 5, 3)
    scales = _e5m3_to_e4m3(scales).reshape(tiles * ROWS, steps * DEPTH // 16)[:n, : k // 16]
    return NVFP4Weight(codes, scales, packed.global_scale)
