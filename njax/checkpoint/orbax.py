"""Arrays on disk: an ordinary orbax checkpoint, written and read with bounded host memory.

Orbax's own handlers take arrays that are whole in memory. `_StreamingHandler` is a leaf type for
orbax's PyTree checkpointer whose values (`LazyArray`) are read, converted and written block by
block, so the checkpointer still owns the layout, the metadata and the atomic commit, and any orbax
program can read the result without njax: a flat dictionary of arrays.

Format: zarr v3, one folder an array, one chunk a block of rows, each chunk with a CRC-32C, no
compression (weights do not compress). A missing chunk is an error, never zeros.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

from njax.checkpoint.lazy import LazyArray
from njax.errors import CheckpointError

Progress = Callable[[str, int], None]
"""(array name, bytes just written)."""

ShardingOf = Callable[[str, tuple[int, ...]], jax.sharding.Sharding]
"""(array name, shape) -> where that array goes."""


def write_arrays(
    directory: Path, arrays: Mapping[str, LazyArray], progress: Progress | None = None
) -> None:
    """Writes a flat tree of arrays as an orbax checkpoint at `directory`, which must not exist.

    Raises:
      CheckpointError: a source array is bad, or the disk refuses (full, read-only, too large).
    """
    writer = _Writer()
    registry = ocp.type_handlers.create_type_handler_registry(
        (LazyArray, _StreamingHandler(writer, progress)),
        # Unused, but without it orbax warns that it has nowhere to keep jax.Array metadata.
        (jax.Array, ocp.type_handlers.ArrayHandler()),
    )
    handler = ocp.PyTreeCheckpointHandler(
        use_ocdbt=False, use_zarr3=True, type_handler_registry=registry
    )
    try:
        with _quiet_orbax(), ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(directory.absolute(), args=ocp.args.PyTreeSave(dict(arrays)))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{directory}: cannot write: {_reason(error)}") from error
    finally:
        writer.stop()


def check_arrays(
    directory: Path, arrays: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
) -> None:
    """Compares shapes and element types on disk with the expected ones, without reading data.

    Raises:
      CheckpointError: an array that is missing, damaged or another one than expected, by name.
    """
    for name, (shape, dtype) in arrays.items():
        path = directory / name / "zarr.json"
        try:
            # Orbax's own metadata call does not say which array of a tree is damaged.
            stored = json.loads(path.read_text())
            found = tuple(stored["shape"]), str(stored["data_type"])
        except FileNotFoundError:
            raise CheckpointError(f"{name}: is missing from {directory}") from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{name}: {path} is damaged: {error!r}") from None
        if found != (shape, dtype.name):
            raise CheckpointError(
                f"{name}: {directory} holds {found[1]} {list(found[0])}, expected {dtype.name} "
                f"{list(shape)}"
            )


def read_arrays(
    directory: Path,
    arrays: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
    sharding: jax.sharding.Sharding | ShardingOf | None = None,
) -> dict[str, jax.Array]:
    """Reads the named arrays straight to their devices, one after the other.

    The host holds one array (or the shards of one) at a time. TensorStore is asked directly: it
    reads the chunks of an array in parallel, and an error belongs to one name.

    Args:
      arrays: name -> (shape, dtype), as `check_arrays` has confirmed them.
      sharding: where each array goes; None: whole on JAX's default device.

    Raises:
      CheckpointError: a missing or damaged chunk, by the array's name and the chunk's path.
    """
    place = _placement(sharding)
    result: dict[str, jax.Array] = {}
    for name, (shape, dtype) in arrays.items():
        try:
            store = ts.open(_read_spec(directory / name), open=True, read=True).result()
            result[name] = jax.make_array_from_callback(
                shape,
                place(name, shape),
                functools.partial(_read_index, store),
                dtype=dtype,
            )
        except ValueError as error:
            raise CheckpointError(f"{name}: cannot be read: {_reason(error)}") from error
    return result


def _read_index(store: ts.TensorStore, index: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    return store[index].read().result()


def _placement(sharding: jax.sharding.Sharding | ShardingOf | None) -> ShardingOf:
    if callable(sharding):
        return sharding
    fixed = sharding or jax.sharding.SingleDeviceSharding(jnp.zeros(()).device)
    return lambda name, shape: fixed


def _read_spec(folder: Path) -> dict[str, Any]:
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder.absolute())},
        # Without this a lost chunk would read as zeros.
        "fill_missing_data_reads": False,
    }


class _StreamingHandler(ocp.type_handlers.TypeHandler):
    """Writes `LazyArray` leaves one after the other; reading is left to orbax's own handlers."""

    def __init__(self, writer: _Writer, progress: Progress | None):
        self._writer, self._progress = writer, progress

    def typestr(self) -> str:
        # What is on disk is an ordinary array: whoever restores it needs no lazy leaf type.
        return "np.ndarray"

    async def serialize(
        self,
        values: Sequence[LazyArray],
        infos: Sequence[ocp.type_handlers.ParamInfo],
        args: Sequence[ocp.SaveArgs] | None = None,
    ) -> Sequence[Any]:
        for value, info in zip(values, infos, strict=True):
            await self._writer.write(Path(info.parent_dir) / info.name, value)
            if self._progress is not None:
                self._progress(info.name, value.nbytes)
        return []

    async def metadata(self, infos: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError("orbax reads the metadata of plain arrays itself")

    async def deserialize(self, infos: Sequence[Any], args: Any = None) -> Sequence[Any]:
        raise NotImplementedError("orbax reads plain arrays itself")


class _Writer:
    """Writes arrays, and can be stopped so that afterwards nothing more reaches the disk.

    TensorStore goes on with a write that nobody waits for any longer (after Ctrl-C), and would make
    files again in a directory that is being removed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._pending: Any = None

    async def write(self, folder: Path, value: LazyArray) -> None:
        spec = _zarr_spec(folder, value)
        store = self._begin(lambda: ts.open(spec, create=True)).result()
        for low, high, block in value.blocks():
            target = store[low:high] if value.shape else store
            rows = np.asarray(block, order="C")
            # Not awaited: TensorStore would report to an event loop that an interrupt has closed.
            self._begin(
                functools.partial(target.write, rows, can_reference_source_data_indefinitely=True)
            ).result()
            await asyncio.sleep(0)  # where asyncio delivers Ctrl-C

    def stop(self) -> None:
        """Returns when what was begun has ended, well or badly; nothing is begun afterwards."""
        with self._lock:
            self._stopped = True
            pending = self._pending
        if pending is not None:
            # Its error, if any, has been raised where the write was waited for.
            with contextlib.suppress(Exception):
                pending.result()

    def _begin(self, start: Callable[[], Any]) -> Any:
        with self._lock:
            if self._stopped:
                raise OSError("writing was stopped")
            self._pending = start()
            return self._pending


def _zarr_spec(folder: Path, value: LazyArray) -> dict[str, Any]:
    chunk = [max(1, n) for n in (value.block_rows, *value.shape[1:])] if value.shape else []
    wide = value.dtype.itemsize > 1
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder)},
        "metadata": {
            "shape": list(value.shape),
            "data_type": value.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "codecs": [
                {"name": "bytes", **({"configuration": {"endian": "little"}} if wide else {})},
                {"name": "crc32c"},
            ],
        },
        "store_data_equal_to_fill_value": True,
    }


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Orbax logs through absl what is normal here (no OCDBT files to merge) as warnings."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _reason(error: BaseException) -> str:
    """The first line of a TensorStore message without its machine-readable tail."""
    return re.split(r"\s\[(?:source locations|tensorstore_spec|domain)=", str(error), maxsplit=1)[0]
