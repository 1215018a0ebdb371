"""`nvfp4_matmul` on Hopper: which kernel takes a call, with which configuration."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels import mosaic, tuning
from pallas_kernels.nvfp4_matmul import hopper_skinny
from pallas_kernels.nvfp4_matmul.packing import PackedNVFP4Weight
from pallas_kernels.weights import NVFP4Weight


def nvfp4_matmul(
    x: jax.Array, w: NVFP4Weight | PackedNVFP4Weight, *, out_dtype: jnp.dtype | None = None
) -> jax.Array:
    """x bfloat16 [..., K], w packed [N, K] -> [..., N]; see the package for the contract.

    Raises:
      NotImplementedError: wrong device, dtype, layout of the weight, or number of rows.
    """
    device = mosaic.require_hopper()
    if not isinstance(w, PackedNVFP4Weight):
        raise NotImplementedError("needs the packed layout (nvfp4_matmul.for_device)")
    if x.dtype != jnp.bfloat16:
        raise NotImplementedError(f"x must be bfloat16, not {x.dtype}")
    rows = x.reshape(-1, x.shape[-1])
    if not 1 <= rows.shape[0] <= hopper_skinny.MAX_ROWS:
        raise NotImplementedError(f"takes 1 to {hopper_skinny.MAX_ROWS} rows, not {rows.shape[0]}")
    n, k = w.shape
    fields = tuning.lookup(device.device_kind, "nvfp4_matmul", "skinny", n, k)
    config = hopper_skinny.Config(**fields)
    y = hopper_skinny.matmul(rows, w, config=config, sms=device.core_count)
    return y.astype(out_dtype or x.dtype).reshape(*x.shape[:-1], n)
