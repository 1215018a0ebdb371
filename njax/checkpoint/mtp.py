"""The multi-token layer of a checkpoint: carried along under its source's names, read on request.

Names: `extra.` and `mtp.fc.weight`, `mtp.norm.weight`, `mtp.layers.0.self_attn.q_proj.weight` and
so on, perhaps with one of the family's prefixes in front. Canonical names are those of
`njax.models.mtp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from njax.checkpoint import orbax
from njax.checkpoint.hf import hf_name, strip_prefix
from njax.checkpoint.layout import mtp_specs
from njax.checkpoint.plan import EXTRA
from njax.config import ModelConfig
from njax.errors import CheckpointError

_DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
}
"""By the source's element type, or by the kind of a tensor that was written here."""


def mtp_hf_name(name: str) -> str:
    """The Hugging Face name of a canonical parameter: `mtp.layers.0.self_attn...`."""
    rest = name.removeprefix("mtp.")
    if rest.startswith("layers."):
        return "mtp." + hf_name(rest).removeprefix("model.")
    return name


def read_mtp(
    directory: Path,
    manifest: Mapping[str, Any],
    config: ModelConfig,
    dtype: Any,
    sharding: jax.sharding.Sharding | orbax.ShardingOf | None = None,
) -> dict[str, jax.Array]:
    """The layer's parameters by canonical name (`mtp.*`), in `dtype`.

    Args:
      directory: that of the arrays.
      manifest: the checkpoint's.

    Raises:
      CheckpointError: the model has no such layer or more than one; a tensor is missing, of another
        shape, or not in plain numbers; named.
    """
    if config.mtp_layers != 1:
        raise CheckpointError(
            f"the model has {config.mtp_layers or 'no'} multi-token layers, drafting needs one"
        )
    stored = {
        strip_prefix(name.removeprefix(EXTRA)): name
        for name in manifest["tensors"]
        if name.startswith(EXTRA)
    }
    wanted: dict[str, tuple[str, tuple[int, ...], np.dtype[Any]]] = {}
    for name, spec in mtp_specs(config).items():
        source = mtp_hf_name(name)
        if source not in stored:
            raise CheckpointError(f"{EXTRA}{source}: is missing, and drafting needs it")
        entry = manifest["tensors"][stored[source]]
        form = entry.get("code") or entry["kind"]
        if form not in _DTYPES or tuple(entry["shape"]) != spec.shape:
            raise CheckpointError(
                f"{stored[source]}: is {form} {entry['shape']}, drafting needs "
                f"{list(spec.shape)} in bfloat16, float16 or float32"
            )
        wanted[name] = stored[source], spec.shape, _DTYPES[form]
    arrays = {name: (shape, kind) for name, shape, kind in wanted.values()}
    orbax.check_arrays(directory, arrays)
    read = orbax.read_arrays(directory, arrays, sharding)
    params = {name: read[source].astype(dtype) for name, (source, _, _) in wanted.items()}
    for name, value in params.items():
        if not bool(jnp.isfinite(value).all()):
            raise CheckpointError(f"{wanted[name][0]}: holds values that are not finite")
    return params
