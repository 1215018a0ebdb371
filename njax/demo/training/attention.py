"""Causal attention within the conversations of a packed row."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_BLOCK = 1024
"""Queries that are scored at once: bounds memory, and skips keys that lie ahead of all of them."""


def packed_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array, scale: float
) -> jax.Array:
    """q [B, T, Hq, D], k and v [B, T, Hkv, D], segments int32 [B, T] -> [B, T, Hq, D].

    Softmax in float32; the scores of a block are made again in the backward pass.
    """
    length = q.shape[1]
    parts = []
    for first in range(0, length, _BLOCK):
        end = min(first + _BLOCK, length)
        block = jax.checkpoint(functools.partial(_block, first=first, end=end, scale=scale))
        own, seen = segments[:, first:end], segments[:, :end]
        parts.append(block(q[:, first:end], k[:, :end], v[:, :end], own, seen))
    return jnp.concatenate(parts, axis=1)


def _block(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    own: jax.Array,
    seen: jax.Array,
    *,
    first: int,
    end: int,
    scale: float,
) -> jax.Array:
    batch, queries, heads, dim = q.shape
    kv_heads = k.shape[2]
    precision = lax.Precision.HIGHEST if q.dtype == jnp.float32 else None
    grouped = q.reshape(batch, queries, kv_heads, heads // kv_heads, dim)
    scores = jnp.einsum(
        "bqhgd,bkhd->bhgqk", grouped, k, precision=precision, preferred_element_type=jnp.float32
    )
    causal = np.arange(first, end)[:, None] >= np.arange(end)[None, :]
    visible = causal & (own[:, :, None] == seen[:, None, :])
    scores = jnp.where(visible[:, None, None], scores * np.float32(scale), -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    out = jnp.einsum(
        "bhgqk,bkhd->bqhgd", weights, v, precision=precision, preferred_element_type=jnp.float32
    )
    return out.astype(q.dtype).reshape(batch, queries, heads, dim)
