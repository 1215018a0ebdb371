"""What the attention ops mean, in NumPy float64: full softmax, row by row.

Pools are arrays or `Int8Pages`; the codec of the latter is defined here in the arithmetic that its
rule names (float32 and float16), group by group.
"""

from __future__ import annotations

import jax
import numpy as np

from pallas_kernels.attention.pages import GROUP, Int8Pages

AnyPages = np.ndarray | Int8Pages


def encode(x: np.ndarray) -> Int8Pages:
    """As `pages.encode`, for finite x [..., D] up to 8.3e6."""
    x = np.asarray(x).astype(np.float32)
    codes, scales = [], []
    for first in range(0, x.shape[-1], GROUP):
        group = x[..., first : first + GROUP]
        scale = (np.abs(group).max(-1, keepdims=True) / np.float32(127)).astype(np.float16)
        stored = scale.astype(np.float32)
        inverse = np.divide(np.float32(1), stored, out=np.zeros_like(stored), where=stored > 0)
        codes.append(np.clip(np.rint(group * inverse), -127, 127).astype(np.int8))
        scales.append(scale)
    return Int8Pages(np.concatenate(codes, -1), np.concatenate(scales, -1))  # type: ignore[arg-type]


def decode(pages: AnyPages) -> np.ndarray:
    """The values of a pool or of rows of one, float64 [..., D]."""
    if not isinstance(pages, Int8Pages):
        return np.asarray(pages).astype(np.float64)
    codes, scales = (np.asarray(a).astype(np.float64) for a in (pages.codes, pages.scales))
    return codes * scales[..., np.arange(codes.shape[-1]) // GROUP]


def append_kv(
    pages_k: AnyPages,
    pages_v: AnyPages,
    k: np.ndarray,
    v: np.ndarray,
    page_table: np.ndarray,
    start: np.ndarray,
    lengths: np.ndarray,
) -> tuple[AnyPages, AnyPages]:
    """As the public op, in the dtypes given; tokens past the length are dropped."""

    def write(pages: AnyPages, rows: np.ndarray) -> AnyPages:
        if isinstance(pages, Int8Pages):
            new = encode(rows)
            pairs = (pages.codes, new.codes), (pages.scales, new.scales)
            return Int8Pages(*(write(old, parts) for old, parts in pairs))  # type: ignore[arg-type]
        out = np.array(pages)
        for b, length in enumerate(np.asarray(lengths)):
            for t in range(length):
                page, row = divmod(int(start[b]) + t, out.shape[2])
                out[page_table[b, page], :, row] = rows[b, t]
        return out

    return write(pages_k, k), write(pages_v, v)


def _attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """query [Hq, D], keys and values [S, Hkv, D] -> [Hq, D]."""
    group = query.shape[0] // keys.shape[1]
    out = np.zeros(query.shape)
    for h, row in enumerate(query):
        scores = keys[:, h // group] @ row * scale
        weights = np.exp(scores - scores.max())
        out[h] = weights @ values[:, h // group] / weights.sum()
    return out


def _sequence(pages: AnyPages, table: np.ndarray, count: int) -> np.ndarray:
    """The first `count` tokens of a sequence, [S, Hkv, D] float64."""
    rows = decode(jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(table)], pages))
    return np.moveaxis(rows, 2, 1).reshape(-1, rows.shape[1], rows.shape[3])[:count]


def attention_prefill(
    q: np.ndarray,
    pages_k: AnyPages,
    pages_v: AnyPages,
    page_table: np.ndarray,
    start: np.ndarray,
    lengths: np.ndarray,
    *,
    scale: float,
) -> np.ndarray:
    """As the public op; rows from lengths[b] on are zero."""
    q = np.asarray(q, np.float64)
    out = np.zeros(q.shape)
    for b, length in enumerate(np.asarray(lengths)):
        for t in range(length):
            seen = int(start[b]) + t + 1
            keys, values = (_sequence(p, page_table[b], seen) for p in (pages_k, pages_v))
            out[b, t] = _attend(q[b, t], keys, values, scale)
    return out


def attention_decode(
    q: np.ndarray,
    pages_k: AnyPages,
    pages_v: AnyPages,
    page_table: np.ndarray,
    lengths: np.ndarray,
    *,
    scale: float,
) -> np.ndarray:
    """As the public op."""
    q = np.asarray(q, np.float64)
    out = np.zeros(q.shape)
    for b, seen in enumerate(np.asarray(lengths)):
        if seen:
            keys, values = (_sequence(p, page_table[b], seen) for p in (pages_k, pages_v))
            out[b] = _attend(q[b], keys, values, scale)
    return out
