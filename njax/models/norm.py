"""Root-mean-square norms, computed in float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from pallas_kernels.dense_matmul import dense_matmul


def _mean(x: jax.Array) -> jax.Array:
    return jnp.mean(x, axis=-1, keepdims=True)


def _mean_by_dot(x: jax.Array) -> jax.Array:
    share = jnp.full((1, x.shape[-1]), 1.0 / x.shape[-1], x.dtype)
    return dense_matmul(x, share)


def rms_normalize(x: jax.Array, eps: float) -> jax.Array:
    """float32 x / sqrt(mean(x^2) + eps) over the last axis (Zhang and Sennrich, 1910.07467).

    XLA:CPU picks the order of a fused reduction by the size of the whole array, so that the bits of
    a row would depend on how many rows there are. A matrix product is never fused, and
    `dense_matmul` promises row invariance: there the mean is a product with a constant vector.
    """
    x = x.astype(jnp.float32)
    mean = jax.lax.platform_dependent(x * x, cpu=_mean_by_dot, default=_mean)
    return x * jax.lax.rsqrt(mean + eps)


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
