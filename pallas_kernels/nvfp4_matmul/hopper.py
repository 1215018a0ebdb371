"""`nvfp4_matmul` on Hopper: which kernel takes a call, with which configuration."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels import mosaic, tuning
from pallas_kernels.nvfp4_matmul import hopper_skinny, hopper_wide
from pallas_kernels.nvfp4_matmul.packing import PackedNVFP4Weight
from pallas_kernels.weights import NVFP4Weight

LEAST_WIDE_ROWS = 64


def skinny(
    x: jax.Array, w: NVFP4Weight | PackedNVFP4Weight, *, out_dtype: jnp.dtype | None = None
) -> jax.Array:
    """1 to 64 rows: x bfloat16 [..., K], w packed [N, K] -> [..., N].

    Raises:
      NotImplementedError: wrong device, dtype, layout of the weight, or number of rows.
    """
    device, rows, packed = _accept(x, w)
    if not 1 <= rows.shape[0] <= hopper_skinny.MAX_ROWS:
        raise NotImplementedError(f"takes 1 to {hopper_skinny.MAX_ROWS} rows, not {rows.shape[0]}")
    fields = tuning.lookup(device.device_kind, "nvfp4_matmul", "skinny", *w.shape)
    config = hopper_skinny.Config(**fields)
    y = hopper_skinny.matmul(rows, packed, config=config, sms=device.core_count)
    return y.astype(out_dtype or x.dtype).reshape(*x.shape[:-1], w.shape[0])


def wide(
    x: jax.Array, w: NVFP4Weight | PackedNVFP4Weight, *, out_dtype: jnp.dtype | None = None
) -> jax.Array:
    """64 rows and more: x bfloat16 [..., K], w packed [N, K] -> [..., N].

    Raises:
      NotImplementedError: wrong device, dtype, layout of the weight, or number of rows.
    """
    device, rows, packed = _accept(x, w)
    dtype = jnp.dtype(out_dtype or x.dtype)
    if rows.shape[0] < LEAST_WIDE_ROWS:
        raise NotImplementedError(f"takes {LEAST_WIDE_ROWS} rows and more, not {rows.shape[0]}")
    if dtype not in (jnp.bfloat16, jnp.float32):
        raise NotImplementedError(f"writes bfloat16 or float32, not {dtype}")
    config = hopper_wide.choose(rows.shape[0], w.shape[0], sms=device.core_count)
    y = hopper_wide.matmul(rows, packed, out_dtype=dtype, config=config, sms=device.core_count)
    return y.reshape(*x.shape[:-1], w.shape[0])


def _accept(
    x: jax.Array, w: NVFP4Weight | PackedNVFP4Weight
) -> tuple[jax.Device, jax.Array, PackedNVFP4Weight]:
    """Device, x as [rows, K] and the weight; raises NotImplementedError with the reason if not."""
    device = mosaic.require_hopper()
    if not isinstance(w, PackedNVFP4Weight):
        raise NotImplementedError("needs the packed layout (nvfp4_matmul.for_device)")
    if x.dtype != jnp.bfloat16:
        raise NotImplementedError(f"x must be bfloat16, not {x.dtype}")
    return device, x.reshape(-1, x.shape[-1]), w
