"""`manifest.json`: what a checkpoint is, where it came from, and in which numbers it computes.

format, format_version   "njax-checkpoint" and the version of this layout
njax_version             program that wrote it
config                   `ModelConfig` fields
numeric_profile          activations and kv: a dtype; weights: number format -> count of tensors
options                  how it was converted
source                   file name -> sha256 and bytes, of every file read (empty if made here)
tensors                  name -> kind, shape, bytes, source names; `extra.*` are carried along
not_quantized            name -> why `--quantize` left it
warnings                 what was tolerated
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import njax
from njax.checkpoint.json_files import read_json
from njax.checkpoint.plan import EXTRA
from njax.checkpoint.planned import PlannedTensor
from njax.config import ModelConfig
from njax.errors import CheckpointError

FILE = "manifest.json"
FORMAT = "njax-checkpoint"
FORMAT_VERSION = 1


def make_manifest(
    config: ModelConfig,
    dtype: str,
    tensors: Iterable[PlannedTensor],
    **extra: Any,
) -> dict[str, Any]:
    """A JSON-ready manifest; `extra` fields override the empty defaults."""
    tensors = list(tensors)
    kinds = collections.Counter(t.kind for t in tensors if not t.name.startswith(EXTRA))
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "njax_version": njax.__version__,
        "config": json.loads(json.dumps(config.to_dict())),
        "numeric_profile": {
            "activations": dtype,
            "kv": dtype,
            "weights": dict(sorted(kinds.items())),
        },
        "options": {},
        "source": {},
        "not_quantized": {},
        "warnings": [],
        "tensors": {tensor.name: _entry(tensor) for tensor in tensors},
    } | extra


def _entry(tensor: PlannedTensor) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": tensor.kind,
        "shape": list(tensor.shape),
        "bytes": tensor.nbytes,
    }
    if tensor.code:
        entry["code"] = tensor.code
    if tensor.sources:
        entry["source"] = list(tensor.sources)
    return entry


def read_manifest(directory: Path) -> dict[str, Any]:
    """Reads and checks the manifest of a checkpoint directory.

    Raises:
      CheckpointError: not a checkpoint of ours, a damaged manifest or one of a later version; the
        text says what to do.
    """
    path = directory / FILE
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: no such directory")
    if not path.is_file():
        hint = ""
        if (directory / "config.json").is_file():
            hint = "; it looks like a Hugging Face checkpoint: convert it first with `njax convert`"
        raise CheckpointError(f"{directory}: not an njax checkpoint (no {FILE}){hint}")
    manifest = read_json(path)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not an njax checkpoint (no format {FORMAT!r})")
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format version {version}, this njax ({njax.__version__}) reads version "
            f"{FORMAT_VERSION}; convert the source again"
        )
    for part, good in _PARTS.items():
        if not good(manifest.get(part)):
            what = "the list of tensors" if part == "tensors" else part
            raise CheckpointError(f"{path}: {what} is damaged")
    try:
        ModelConfig.from_dict(manifest["config"])
    except (CheckpointError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    return manifest


def _is_profile(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.get("activations") in ("bfloat16", "float32")
        and isinstance(value.get("kv"), str)
        and isinstance(value.get("weights"), Mapping)
    )


def _is_tensor(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("shape"), list)
        and all(type(n) is int and n >= 0 for n in value["shape"])
        and type(value.get("bytes")) is int
        and isinstance(value.get("code", ""), str)
    )


def _is_file(value: Any) -> bool:
    return isinstance(value, Mapping) and type(value.get("bytes")) is int


def _is_mapping_of(good: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(good, value.values()))


_PARTS: dict[str, Callable[[Any], bool]] = {
    "njax_version": lambda value: isinstance(value, str),
    "numeric_profile": _is_profile,
    "tensors": _is_mapping_of(_is_tensor),
    "config": lambda value: isinstance(value, Mapping),
    "options": lambda value: isinstance(value, Mapping),
    "source": _is_mapping_of(_is_file),
    "not_quantized": lambda value: isinstance(value, Mapping),
    "warnings": lambda value: isinstance(value, list),
}
"""What whoever reads a manifest may rely on."""
