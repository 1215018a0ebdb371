"""y = x @ w.T for an NVFP4 weight."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels.dispatch import dispatch
from pallas_kernels.nvfp4_matmul import xla
from pallas_kernels.weights import NVFP4Weight

IMPLEMENTATIONS = {"xla": xla.nvfp4_matmul}


def nvfp4_matmul(
    x: jax.Array,
    w: NVFP4Weight,
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
    if k % 16 or w.scales.shape != (n, k // 16):
        raise ValueError(
            f"nvfp4_matmul: codes {w.codes.shape} need scales {(n, k // 16)}, got {w.scales.shape}"
        )
    return dispatch("nvfp4_matmul", IMPLEMENTATIONS, implementation, x, w, out_dtype=out_dtype)
