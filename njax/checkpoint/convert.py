"""Conversion of a Hugging Face directory into an njax checkpoint, tensor by tensor."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from njax.checkpoint.checkpoint import write_checkpoint
from njax.checkpoint.directory import check_free, check_space
from njax.checkpoint.json_files import read_json
from njax.checkpoint.manifest import make_manifest
from njax.checkpoint.plan import Plan, make_plan
from njax.checkpoint.safetensors_files import INDEX, open_directory
from njax.checkpoint.text_check import check_text
from njax.checkpoint.text_files import NAMES, TextFiles, read_text_files
from njax.config import ModelConfig
from njax.errors import CheckpointError

CONFIG = "config.json"
Progress = Callable[[str, int, int], None]
"""(array name, bytes written so far, bytes in all)."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A Hugging Face directory that has been looked through, and what would be made of it."""

    config: ModelConfig
    plan: Plan
    text: TextFiles
    files: tuple[Path, ...]


def open_source(
    directory: Path,
    *,
    quantize: Literal["nvfp4", "none"] = "none",
    dtype: Literal["bfloat16", "float32"] = "bfloat16",
) -> Source:
    """Reads config, headers and text files of a Hugging Face directory, and plans its conversion.

    Raises:
      CheckpointError: what is wrong with which file or tensor. Values inside large tensors are
        checked only when they are written.
    """
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: no such directory")
    path = directory / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{directory}: {CONFIG} is missing; not a Hugging Face checkpoint")
    hf_config = read_json(path)
    config = ModelConfig.from_hf(hf_config)
    text = read_text_files(directory, hf_config)
    check_text(directory, text, config.vocab_size)
    weights = open_directory(directory)
    plan = make_plan(weights, config, quantize=quantize == "nvfp4", dtype=dtype)
    others = [directory / name for name in (CONFIG, INDEX, *NAMES)]
    return Source(config, plan, text, (*weights.files, *(p for p in others if p.is_file())))


def convert_checkpoint(
    source: str | Path,
    destination: str | Path,
    *,
    quantize: Literal["nvfp4", "none"] = "none",
    dtype: Literal["bfloat16", "float32"] = "bfloat16",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Converts a Hugging Face directory; `destination` appears whole or not at all.

    Args:
      quantize: "nvfp4" makes NVFP4 of the plain linear projections. Embedding, head, norms,
        convolution and the two gate projections of delta layers stay as they are, and so does what
        is quantised already.
      dtype: of activations, KV cache and everything that stays plain. "float32" computes in float32
        throughout; quantised weights stay quantised.

    Returns:
      The manifest that was written.

    Raises:
      CheckpointError: names the tensor or path, what was wrong and what would be right.
    """
    src, dst = Path(source), Path(destination)
    check_free(dst)
    inside = dst.absolute().parent.resolve()
    if src.is_dir() and inside.is_relative_to(src.resolve()):
        raise CheckpointError(f"{dst}: lies inside the source {src}; choose a place outside it")
    opened = open_source(src, quantize=quantize, dtype=dtype)
    plan = opened.plan
    check_space(dst, plan.nbytes + (8 << 20))
    total, done = plan.nbytes, 0

    def count(name: str, nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(name, done, total)

    manifest = make_manifest(
        opened.config,
        dtype,
        plan.tensors,
        options={"quantize": quantize, "dtype": dtype},
        not_quantized=plan.not_quantized,
        warnings=list(plan.warnings),
    )

    def finished() -> dict[str, Any]:
        # After the tensors: a bad one should be reported before minutes of hashing.
        manifest["source"] = _digests(opened.files)
        return manifest

    write_checkpoint(dst, plan.tensors, opened.text, finished, count)
    return manifest


def _digests(files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        result[path.name] = {"sha256": digest, "bytes": path.stat().st_size}
    return result
