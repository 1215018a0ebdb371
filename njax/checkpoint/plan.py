"""From a source's tensors to the list of tensors that a conversion writes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from njax.checkpoint.formats import INPUT_SCALES, Part, check_shape, plan_matrix
from njax.checkpoint.hf import FUSED, Inventory, hf_name, take_inventory
from njax.checkpoint.layout import TensorSpec, tensor_specs
from njax.checkpoint.lazy import BF16, F32, FLOATS, LazyArray, plain, untouched
from njax.checkpoint.planned import PlannedTensor, plain_tensor
from njax.checkpoint.requantize import quantized
from njax.checkpoint.safetensors_files import SourceFiles, SourceTensor
from njax.config import ModelConfig
from njax.errors import CheckpointError

EXTRA = "extra."
"""Prefix of the names of carried-along tensors."""

_CACHE_SCALES = ("k_scale", "v_scale", "k_proj.k_scale", "v_proj.v_scale")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a conversion will write.

    Attributes:
      tensors: in order; carried-along ones last, named `extra.` and the source's name.
      not_quantized: name -> reason, for linear weights that `--quantize` had to leave.
      warnings: what was tolerated, for the user and the manifest.
    """

    tensors: tuple[PlannedTensor, ...]
    not_quantized: dict[str, str]
    warnings: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def arrays(self) -> dict[str, LazyArray]:
        """Every array to be written, by its name on disk."""
        return {
            name: array for tensor in self.tensors for name, array in tensor.named_arrays().items()
        }


def make_plan(source: SourceFiles, config: ModelConfig, *, quantize: bool, dtype: str) -> Plan:
    """Plans every tensor of the model; reads headers and scales only.

    Args:
      quantize: make NVFP4 of plain linear weights.
      dtype: "bfloat16" or "float32", of everything that stays plain.

    Raises:
      CheckpointError: missing, surplus, doubled, mis-shaped or mis-typed tensors.
    """
    specs = tensor_specs(config)
    found = take_inventory(source.tensors.values())
    places = {name: _place(spec, specs, found) for name, spec in specs.items()}
    missing = [hf_name(name) for name, place in places.items() if place is None]
    if missing:
        raise CheckpointError(
            f"the source lacks {_list(missing)}, which the model its config describes has"
        )
    planner = _Planner(found, F32 if dtype == "float32" else BF16, quantize)
    if config.tied_head:
        planner.drop_tied_head()
    for name, place in places.items():
        assert place is not None
        planner.add(specs[name], *place)
    planner.finish()
    return Plan(tuple(planner.tensors), planner.not_quantized, tuple(planner.warnings))


def _place(
    spec: TensorSpec, specs: Mapping[str, TensorSpec], found: Inventory
) -> tuple[str, str, Part] | None:
    """(owner, leaf, rows) under which the source has a tensor; None if it has not."""
    owner, _, leaf = spec.name.rpartition(".")
    whole = Part(0, spec.shape[0])
    if spec.role in ("vector", "state"):
        return (owner, leaf, whole) if leaf in found.owners.get(owner, ()) else None
    if owner in found.owners:
        return owner, leaf, whole
    match = re.fullmatch(r"(layers\.\d+)\.(.+)", owner)
    for fused, parts in FUSED.items():
        if match and match[2] in parts and f"{match[1]}.{fused}" in found.owners:
            sizes = [specs[f"{match[1]}.{part}.weight"].shape[0] for part in parts]
            index = parts.index(match[2])
            part = Part(sum(sizes[:index]), sum(sizes), index, len(parts))
            return f"{match[1]}.{fused}", leaf, part
    return None


