"""`dense_matmul` as an XLA dot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def dense_matmul(x: jax.Array, w: jax.Array, *, out_dtype: jnp.dtype | None = None) -> jax.Array:
    """x [..., K], w [N, K] -> [..., N]; see the package for the contract."""
    dtype = jnp.promote_types(x.dtype, w.dtype)
    rows = x.reshape(-1, x.shape[-1]).astype(dtype)
    y = rows_times_matrix(rows, w.astype(dtype))
    return y.astype(out_dtype or x.dtype).reshape(*x.shape[:-1], w.shape[0])


def rows_times_matrix(rows: jax.Array, w: jax.Array) -> jax.Array:
    """rows [M, K] times w [N, K] of the same dtype -> float32 [M, N], row-invariant."""
    count = rows.shape[0]
    # XLA:CPU takes other code paths for few rows, with another order of summation.
    least = 64 if rows.dtype == jnp.float32 else 2
    if count < least:
        rows = jnp.pad(rows, ((0, least - count), (0, 0)))
    y = lax.dot_general(
        rows,
        w,
        (((1,), (1,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return y[:count]
