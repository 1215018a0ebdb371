"""Gated full attention over KV pages: every fourth layer of the usual pattern."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from njax.config import BLOCK, ModelConfig
from njax.models.linear import Linear
from njax.models.norm import RMSNorm
from njax.models.rope import rotate
from njax.state import KVPages
from pallas_kernels.attention import append_kv, attention_decode, attention_prefill


class GatedAttention(nnx.Module):
    """Causal grouped-query attention; its output is multiplied by sigmoid(gate).

    Parameters: q_proj [2 * heads * D, hidden] ([query | gate] for each head), k_proj and v_proj
    [kv_heads * D, hidden], o_proj [hidden, heads * D], q_norm and k_norm [D].
    """

    def __init__(self, config: ModelConfig, *, dtype: Any, rngs: nnx.Rngs):
        self.config = config
        hidden, dim = config.hidden_size, config.head_dim
        self.q_proj = Linear(hidden, 2 * config.num_heads * dim, dtype=dtype, rngs=rngs)
        self.k_proj = Linear(hidden, config.num_kv_heads * dim, dtype=dtype, rngs=rngs)
        self.v_proj = Linear(hidden, config.num_kv_heads * dim, dtype=dtype, rngs=rngs)
        self.o_proj = Linear(config.num_heads * dim, hidden, dtype=dtype, rngs=rngs)
        self.q_norm = RMSNorm(dim, config.rms_norm_eps, dtype=dtype)
        self.k_norm = RMSNorm(dim, config.rms_norm_eps, dtype=dtype)

    def __call__(
        self,
        x: jax.Array,
        angles: tuple[jax.Array, jax.Array],
        pages: KVPages,
        page_table: jax.Array,
        start: jax.Array,
        lengths: jax.Array,
        *,
        first: int = 0,
    ) -> tuple[jax.Array, KVPages]:
        """Appends K and V of the new tokens to their pages, then attends over the pages.

        Args:
          x: [B, T, hidden]; a multiple of the block prefills, fewer decode one by one.
          angles: cosines and sines [B, T, rotary_dim/2] of the tokens' positions.
          pages, page_table: the pool and each sequence's pages, int32 [B, N].
          start: int32 [B], tokens already in the pages.
          lengths: int32 [B], real tokens of the T (0: the lane is idle).
          first: the first position of the pages that holds a token.

        Returns: [B, T, hidden] and the pool with the new tokens.
        """
        batch, length, _ = x.shape
        heads, kv_heads, dim = (
            self.config.num_heads, self.config.num_kv_heads, self.config.head_dim,
        )  # fmt: skip
        query_gate = self.q_proj(x).reshape(batch, length, heads, 2 * dim)
        query, gate = query_gate[..., :dim], query_gate[..., dim:]
        query = rotate(self.q_norm(query), *angles)
        key = rotate(self.k_norm(self.k_proj(x).reshape(batch, length, kv_heads, dim)), *angles)
        value = self.v_proj(x).reshape(batch, length, kv_heads, dim)
        k, v = append_kv(pages.k, pages.v, key, value, page_table, start, lengths)
        scale = dim**-0.5
        if length % BLOCK:
            # Each token as a lane of its own: the same bits as one after the other.
            steps = jnp.arange(length)
            visible = jnp.where(steps < lengths[:, None], start[:, None] + steps + 1, 0)
            out = attention_decode(
                query.reshape(batch * length, heads, dim),
                k,
                v,
                jnp.repeat(page_table, length, axis=0),
                visible.reshape(-1),
                scale=scale,
                first=first,
            ).reshape(query.shape)
        else:
            out = attention_prefill(
                query, k, v, page_table, start, lengths, scale=scale, first=first
            )
        gated = out * jax.nn.sigmoid(gate)
        return self.o_proj(gated.reshape(batch, length, heads * dim)), KVPages(k=k, v=v)
