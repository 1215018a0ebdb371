"""`dense_matmul` as an XLA dot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

_LEAST_ROWS = 2
_LEAST_OUTPUTS = 64


def dense_matmul(x: jax.Array, w: jax.Array, *, out_dtype: jnp.dtype | None = None) -> jax.Array:
    """x [..., K], w [N, K] -> [..., N]; see the package for the contract."""
    dtype = x.dtype if x.dtype == w.dtype else jnp.float32
    rows = x.reshape(-1, x.shape[-1]).astype(dtype)
    y = rows_times_matrix(rows, w.astype(dtype))
    return y.astype(out_dtype or x.dtype).reshape(*x.shape[:-1], w.shape[0])


def rows_times_matrix(rows: jax.Array, w: jax.Array) -> jax.Array:
    """rows [M, K] times w [N, K] of the same dtype -> float32 [M, N], row-invariant."""
    count, outputs = rows.shape[0], w.shape[0]
    # What XLA:CPU was measured to do with a contraction of two minor axes: one row, fewer than
    # four outputs, and fewer than 49 outputs over a long K are summed in another order than the
    # rest. Padding with zeros keeps every call on one path. (The form x [M, K] @ w [K, N] has
    # more such cases.) On GPU the least count also keeps cuBLAS off its vector kernels.
    if count < _LEAST_ROWS:
        rows = jnp.pad(rows, ((0, _LEAST_ROWS - count), (0, 0)))
    if outputs < _LEAST_OUTPUTS:
        w = jnp.pad(w, ((0, _LEAST_OUTPUTS - outputs), (0, 0)))
    y = lax.dot_general(
        rows,
        w,
        (((1,), (1,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return y[:count, :outputs]
