"""Paged attention for any device: a loop over pages with a running softmax.

Bits: a page is one fixed-shape trip whatever holds it; the bound is known only at run time; a
page a row does not see leaves that row's running maximum, sum and accumulator exactly as they
were (factor exp(0) = 1, addend 0). So a row's result depends on the tokens it sees alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

_UNSEEN = -1e30  # finite: the difference of two of them is 0, not NaN


def append_kv(
    pages_k: jax.Array,
    pages_v: jax.Array,
    k: jax.Array,
    v: jax.Array,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Shapes as in the package."""
    tokens = jnp.arange(k.shape[1])[None]
    position = start[:, None] + tokens
    page = jnp.take_along_axis(page_table, position // pages_k.shape[2], axis=1, mode="clip")
    page = jnp.where(tokens < lengths[:, None], page, 0)
    row = position % pages_k.shape[2]
    pages_k = pages_k.at[page, :, row].set(k.astype(pages_k.dtype))
    pages_v = pages_v.at[page, :, row].set(v.astype(pages_v.dtype))
    return pages_k, pages_v


def attention_prefill(
    q: jax.Array,
    pages_k: jax.Array,
    pages_v: jax.Array,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
    *,
    scale: float,
) -> jax.Array:
    """Shapes as in the package."""
    b, t, hq, d = q.shape
    hkv = pages_k.shape[1]
    rows = q.reshape(b, t, hkv, hq // hkv, d).transpose(0, 2, 3, 1, 4).reshape(b, hkv, -1, d)
    last = jnp.tile(start[:, None] + jnp.arange(t), (1, hq // hkv))
    ends = jnp.where(lengths > 0, start + lengths, 0)
    out = _attend(rows, pages_k, pages_v, page_table, last, ends, scale)
    out = out.reshape(b, hkv, hq // hkv, t, d).transpose(0, 3, 1, 2, 4)
    return out.reshape(q.shape).astype(q.dtype)


def attention_decode(
    q: jax.Array,
    pages_k: jax.Array,
    pages_v: jax.Array,
    page_table: jax.Array,
    lengths: jax.Array,
    *,
    scale: float,
) -> jax.Array:
    """Shapes as in the package."""
    b, hq, d = q.shape
    hkv = pages_k.shape[1]
    rows = q.reshape(b, hkv, hq // hkv, d)
    last = jnp.broadcast_to(lengths[:, None] - 1, (b, hq // hkv))
    out = _attend(rows, pages_k, pages_v, page_table, last, lengths, scale)
    return out.reshape(q.shape).astype(q.dtype)


def _attend(
    rows: jax.Array,
    pages_k: jax.Array,
    pages_v: jax.Array,
    page_table: jax.Array,
    last: jax.Array,
    ends: jax.Array,
    scale: float,
) -> jax.Array:
    """rows [B, Hkv, M, D] see the positions up to last [B, M] that lie below ends [B].

    Returns float32 [B, Hkv, M, D]; rows that see nothing are zero.
    """
    size = pages_k.shape[2]
    pages = jnp.minimum((jnp.max(ends) + size - 1) // size, page_table.shape[1])
    rows = rows.astype(jnp.float32) * jnp.float32(scale)
    last = jnp.minimum(last, ends[:, None] - 1)

    def body(
        index: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        best, weight, out = carry
        page = lax.dynamic_index_in_dim(page_table, index, axis=1, keepdims=False)
        keys = pages_k[page].astype(jnp.float32)
        values = pages_v[page].astype(jnp.float32)
        position = index * size + jnp.arange(size)
        # Rows nobody may see can hold anything, NaN too, and 0 * NaN is NaN.
        written = (position < ends[:, None])[:, None, :, None]
        keys, values = jnp.where(written, keys, 0.0), jnp.where(written, values, 0.0)
        seen = (position <= last[..., None])[:, None]
        scores = jnp.where(seen, _dot("bhmd,bhrd->bhmr", rows, keys), _UNSEEN)
        new_best = jnp.maximum(best, scores.max(-1, keepdims=True))
        share = jnp.where(seen, jnp.exp(scores - new_best), 0.0)
        kept = jnp.exp(best - new_best)
        weight = kept * weight + share.sum(-1, keepdims=True)
        out = kept * out + _dot("bhmr,bhrd->bhmd", share, values)
        return new_best, weight, out

    edge = (*rows.shape[:-1], 1)
    carry = (
        jnp.full(edge, _UNSEEN, jnp.float32),
        jnp.zeros(edge, jnp.float32),
        jnp.zeros(rows.shape, jnp.float32),
    )
    _, weight, out = lax.fori_loop(jnp.int32(0), pages, body, carry)
    return out / jnp.where(weight > 0, weight, 1.0)


def _dot(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, precision=lax.Precision.HIGHEST)
