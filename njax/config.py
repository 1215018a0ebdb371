"""What a model is (`ModelConfig`) and how the engine runs it (`EngineConfig`).

`ModelConfig.from_hf` is the only place outside `njax.checkpoint` that knows the key names of a
Hugging Face `config.json`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from njax.errors import CheckpointError, StartupError

LayerKind = Literal["delta", "attention"]

BLOCK = 64
"""Tokens of a delta-rule block, of a KV page and of a prefix-hash block: one grid for all."""

_HF_LAYER_KINDS: dict[str, LayerKind] = {
    "linear_attention": "delta",
    "full_attention": "attention",
}
_TEXT_MODEL_TYPES = ("qwen3_5_text", "qwen3_5")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Shape and constants of one hybrid decoder; immutable and hashable.

    All sizes are element counts. `layer_kinds` says, layer by layer, which mixer runs.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_kinds: tuple[LayerKind, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    mrope_section: tuple[int, int, int]
    delta_key_heads: int
    delta_value_heads: int
    delta_key_dim: int
    delta_value_dim: int
    conv_width: int
    rms_norm_eps: float
    max_position: int
    tied_head: bool
    mtp_layers: int = 0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, int) and not isinstance(value, bool):
                if value < (0 if name in ("mtp_layers", "rotary_dim") else 1):
                    raise CheckpointError(f"config: {name} is {value}, expected a positive size")
        for whole, part in (
            ("num_heads", "num_kv_heads"),
            ("delta_value_heads", "delta_key_heads"),
        ):
            if getattr(self, whole) % getattr(self, part):
                raise CheckpointError(
                    f"config: {whole} ({getattr(self, whole)}) is no multiple of "
                    f"{part} ({getattr(self, part)})"
                )
        if self.rotary_dim % 2 or self.rotary_dim > self.head_dim:
            raise CheckpointError(
                f"config: the rotary part of a head is {self.rotary_dim} dims; expected an even "
                f"number of at most head_dim ({self.head_dim})"
            )
        if not self.layer_kinds:
            raise CheckpointError("config: the model has no layers")

    @property
    def num_layers(self) -> int:
        return len(self.layer_kinds)

    @property
    def delta_layers(self) -> int:
        return self.layer_kinds.count("delta")

    @property
    def attention_layers(self) -> int:
        return self.layer_kinds.count("attention")

    @property
    def conv_channels(self) -> int:
        """Channels of the depthwise convolution: query, key and value side by side."""
        return (
            2 * self.delta_key_heads * self.delta_key_dim
            + self.delta_value_heads * self.delta_value_dim
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping; `from_dict` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelConfig:
        names = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - names)
        if unknown:
            raise CheckpointError(f"config: unknown fields {', '.join(unknown)}")
        values = dict(data)
        for name in ("layer_kinds", "mrope_section"):
            if name in values:
                values[name] = tuple(values[name])
        try:
            return cls(**values)
        except TypeError as error:
            raise CheckpointError(f"config: {error}") from None

    @classmethod
    def from_hf(cls, hf: Mapping[str, Any]) -> ModelConfig:
        """Reads a `config.json` of the `qwen3_5` family.

        Accepts the flat text config and the multimodal one (its `text_config` part). Defaults are
        those of the family's reference implementation.

        Raises:
          CheckpointError: another model type, a missing key or an impossible value; named.
        """
        outer = hf
        if isinstance(hf.get("text_config"), Mapping):
            hf = hf["text_config"]
        model_type = hf.get("model_type", outer.get("model_type"))
        if model_type not in _TEXT_MODEL_TYPES:
            raise CheckpointError(
                f"config.json: model_type {model_type!r} is not supported; supported are "
                f"{', '.join(_TEXT_MODEL_TYPES)} (dense hybrids)"
            )
        activation = hf.get("hidden_act", "silu")
        if activation != "silu":
            raise CheckpointError(
                f"config.json: hidden_act {activation!r} is not supported, only 'silu'"
            )
        if hf.get("attention_bias", False):
            raise CheckpointError("config.json: attention_bias true is not supported")
        rope = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        if rope_type not in ("default", "mrope"):
            raise CheckpointError(
                f"config.json: rope type {rope_type!r} is not supported, only 'default'"
            )
        try:
            num_layers = int(hf["num_hidden_layers"])
            heads = int(hf["num_attention_heads"])
            head_dim = int(hf.get("head_dim") or hf["hidden_size"] // heads)
            factor = rope.get("partial_rotary_factor", hf.get("partial_rotary_factor", 0.25))
            tied = outer.get("tie_word_embeddings", hf.get("tie_word_embeddings", False))
            return cls(
                vocab_size=int(hf["vocab_size"]),
                hidden_size=int(hf["hidden_size"]),
                intermediate_size=int(hf["intermediate_size"]),
                layer_kinds=_layer_kinds(hf, num_layers),
                num_heads=heads,
                num_kv_heads=int(hf.get("num_key_value_heads", heads)),
                head_dim=head_dim,
                rotary_dim=int(head_dim * factor),
                rope_theta=float(rope.get("rope_theta", hf.get("rope_theta", 10_000.0))),
                mrope_section=_mrope_section(rope),
                delta_key_heads=int(hf["linear_num_key_heads"]),
                delta_value_heads=int(hf["linear_num_value_heads"]),
                delta_key_dim=int(hf["linear_key_head_dim"]),
                delta_value_dim=int(hf["linear_value_head_dim"]),
                conv_width=int(hf.get("linear_conv_kernel_dim", 4)),
                rms_norm_eps=float(hf.get("rms_norm_eps", 1e-6)),
                max_position=int(hf.get("max_position_embeddings", 32_768)),
                tied_head=bool(tied),
                mtp_layers=int(hf.get("mtp_num_hidden_layers", 0)),
            )
        except KeyError as error:
            raise CheckpointError(f"config.json: key {error.args[0]!r} is missing") from None
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"config.json: {error}") from None


def _layer_kinds(hf: Mapping[str, Any], num_layers: int) -> tuple[LayerKind, ...]:
    names = hf.get("layer_types")
    if names is None:
        interval = int(hf.get("full_attention_interval", 4))
        return tuple(
            "delta" if (index + 1) % interval else "attention" for index in range(num_layers)
        )
    if len(names) != num_layers:
        raise CheckpointError(
            f"config.json: layer_types lists {len(names)} layers, num_hidden_layers is {num_layers}"
        )
    unknown = sorted(set(names) - set(_HF_LAYER_KINDS))
    if unknown:
        raise CheckpointError(f"config.json: unknown layer types {', '.join(map(str, unknown))}")
    return tuple(_HF_LAYER_KINDS[name] for name in names)


def _mrope_section(rope: Mapping[str, Any]) -> tuple[int, int, int]:
    section = tuple(int(n) for n in rope.get("mrope_section", (11, 11, 10)))
    if len(section) != 3:
        raise CheckpointError(f"config.json: mrope_section has {len(section)} entries, expected 3")
    return section


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """How the engine runs a model. Token counts unless a name says otherwise.

    Attributes:
      max_context: prompt plus answer of one request; rounded up to whole blocks for memory.
      max_concurrency: lanes that decode together.
      max_pending: requests that may wait for a lane.
      pending_timeout_s: how long one may wait.
      prefill_chunk: most prompt tokens of one prefill step; a multiple of `BLOCK`.
      kv_capacity: tokens of the KV page pool, or None for max_concurrency * max_context.
      prefix_cache_bytes: budget of the seed store; 0 turns it off.
    """

    max_context: int = 8192
    max_concurrency: int = 4
    max_pending: int = 16
    pending_timeout_s: float = 30.0
    prefill_chunk: int = 512
    kv_capacity: int | None = None
    prefix_cache_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("max_context", "max_concurrency", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise StartupError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_pending < 0:
            raise StartupError(f"max_pending is {self.max_pending}; it must not be negative")
        if self.pending_timeout_s <= 0:
            raise StartupError("pending_timeout_s must be positive")
        if self.prefix_cache_bytes < 0:
            raise StartupError("prefix_cache_bytes must not be negative")
        if self.prefill_chunk % BLOCK:
            raise StartupError(
                f"prefill_chunk is {self.prefill_chunk}; it must be a multiple of {BLOCK}"
            )
        if self.kv_capacity is not None and self.kv_capacity < self.max_context:
            raise StartupError(
                f"kv_capacity ({self.kv_capacity}) is below max_context ({self.max_context}): "
                "one request of full length would not fit"
            )
        most = self.max_concurrency * self.max_context
        if self.kv_capacity is not None and self.kv_capacity > most + BLOCK:
            raise StartupError(
                f"kv_capacity ({self.kv_capacity}) is more than max_concurrency * max_context "
                f"({most}): the rest could never be used"
            )

    @property
    def pages_per_lane(self) -> int:
        """Length of a lane's page table."""
        return -(-self.max_context // BLOCK)

    @property
    def pool_pages(self) -> int:
        """Usable pages of the pool (the pool has one more, the scratch page 0)."""
        if self.kv_capacity is None:
            return self.max_concurrency * self.pages_per_lane
        return -(-self.kv_capacity // BLOCK)
