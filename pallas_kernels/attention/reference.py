"""What the attention ops mean, in NumPy float64: full softmax, row by row."""

from __future__ import annotations

import numpy as np


def append_kv(
    pages_k: np.ndarray,
    pages_v: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    page_table: np.ndarray,
    start: np.ndarray,
    lengths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """As the public op, in the dtypes given; tokens past the length are dropped."""
    pages_k, pages_v = np.array(pages_k), np.array(pages_v)
    size = pages_k.shape[2]
    for b, length in enumerate(np.asarray(lengths)):
        for t in range(length):
            page, row = divmod(int(start[b]) + t, size)
            pages_k[page_table[b, page], :, row] = k[b, t]
            pages_v[page_table[b, page], :, row] = v[b, t]
    return pages_k, pages_v


def _attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """query [Hq, D], keys and values [S, Hkv, D] -> [Hq, D]."""
    group = query.shape[0] // keys.shape[1]
    out = np.zeros(query.shape)
    for h, row in enumerate(query):
        scores = keys[:, h // group] @ row * scale
        weights = np.exp(scores - scores.max())
        out[h] = weights @ values[:, h // group] / weights.sum()
    return out


def _sequence(pages: np.ndarray, table: np.ndarray, count: int) -> np.ndarray:
    """The first `count` tokens of a sequence, [S, Hkv, D] float64."""
    rows = np.asarray(pages)[np.asarray(table)].astype(np.float64)
    return np.moveaxis(rows, 2, 1).reshape(-1, rows.shape[1], rows.shape[3])[:count]


def attention_prefill(
    q: np.ndarray,
    pages_k: np.ndarray,
    pages_v: np.ndarray,
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
    pages_k: np.ndarray,
    pages_v: np.ndarray,
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
