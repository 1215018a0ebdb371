"""What a model is (`ModelConfig`) and how the engine runs it (`EngineConfig`).

`ModelConfig.from_hf` is the only place outside `njax.checkpoint` that knows the key names of a
Hugging Face `config.json`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from njax.errors import CheckpointError, StartupError

LayerKind = Literal["delta", "attention"]

BLOCK = 64
"""Tokens of a delta-rule block, of a KV page and of a prefix-hash block: one grid for all."""

KV_DTYPES = ("bf16", "int8")
"""How keys and values can be stored; int8 has one float16 scale for 64 elements of a head."""

SPECULATION = ("mtp",)
"""What can draft tokens: the checkpoint's multi-token layer."""

MAX_DRAFT_TOKENS = 5

MAX_LANES = 1024
"""A bound on nonsense; useful widths end far below."""

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
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type == "int":
                least = 0 if name in ("mtp_layers", "rotary_dim") else 1
                if type(value) is not int or value < least:
                    raise CheckpointError(
                        f"config: {name} is {value!r}, expected a whole number of at least {least}"
                    )
            elif field.type == "float" and not (
                type(value) is float and math.isfinite(value) and value > 0
            ):
                raise CheckpointError(f"config: {name} is {value!r}, expected a positive number")
        if not set(self.layer_kinds) <= {"delta", "attention"}:
            raise CheckpointError("config: a layer kind is neither 'delta' nor 'attention'")
        if not all(type(n) is int and n >= 0 for n in self.mrope_section):
            raise CheckpointError(
                f"config: mrope_section is {self.mrope_section!r}, expected three counts"
            )
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
        """The inverse of `to_dict`.

        Raises:
          CheckpointError: a field is missing, unknown or impossible; named.
        """
        if not isinstance(data, Mapping):
            raise CheckpointError("config: expected an object")
        names = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(map(str, set(data) - names))
        if unknown:
            raise CheckpointError(f"config: unknown fields {', '.join(unknown)}")
        values = dict(data)
        for name in ("layer_kinds", "mrope_section"):
            if not isinstance(values.get(name, ()), list | tuple):
                raise CheckpointError(f"config: {name} is {values[name]!r}, expected a list")
            if name in values:
                values[name] = tuple(values[name])
        try:
            return cls(**values)
        except TypeError as error:
            raise CheckpointError(f"config: {error}") from None

    @classmethod
    def from_hf(cls, hf: Mapping[str, Any]) -> ModelConfig:
        """Reads a `config.json` of the `qwen3_5` family.

        Accepts the flat text config and the multimodal one (its `text_config` part). A key that
        transformers' own config class would fill in takes the same default here, except for sizes
        of the model as a whole, which must be there.

        Raises:
          CheckpointError: another model type, a missing key or an impossible value; named.
        """
        outer = _Keys(hf)
        keys = _Keys(hf["text_config"]) if hf.get("text_config") is not None else outer
        model_type = keys.get("model_type", outer.get("model_type"))
        if model_type not in _TEXT_MODEL_TYPES:
            raise CheckpointError(
                f"config.json: model_type {model_type!r} is not supported; supported are "
                f"{', '.join(_TEXT_MODEL_TYPES)} (dense hybrids)"
            )
        activation = keys.get("hidden_act", "silu")
        if activation != "silu":
            raise CheckpointError(
                f"config.json: hidden_act {activation!r} is not supported, only 'silu'"
            )
        if keys.flag("attention_bias", False):
            raise CheckpointError("config.json: attention_bias true is not supported")
        if not keys.flag("attn_output_gate", True):
            raise CheckpointError("config.json: attn_output_gate false is not supported")
        rope = _rope(keys)
        layers, heads = keys.size("num_hidden_layers"), keys.size("num_attention_heads")
        head_dim = keys.size("head_dim", 256)
        factor = rope.number("partial_rotary_factor", keys.number("partial_rotary_factor", 0.25))
        if factor > 1:
            raise CheckpointError(
                f"config.json: partial_rotary_factor is {factor}, expected at most 1"
            )
        return cls(
            vocab_size=keys.size("vocab_size"),
            hidden_size=keys.size("hidden_size"),
            intermediate_size=keys.size("intermediate_size"),
            layer_kinds=_layer_kinds(keys, layers),
            num_heads=heads,
            num_kv_heads=keys.size("num_key_value_heads", 4),
            head_dim=head_dim,
            rotary_dim=int(head_dim * factor),
            rope_theta=rope.number("rope_theta", keys.number("rope_theta", 10_000.0)),
            mrope_section=_mrope_section(rope),
            delta_key_heads=keys.size("linear_num_key_heads"),
            delta_value_heads=keys.size("linear_num_value_heads"),
            delta_key_dim=keys.size("linear_key_head_dim"),
            delta_value_dim=keys.size("linear_value_head_dim"),
            conv_width=keys.size("linear_conv_kernel_dim", 4),
            rms_norm_eps=keys.number("rms_norm_eps", 1e-6),
            max_position=keys.size("max_position_embeddings", 32_768),
            # Of a multimodal config the outer key counts, whatever the text part says.
            tied_head=outer.flag("tie_word_embeddings", False),
            mtp_layers=keys.size("mtp_num_hidden_layers", 0, least=0),
        )


