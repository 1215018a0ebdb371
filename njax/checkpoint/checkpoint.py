"""Loading and saving njax checkpoints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import jax
import numpy as np

from njax.checkpoint import orbax
from njax.checkpoint.directory import appearing
from njax.checkpoint.layout import tensor_specs
from njax.checkpoint.manifest import FILE, make_manifest, read_manifest
from njax.checkpoint.mtp import read_mtp
from njax.checkpoint.plan import EXTRA
from njax.checkpoint.planned import PlannedTensor, Weight, assemble, expected_arrays, from_weight
from njax.checkpoint.text_files import TextFiles, read_text_files
from njax.config import ModelConfig
from njax.errors import CheckpointError

ARRAYS = "params"
"""Folder of the orbax checkpoint inside an njax checkpoint."""

_PLAIN = ("bfloat16", "float32")
_KINDS = (*_PLAIN, "nvfp4", "fp8")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model: configuration, weights, text files.

    Attributes:
      config: shape of the model.
      params: canonical name -> weight; linear weights are [out, in].
      dtype: of activations, KV and plain weights (`A_log` and `dt_bias` are always float32).
      tokenizer_json: the tokenizer, as the `tokenizers` library reads it.
      chat_template: Jinja source, or None.
      manifest: what the checkpoint is and where it came from; {} for one that was made in memory.
      mtp: the multi-token layer's parameters by name (`mtp.*`), in `dtype`; {} if not loaded.
    """

    config: ModelConfig
    params: dict[str, Weight]
    dtype: Literal["bfloat16", "float32"]
    tokenizer_json: str
    chat_template: str | None = None
    generation_config: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokenizer_config: dict[str, Any] = dataclasses.field(default_factory=dict)
    manifest: dict[str, Any] = dataclasses.field(default_factory=dict)
    mtp: dict[str, jax.Array] = dataclasses.field(default_factory=dict)


def load_checkpoint(
    path: str | Path,
    *,
    sharding: jax.sharding.Sharding | orbax.ShardingOf | None = None,
    mtp: bool = False,
) -> Checkpoint:
    """Loads a checkpoint that `njax convert` or `save_checkpoint` wrote.

    Every array goes straight to its device; host memory beyond that stays within 1 GB or the
    largest array. Carried-along tensors (`extra.*`) are not read, but for the multi-token layer's.

    Args:
      sharding: where arrays go: one sharding, or a function of (array name, shape), where the
        arrays of a quantised weight are `NAME.codes`, `NAME.scales`, `NAME.global_scale`,
        `NAME.values`, `NAME.scale`. None: whole on JAX's default device.
      mtp: load the multi-token layer too, for drafts.

    Raises:
      CheckpointError: a foreign, incomplete or damaged directory; names what and where.
    """
    directory = Path(path)
    manifest = read_manifest(directory)
    config = ModelConfig.from_dict(manifest["config"])
    text = read_text_files(directory)
    kinds = _check_tensors(directory, manifest, config)
    wanted: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    for name, (kind, shape) in kinds.items():
        wanted |= expected_arrays(name, kind, shape)
    orbax.check_arrays(directory / ARRAYS, wanted)
    arrays = orbax.read_arrays(directory / ARRAYS, wanted, sharding)
    dtype = manifest["numeric_profile"]["activations"]
    drafting = read_mtp(directory / ARRAYS, manifest, config, dtype, sharding) if mtp else {}
    return Checkpoint(
        config=config,
        params={name: assemble(name, kind, arrays) for name, (kind, _) in kinds.items()},
        dtype=cast(Any, dtype),
        tokenizer_json=text.tokenizer_json,
        chat_template=text.chat_template,
        generation_config=text.generation_config,
        tokenizer_config=text.tokenizer_config,
        manifest=manifest,
        mtp=drafting,
    )


def save_checkpoint(path: str | Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint from memory; `path` must not exist, and appears whole or not at all.

    Raises:
      CheckpointError: parameters that do not fit the config, `path` exists, or the disk refuses.
    """
    specs = tensor_specs(checkpoint.config)
    wrong = sorted(set(specs) ^ set(checkpoint.params)) or [
        name for name, spec in specs.items() if tuple(checkpoint.params[name].shape) != spec.shape
    ]
    if wrong:
        raise CheckpointError(
            f"{path}: parameters do not fit the config: {', '.join(wrong[:8])} missing, surplus or "
            "of another shape"
        )
    tensors = [from_weight(name, checkpoint.params[name]) for name in specs]
    text = TextFiles(
        checkpoint.tokenizer_json,
        checkpoint.tokenizer_config,
        checkpoint.chat_template,
        checkpoint.generation_config,
    )
    manifest = make_manifest(checkpoint.config, checkpoint.dtype, tensors)
    write_checkpoint(Path(path), tensors, text, lambda: manifest)


def write_checkpoint(
    path: Path,
    tensors: Sequence[PlannedTensor],
    text: TextFiles,
    manifest: Callable[[], dict[str, Any]],
    progress: orbax.Progress | None = None,
) -> None:
    """Writes all parts of a checkpoint, the manifest (asked for when the arrays are there) last."""
    arrays = {name: array for tensor in tensors for name, array in tensor.named_arrays().items()}
    with appearing(path) as partial:
        orbax.write_arrays(partial / ARRAYS, arrays, progress)
        text.write(partial)
        (partial / FILE).write_text(json.dumps(manifest(), indent=1) + "\n", encoding="utf-8")


def _check_tensors(
    directory: Path, manifest: dict[str, Any], config: ModelConfig
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """(kind, shape) of every tensor of the model, after comparing manifest and config."""
    specs = tensor_specs(config)
    entries = {n: e for n, e in manifest["tensors"].items() if not n.startswith(EXTRA)}
    for name in sorted(set(specs) ^ set(entries)):
        what = "is missing from" if name in specs else "is surplus in"
        raise CheckpointError(f"{name}: {what} {directory / FILE}")
    for name, spec in specs.items():
        entry = entries[name]
        kinds = _KINDS if spec.role in ("linear", "table") else _PLAIN
        if entry["kind"] not in kinds or tuple(entry["shape"]) != spec.shape:
            raise CheckpointError(
                f"{name}: {directory / FILE} says {entry['kind']} {entry['shape']}, the config "
                f"needs {list(spec.shape)} in one of {', '.join(kinds)}"
            )
    return {name: (entries[name]["kind"], spec.shape) for name, spec in specs.items()}