class _Planner:
    """Collects planned tensors and keeps book of the source tensors that they use."""

    def __init__(self, found: Inventory, dtype: np.dtype[Any], quantize: bool):
        self.tensors: list[PlannedTensor] = []
        self.not_quantized: dict[str, str] = {}
        self.warnings: list[str] = []
        self._found, self._dtype, self._quantize = found, dtype, quantize
        self._used: set[str] = set()

    def drop_tied_head(self) -> None:
        """A head beside a config that ties it: fine as a copy of the embedding, else ambiguous."""
        head = self._found.owners.pop("head", None)
        if head is None:
            return
        weight, table = head.get("weight"), self._found.owners.get("embedding", {}).get("weight")
        if len(head) > 1 or weight is None or table is None or not _same(weight, table):
            names = ", ".join(tensor.name for tensor in head.values())
            raise CheckpointError(
                f"{names}: differs from the embedding, but config.json says tie_word_embeddings; "
                "set it to false to use this head, or remove the tensor to use the embedding"
            )

    def add(self, spec: TensorSpec, owner: str, leaf: str, part: Part) -> None:
        leaves = self._found.owners[owner]
        if spec.role in ("linear", "table"):
            self._add_matrix(spec, leaves, part)
            return
        source = leaves[leaf]
        if source.dtype not in FLOATS:
            raise CheckpointError(
                f"{source.name} ({spec.name}): type {source.code}, expected BF16, F16 or F32"
            )
        if owner.endswith(".conv"):
            # PyTorch keeps an axis for the one input channel of a depthwise convolution.
            check_shape(spec.name, source, (spec.shape[0], 1, spec.shape[1]))
        else:
            check_shape(spec.name, source, spec.shape)
        dtype = F32 if spec.role == "state" else self._dtype
        array = plain(source, slice(0, spec.shape[0]), spec.shape, dtype)
        self._keep(plain_tensor(spec.name, array, source.name))

    def _add_matrix(self, spec: TensorSpec, leaves: Mapping[str, SourceTensor], part: Part) -> None:
        n, k = spec.shape
        plan = plan_matrix(spec.name, leaves, (n, k), part, self._dtype)
        if self._quantize and spec.role == "linear" and plan.kind in ("bfloat16", "float32"):
            if k % 16:
                self.not_quantized[spec.name] = f"K is {k}, not a multiple of 16"
            else:
                rows = slice(part.start, part.start + n)
                weight = next(t for t in leaves.values() if t.name in plan.sources)
                plan = quantized(plan, plain(weight, rows, spec.shape, F32))
        self._keep(plan)

    def _keep(self, plan: PlannedTensor) -> None:
        self.tensors.append(plan)
        self._used.update(plan.sources)

    def finish(self) -> None:
        """Carries along what is known but unused; refuses what is unknown."""
        carried = dict(self._found.extra)
        unknown = list(self._found.unknown)
        for leaves in self._found.owners.values():
            for leaf, tensor in leaves.items():
                if tensor.name in self._used:
                    continue
                if leaf in INPUT_SCALES:
                    if self._usable(tensor):
                        carried[tensor.name] = tensor
                elif leaf in _CACHE_SCALES:
                    carried[tensor.name] = tensor
                else:
                    unknown.append(tensor.name)
        if unknown:
            raise CheckpointError(
                f"the source has {_list(sorted(unknown))}, which the model its config describes "
                "does not have"
            )
        for name, tensor in sorted(carried.items()):
            self.tensors.append(
                PlannedTensor(
                    EXTRA + name, "raw", tensor.shape, {"": untouched(tensor)}, (name,), tensor.code
                )
            )

    def _usable(self, scale: SourceTensor) -> bool:
        """Activation scales are not used by weight-only arithmetic: a bad one is only dropped."""
        values = scale.read().astype(np.float32) if scale.dtype in FLOATS else np.zeros(1)
        if np.isfinite(values).all() and (values > 0).all():
            return True
        self.warnings.append(
            f"{scale.name}: has an entry that is not finite and positive (uninitialised?); dropped"
        )
        return False


def _same(a: SourceTensor, b: SourceTensor) -> bool:
    if (a.code, a.shape) != (b.code, b.shape):
        return False
    step = 16 << 20
    return all(
        np.array_equal(
            a.read_bytes(at, min(step, a.nbytes - at)), b.read_bytes(at, min(step, a.nbytes - at))
        )
        for at in range(0, a.nbytes, step)
    )


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
