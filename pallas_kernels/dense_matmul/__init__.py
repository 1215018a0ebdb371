"""y = x @ w.T for a plain weight, with rows that do not know their neighbours."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pallas_kernels.dense_matmul import xla
from pallas_kernels.dispatch import dispatch

IMPLEMENTATIONS = {"xla": xla.dense_matmul}


def dense_matmul(
    x: jax.Array,
    w: jax.Array,
    *,
    out_dtype: jnp.dtype | None = None,
    implementation: str | None = None,
) -> jax.Array:
    """Linear layer without bias: y[..., n] = sum over k of x[..., k] * w[n, k].

    The bits of a row of `y` depend on that row of `x` and on `w` alone: not on how many rows
    there are, nor on the row's position, nor on the other rows.

    Args:
      x: [..., K] bfloat16 or float32.
      w: [N, K] bfloat16 or float32; the product is taken in the wider of the two dtypes.
      out_dtype: dtype of the result, default that of `x`. Sums are float32 whatever it is.
      implementation: a name from `IMPLEMENTATIONS`; default: the first that accepts.

    Returns: [..., N].

    Raises:
      ValueError: the inner sizes differ.
    """
    if w.ndim != 2 or x.ndim < 1 or x.shape[-1] != w.shape[1]:
        raise ValueError(
            f"dense_matmul: x {x.shape} does not fit w {w.shape}, expected [..., K], [N, K]"
        )
    return dispatch("dense_matmul", IMPLEMENTATIONS, implementation, x, w, out_dtype=out_dtype)
