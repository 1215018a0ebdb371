"""Pages of keys or values: a plain array, or int8 codes with a scale for each group.

A page's rows are one token of one KV head each. In the int8 form the elements of a row fall into
groups of `GROUP` contiguous ones; where the head dim is not a multiple, the last group is shorter.
Encoding looks at one row alone, so a row's codes do not depend on when or beside what it comes.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

GROUP = 64
"""Elements of the head dim that share one scale."""
MAX_CODE = 127
"""Codes are symmetric: -128 does not occur."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Int8Pages:
    """Pages in int8: value[..., d] = codes[..., d] * scales[..., d // GROUP].

    Attributes:
      codes: int8 [P, Hkv, R, D], -127 to 127.
      scales: float16 [P, Hkv, R, ceil(D / GROUP)], not negative.
    """

    codes: jax.Array
    scales: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape, [P, Hkv, R, D]."""
        return self.codes.shape

    @property
    def ndim(self) -> int:
        return len(self.codes.shape)


Pages = jax.Array | Int8Pages


def zero_pages(shape: tuple[int, int, int, int], dtype: jnp.dtype) -> Pages:
    """Pages [P, Hkv, R, D] of zeros; dtype int8 gives `Int8Pages`, a floating one an array."""
    if dtype != jnp.int8:
        return jnp.zeros(shape, dtype)
    groups = -(-shape[3] // GROUP)
    return Int8Pages(jnp.zeros(shape, jnp.int8), jnp.zeros((*shape[:3], groups), jnp.float16))


def encode(x: jax.Array) -> Int8Pages:
    """Codes and scales of rows [..., D], any leading shape.

    scale = float16(max |x| / 127), rounded to even; its inverse is taken in float32 from the stored
    scale; code = x * inverse, rounded to even and clamped to +-127. A group whose scale rounds to
    zero (max |x| up to 2**-25 * 127) is zero. A group that holds a NaN, an infinity or more than
    float16 can scale (8.3e6) decodes to NaN: what is wrong stays visible.
    """
    *rows, dim = x.shape
    padded = jnp.pad(x.astype(jnp.float32), [(0, 0)] * len(rows) + [(0, -dim % GROUP)])
    groups = padded.reshape(*rows, -1, GROUP)
    largest = jnp.max(jnp.abs(groups), axis=-1)
    # A constant divisor would be compiled to a product with 1 / 127, which rounds otherwise.
    divisor = jnp.where(largest >= 0, jnp.float32(MAX_CODE), jnp.float32(jnp.nan))
    scales = (largest / divisor).astype(jnp.float16)
    stored = scales.astype(jnp.float32)
    usable = (stored > 0) & jnp.isfinite(stored)
    inverse = jnp.where(usable, 1.0 / jnp.where(usable, stored, 1.0), 0.0)[..., None]
    scaled = jnp.where(usable[..., None], groups * inverse, 0.0)
    codes = jnp.clip(jnp.round(scaled), -MAX_CODE, MAX_CODE).astype(jnp.int8)
    return Int8Pages(codes.reshape(*rows, -1)[..., :dim], scales)


def decode(pages: Int8Pages) -> jax.Array:
    """code * scale in float32, [..., D]; exact (7 bits times 11)."""
    scales = jnp.repeat(pages.scales.astype(jnp.float32), GROUP, axis=-1)
    return pages.codes.astype(jnp.float32) * scales[..., : pages.codes.shape[-1]]
