"""Root-mean-square norms, computed in float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


def rms_normalize(x: jax.Array, eps: float) -> jax.Array:
    """float32 x / sqrt(mean(x^2) + eps) over the last axis (Zhang and Sennrich, 1910.07467)."""
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)


class RMSNorm(nnx.Module):
    """Zero-centred: the scale is 1 + weight. Output in the dtype of the input."""

    def __init__(self, size: int, eps: float, *, dtype: Any):
        self.eps = eps
        self.weight = nnx.Param(jnp.zeros(size, dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        scale = 1.0 + self.weight.get_value().astype(jnp.float32)
        return (rms_normalize(x, self.eps) * scale).astype(x.dtype)


class GatedRMSNorm(nnx.Module):
    """weight * norm(x) * silu(gate), the gate in float32; plain weight, not zero-centred."""

    def __init__(self, size: int, eps: float, *, dtype: Any):
        self.eps = eps
        self.weight = nnx.Param(jnp.ones(size, dtype))

    def __call__(self, x: jax.Array, gate: jax.Array) -> jax.Array:
        # The reference rounds the normed value to the activation dtype before the weight.
        normed = rms_normalize(x, self.eps).astype(x.dtype)
        scaled = self.weight.get_value().astype(x.dtype) * normed
        return (scaled.astype(jnp.float32) * jax.nn.silu(gate.astype(jnp.float32))).astype(x.dtype)
