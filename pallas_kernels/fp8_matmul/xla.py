"""`fp8_matmul` by decoding the weight and an XLA dot."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels.dense_matmul.xla import rows_times_matrix
from pallas_kernels.weights import FP8Weight


def fp8_matmul(x: jax.Array, w: FP8Weight, *, out_dtype: jnp.dtype | None = None) -> jax.Array:
    """x [..., K], w [N, K] -> [..., N]; see the package for the contract."""
    rows = x.reshape(-1, x.shape[-1])
    y = rows_times_matrix(rows, w.values.astype(x.dtype)) * w.scale
    return y.astype(out_dtype or x.dtype).reshape(*x.shape[:-1], w.shape[0])
