"""Finding the model that a command line names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from njax.engine.types import SamplingParams
from njax.errors import CheckpointError, RequestError

if TYPE_CHECKING:
    from njax.checkpoint import Checkpoint

DEMO_NAME = "njax-demo"

_DEMOS = {"demo": "nvfp4", "demo-bf16": "bfloat16"}
"""What command lines call the bundled model, as it is served and before it was quantised."""


def load_model(path: str | None, *, mtp: bool = False) -> Checkpoint:
    """A converted checkpoint, or the bundled model for None, `demo` and `demo-bf16`.

    Args:
      mtp: with the multi-token layer, for drafts.

    Raises:
      CheckpointError: there is none at `path`, it is damaged, or it cannot draft as asked.
    """
    numbers = _DEMOS.get(path or "demo")
    if numbers is not None:
        from njax.demo import load_demo

        return load_demo(cast(Any, numbers), mtp=mtp)
    assert path is not None
    directory = Path(path)
    if not directory.is_dir():
        raise CheckpointError(f"{path}: no such directory")
    if not (directory / "manifest.json").exists() and (directory / "config.json").exists():
        raise CheckpointError(
            f"{path}: a Hugging Face checkpoint; convert it first: njax convert {path} DST"
        )
    from njax.checkpoint import load_checkpoint

    return load_checkpoint(directory, mtp=mtp)


@contextlib.contextmanager
def model_directory(path: str) -> Iterator[Path]:
    """The directory of a model; that of a bundled one is gone afterwards."""
    numbers = _DEMOS.get(path)
    if numbers is None:
        yield Path(path)
        return
    from njax.demo import demo_directory

    with demo_directory(cast(Any, numbers)) as directory:
        yield directory


def model_name(path: str | None) -> str:
    """The public name of a model: that of its directory."""
    path = path or "demo"
    if path in _DEMOS:
        return DEMO_NAME + path.removeprefix("demo")
    return Path(path).resolve().name


def default_sampling(checkpoint: Checkpoint) -> SamplingParams:
    """How the model's makers want it sampled (`generation_config.json`).

    Raises:
      CheckpointError: values out of range.
    """
    config = checkpoint.generation_config
    given = {
        name: config[name]
        for name in ("temperature", "top_k", "top_p", "min_p")
        if config.get(name) is not None
    }
    if config.get("do_sample") is False:
        given["temperature"] = 0.0
    try:
        return SamplingParams(**given)
    except (RequestError, TypeError) as error:
        raise CheckpointError(f"generation_config.json: {error}") from None
