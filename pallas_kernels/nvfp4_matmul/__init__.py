"""y = x @ w.T for an NVFP4 weight.

A weight comes in its canonical layout (`NVFP4Weight`, what checkpoints hold) or in that of the
Hopper kernels (`PackedNVFP4Weight`); `for_device` picks once, at load time.

On Hopper there are two kernels, `hopper_skinny` for 1 to 64 rows and `hopper_wide` for 64 rows and
more, which takes precedence. Within each, a row has one result whatever its number and neighbours;
between the two, the order of summation differs, so the last bits of the float32 sum do. A caller
that must not cross over at 64 rows (decoding 64 sequences) names the implementation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels.dispatch import dispatch
from pallas_kernels.mosaic import require_hopper
from pallas_kernels.nvfp4_matmul import hopper, xla
from pallas_kernels.nvfp4_matmul.packing import PackedNVFP4Weight, pack, unpack
from pallas_kernels.weights import NVFP4Weight

IMPLEMENTATIONS = {
    "hopper_wide": hopper.wide,
    "hopper_skinny": hopper.skinny,
    "xla": xla.nvfp4_matmul,
}

__all__ = [
    "IMPLEMENTATIONS",
    "NVFP4Weight",
    "PackedNVFP4Weight",
    "for_device",
    "nvfp4_matmul",
    "pack",
    "unpack",
]


def for_device(w: NVFP4Weight) -> NVFP4Weight | PackedNVFP4Weight:
    """The layout in which the default device multiplies fastest; values are the same.

    The packing runs on the device, so a matrix is briefly there twice.
    """
    try:
        require_hopper()
    except NotImplementedError:
        return w
    return pack(w)


def nvfp4_matmul(
    x: jax.Array,
    w: NVFP4Weight | PackedNVFP4Weight,
    *,
    out_dtype: jnp.dtype | None = None,
    implementation: str | None = None,
) -> jax.Array:
    """Linear layer without bias over a 4-bit weight; activations are not quantised.

    Row invariance as in `dense_matmul`. Decoded codes times block scales enter the dot exactly;
    the global scale multiplies the float32 sum.

    Args:
      x: [..., K] bfloat16 or float32.
      w: logical [N, K], K a multiple of 16.
      out_dtype: dtype of the result, default that of `x`.
      implementation: a name from `IMPLEMENTATIONS`; default: the first that accepts.

    Returns: [..., N].

    Raises:
      ValueError: the inner sizes differ, or codes and scales do not belong together.
    """
    n, k = w.shape
    if x.ndim < 1 or x.shape[-1] != k:
        raise ValueError(f"nvfp4_matmul: x {x.shape} does not fit w {w.shape}, expected [..., K]")
    if isinstance(w, NVFP4Weight) and (k % 16 or w.scales.shape != (n, k // 16)):
        raise ValueError(
            f"nvfp4_matmul: codes {w.codes.shape} need scales {(n, k // 16)}, got {w.scales.shape}"
        )
    return dispatch("nvfp4_matmul", IMPLEMENTATIONS, implementation, x, w, out_dtype=out_dtype)
