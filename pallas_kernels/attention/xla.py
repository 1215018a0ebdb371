"""Paged attention for any device: loops over groups of pages with a running softmax.

Bits: a trip has one fixed shape, its groups of pages sit at absolute positions, and loop bounds
are known only at run time, so that the compiler can neither unroll nor fold a single trip. A
group that a row does not see leaves that row's running maximum, sum and accumulator exactly as
they were (factor exp(0) = 1, addend 0). So a row's result depends on the tokens it sees alone.
Int8 pages are decoded to float32 inside the trip; the pool itself never is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pallas_kernels.attention.pages import Int8Pages, Pages, decode, encode

_TILE = 64  # queries of a prefill trip
_GROUP = 4  # pages of a trip
_UNSEEN = float(np.finfo(np.float32).min)  # finite: the difference of two of them is 0, not NaN


def append_kv(
    pages_k: Pages,
    pages_v: Pages,
    k: jax.Array,
    v: jax.Array,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
) -> tuple[Pages, Pages]:
    """Shapes as in the package."""
    tokens = jnp.arange(k.shape[1])[None]
    position = start[:, None] + tokens
    page = jnp.take_along_axis(page_table, position // pages_k.shape[2], axis=1, mode="clip")
    page = jnp.where(tokens < lengths[:, None], page, 0)
    row = position % pages_k.shape[2]

    def write(pages: Pages, new: jax.Array) -> Pages:
        rows = encode(new) if isinstance(pages, Int8Pages) else new
        return jax.tree.map(
            lambda leaf, values: leaf.at[page, :, row].set(values.astype(leaf.dtype)), pages, rows
        )

    return write(pages_k, k), write(pages_v, v)


def attention_prefill(
    q: jax.Array,
    pages_k: Pages,
    pages_v: Pages,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
    *,
    scale: float,
    first: int = 0,
) -> jax.Array:
    """Shapes as in the package."""
    _, t, hq, d = q.shape
    hkv = pages_k.shape[1]
    padded = jnp.pad(q, ((0, 0), (0, -t % _TILE), (0, 0), (0, 0)))
    lengths = jnp.clip(lengths, 0, t)
    tiles = (lengths + _TILE - 1) // _TILE
    ends = jnp.cumsum(tiles)

    # One trip is one tile of one sequence, whatever B and T are.
    def body(trip: jax.Array, out: jax.Array) -> jax.Array:
        sequence = jnp.sum((trip >= ends).astype(jnp.int32))
        offset = (trip - ends[sequence] + tiles[sequence]) * _TILE
        at = (sequence, offset, jnp.int32(0), jnp.int32(0))
        rows = lax.dynamic_slice(padded, at, (1, _TILE, hq, d))
        rows = rows.reshape(_TILE, hkv, hq // hkv, d).transpose(1, 2, 0, 3)
        position = start[sequence] + offset + jnp.arange(_TILE)
        end = start[sequence] + jnp.minimum(offset + _TILE, lengths[sequence])
        tile = _attend(
            rows.reshape(1, hkv, -1, d),
            pages_k,
            pages_v,
            page_table[sequence][None],
            jnp.tile(position, hq // hkv)[None],
            end[None],
            scale,
            first,
        )
        tile = tile.reshape(hkv, hq // hkv, _TILE, d).transpose(2, 0, 1, 3)
        return lax.dynamic_update_slice(out, tile.reshape(1, _TILE, hq, d).astype(out.dtype), at)

    return lax.fori_loop(jnp.int32(0), ends[-1], body, jnp.zeros_like(padded))[:, :t]


def attention_decode(
    q: jax.Array,
    pages_k: Pages,
    pages_v: Pages,
    page_table: jax.Array,
    lengths: jax.Array,
    *,
    scale: float,
    first: int = 0,
) -> jax.Array:
    """Shapes as in the package."""
    b, hq, d = q.shape
    hkv = pages_k.shape[1]
    rows = q.reshape(b, hkv, hq // hkv, d)
    last = jnp.broadcast_to(lengths[:, None] - 1, (b, hq // hkv))
    out = _attend(rows, pages_k, pages_v, page_table, last, lengths, scale, first)
    out = jnp.where((lengths > 0)[:, None, None], out.reshape(q.shape), 0.0)
    return out.astype(q.dtype)


def _attend(
    rows: jax.Array,
    pages_k: Pages,
    pages_v: Pages,
    page_table: jax.Array,
    last: jax.Array,
    ends: jax.Array,
    scale: float,
    first: int,
) -> jax.Array:
    """rows [B, Hkv, M, D] see the positions first to last [B, M] that lie below ends [B].

    Returns float32 [B, Hkv, M, D]; rows that see nothing are unspecified, finite.
    """
    b, heads, _, _ = rows.shape
    if isinstance(pages_k, Int8Pages):
        rows = rows.astype(jnp.float32)  # decoded keys have more bits than bfloat16
    span = _GROUP * pages_k.shape[2]
    page_table = jnp.pad(page_table, ((0, 0), (0, -page_table.shape[1] % _GROUP)))
    groups = jnp.minimum((jnp.max(ends) + span - 1) // span, page_table.shape[1] // _GROUP)
    last = jnp.minimum(last, ends[:, None] - 1)

    def body(
        index: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        best, weight, out = carry
        table = lax.dynamic_slice_in_dim(page_table, index * _GROUP, _GROUP, axis=1)

        def tokens(pages: Pages) -> jax.Array:
            def gather(leaf: jax.Array) -> jax.Array:
                group = leaf.at[table].get(mode="clip")
                return group.transpose(0, 2, 1, 3, 4).reshape(b, heads, span, leaf.shape[-1])

            group = jax.tree.map(gather, pages)
            return decode(group) if isinstance(group, Int8Pages) else group

        keys, values = tokens(pages_k), tokens(pages_v)
        position = index * span + jnp.arange(span)
        # Rows that are not written yet can hold anything, NaN too, and 0 * NaN is NaN.
        written = ((position >= first) & (position < ends[:, None]))[:, None, :, None]
        values = jnp.where(written, values.astype(jnp.float32), 0.0)
        seen = ((position >= first) & (position <= last[..., None]))[:, None]
        # In the dtype of the inputs: products of bfloat16 are exact in the float32 sums.
        scores = _dot("bhmd,bhrd->bhmr", rows, keys.astype(rows.dtype)) * np.float32(scale)
        scores = jnp.where(seen, scores, _UNSEEN)
        new_best = jnp.maximum(best, scores.max(-1, keepdims=True))
        share = jnp.exp(scores - new_best)
        kept = jnp.exp(best - new_best)
        weight = kept * weight + _row_sums(share)
        out = kept * out + _dot("bhmr,bhrd->bhmd", share, values)
        return new_best, weight, out

    edge = (*rows.shape[:-1], 1)
    carry = (
        jnp.full(edge, _UNSEEN, jnp.float32),
        jnp.zeros(edge, jnp.float32),
        jnp.zeros(rows.shape, jnp.float32),
    )
    _, weight, out = lax.fori_loop(jnp.int32(0), groups, body, carry)
    return out / jnp.where(weight > 0, weight, 1.0)


def _row_sums(x: jax.Array) -> jax.Array:
    """float32 [B, H, M, R] -> [B, H, M, 1].

    XLA:CPU picks the order of a fused sum by the size of the whole array, so that the bits of a
    lane would depend on how many there are. A product is never fused, and each of a batch is alone.
    """

    def by_dot(x: jax.Array) -> jax.Array:
        return _dot("bhmr,bhro->bhmo", x, jnp.ones((*x.shape[:2], x.shape[3], 1), x.dtype))

    def by_sum(x: jax.Array) -> jax.Array:
        return jnp.sum(x, axis=-1, keepdims=True)

    return lax.platform_dependent(x, cpu=by_dot, default=by_sum)


def _dot(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(
        spec, a, b, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )
