"""Arrays that are read and converted a block of rows at a time.

Everything that conversion does to a tensor (casts, checks, packing) works on rows alone, so no
tensor is ever whole in host memory, however large.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from njax.checkpoint.safetensors_files import SourceTensor
from njax.errors import CheckpointError

BLOCK_BYTES = 32 << 20
"""Most bytes of one block (at least one row); also the chunk size on disk."""

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
FLOATS = (BF16, F32, np.dtype(np.float16))
"""Element types of plain weights."""


@dataclasses.dataclass(frozen=True)
class LazyArray:
    """An array to be written.

    Attributes:
      shape, dtype: of the result.
      rows: (low, high) -> rows [low, high) of axis 0, in order, each once; for a scalar the whole
        array. Raises `CheckpointError` when the source is bad.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[int, int], np.ndarray[Any, Any]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def block_rows(self) -> int:
        """Rows of one block; blocks are the chunks on disk."""
        if not self.shape or not self.nbytes:
            return 1
        return max(1, min(self.shape[0], BLOCK_BYTES * self.shape[0] // self.nbytes))

    def blocks(self) -> Iterator[tuple[int, int, np.ndarray[Any, Any]]]:
        """(low, high, rows) over the whole array; a scalar is one block (0, 0, value)."""
        if not self.shape:
            yield 0, 0, self.rows(0, 0)
            return
        step = self.block_rows
        for low in range(0, self.shape[0], step):
            high = min(low + step, self.shape[0])
            yield low, high, self.rows(low, high)

    def read(self) -> np.ndarray[Any, Any]:
        """The whole array in memory, for small tensors and tests."""
        out = np.empty(self.shape, self.dtype)
        for low, high, block in self.blocks():
            if self.shape:
                out[low:high] = block
            else:
                out[()] = block
        return out


def in_memory(array: np.ndarray[Any, Any]) -> LazyArray:
    """An array that exists already."""
    return LazyArray(array.shape, array.dtype, lambda low, high: _slice(array, low, high))


def plain(source: SourceTensor, rows: slice, shape: tuple[int, ...], dtype: Any) -> LazyArray:
    """Rows of a bf16, float16 or float32 tensor, cast to `dtype` (round to nearest even), checked.

    Args:
      rows: which rows of the source; `shape` is the shape they have in the result (axes of size 1
        may go: [C, 1, W] becomes [C, W]).

    `rows` of the result raises `CheckpointError` for a NaN, an infinity, or a value too large for
    `dtype`.
    """
    start = rows.start or 0

    def read(low: int, high: int) -> np.ndarray[Any, Any]:
        block = source.rows(start + low, start + high)
        return cast_finite(source.name, block, dtype, start + low).reshape((high - low, *shape[1:]))

    return LazyArray(shape, np.dtype(dtype), read)


def untouched(source: SourceTensor) -> LazyArray:
    """A tensor exactly as stored; element types that zarr does not know become raw bytes.

    float8 values are uint8 of the same shape; anything else is uint8 [nbytes].
    """
    code = source.code
    if code.startswith("F8_") and code in ("F8_E4M3", "F8_E5M2", "F8_E8M0"):
        return LazyArray(
            source.shape,
            np.dtype(np.uint8),
            lambda low, high: source.rows(low, high).view(np.uint8),
        )
    try:
        dtype = source.dtype
    except CheckpointError:
        return LazyArray(
            (source.nbytes,),
            np.dtype(np.uint8),
            lambda low, high: source.read_bytes(low, high - low),
        )
    return LazyArray(source.shape, dtype, source.rows)


def cast_finite(
    name: str, block: np.ndarray[Any, Any], dtype: Any, first_row: int = 0
) -> np.ndarray[Any, Any]:
    """`block` as `dtype`; a `CheckpointError` names the first entry that is not finite there."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = block if block.dtype == np.dtype(dtype) else block.astype(dtype)
    bad = ~_finite(result)
    if bad.any():
        where = [int(i) for i in np.argwhere(bad)[0]] if bad.ndim else []
        value = block[tuple(where)]
        if where:
            where[0] += first_row
        kind = "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value}"
        reason = (
            "weights must be finite"
            if not np.isfinite(value)
            else f"too large for {np.dtype(dtype).name}"
        )
        raise CheckpointError(
            f"{name}: {kind} at {where} ({int(bad.sum())} in this block); {reason}"
        )
    return result


def _finite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype == BF16:
        # NumPy's isfinite goes through Python for extension types; the exponent bits say it too.
        return (array.view(np.uint16) & 0x7F80) != 0x7F80
    return np.isfinite(array)


def _slice(array: np.ndarray[Any, Any], low: int, high: int) -> np.ndarray[Any, Any]:
    return array[low:high] if array.ndim else array
