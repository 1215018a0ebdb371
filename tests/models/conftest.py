"""Golden checkpoints, converted once a session, and a small driver for the model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from njax.checkpoint import convert_checkpoint, load_checkpoint
from njax.config import ModelConfig
from njax.models.params import bind
from njax.state import ModelState, init_state

GOLDENS = Path(__file__).parent.parent / "goldens"
CHUNK = 256
"""Prompts are padded to multiples of this, so that each model compiles one prefill."""
NAMES = sorted(path.parent.name for path in GOLDENS.glob("*/golden.npz"))


class Runner:
    """A model with jitted prefill and decode over one sequence or a batch."""

    def __init__(self, config: ModelConfig, dtype, params):
        self.config, self.dtype = config, jnp.dtype(dtype)
        graphdef, self.params = bind(config, self.dtype, params)

        def step(params, tokens, state, table, start, lengths):
            model = nnx.merge(graphdef, params)
            positions = start[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)
            hidden, state = model(
                tokens,
                jnp.broadcast_to(positions, (3, *tokens.shape)),
                state,
                table,
                start,
                lengths,
            )
            return hidden, model.logits(hidden), state

        self._step = jax.jit(step)

    def start(self, batch: int = 1, pages: int = 8) -> tuple[ModelState, np.ndarray]:
        table = 1 + np.arange(batch * pages, dtype=np.int32).reshape(batch, pages)
        state = init_state(self.config, batch=batch, pages=batch * pages + 1, dtype=self.dtype)
        return state, table

    def step(self, tokens, state, table, start, lengths):
        return self._step(
            self.params,
            np.asarray(tokens, np.int32),
            state,
            table,
            np.asarray(start, np.int32),
            np.asarray(lengths, np.int32),
        )

    def prefill(self, tokens: np.ndarray) -> tuple[np.ndarray, ModelState, np.ndarray]:
        """Logits [T, V] of one whole prompt in one padded chunk; state and page table."""
        padded = np.zeros((1, -(-len(tokens) // CHUNK) * CHUNK), np.int32)
        padded[0, : len(tokens)] = tokens
        state, table = self.start()
        _, logits, state = self.step(padded, state, table, [0], [len(tokens)])
        return np.asarray(logits)[0, : len(tokens)], state, table


@pytest.fixture(scope="session")
def golden_runner(tmp_path_factory) -> Callable[[str, str], Runner]:
    """A runner for (golden name, dtype), through `convert` and `load_checkpoint`."""
    runners: dict[tuple[str, str], Runner] = {}

    def make(name: str, dtype: str) -> Runner:
        if (name, dtype) not in runners:
            folder = tmp_path_factory.mktemp("golden")
            source, destination = folder / name, folder / f"{name}-{dtype}"
            shutil.copytree(GOLDENS / name, source)
            # Only the "chat" golden has a tokenizer of its own; a model without one is no model.
            shutil.copy(GOLDENS / "chat" / "tokenizer.json", source)
            convert_checkpoint(source, destination, dtype=dtype)
            checkpoint = load_checkpoint(destination)
            runners[name, dtype] = Runner(checkpoint.config, checkpoint.dtype, checkpoint.params)
        return runners[name, dtype]

    return make


def golden(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(GOLDENS / name / "golden.npz"))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """||a - b|| / ||b|| over everything; a NaN anywhere gives NaN, which never passes."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
