"""Finding the model that a command line names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from njax.engine.types import SamplingParams
from njax.errors import CheckpointError, RequestError

if TYPE_CHECKING:
    from njax.checkpoint import Checkpoint

DEMO_NAME = "njax-demo"


def load_model(path: str | None) -> Checkpoint:
    """A converted checkpoint, or the bundled demo model for None.

    Raises:
      CheckpointError: there is none at `path`, or it is damaged.
    """
    if path is None:
        from njax.demo import load_demo

        return load_demo()
    directory = Path(path)
    if not directory.is_dir():
        raise CheckpointError(f"{path}: no such directory")
    if not (directory / "manifest.json").exists() and (directory / "config.json").exists():
        raise CheckpointError(
            f"{path}: a Hugging Face checkpoint; convert it first: njax convert {path} DST"
        )
    from njax.checkpoint import load_checkpoint

    return load_checkpoint(directory)


def model_name(path: str | None) -> str:
    """The public name of a model: that of its directory."""
    return DEMO_NAME if path is None else Path(path).resolve().name


def remark(checkpoint: Checkpoint) -> str | None:
    """What must be said about a model before anyone judges its answers, or None."""
    if checkpoint.manifest.get("weights_are_random"):
        return "the weights of the bundled demo model are random: its answers mean nothing"
    return None


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
