"""`nvfp4_matmul` by decoding the weight and an XLA dot."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels.dense_matmul.xla import rows_times_matrix
from pallas_kernels.nvfp4_matmul.packing import PackedNVFP4Weight, unpack
from pallas_kernels.weights import NVFP4Weight, decode_nvfp4_halves


def nvfp4_matmul(
    x: jax.Array, w: NVFP4Weight | PackedNVFP4Weight, *, out_dtype: jnp.dtype | None = None
) -> jax.Array:
    """x [..., K], w [N, K] -> [..., N]; see the package for the contract."""
    canonical = unpack(w) if isinstance(w, PackedNVFP4Weight) else w
    rows = x.reshape(-1, x.shape[-1])
    # Two dots over the columns of the low and of the high nibbles: putting the nibbles side by
    # side costs about as much as decoding them.
    even, odd = decode_nvfp4_halves(canonical, x.dtype)
    y = rows_times_matrix(rows[:, 0::2], even) + rows_times_matrix(rows[:, 1::2], odd)
    y = y * w.global_scale
    return y.astype(out_dtype or x.dtype).reshape(*x.shape[:-1], w.shape[0])
