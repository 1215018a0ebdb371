"""Gated DeltaNet: a layer whose state has a fixed size (Yang et al., arXiv 2412.06464)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from njax.config import BLOCK, ModelConfig
from njax.models.linear import Linear
from njax.models.norm import GatedRMSNorm
from njax.state import DeltaState
from pallas_kernels.causal_conv import causal_conv
from pallas_kernels.gated_delta import gated_delta_rule, gated_delta_step, gated_delta_window


class ConvWeight(nnx.Module):
    """Depthwise convolution taps [channels, width], oldest tap first."""

    def __init__(self, channels: int, width: int, *, dtype: Any, rngs: nnx.Rngs):
        taps = jax.random.normal(rngs.params(), (channels, width), jnp.float32) * width**-0.5
        self.weight = nnx.Param(taps.astype(dtype))


class GatedDeltaNet(nnx.Module):
    """Convolution, gated delta rule, gated norm.

    Parameters: qkv_proj [2 * Hk * Dk + Hv * Dv, hidden] (query, key, value side by side), z_proj
    [Hv * Dv, hidden], b_proj and a_proj [Hv, hidden], conv [channels, W], A_log and dt_bias [Hv]
    float32, norm [Dv], out_proj [hidden, Hv * Dv].
    """

    def __init__(self, config: ModelConfig, *, dtype: Any, rngs: nnx.Rngs):
        self.config = config
        hidden, heads = config.hidden_size, config.delta_value_heads
        inner = heads * config.delta_value_dim
        self.qkv_proj = Linear(hidden, config.conv_channels, dtype=dtype, rngs=rngs)
        self.z_proj = Linear(hidden, inner, dtype=dtype, rngs=rngs)
        self.b_proj = Linear(hidden, heads, dtype=dtype, rngs=rngs)
        self.a_proj = Linear(hidden, heads, dtype=dtype, rngs=rngs)
        self.conv = ConvWeight(config.conv_channels, config.conv_width, dtype=dtype, rngs=rngs)
        self.A_log = nnx.Param(jnp.zeros(heads, jnp.float32))
        self.dt_bias = nnx.Param(jnp.ones(heads, jnp.float32))
        self.norm = GatedRMSNorm(config.delta_value_dim, config.rms_norm_eps, dtype=dtype)
        self.out_proj = Linear(inner, hidden, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: jax.Array, state: DeltaState, lengths: jax.Array
    ) -> tuple[jax.Array, DeltaState]:
        """Absorbs the first lengths[b] of T tokens; x [B, T, hidden], T as in the model.

        Returns: [B, T, hidden] and the new state; of a window (1 < T < block) the states after
        each of its tokens, stacked in front [T, B, ...].
        """
        batch, length, _ = x.shape
        inputs = self.qkv_proj(x)
        taps = self.conv.weight.get_value()
        # The sigmoid is taken in the activation dtype, the decay in float32, as in the reference.
        beta = jax.nn.sigmoid(self.b_proj(x)).astype(jnp.float32)
        log_decay = -jnp.exp(self.A_log.get_value()) * jax.nn.softplus(
            self.a_proj(x).astype(jnp.float32) + self.dt_bias.get_value()
        )
        mixed, conv = causal_conv(inputs, taps, state.conv, lengths)
        query, key, value = self._split(mixed)
        if length == 1:
            out, recurrent = gated_delta_step(
                query[:, 0], key[:, 0], value[:, 0], log_decay[:, 0], beta[:, 0],
                state.recurrent, lengths > 0,
            )  # fmt: skip
            out = out[:, None]
        else:
            rule = gated_delta_rule if length % BLOCK == 0 else gated_delta_window
            out, recurrent = rule(query, key, value, log_decay, beta, state.recurrent, lengths)
        if 1 < length < BLOCK:
            ends = [jnp.full(batch, token + 1, jnp.int32) for token in range(length)]
            conv = jnp.stack([causal_conv(inputs, taps, state.conv, end)[1] for end in ends])
        new = DeltaState(conv=conv, recurrent=recurrent)
        gated = self.norm(out, self.z_proj(x).reshape(out.shape))
        return self.out_proj(gated.reshape(batch, length, -1)), new

    def _split(self, mixed: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """[B, T, channels] to query and key [B, T, Hk, Dk] and value [B, T, Hv, Dv]."""
        config, (batch, length, _) = self.config, mixed.shape
        width = config.delta_key_heads * config.delta_key_dim
        by_key_head = (batch, length, config.delta_key_heads, config.delta_key_dim)
        by_value_head = (batch, length, config.delta_value_heads, config.delta_value_dim)
        return (
            mixed[..., :width].reshape(by_key_head),
            mixed[..., width : 2 * width].reshape(by_key_head),
            mixed[..., 2 * width :].reshape(by_value_head),
        )
