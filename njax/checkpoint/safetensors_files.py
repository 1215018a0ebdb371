"""The safetensors files of a Hugging Face directory: which tensors are where, and their rows.

Headers are validated by the safetensors library. Data is read with plain positioned reads, a block
of rows at a time, and not through its memory map: so a tensor never has to be whole in memory, and
the resident size of the process says what the conversion really needs.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from njax.checkpoint.json_files import read_json
from njax.errors import CheckpointError

INDEX = "model.safetensors.index.json"
MAX_NAME = 200
"""Bytes of a tensor name in UTF-8; with what is put before and after it must be a file name."""

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""safetensors dtype codes that NumPy (with ml_dtypes) can hold, one element a byte or more."""


@dataclasses.dataclass(frozen=True)
class SourceTensor:
    """One tensor of a safetensors file, not read yet.

    Attributes:
      name: as the file spells it.
      code: safetensors dtype code, e.g. "BF16".
      shape: element counts.
      offset, nbytes: where its bytes lie in `file`.
    """

    name: str
    file: Path
    code: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Raises `CheckpointError` for a dtype that NumPy cannot hold."""
        try:
            return DTYPES[self.code]
        except KeyError:
            raise CheckpointError(
                f"{self.name} ({self.file}): dtype {self.code} is not supported; "
                f"supported are {', '.join(DTYPES)}"
            ) from None

    def describe(self) -> str:
        return f"{self.code} {list(self.shape)}"

    def rows(self, low: int, high: int) -> np.ndarray[Any, Any]:
        """Rows [low, high) of axis 0: [high - low, ...]. A scalar is read whole, whatever the rows.

        Raises:
          CheckpointError: the file is shorter than its header says, or unreadable.
        """
        dtype = self.dtype
        shape = (high - low, *self.shape[1:]) if self.shape else ()
        row_bytes = math.prod(self.shape[1:]) * dtype.itemsize
        data = self.read_bytes(low * row_bytes, math.prod(shape) * dtype.itemsize)
        return data.view(dtype).reshape(shape)

    def read_bytes(self, start: int, count: int) -> np.ndarray[Any, Any]:
        """`count` raw bytes of the tensor from byte `start`: uint8 [count]."""
        try:
            data = np.fromfile(self.file, np.uint8, count, offset=self.offset + start)
        except OSError as error:
            raise CheckpointError(f"{self.name}: cannot read {self.file}: {error}") from error
        if data.size != count:
            raise CheckpointError(
                f"{self.name}: {self.file} is truncated: {count - data.size} bytes are missing"
            )
        return data

    def read(self) -> np.ndarray[Any, Any]:
        """The whole tensor; for small ones."""
        return self.rows(0, self.shape[0] if self.shape else 0)


@dataclasses.dataclass(frozen=True)
class SourceFiles:
    """All tensors of a checkpoint directory, by name, and the files that hold them."""

    tensors: dict[str, SourceTensor]
    files: tuple[Path, ...]


def open_directory(directory: Path) -> SourceFiles:
    """Reads the headers of a checkpoint: one safetensors file, or shards with an index.

    Raises:
      CheckpointError: no safetensors, a missing or damaged file, an index that disagrees with the
        shards, or one tensor in two shards; the text names the path and the tensor.
    """
    index = directory / INDEX
    if index.is_file():
        return _open_shards(directory, index)
    found = sorted(directory.glob("*.safetensors"))
    preferred = directory / "model.safetensors"
    if preferred in found:
        found = [preferred]
    if not found:
        other = [p.name for p in directory.glob("*.bin")] + [p.name for p in directory.glob("*.pt")]
        hint = f" (found {', '.join(sorted(other))}; only safetensors is read)" if other else ""
        raise CheckpointError(f"{directory}: holds no safetensors file{hint}")
    if len(found) > 1:
        raise CheckpointError(
            f"{directory}: holds {len(found)} safetensors files but no {INDEX} that says which "
            "tensor is in which"
        )
    return SourceFiles(read_header(found[0]), (found[0],))


def _open_shards(directory: Path, index: Path) -> SourceFiles:
    where = _weight_map(index)
    tensors: dict[str, SourceTensor] = {}
    files: list[Path] = []
    for shard in sorted(set(where.values())):
        path = directory / shard
        if not path.is_file():
            raise CheckpointError(f"{index}: shard {shard} does not exist in {directory}")
        files.append(path)
        for name, tensor in read_header(path).items():
            if name in tensors:
                raise CheckpointError(
                    f"{name}: is in two shards, {tensors[name].file.name} and {shard}; "
                    "each tensor must be in one"
                )
            tensors[name] = tensor
    for name, shard in where.items():
        if name not in tensors or tensors[name].file.name != Path(shard).name:
            raise CheckpointError(f"{name}: {index.name} says it is in {shard}, but it is not")
    unlisted = sorted(set(tensors) - set(where))
    if unlisted:
        raise CheckpointError(
            f"{unlisted[0]}: is in {tensors[unlisted[0]].file.name} but not in {index.name}"
        )
    return SourceFiles(tensors, tuple(files))


def _weight_map(index: Path) -> dict[str, str]:
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise CheckpointError(f"{index}: not a safetensors index: weight_map is empty or missing")
    if not all(isinstance(shard, str) for shard in where.values()):
        raise CheckpointError(f"{index}: weight_map does not map tensor names to file names")
    for shard in where.values():
        if Path(shard).is_absolute() or ".." in Path(shard).parts:
            raise CheckpointError(f"{index}: shard path {shard!r} leaves the directory")
    return where


def read_header(path: Path) -> dict[str, SourceTensor]:
    """Tensors of one safetensors file, by name.

    Raises:
      CheckpointError: the file is truncated or its header damaged.
    """
    try:
        # The library checks what must hold: lengths, offsets without gaps or overlaps, sizes.
        with safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}); it may be truncated or damaged, "
            "download it again"
        ) from None
    for name in header:
        problem = _unusable(name)
        if problem:
            raise CheckpointError(f"{path}: the tensor name {name[:300]!r} {problem}; rename it")
    base = 8 + length
    return {
        name: SourceTensor(
            name,
            path,
            entry["dtype"],
            tuple(entry["shape"]),
            base + entry["data_offsets"][0],
            entry["data_offsets"][1] - entry["data_offsets"][0],
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _unusable(name: str) -> str | None:
    """Why a tensor cannot keep its name: carried-along ones become folders called by it."""
    if not name:
        return "is empty"
    if "/" in name:
        return "holds a '/'"
    if not name.isprintable():
        return "holds a character that cannot be printed"
    if len(name.encode("utf-8", "replace")) > MAX_NAME:
        return f"is longer than {MAX_NAME} bytes"
    return None
