"""What a run holds, and how it is saved and resumed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

from njax.checkpoint.layout import tensor_specs
from njax.config import ModelConfig
from njax.demo.training.recipe import Recipe
from njax.models.mtp import abstract_mtp_params

PROGRESS = "progress.json"


@dataclasses.dataclass
class Progress:
    """The part of a run's state that people read.

    Attributes:
      step: steps done.
      total: steps that the run will have; None until that is decided by time.
      seconds: time spent so far, over all resumptions.
      tokens: tokens seen.
      losses: a row for every logged step.
      scores: a row for every evaluation.
    """

    step: int = 0
    total: int | None = None
    seconds: float = 0.0
    tokens: int = 0
    losses: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    scores: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every parameter that is trained, the multi-token layer's included."""
    shapes = {name: spec.shape for name, spec in tensor_specs(config).items()}
    return shapes | {
        name: tuple(value.shape) for name, value in abstract_mtp_params(config, jnp.float32).items()
    }


def initial_params(recipe: Recipe) -> dict[str, jax.Array]:
    """Float32 parameters: matrices normal, outputs of the layers smaller, decays spread out."""
    config = recipe.model
    rng = np.random.default_rng(recipe.seed)
    depth = math.sqrt(2 * config.num_layers)

    def one(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name.endswith("A_log"):
            return np.log(np.linspace(1.0, 8.0, shape[0]))
        if name.endswith("dt_bias"):
            # softplus(dt_bias) runs from 0.002 to 0.1: memories of some to hundreds of tokens.
            return np.log(np.expm1(np.geomspace(0.002, 0.1, shape[0])))
        if name.endswith("delta.norm.weight"):
            return np.ones(shape)
        if len(shape) == 1:
            return np.zeros(shape)
        if name == "embedding.weight":
            return rng.standard_normal(shape) * (0.04 if config.tied_head else 0.2)
        if name.endswith("conv.weight"):
            # The newest input passes; the others begin small.
            return np.eye(1, shape[1], shape[1] - 1) + 0.1 * rng.standard_normal(shape)
        values = rng.standard_normal(shape) / math.sqrt(shape[1])
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            return values / depth
        return values

    return {
        name: jnp.asarray(one(name, shape), jnp.float32)
        for name, shape in parameter_shapes(config).items()
    }


@dataclasses.dataclass
class RunState:
    """Parameters, optimizer and progress."""

    params: dict[str, jax.Array]
    optimizer: optax.OptState
    progress: Progress


class Saves:
    """Checkpoints of a run in a folder, the last two kept. `progress.json` lies in each."""

    def __init__(self, folder: Path):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def latest(self) -> Path | None:
        """The newest whole one."""
        found = sorted(p for p in self._folder.glob("step-*") if (p / PROGRESS).is_file())
        return found[-1] if found else None

    def save(self, state: RunState) -> None:
        """Writes one; whole when its `progress.json` is there, which comes last."""
        folder = self._folder.absolute() / f"step-{state.progress.step:07d}"
        if folder.exists():
            return
        folder.mkdir()
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / "arrays", (state.params, state.optimizer))
        partial = folder / (PROGRESS + ".partial")
        partial.write_text(json.dumps(dataclasses.asdict(state.progress)) + "\n")
        os.replace(partial, folder / PROGRESS)
        for old in sorted(self._folder.glob("step-*"))[:-2]:
            _remove(old)

    def restore(self, folder: Path, like: RunState) -> RunState:
        """Reads one; `like` gives the structure."""
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, (like.params, like.optimizer))
        with ocp.StandardCheckpointer() as checkpointer:
            params, optimizer = checkpointer.restore((folder / "arrays").absolute(), abstract)
        progress = Progress(**json.loads((folder / PROGRESS).read_text()))
        return RunState(params, optimizer, progress)


def _remove(folder: Path) -> None:
    """Takes `progress.json` away first, so that half of a checkpoint is never taken for one."""
    (folder / PROGRESS).unlink(missing_ok=True)
    shutil.rmtree(folder)
