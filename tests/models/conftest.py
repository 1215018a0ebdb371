"""Golden checkpoints, converted once a session, and a small driver for the model."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
NAMES = sorted(path.parent.name for path in GOLDENS.glob("*/golden.npz"))
LANES = 6
CHUNK = 256
"""Goldens run in six lanes and chunks of this size: one prefill and one decode to compile."""
PAGES = 8


@dataclasses.dataclass
class Lanes:
    """Sequences side by side: the model's state, whose pages are whose, tokens absorbed."""

    state: ModelState
    table: np.ndarray
    start: np.ndarray


class Runner:
    """A model with jitted steps over lanes."""

    def __init__(self, config: ModelConfig, dtype: Any, params: dict[str, Any]):
        self.config, self.dtype = config, jnp.dtype(dtype)
        graphdef, self.params = bind(config, self.dtype, params)

        def step(params, tokens, positions, state, table, start, lengths):
            model = nnx.merge(graphdef, params)
            hidden, state = model(tokens, positions, state, table, start, lengths)
            return hidden, model.logits(hidden), state

        self._step = jax.jit(step)

    def lanes(self, count: int = LANES, table: np.ndarray | None = None) -> Lanes:
        """Empty lanes of 8 pages each; `table` [count, 8] says which, else one after the other."""
        if table is None:
            table = 1 + np.arange(count * PAGES).reshape(count, PAGES)
        state = init_state(self.config, batch=count, pages=count * PAGES + 1, dtype=self.dtype)
        return Lanes(state, table.astype(np.int32), np.zeros(count, np.int32))

    def step(
        self,
        lanes: Lanes,
        tokens: np.ndarray,
        lengths: Sequence[int] | np.ndarray,
        positions: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Advances `lanes` by tokens [B, T]; hidden states and logits [B, T, ...]."""
        tokens = np.asarray(tokens, np.int32)
        if positions is None:
            row = lanes.start[:, None] + np.arange(tokens.shape[1])
            positions = np.broadcast_to(row, (3, *tokens.shape))
        lengths = np.asarray(lengths, np.int32)
        hidden, logits, lanes.state = self._step(
            self.params,
            tokens,
            positions.astype(np.int32),
            lanes.state,
            lanes.table,
            lanes.start,
            lengths,
        )
        lanes.start = lanes.start + lengths
        return np.asarray(hidden), np.asarray(logits)

    def prefill(self, prompts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Lanes]:
        """Logits [length, V] of each prompt, one in each of the first lanes, in whole chunks."""
        lanes = self.lanes()
        lengths = np.array([len(p) for p in prompts] + [0] * (LANES - len(prompts)))
        parts: list[list[np.ndarray]] = [[] for _ in prompts]
        for first in range(0, max(lengths), CHUNK):
            now = np.clip(lengths - first, 0, CHUNK)
            tokens = np.zeros((LANES, CHUNK), np.int32)
            for lane, prompt in enumerate(prompts):
                tokens[lane, : now[lane]] = prompt[first : first + CHUNK]
            _, logits = self.step(lanes, tokens, now)
            for lane, rows in enumerate(parts):
                rows.append(logits[lane, : now[lane]])
        return [np.concatenate(rows) for rows in parts], lanes

    def decode(self, lanes: Lanes, given: Sequence[np.ndarray]) -> np.ndarray:
        """Logits [B, n, V] after each of n given tokens of each of the first B lanes."""
        active = (np.arange(LANES) < len(given)).astype(np.int32)
        rows = []
        for step in range(len(given[0])):
            tokens = np.zeros((LANES, 1), np.int32)
            tokens[: len(given), 0] = [tokens_of_lane[step] for tokens_of_lane in given]
            rows.append(self.step(lanes, tokens, active)[1][: len(given), 0])
        return np.stack(rows, axis=1)


@dataclasses.dataclass
class Golden:
    """What transformers said: `golden.npz` and `golden.json` (tests/oracles/make_goldens.py)."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name] if name in self.arrays else np.asarray(self.facts[name])


def golden(name: str) -> Golden:
    return Golden(
        dict(np.load(GOLDENS / name / "golden.npz")),
        json.loads((GOLDENS / name / "golden.json").read_text()),
    )


@pytest.fixture(scope="session")
def golden_runner(tmp_path_factory) -> Callable[[str, str], Runner]:
    """A runner for (golden name, dtype), through `convert` and `load_checkpoint`."""
    runners: dict[tuple[str, str], Runner] = {}

    def make(name: str, dtype: str) -> Runner:
        if (name, dtype) not in runners:
            folder = tmp_path_factory.mktemp("golden")
            source, destination = folder / name, folder / f"{name}-{dtype}"
            shutil.copytree(GOLDENS / name, source)
            _ensure_tokenizer(source)
            convert_checkpoint(source, destination, dtype=dtype)
            checkpoint = load_checkpoint(destination)
            runners[name, dtype] = Runner(checkpoint.config, checkpoint.dtype, checkpoint.params)
        return runners[name, dtype]

    return make


def _ensure_tokenizer(source: Path) -> None:
    """Only the "chat" golden has a tokenizer, and no model is converted without one."""
    path = source / "tokenizer.json"
    if not path.exists():
        model = {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}
        path.write_text(json.dumps({"version": "1.0", "model": model}))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """||a - b|| / ||b|| over everything; a NaN anywhere gives NaN, which never passes."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`distance` of each position: [n, V] and [n, V] to [n]."""
    return np.array([distance(*pair) for pair in zip(a, b, strict=True)])
