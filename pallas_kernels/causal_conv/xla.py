"""`causal_conv` as shifted multiply-adds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def causal_conv(
    x: jax.Array, weight: jax.Array, state: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """x [B, T, C], weight [C, W], state [B, W-1, C]; see the package for the contract."""
    length, width = x.shape[1], weight.shape[1]
    inputs = jnp.concatenate([state.astype(x.dtype), x], axis=1)
    taps = weight.astype(jnp.float32)
    total = jnp.zeros(x.shape, jnp.float32)
    for tap in range(width):
        shifted = lax.slice_in_dim(inputs, tap, tap + length, axis=1)
        total += shifted.astype(jnp.float32) * taps[:, tap]
    # Row r of `inputs` is input r - (W-1): the W-1 rows from lengths[b] on are the newest.
    newest = jax.vmap(lambda rows, start: lax.dynamic_slice_in_dim(rows, start, width - 1, axis=0))
    return jax.nn.silu(total).astype(x.dtype), newest(inputs, lengths)
