"""Projections and the embedding: one call for every kind of weight."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from pallas_kernels.dense_matmul import dense_matmul
from pallas_kernels.fp8_matmul import fp8_matmul
from pallas_kernels.nvfp4_matmul import PackedNVFP4Weight, nvfp4_matmul
from pallas_kernels.weights import FP8Weight, NVFP4Weight

Weight = jax.Array | NVFP4Weight | PackedNVFP4Weight | FP8Weight


def linear(x: jax.Array, weight: Weight, *, out_dtype: Any = None) -> jax.Array:
    """x [..., K] times the transpose of `weight` [N, K]: [..., N], float32 accumulation.

    `out_dtype` defaults to the dtype of `x`.
    """
    if isinstance(weight, NVFP4Weight | PackedNVFP4Weight):
        return nvfp4_matmul(x, weight, out_dtype=out_dtype)
    if isinstance(weight, FP8Weight):
        return fp8_matmul(x, weight, out_dtype=out_dtype)
    return dense_matmul(x, weight, out_dtype=out_dtype)


class Linear(nnx.Module):
    """A projection without bias; `weight` is [outputs, inputs] in any of the weight kinds."""

    def __init__(self, inputs: int, outputs: int, *, dtype: Any, rngs: nnx.Rngs):
        scale = inputs**-0.5
        self.weight = nnx.Param(
            (scale * jax.random.normal(rngs.params(), (outputs, inputs), jnp.float32)).astype(dtype)
        )

    def __call__(self, x: jax.Array, *, out_dtype: Any = None) -> jax.Array:
        return linear(x, self.weight.get_value(), out_dtype=out_dtype)


class Embedding(nnx.Module):
    """A table [vocabulary, hidden]: rows by token id, and logits when it serves as a tied head."""

    def __init__(self, vocab: int, hidden: int, *, dtype: Any, rngs: nnx.Rngs):
        self.weight = nnx.Param(
            jax.random.normal(rngs.params(), (vocab, hidden), jnp.float32).astype(dtype)
        )

    def lookup(self, tokens: jax.Array, dtype: Any) -> jax.Array:
        """Rows [..., hidden] in `dtype`; an id beyond the table gives its last row."""
        weight = self.weight.get_value()
        if isinstance(weight, FP8Weight):
            values = weight.values.at[tokens].get(mode="clip").astype(jnp.float32)
            scale = weight.scale.at[tokens].get(mode="clip")
            return (values * scale[..., None]).astype(dtype)
        if isinstance(weight, NVFP4Weight | PackedNVFP4Weight):
            raise NotImplementedError("an embedding in NVFP4 is not supported")
        return weight.at[tokens].get(mode="clip").astype(dtype)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """float32 [..., vocabulary]."""
        return linear(hidden, self.weight.get_value(), out_dtype=jnp.float32)
