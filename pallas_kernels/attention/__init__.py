"""Grouped-query attention over paged keys and values.

A pool [P, Hkv, R, D] holds pages of R rows (64 in njax); a sequence owns the pages its row of
the page table lists, in order. Page 0 is scratch: nobody reads it. A pool is a plain array or
`Int8Pages`; both pools of a call are of one kind.
"""

from __future__ import annotations

import jax

from pallas_kernels.attention import xla
from pallas_kernels.attention.pages import GROUP, Int8Pages, Pages, zero_pages
from pallas_kernels.dispatch import dispatch

APPEND_IMPLEMENTATIONS = {"xla": xla.append_kv}
PREFILL_IMPLEMENTATIONS = {"xla": xla.attention_prefill}
DECODE_IMPLEMENTATIONS = {"xla": xla.attention_decode}

__all__ = [
    "APPEND_IMPLEMENTATIONS",
    "DECODE_IMPLEMENTATIONS",
    "PREFILL_IMPLEMENTATIONS",
    "Int8Pages",
    "Pages",
    "append_kv",
    "attention_decode",
    "attention_prefill",
    "zero_pages",
]


def append_kv(
    pages_k: Pages,
    pages_v: Pages,
    k: jax.Array,
    v: jax.Array,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
    *,
    implementation: str | None = None,
) -> tuple[Pages, Pages]:
    """Writes T new tokens of each sequence into its pages; in place when the pools are donated.

    Token t of sequence b goes to row (start + t) % R of page page_table[b, (start + t) // R];
    tokens from lengths[b] on go nowhere that is read (to scratch page 0 or to nothing).

    Args:
      pages_k, pages_v: [P, Hkv, R, D].
      k, v: [B, T, Hkv, D]; rounded to the dtype of the pool, or quantised as `pages.encode` says.
      page_table: int32 [B, N], entries below P.
      start: int32 [B], the position of token 0.
      lengths: int32 [B], 0 to T.
      implementation: a name from `APPEND_IMPLEMENTATIONS`; default: the first that accepts.

    Returns: the two pools.

    Raises:
      ValueError: shapes do not fit.
    """
    b, _, heads, dim = k.shape
    _check("append_kv", pages_k, pages_v, b, page_table, start, lengths)
    if v.shape != k.shape or (heads, dim) != (pages_k.shape[1], pages_k.shape[3]):
        raise ValueError(f"append_kv: k {k.shape}, v {v.shape} do not fit pages {pages_k.shape}")
    return dispatch(
        "append_kv",
        APPEND_IMPLEMENTATIONS,
        implementation,
        *(pages_k, pages_v, k, v, page_table, start, lengths),
    )


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
    implementation: str | None = None,
) -> jax.Array:
    """Causal attention of T queries of each sequence; all K and V, their own too, are in pages.

    Query t stands at position start + t and sees the positions up to its own. Softmax and sums
    are float32; int8 pages are decoded to float32, queries are never quantised. The bits of a row
    do not depend on T, on the length of the page table or on which pages hold the sequence.

    Args:
      q: [B, T, Hq, D], Hq a multiple of Hkv; query head h reads KV head h // (Hq // Hkv).
      pages_k, pages_v: [P, Hkv, R, D].
      page_table: int32 [B, N].
      start: int32 [B].
      lengths: int32 [B]: queries that count; rows from lengths[b] on are unspecified, finite.
      scale: multiplies the scores.
      first: the first position that anybody sees; what lies before holds no token.
      implementation: a name from `PREFILL_IMPLEMENTATIONS`; default: the first that accepts.

    Returns: [B, T, Hq, D] in the dtype of `q`.

    Raises:
      ValueError: shapes do not fit.
    """
    if q.ndim != 4:
        raise ValueError(f"attention_prefill: q is {q.shape}, expected [B, T, Hq, D]")
    _check("attention_prefill", pages_k, pages_v, q.shape[0], page_table, start, lengths)
    _check_heads("attention_prefill", q, pages_k)
    return dispatch(
        "attention_prefill",
        PREFILL_IMPLEMENTATIONS,
        implementation,
        *(q, pages_k, pages_v, page_table, start, lengths),
        scale=scale,
        first=first,
    )


def attention_decode(
    q: jax.Array,
    pages_k: Pages,
    pages_v: Pages,
    page_table: jax.Array,
    lengths: jax.Array,
    *,
    scale: float,
    first: int = 0,
    implementation: str | None = None,
) -> jax.Array:
    """Attention of one query of each lane over the first lengths[b] tokens of its pages.

    Args:
      q: [B, Hq, D].
      pages_k, pages_v, page_table: as in `attention_prefill`.
      lengths: int32 [B]: tokens visible, the newest included; 0 gives zeros.
      scale: multiplies the scores.
      first: the first position that anybody sees; what lies before holds no token.
      implementation: a name from `DECODE_IMPLEMENTATIONS`; default: the first that accepts.

    Returns: [B, Hq, D] in the dtype of `q`.

    Raises:
      ValueError: shapes do not fit.
    """
    if q.ndim != 3:
        raise ValueError(f"attention_decode: q is {q.shape}, expected [B, Hq, D]")
    _check("attention_decode", pages_k, pages_v, q.shape[0], page_table, lengths, lengths)
    _check_heads("attention_decode", q, pages_k)
    return dispatch(
        "attention_decode",
        DECODE_IMPLEMENTATIONS,
        implementation,
        *(q, pages_k, pages_v, page_table, lengths),
        scale=scale,
        first=first,
    )


def _check(
    op: str,
    pages_k: Pages,
    pages_v: Pages,
    batch: int,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
) -> None:
    if pages_k.ndim != 4 or pages_k.shape != pages_v.shape:
        raise ValueError(
            f"{op}: pages are {pages_k.shape} and {pages_v.shape}, expected [P, Hkv, R, D] twice"
        )
    if isinstance(pages_k, Int8Pages) != isinstance(pages_v, Int8Pages):
        raise ValueError(f"{op}: one pool is int8, the other is not")
    for pages in (pages_k, pages_v):
        if isinstance(pages, Int8Pages):
            wanted = (*pages.shape[:3], -(-pages.shape[3] // GROUP))
            if pages.scales.shape != wanted:
                raise ValueError(f"{op}: scales are {pages.scales.shape}, expected {wanted}")
    if page_table.ndim != 2 or page_table.shape[0] != batch:
        raise ValueError(f"{op}: page_table is {page_table.shape}, expected [{batch}, N]")
    for name, array in (("start", start), ("lengths", lengths)):
        if array.shape != (batch,):
            raise ValueError(f"{op}: {name} is {array.shape}, expected {(batch,)}")


def _check_heads(op: str, q: jax.Array, pages_k: Pages) -> None:
    heads, dim = q.shape[-2:]
    if dim != pages_k.shape[3] or heads % pages_k.shape[1]:
        raise ValueError(f"{op}: q {q.shape} does not fit pages {pages_k.shape} ([P, Hkv, R, D])")
