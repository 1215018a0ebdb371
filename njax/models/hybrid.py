"""The decoder: delta and attention layers in the pattern that the config gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from njax.config import ModelConfig
from njax.models.attention import GatedAttention
from njax.models.delta_net import GatedDeltaNet
from njax.models.feed_forward import FeedForward
from njax.models.linear import Embedding, Linear
from njax.models.norm import RMSNorm
from njax.models.rope import rotary_angles
from njax.state import ModelState


class HybridLayer(nnx.Module):
    """x += mixer(norm(x)); x += mlp(norm(x)). The mixer is named after its kind."""

    def __init__(self, config: ModelConfig, kind: str, *, dtype: Any, rngs: nnx.Rngs):
        self.input_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        self.post_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        if kind == "attention":
            self.attention = GatedAttention(config, dtype=dtype, rngs=rngs)
        else:
            self.delta = GatedDeltaNet(config, dtype=dtype, rngs=rngs)
        self.mlp = FeedForward(config, dtype=dtype, rngs=rngs)


class HybridModel(nnx.Module):
    """Token ids and state in, hidden states and new state out.

    Args:
      dtype: of activations, residual and (by default) weights.
    """

    def __init__(self, config: ModelConfig, *, dtype: Any, rngs: nnx.Rngs):
        self.config = config
        self.dtype = dtype
        self.embedding = Embedding(config.vocab_size, config.hidden_size, dtype=dtype, rngs=rngs)
        self.layers = nnx.List(
            [HybridLayer(config, kind, dtype=dtype, rngs=rngs) for kind in config.layer_kinds]
        )
        self.final_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        if not config.tied_head:
            self.head = Linear(config.hidden_size, config.vocab_size, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        tokens: jax.Array,
        positions: jax.Array,
        state: ModelState,
        page_table: jax.Array,
        start: jax.Array,
        lengths: jax.Array,
    ) -> tuple[jax.Array, ModelState]:
        """Absorbs the first lengths[b] of T tokens of each of B sequences.

        Args:
          tokens: int32 [B, T]. T == 1 decodes; a multiple of the block prefills, and then start
            is a multiple of the block too. Anything between is a window: T tokens with the bits
            that decoding them one by one has.
          positions: int32 [3, B, T], rotary positions by axis; equal for text.
          state: delta state of the B sequences and the whole page pool.
          page_table: int32 [B, N], pages of each sequence.
          start: int32 [B], tokens that each sequence has absorbed before.
          lengths: int32 [B], 0 to T; 0 leaves that sequence's state as it is.

        Returns: hidden states [B, T, hidden] after the final norm (unspecified beyond lengths)
        and the new state; after a window `delta` holds the states after each token, stacked in
        front [T, B, ...] (`state_after` picks one).
        """
        config = self.config
        hidden = self.embedding.lookup(tokens, self.dtype)
        angles = rotary_angles(
            positions, config.rotary_dim, config.rope_theta, config.mrope_section
        )
        delta, kv = iter(state.delta), iter(state.kv)
        new_delta, new_kv = [], []
        for index, (kind, layer) in enumerate(zip(config.layer_kinds, self.layers, strict=True)):
            with jax.named_scope(f"layer_{index}_{kind}"):
                normed = layer.input_norm(hidden)
                if kind == "attention":
                    mixed, pages = layer.attention(
                        normed, angles, next(kv), page_table, start, lengths
                    )
                    new_kv.append(pages)
                else:
                    mixed, memory = layer.delta(normed, next(delta), lengths)
                    new_delta.append(memory)
                hidden = hidden + mixed
                hidden = hidden + layer.mlp(layer.post_norm(hidden))
        return self.final_norm(hidden), ModelState(delta=tuple(new_delta), kv=tuple(new_kv))

    def logits(self, hidden: jax.Array) -> jax.Array:
        """float32 [..., vocabulary] from hidden states [..., hidden] of `__call__`."""
        if self.config.tied_head:
            return self.embedding.logits(hidden)
        return self.head(hidden, out_dtype=jnp.float32)
