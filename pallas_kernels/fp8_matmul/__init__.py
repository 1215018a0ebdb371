"""y = x @ w.T for an FP8 weight with one scale a row."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels.dispatch import dispatch
from pallas_kernels.fp8_matmul import xla
from pallas_kernels.weights import FP8Weight

IMPLEMENTATIONS = {"xla": xla.fp8_matmul}


def fp8_matmul(
    x: jax.Array,
    w: FP8Weight,
    *,
    out_dtype: jnp.dtype | None = None,
    implementation: str | None = None,
) -> jax.Array:
    """Linear layer without bias over an 8-bit weight; activations are not quantised.

    Row invariance as in `dense_matmul`. The e4m3 values enter the dot exactly; the scale of an
    output multiplies its float32 sum.

    Args:
      x: [..., K] bfloat16 or float32.
      w: logical [N, K].
      out_dtype: dtype of the result, default that of `x`.
      implementation: a name from `IMPLEMENTATIONS`; default: the first that accepts.

    Returns: [..., N].

    Raises:
      ValueError: the inner sizes differ, or the scale is not one a row.
    """
    if x.ndim < 1 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"fp8_matmul: x {x.shape} does not fit w {w.shape}, expected [..., K]")
    if w.scale.shape != w.shape[:1]:
        raise ValueError(
            f"fp8_matmul: values {w.shape} need scale {w.shape[:1]}, got {w.scale.shape}"
        )
    return dispatch("fp8_matmul", IMPLEMENTATIONS, implementation, x, w, out_dtype=out_dtype)
