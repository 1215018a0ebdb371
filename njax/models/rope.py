"""Partial rotary position embedding with up to three position axes (interleaved mRoPE)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def rotary_axes(rotary_dim: int, section: tuple[int, int, int]) -> np.ndarray:
    """Which position axis (0 temporal, 1 height, 2 width) turns each of the rotary_dim/2 pairs.

    Pair p belongs to axis p % 3 while p lies below three times that axis's section; everything
    else is temporal.
    """
    pairs = np.arange(rotary_dim // 2)
    axes = np.zeros_like(pairs)
    for axis in (1, 2):
        axes[(pairs % 3 == axis) & (pairs < 3 * section[axis])] = axis
    return axes


def rotary_angles(
    positions: jax.Array, rotary_dim: int, theta: float, section: tuple[int, int, int]
) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines, float32 [B, T, rotary_dim/2], for positions int32 [3, B, T]."""
    frequency = 1.0 / theta ** (np.arange(0, rotary_dim, 2, dtype=np.float32) / rotary_dim)
    axes = rotary_axes(rotary_dim, section)
    per_pair = jnp.moveaxis(positions[axes], 0, -1).astype(jnp.float32)  # [B, T, pairs]
    angles = per_pair * frequency.astype(np.float32)
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Turns the first 2 * pairs dims of each head: x [B, T, heads, D], cos and sin [B, T, pairs].

    Dim p pairs with dim p + pairs; dims beyond both pass through. Computed in the dtype of `x`,
    the angles rounded to it, as the reference implementation does.
    """
    pairs = cos.shape[-1]
    cos, sin = cos.astype(x.dtype)[:, :, None], sin.astype(x.dtype)[:, :, None]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)
