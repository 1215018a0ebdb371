"""Decides, matrix by matrix, which number format a source uses, by element type and shape.

One checkpoint may hold NVFP4, FP8 and plain matrices side by side, and `weight_scale` means
different things in NVFP4 and FP8, so nothing is decided for a whole model or by a name alone:

* bf16, float16 or float32 `weight` without scales: plain.
* uint8 [N, K/2] codes, float8_e4m3fn [N, K/16] `weight_scale`, one matrix scale: NVFP4. The name of
  the matrix scale tells multiplier (ModelOpt) from divisor (compressed-tensors).
* float8_e4m3fn [N, K] `weight` and a float `weight_scale` of N entries or one: FP8 rows.

Anything else is refused by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from njax.checkpoint.compressed_tensors import COMPRESSED_TENSORS
from njax.checkpoint.dialect import Dialect
from njax.checkpoint.lazy import FLOATS, LazyArray, cast_finite, in_memory, plain
from njax.checkpoint.modelopt import MODELOPT
from njax.checkpoint.planned import FP8, PlannedTensor, plain_tensor
from njax.checkpoint.safetensors_files import SourceTensor
from njax.errors import CheckpointError

Leaves = Mapping[str, SourceTensor]

_DIALECTS: tuple[Dialect, ...] = (MODELOPT, COMPRESSED_TENSORS)
INPUT_SCALES = tuple(d.input_scale for d in _DIALECTS)
_GLOBALS = tuple(d.global_scale for d in _DIALECTS)
_U8 = np.dtype(np.uint8)
_TINY = np.finfo(np.float32).smallest_normal
"""Accelerators flush smaller numbers to zero."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Which rows of a stored matrix make up the wanted one.

    Attributes:
      start, total: first row, and rows of the stored matrix.
      index, count: which part of how many; (0, 1) when the matrix is stored on its own.
    """

    start: int
    total: int
    index: int = 0
    count: int = 1


def plan_matrix(
    name: str, leaves: Leaves, shape: tuple[int, int], part: Part, dtype: np.dtype[Any]
) -> PlannedTensor:
    """Plans one matrix [N, K] in the format that the source has it in.

    Args:
      leaves: everything the source stores for the module, by leaf name.
      dtype: of a plain result.

    Raises:
      CheckpointError: an unknown format, a wrong shape, a missing or meaningless scale.
    """
    packed = [d.packed for d in _DIALECTS if d.packed in leaves]
    if not packed:
        raise CheckpointError(
            f"{next(iter(leaves.values())).name}: belongs to {name}, whose weight itself is missing"
        )
    if len(packed) > 1:
        raise CheckpointError(
            f"{name}: stored twice, as {leaves[packed[0]].name} and {leaves[packed[1]].name}"
        )
    weight = leaves[packed[0]]
    if weight.code == "U8":
        return _nvfp4(name, leaves, weight, shape, part)
    if weight.code == "F8_E4M3":
        return _fp8(name, leaves, weight, shape, part)
    if weight.dtype not in FLOATS:
        raise CheckpointError(
            f"{weight.name}: a weight of type {weight.code} is not supported; expected BF16, F16 "
            "or F32, F8_E4M3 with weight_scale, or U8 (NVFP4) with weight_scale and a matrix scale"
        )
    for leaf, scale in leaves.items():
        if leaf.startswith("weight_") and leaf != packed[0]:
            raise CheckpointError(
                f"{scale.name}: has no meaning beside {weight.name}, which is {weight.code}"
            )
    check_shape(name, weight, (part.total, shape[1]))
    rows = slice(part.start, part.start + shape[0])
    array = plain(weight, rows, shape, dtype)
    return plain_tensor(name, array, weight.name)


def check_shape(name: str, source: SourceTensor, *allowed: tuple[int, ...]) -> None:
    """Raises `CheckpointError` unless the source has one of the shapes."""
    if source.shape not in allowed:
        expected = " or ".join(str(list(shape)) for shape in allowed)
        raise CheckpointError(
            f"{source.name} ({name}): shape {list(source.shape)}, expected {expected} by the config"
        )


def _nvfp4(
    name: str, leaves: Leaves, weight: SourceTensor, shape: tuple[int, int], part: Part
) -> PlannedTensor:
    n, k = shape
    if k % 16:
        raise CheckpointError(f"{weight.name}: NVFP4 needs K a multiple of 16, {name} has K {k}")
    scales = _leaf(leaves, "weight_scale", weight, "NVFP4")
    if scales.code != "F8_E4M3":
        raise CheckpointError(
            f"{scales.name}: {scales.describe()}, expected F8_E4M3 block scales (other 4-bit "
            "formats than NVFP4 are not supported)"
        )
    check_shape(name, weight, (part.total, k // 2))
    check_shape(name, scales, (part.total, k // 16))
    present = [d for d in _DIALECTS if d.global_scale in leaves]
    if len(present) != 1:
        what = "both" if present else "neither of"
        raise CheckpointError(
            f"{weight.name}: NVFP4 with {what} {' and '.join(_GLOBALS)}; expected exactly one"
        )
    dialect = present[0]
    stored = _positive(leaves[dialect.global_scale], part)
    with np.errstate(over="ignore"):
        multiplier = dialect.multiplier(stored)
    if not (np.isfinite(multiplier) and multiplier >= _TINY):
        raise CheckpointError(
            f"{leaves[dialect.global_scale].name}: the inverse of {stored} is no finite, "
            "positive, normal float32"
        )

    def read_scales(low: int, high: int) -> np.ndarray[Any, Any]:
        bits = scales.rows(part.start + low, part.start + high).view(np.uint8)
        _check_bits(scales.name, bits, bits > 0x7E, "negative or NaN block scale", low + part.start)
        return bits

    def read_codes(low: int, high: int) -> np.ndarray[Any, Any]:
        codes = weight.rows(part.start + low, part.start + high)
        # A zero scale is legal only where it loses nothing: all 16 codes of its block are zero.
        zero = read_scales(low, high) == 0
        if zero.any():
            used = (codes.reshape(high - low, k // 16, 8) & 0x77).any(axis=-1)
            _check_bits(
                scales.name,
                zero,
                zero & used,
                "zero scale of a block of nonzero codes",
                low + part.start,
            )
        return codes

    arrays = {
        "codes": LazyArray((n, k // 2), _U8, read_codes),
        "scales": LazyArray((n, k // 16), _U8, read_scales),
        "global_scale": in_memory(np.asarray(multiplier, np.float32)),
    }
    sources = (weight.name, scales.name, leaves[dialect.global_scale].name)
    return PlannedTensor(name, "nvfp4", shape, arrays, sources)


def _fp8(
    name: str, leaves: Leaves, weight: SourceTensor, shape: tuple[int, int], part: Part
) -> PlannedTensor:
    n, k = shape
    check_shape(name, weight, (part.total, k))
    if "weight_scale_inv" in leaves:
        raise CheckpointError(
            f"{leaves['weight_scale_inv'].name}: FP8 with scales of square blocks is not "
            "supported; expected weight_scale with one entry a row, or one in all"
        )
    for leaf in _GLOBALS:
        if leaf in leaves:
            raise CheckpointError(
                f"{leaves[leaf].name}: has no meaning beside {weight.name}, which is F8_E4M3"
            )
    source = _leaf(leaves, "weight_scale", weight, "FP8")
    if source.dtype not in FLOATS:
        raise CheckpointError(f"{source.name}: {source.describe()}, expected BF16, F16 or F32")
    check_shape(name, source, (), (1,), (1, 1), (part.total,), (part.total, 1), (part.count,))
    stored = cast_finite(source.name, source.read(), np.float32).reshape(-1)
    if stored.size == part.total:
        scale = stored[part.start : part.start + n]
    else:
        scale = np.full(n, stored[part.index if stored.size == part.count else 0], np.float32)
    negative = scale < 0
    _check_bits(source.name, scale, negative, "negative row scale", part.start)

    def read_values(low: int, high: int) -> np.ndarray[Any, Any]:
        values = weight.rows(part.start + low, part.start + high)
        bits = values.view(np.uint8) & 0x7F
        _check_bits(weight.name, values, bits == 0x7F, "NaN", part.start + low)
        zero = (scale[low:high] == 0) & (bits != 0).any(axis=1)
        _check_bits(source.name, zero, zero, "zero scale of a nonzero row", part.start + low)
        return values

    arrays = {"values": LazyArray(shape, FP8, read_values), "scale": in_memory(scale)}
    return PlannedTensor(name, "fp8", shape, arrays, (weight.name, source.name))


def _positive(source: SourceTensor, part: Part) -> np.float32:
    """The matrix scale of a part: one for all parts, or one each."""
    check_shape("a matrix scale", source, (), (1,), (part.count,))
    if source.dtype not in FLOATS:
        raise CheckpointError(f"{source.name}: {source.describe()}, expected F32")
    values = source.read().astype(np.float32).reshape(-1)
    value = values[part.index if values.size == part.count else 0]
    if not (np.isfinite(value) and value >= _TINY):
        raise CheckpointError(
            f"{source.name}: matrix scale {value}, expected a finite, positive, normal float32"
        )
    return np.float32(value)


def _leaf(leaves: Leaves, leaf: str, weight: SourceTensor, form: str) -> SourceTensor:
    if leaf not in leaves:
        raise CheckpointError(
            f"{weight.name}: is {weight.describe()}, which means {form}, but its {leaf} is missing"
        )
    return leaves[leaf]


def _check_bits(
    name: str,
    values: np.ndarray[Any, Any],
    bad: np.ndarray[Any, Any],
    what: str,
    first_row: int,
) -> None:
    if bad.any():
        where = [int(i) for i in np.argwhere(bad)[0]]
        where[0] += first_row
        raise CheckpointError(f"{name}: {what} at {where} ({int(bad.sum())} in this block)")
