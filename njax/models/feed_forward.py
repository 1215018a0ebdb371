"""The dense feed-forward part: SwiGLU (Shazeer, arXiv 2002.05202)."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from njax.config import ModelConfig
from njax.models.linear import Linear


class FeedForward(nnx.Module):
    """down(silu(gate(x)) * up(x)), [..., hidden] to [..., hidden]."""

    def __init__(self, config: ModelConfig, *, dtype: Any, rngs: nnx.Rngs):
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = Linear(hidden, inner, dtype=dtype, rngs=rngs)
        self.up_proj = Linear(hidden, inner, dtype=dtype, rngs=rngs)
        self.down_proj = Linear(inner, hidden, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down_proj(jax.nn.silu(self.gate_proj(x)) * self.up_proj(x))
