"""Hugging Face tensor names of the `qwen3_5` family, mapped to the canonical ones.

The text model's tensors may carry the prefix `model.language_model.`, `language_model.model.`,
`language_model.`, `model.` or none. A name is split into its owner (canonical module path, e.g.
`layers.0.mlp.gate_proj`) and its leaf (`weight`, `weight_scale`, ...), so that everything that
describes one matrix is found together whatever its number format.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from njax.checkpoint.safetensors_files import SourceTensor
from njax.errors import CheckpointError

_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")

_MODULES = {
    "input_layernorm": "input_norm",
    "post_attention_layernorm": "post_norm",
    "self_attn.q_proj": "attention.q_proj",
    "self_attn.k_proj": "attention.k_proj",
    "self_attn.v_proj": "attention.v_proj",
    "self_attn.o_proj": "attention.o_proj",
    "self_attn.q_norm": "attention.q_norm",
    "self_attn.k_norm": "attention.k_norm",
    "self_attn.qkv_proj": "attention.qkv_proj",
    "self_attn": "attention",
    "linear_attn.in_proj_qkv": "delta.qkv_proj",
    "linear_attn.in_proj_z": "delta.z_proj",
    "linear_attn.in_proj_b": "delta.b_proj",
    "linear_attn.in_proj_a": "delta.a_proj",
    "linear_attn.conv1d": "delta.conv",
    "linear_attn.norm": "delta.norm",
    "linear_attn.out_proj": "delta.out_proj",
    "linear_attn": "delta",
    "mlp.gate_proj": "mlp.gate_proj",
    "mlp.up_proj": "mlp.up_proj",
    "mlp.gate_up_proj": "mlp.gate_up_proj",
    "mlp.down_proj": "mlp.down_proj",
}
_TOP = {"embed_tokens": "embedding", "norm": "final_norm", "lm_head": "head"}

FUSED = {
    "attention.qkv_proj": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Modules that some exporters store as one matrix: the parts, in row order."""

_EXPERT = re.compile(r"layers\.\d+\.mlp\.(experts?\b|gate\.|shared_expert)")
_LAYER = re.compile(r"layers\.(\d+)\.(.+)")


@dataclasses.dataclass
class Inventory:
    """The tensors of a source, sorted by what they belong to.

    Attributes:
      owners: canonical module path -> leaf name -> tensor.
      extra: tensors of parts that are carried along untouched (vision, multi-token prediction).
      unknown: names that belong to nothing this family has.
    """

    owners: dict[str, dict[str, SourceTensor]]
    extra: dict[str, SourceTensor]
    unknown: list[str]


def take_inventory(tensors: Iterable[SourceTensor]) -> Inventory:
    """Sorts tensors by owner.

    Raises:
      CheckpointError: two names for one tensor (say, with and without prefix), or routed experts.
    """
    found = Inventory({}, {}, [])
    for tensor in tensors:
        name = strip_prefix(tensor.name)
        if name.startswith(("mtp.", "visual.")):
            found.extra[tensor.name] = tensor
            continue
        if _EXPERT.match(name):
            raise CheckpointError(
                f"{tensor.name}: routed experts are not supported yet, neither one tensor an "
                "expert nor all in one; only dense checkpoints of this family can be converted"
            )
        place = locate(name)
        if place is None:
            found.unknown.append(tensor.name)
            continue
        owner, leaf = place
        leaves = found.owners.setdefault(owner, {})
        if leaf in leaves:
            raise CheckpointError(
                f"{tensor.name}: is the same tensor as {leaves[leaf].name} under another name; "
                "keep one"
            )
        leaves[leaf] = tensor
    return found


def locate(name: str) -> tuple[str, str] | None:
    """(owner, leaf) of a name without prefix, e.g. ("layers.0.delta", "A_log"), or None."""
    layer = _LAYER.fullmatch(name)
    if layer is None:
        module, _, leaf = name.partition(".")
        return (_TOP[module], leaf) if module in _TOP and leaf else None
    index, rest = layer.groups()
    for module, canonical in _MODULES.items():
        if rest.startswith(module + "."):
            return f"layers.{int(index)}.{canonical}", rest[len(module) + 1 :]
    return None


def hf_name(canonical: str) -> str:
    """The usual Hugging Face name of a canonical tensor, for messages."""
    owner, _, leaf = canonical.rpartition(".")
    layer = _LAYER.fullmatch(owner)
    if layer is None:
        names = {ours: theirs for theirs, ours in _TOP.items()}
        return f"{'' if owner == 'head' else 'model.'}{names[owner]}.{leaf}"
    names = {ours: theirs for theirs, ours in _MODULES.items()}
    return f"model.layers.{layer[1]}.{names[layer[2]]}.{leaf}"


def strip_prefix(name: str) -> str:
    """A source's name without the family's prefix."""
    prefix = next(p for p in _PREFIXES if name.startswith(p))
    return name[len(prefix) :]
