"""The decoder over packed whole sequences, from parameters by name; differentiable.

The same maths as `njax.models`, without pages and lanes: a test holds the two together. Repeats of
the layer pattern run in a scan, so that the compiler sees each kind of layer once.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from njax.config import LayerKind, ModelConfig
from njax.demo.training.attention import packed_attention
from njax.demo.training.delta_rule import packed_delta_rule
from njax.models.norm import rms_normalize
from njax.models.rope import rotary_angles, rotate

Params = Mapping[str, jax.Array]
"""Canonical names to arrays, all in the activation dtype except `A_log` and `dt_bias`."""


def decode(
    params: Params, config: ModelConfig, tokens: jax.Array, segments: jax.Array
) -> jax.Array:
    """Hidden states after the final norm.

    Args:
      tokens: int32 [B, T], T a multiple of 64.
      segments: int32 [B, T], the conversation of each token; each starts at position 0.

    Returns: [B, T, hidden] in the dtype of the embedding.
    """
    angles = _angles(config, segments)
    hidden = _embedded(params, tokens)
    period = _period(config.layer_kinds)
    repeats = config.num_layers // period
    stacked = [
        {
            name.removeprefix(f"layers.{index}."): jnp.stack(
                [
                    params[name.replace(f"layers.{index}.", f"layers.{index + r * period}.", 1)]
                    for r in range(repeats)
                ]
            )
            for name in params
            if name.startswith(f"layers.{index}.")
        }
        for index in range(period)
    ]

    def group(hidden: jax.Array, layers: list[dict[str, jax.Array]]) -> tuple[jax.Array, None]:
        for kind, layer in zip(config.layer_kinds, layers, strict=False):
            hidden = _layer(hidden, config, kind, layer, angles, segments)
        return hidden, None

    hidden, _ = lax.scan(group, hidden, stacked)
    return _norm(hidden, params["final_norm.weight"], config)


def draft(
    params: Params,
    config: ModelConfig,
    hidden: jax.Array,
    next_tokens: jax.Array,
    segments: jax.Array,
) -> jax.Array:
    """The multi-token layer: hidden states [B, T, hidden] and the tokens after [B, T] to hidden
    states for the head; see `njax.models.mtp`.
    """
    embedded = _embedded(params, next_tokens)
    joined = jnp.concatenate(
        [
            _norm(embedded, params["mtp.pre_fc_norm_embedding.weight"], config),
            _norm(hidden, params["mtp.pre_fc_norm_hidden.weight"], config),
        ],
        axis=-1,
    )
    prefix = "mtp.layers.0."
    layer = {n.removeprefix(prefix): p for n, p in params.items() if n.startswith(prefix)}
    x = _linear(joined, params["mtp.fc.weight"])
    x = _layer(x, config, "attention", layer, _angles(config, segments), segments)
    return _norm(x, params["mtp.norm.weight"], config)


def logits(params: Params, config: ModelConfig, hidden: jax.Array) -> jax.Array:
    """float32 [..., vocabulary]."""
    name = "embedding.weight" if config.tied_head else "head.weight"
    return _linear(hidden, params[name], jnp.dtype(jnp.float32))


def _embedded(params: Params, tokens: jax.Array) -> jax.Array:
    """Rows of the embedding. Their gradient is summed in float32, which is exact enough for a token
    that stands in a row thousands of times, and which a GPU adds a hundred times as fast.
    """
    weight = params["embedding.weight"]
    return weight.astype(jnp.float32)[tokens].astype(weight.dtype)


def _angles(config: ModelConfig, segments: jax.Array) -> tuple[jax.Array, jax.Array]:
    at = jnp.arange(segments.shape[1], dtype=jnp.int32)
    begins = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    positions = at - lax.cummax(jnp.where(begins, at, 0), axis=1)
    return rotary_angles(
        jnp.broadcast_to(positions, (3, *positions.shape)),
        config.rotary_dim, config.rope_theta, config.mrope_section,
    )  # fmt: skip


def _period(kinds: tuple[LayerKind, ...]) -> int:
    """Length of the shortest pattern that the layers repeat a whole number of times."""
    return next(
        p
        for p in range(1, len(kinds) + 1)
        if len(kinds) % p == 0 and kinds == kinds[:p] * (len(kinds) // p)
    )


def _layer(
    hidden: jax.Array,
    config: ModelConfig,
    kind: LayerKind,
    layer: Params,
    angles: tuple[jax.Array, jax.Array],
    segments: jax.Array,
) -> jax.Array:
    normed = _norm(hidden, layer["input_norm.weight"], config)
    if kind == "attention":
        hidden = hidden + _attention(normed, config, layer, angles, segments)
    else:
        hidden = hidden + _delta(normed, config, layer, segments)
    normed = _norm(hidden, layer["post_norm.weight"], config)
    inner = jax.nn.silu(_linear(normed, layer["mlp.gate_proj.weight"]))
    inner = inner * _linear(normed, layer["mlp.up_proj.weight"])
    return hidden + _linear(inner, layer["mlp.down_proj.weight"])


def _attention(
    x: jax.Array,
    config: ModelConfig,
    layer: Params,
    angles: tuple[jax.Array, jax.Array],
    segments: jax.Array,
) -> jax.Array:
    batch, length, _ = x.shape
    dim = config.head_dim
    query_gate = _linear(x, layer["attention.q_proj.weight"])
    query_gate = query_gate.reshape(batch, length, config.num_heads, 2 * dim)
    query, gate = query_gate[..., :dim], query_gate[..., dim:]
    by_head = (batch, length, config.num_kv_heads, dim)
    key = _linear(x, layer["attention.k_proj.weight"]).reshape(by_head)
    value = _linear(x, layer["attention.v_proj.weight"]).reshape(by_head)
    query = rotate(_norm(query, layer["attention.q_norm.weight"], config), *angles)
    key = rotate(_norm(key, layer["attention.k_norm.weight"], config), *angles)
    out = packed_attention(query, key, value, segments, dim**-0.5) * jax.nn.sigmoid(gate)
    return _linear(out.reshape(batch, length, -1), layer["attention.o_proj.weight"])


def _delta(x: jax.Array, config: ModelConfig, layer: Params, segments: jax.Array) -> jax.Array:
    batch, length, _ = x.shape
    mixed = _conv(_linear(x, layer["delta.qkv_proj.weight"]), layer["delta.conv.weight"], segments)
    width = config.delta_key_heads * config.delta_key_dim
    by_key_head = (batch, length, config.delta_key_heads, config.delta_key_dim)
    by_value_head = (batch, length, config.delta_value_heads, config.delta_value_dim)
    beta = jax.nn.sigmoid(_linear(x, layer["delta.b_proj.weight"])).astype(jnp.float32)
    log_decay = -jnp.exp(layer["delta.A_log"]) * jax.nn.softplus(
        _linear(x, layer["delta.a_proj.weight"]).astype(jnp.float32) + layer["delta.dt_bias"]
    )
    out = packed_delta_rule(
        mixed[..., :width].reshape(by_key_head),
        mixed[..., width : 2 * width].reshape(by_key_head),
        mixed[..., 2 * width :].reshape(by_value_head),
        log_decay, beta, segments,
    )  # fmt: skip
    gate = _linear(x, layer["delta.z_proj.weight"]).reshape(by_value_head).astype(jnp.float32)
    normed = rms_normalize(out, config.rms_norm_eps).astype(x.dtype)
    scaled = (layer["delta.norm.weight"] * normed).astype(jnp.float32)
    gated = (scaled * jax.nn.silu(gate)).astype(x.dtype)
    return _linear(gated.reshape(batch, length, -1), layer["delta.out_proj.weight"])


def _conv(x: jax.Array, weight: jax.Array, segments: jax.Array) -> jax.Array:
    """silu of the depthwise causal convolution; taps do not reach into another conversation."""
    length, width = x.shape[1], weight.shape[1]
    taps = weight.astype(jnp.float32)
    total = jnp.zeros(x.shape, jnp.float32)
    for back in range(width - 1, -1, -1):
        shifted = jnp.pad(x, ((0, 0), (back, 0), (0, 0)))[:, :length]
        from_segment = jnp.pad(segments, ((0, 0), (back, 0)), constant_values=-1)[:, :length]
        own = (from_segment == segments)[..., None]
        total += jnp.where(own, shifted, 0).astype(jnp.float32) * taps[:, width - 1 - back]
    return jax.nn.silu(total).astype(x.dtype)


def _norm(x: jax.Array, weight: jax.Array, config: ModelConfig) -> jax.Array:
    scale = np.float32(1) + weight.astype(jnp.float32)
    return (rms_normalize(x, config.rms_norm_eps) * scale).astype(x.dtype)


def _linear(x: jax.Array, weight: jax.Array, dtype: jnp.dtype | None = None) -> jax.Array:
    y = jnp.einsum(
        "...k,nk->...n",
        x,
        weight,
        precision=lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    return y.astype(dtype or x.dtype)
