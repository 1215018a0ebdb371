"""The canonical tensors of a model: names, shapes and roles, from `ModelConfig` alone.

These names are the paths of the parameters in the Flax module tree and the keys of the orbax tree.
Shapes use: V vocabulary, H hidden, I intermediate, Hq/Hkv query and KV heads, D head dim,
C conv channels, W conv width, Hk/Hv delta key and value heads, Dv delta value dim. A linear weight
is [out, in], as Hugging Face stores it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from njax.config import LayerKind, ModelConfig

Role = Literal["linear", "table", "vector", "state"]
"""What a tensor is for.

* "linear": multiplied with activations; may be NVFP4 or FP8, and `--quantize` quantises it.
* "table": embedding, output head and the two small gate projections (`a_proj`, `b_proj`): may
  arrive NVFP4 or FP8, but `--quantize` leaves it as it is.
* "vector": norm weights and convolution taps; a plain array in the activation dtype.
* "state": `A_log` and `dt_bias`, which enter the recurrence through exponentials: float32 always.
"""


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One expected tensor: canonical name, shape, role."""

    name: str
    shape: tuple[int, ...]
    role: Role


def tensor_specs(config: ModelConfig) -> dict[str, TensorSpec]:
    """Every tensor that a model of this configuration needs, by canonical name, in file order."""
    return {spec.name: spec for spec in _all(config)}


def mtp_specs(config: ModelConfig) -> dict[str, TensorSpec]:
    """The tensors of the multi-token layer (`njax.models.mtp`), by canonical name."""
    hidden = config.hidden_size
    specs = [
        TensorSpec("mtp.pre_fc_norm_embedding.weight", (hidden,), "vector"),
        TensorSpec("mtp.pre_fc_norm_hidden.weight", (hidden,), "vector"),
        TensorSpec("mtp.fc.weight", (hidden, 2 * hidden), "linear"),
    ]
    for name, shape, role in _layer(config, "attention"):
        specs.append(TensorSpec(f"mtp.layers.0.{name}", shape, role))
    specs.append(TensorSpec("mtp.norm.weight", (hidden,), "vector"))
    return {spec.name: spec for spec in specs}


def _all(config: ModelConfig) -> Iterator[TensorSpec]:
    hidden = config.hidden_size
    yield TensorSpec("embedding.weight", (config.vocab_size, hidden), "table")
    for index, kind in enumerate(config.layer_kinds):
        for name, shape, role in _layer(config, kind):
            yield TensorSpec(f"layers.{index}.{name}", shape, role)
    yield TensorSpec("final_norm.weight", (hidden,), "vector")
    if not config.tied_head:
        yield TensorSpec("head.weight", (config.vocab_size, hidden), "table")


def _layer(config: ModelConfig, kind: LayerKind) -> Iterator[tuple[str, tuple[int, ...], Role]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield "input_norm.weight", (hidden,), "vector"
    if kind == "attention":
        queries, dim = config.num_heads * config.head_dim, config.head_dim
        keys = config.num_kv_heads * dim
        # Query and output gate share one projection, side by side per head.
        yield "attention.q_proj.weight", (2 * queries, hidden), "linear"
        yield "attention.k_proj.weight", (keys, hidden), "linear"
        yield "attention.v_proj.weight", (keys, hidden), "linear"
        yield "attention.o_proj.weight", (hidden, queries), "linear"
        yield "attention.q_norm.weight", (dim,), "vector"
        yield "attention.k_norm.weight", (dim,), "vector"
    else:
        heads, channels = config.delta_value_heads, config.conv_channels
        values = heads * config.delta_value_dim
        yield "delta.qkv_proj.weight", (channels, hidden), "linear"
        yield "delta.z_proj.weight", (values, hidden), "linear"
        yield "delta.b_proj.weight", (heads, hidden), "table"
        yield "delta.a_proj.weight", (heads, hidden), "table"
        yield "delta.conv.weight", (channels, config.conv_width), "vector"
        yield "delta.A_log", (heads,), "state"
        yield "delta.dt_bias", (heads,), "state"
        yield "delta.norm.weight", (config.delta_value_dim,), "vector"
        yield "delta.out_proj.weight", (hidden, values), "linear"
    yield "post_norm.weight", (hidden,), "vector"
    yield "mlp.gate_proj.weight", (inner, hidden), "linear"
    yield "mlp.up_proj.weight", (inner, hidden), "linear"
    yield "mlp.down_proj.weight", (hidden, inner), "linear"
