"""What will be written for one tensor, and how a weight value becomes arrays and back.

Weights are kept on disk as whole-byte arrays: an NVFP4 weight is `NAME.codes`, `NAME.scales` and
`NAME.global_scale`, an FP8 weight `NAME.values` and `NAME.scale`, a plain one just `NAME`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import ml_dtypes
import numpy as np

from njax.checkpoint.lazy import LazyArray, in_memory
from njax.quantization import FP8Weight, NVFP4Weight

Kind = Literal["bfloat16", "float32", "nvfp4", "fp8", "raw"]
"""Number format of a tensor; "raw" is a carried-along tensor that is stored untouched."""

Weight = jax.Array | NVFP4Weight | FP8Weight

FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
ARRAY_NAMES: dict[str, tuple[str, ...]] = {
    "nvfp4": ("codes", "scales", "global_scale"),
    "fp8": ("values", "scale"),
}


@dataclasses.dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the result.

    Attributes:
      name: canonical name, or `extra.` and the source's name.
      shape: logical shape ([N, K] whatever the format).
      arrays: part name ("" for a plain array) -> what is written.
      sources: names of the source tensors that it is made of.
      code: the source's element type, for raw tensors.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    arrays: Mapping[str, LazyArray]
    sources: tuple[str, ...] = ()
    code: str = ""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def named_arrays(self) -> dict[str, LazyArray]:
        """Array name on disk -> array."""
        return {array_name(self.name, part): array for part, array in self.arrays.items()}


def array_name(name: str, part: str) -> str:
    return f"{name}.{part}" if part else name


def expected_arrays(
    name: str, kind: str, shape: tuple[int, ...]
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Arrays on disk of a model tensor of a kind: array name -> (shape, dtype)."""
    byte, f32 = np.dtype(np.uint8), np.dtype(np.float32)
    if kind == "nvfp4":
        n, k = shape
        return {
            f"{name}.codes": ((n, k // 2), byte),
            f"{name}.scales": ((n, k // 16), byte),
            f"{name}.global_scale": ((), f32),
        }
    if kind == "fp8":
        return {f"{name}.values": (shape, FP8), f"{name}.scale": (shape[:1], f32)}
    return {name: (shape, np.dtype(ml_dtypes.bfloat16) if kind == "bfloat16" else f32)}


def assemble(name: str, kind: str, arrays: Mapping[str, jax.Array]) -> Weight:
    """The weight value of a tensor from its arrays on disk, by array name."""
    if kind == "nvfp4":
        return NVFP4Weight(*(arrays[f"{name}.{part}"] for part in ARRAY_NAMES[kind]))
    if kind == "fp8":
        return FP8Weight(*(arrays[f"{name}.{part}"] for part in ARRAY_NAMES[kind]))
    return arrays[name]


def plain_tensor(name: str, array: LazyArray, *sources: str) -> PlannedTensor:
    """A tensor that is kept as the array it is, bfloat16 or float32."""
    kind: Kind = "bfloat16" if array.dtype == ml_dtypes.bfloat16 else "float32"
    return PlannedTensor(name, kind, array.shape, {"": array}, sources)


def from_weight(name: str, weight: Weight) -> PlannedTensor:
    """A tensor whose weight is in memory already; inverse of `assemble`."""
    kind: Kind
    if isinstance(weight, NVFP4Weight):
        kind = "nvfp4"
    elif isinstance(weight, FP8Weight):
        kind = "fp8"
    else:
        return plain_tensor(name, in_memory(np.asarray(weight)))
    arrays = {part: in_memory(np.asarray(getattr(weight, part))) for part in ARRAY_NAMES[kind]}
    return PlannedTensor(name, kind, weight.shape, arrays)
