"""What is in a checkpoint directory, without reading any weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from njax.checkpoint.convert import CONFIG, open_source
from njax.checkpoint.manifest import FILE, make_manifest, read_manifest
from njax.config import ModelConfig
from njax.state import kv_token_bytes

ELEMENTS = {
    "bfloat16": "bfloat16",
    "float32": "float32",
    "nvfp4": "e2m1, e4m3 a 16, float32",
    "fp8": "e4m3, float32 a row",
}
"""Kind -> how its elements and scales are stored, for people."""


def describe(directory: str | Path) -> dict[str, Any]:
    """Config, numeric profile and tensors of an njax checkpoint or a Hugging Face directory.

    For the latter it says what a conversion with default options would give.

    Returns:
      JSON-ready: path, format ("njax" or "huggingface"), config, numeric_profile, tensors (name,
      kind, dtype, shape, bytes), kinds (kind -> tensors, bytes), bytes, kv_token_bytes (storage ->
      bytes of a token in the KV cache), manifest (the rest of it).

    Raises:
      CheckpointError: neither of the two, or damaged.
    """
    path = Path(directory)
    if (path / CONFIG).is_file() and not (path / FILE).exists():
        source = open_source(path)
        plan = source.plan
        form = "huggingface"
        manifest = make_manifest(
            source.config,
            "bfloat16",
            plan.tensors,
            warnings=list(plan.warnings),
            source={file.name: {"bytes": file.stat().st_size} for file in source.files},
        )
    else:
        form, manifest = "njax", read_manifest(path)
    tensors = [
        {
            "name": name,
            "kind": entry["kind"],
            "dtype": ELEMENTS.get(entry["kind"], entry.get("code", "")),
            "shape": entry["shape"],
            "bytes": entry["bytes"],
        }
        for name, entry in manifest["tensors"].items()
    ]
    kinds: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        kind = kinds.setdefault(tensor["kind"], {"tensors": 0, "bytes": 0})
        kind["tensors"] += 1
        kind["bytes"] += tensor["bytes"]
    rest = {k: v for k, v in manifest.items() if k not in ("tensors", "config", "numeric_profile")}
    return {
        "path": str(path),
        "format": form,
        "config": json.loads(json.dumps(manifest["config"])),
        "numeric_profile": manifest["numeric_profile"],
        "tensors": tensors,
        "kinds": dict(sorted(kinds.items())),
        "bytes": sum(tensor["bytes"] for tensor in tensors),
        "kv_token_bytes": {
            dtype: kv_token_bytes(ModelConfig.from_dict(manifest["config"]), jnp.dtype(dtype))
            for dtype in (manifest["numeric_profile"]["kv"], "int8")
        },
        "manifest": rest,
    }