class _Keys:
    """Typed look-ups in a JSON object of `config.json`; null counts as absent."""

    def __init__(self, data: Any, name: str = "config.json"):
        if not isinstance(data, Mapping):
            raise CheckpointError(f"{name}: expected an object, found {str(data)[:60]!r}")
        self._data = data

    def get(self, key: str, default: Any = None) -> Any:
        value = self._data.get(key)
        return default if value is None else value

    def size(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.get(key, default)
        if value is None:
            raise CheckpointError(f"config.json: key {key!r} is missing")
        if type(value) is not int or not least <= value < 2**31:
            raise CheckpointError(
                f"config.json: {key} is {value!r}, expected a whole number of at least {least}"
            )
        return value

    def number(self, key: str, default: float) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise CheckpointError(f"config.json: {key} is {value!r}, expected a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if type(value) is not bool:
            raise CheckpointError(f"config.json: {key} is {value!r}, expected true or false")
        return value


def _rope(keys: _Keys) -> _Keys:
    """The rotary settings; whichever of the two spellings asks for a scaled kind is refused."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = _Keys(keys.get(name, {}), f"config.json: {name}")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", "mrope"):
            raise CheckpointError(
                f"config.json: {name} asks for rope type {kind!r}; only 'default' is supported"
            )
    # With both spellings there, transformers takes the older one.
    return _Keys(keys.get("rope_scaling") or keys.get("rope_parameters", {}))


def _layer_kinds(keys: _Keys, num_layers: int) -> tuple[LayerKind, ...]:
    names = keys.get("layer_types")
    if names is None:
        interval = keys.size("full_attention_interval", 4)
        return tuple(
            "delta" if (index + 1) % interval else "attention" for index in range(num_layers)
        )
    if not isinstance(names, list | tuple) or len(names) != num_layers:
        raise CheckpointError(
            f"config.json: layer_types must list {num_layers} layers (num_hidden_layers)"
        )
    unknown = sorted({str(name) for name in names} - set(_HF_LAYER_KINDS))
    if unknown:
        raise CheckpointError(f"config.json: unknown layer types {', '.join(unknown)}")
    return tuple(_HF_LAYER_KINDS[name] for name in names)


def _mrope_section(rope: _Keys) -> tuple[int, int, int]:
    section = rope.get("mrope_section", (11, 11, 10))
    if not isinstance(section, list | tuple) or len(section) != 3:
        raise CheckpointError(
            f"config.json: mrope_section is {section!r}, expected a list of three counts"
        )
    return (section[0], section[1], section[2])


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """How the engine runs a model. Token counts unless a name says otherwise.

    Attributes:
      max_context: tokens that a lane can absorb: the prompt and the answer but for its last token,
        which nothing follows; rounded up to whole blocks for memory.
      max_concurrency: lanes that decode together.
      max_pending: requests that may wait for a lane.
      pending_timeout_s: how long one may wait.
      prefill_chunk: most prompt tokens of one prefill step; a multiple of `BLOCK`.
      kv_capacity: tokens of the KV page pool, or None for max_concurrency * max_context.
      prefix_cache_bytes: budget of the seed store; 0 turns it off.
      kv_dtype: how keys and values are stored, one of `KV_DTYPES`; None: as activations are.
      spec: what drafts tokens ahead, one of `SPECULATION`; None: nothing.
      draft_tokens: most drafts of a lane in one round, 1 to `MAX_DRAFT_TOKENS`.
      draft_lanes: with more lanes busy than this nothing is drafted: then the device has enough to
        do without.
    """

    max_context: int = 8192
    max_concurrency: int = 4
    max_pending: int = 16
    pending_timeout_s: float = 30.0
    prefill_chunk: int = 512
    kv_capacity: int | None = None
    prefix_cache_bytes: int = 0
    kv_dtype: str | None = None
    spec: str | None = None
    draft_tokens: int = 3
    draft_lanes: int = 4

    def __post_init__(self) -> None:
        for name in ("max_context", "max_concurrency", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise StartupError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_concurrency > MAX_LANES:
            raise StartupError(
                f"max_concurrency is {self.max_concurrency}; at most {MAX_LANES} lanes are possible"
            )
        if self.max_pending < 0:
            raise StartupError(f"max_pending is {self.max_pending}; it must not be negative")
        if self.pending_timeout_s <= 0:
            raise StartupError("pending_timeout_s must be positive")
        if self.prefix_cache_bytes < 0:
            raise StartupError("prefix_cache_bytes must not be negative")
        if self.kv_dtype is not None and self.kv_dtype not in KV_DTYPES:
            raise StartupError(f"kv_dtype is {self.kv_dtype!r}; there are {', '.join(KV_DTYPES)}")
        if self.spec is not None and self.spec not in SPECULATION:
            raise StartupError(f"spec is {self.spec!r}; there is {', '.join(SPECULATION)}, or none")
        if not 1 <= self.draft_tokens <= MAX_DRAFT_TOKENS:
            raise StartupError(
                f"draft_tokens is {self.draft_tokens}; it must be 1 to {MAX_DRAFT_TOKENS}"
            )
        if self.draft_lanes < 1:
            raise StartupError(f"draft_lanes is {self.draft_lanes}; it must be at least 1")
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
    def drafting(self) -> bool:
        """Whether tokens are drafted ahead."""
        return self.spec is not None

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
