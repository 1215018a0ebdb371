"""Running a model over windows, and figures of each scored token.

The model runs exactly as in the engine's prefill: chunks of one length, state and KV pages carried
from one to the next. So what is measured holds for served answers, whatever the numeric profile.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from njax.checkpoint import Checkpoint
from njax.config import BLOCK
from njax.evaluation.corpus import TokenSequence
from njax.evaluation.windows import windows
from njax.models.params import bind, place
from njax.state import ModelState, init_state, kv_storage

_ROWS = 64
"""Tokens whose logits are in memory at once."""


@dataclasses.dataclass(frozen=True)
class TokenFigures:
    """Figures of scored tokens, float64 or bool [tokens]; in nats where they have a unit.

    Attributes:
      loss: negative log probability of the token.
      right: whether the token was the likeliest.
      reference_loss: the same of the reference model; None without one, as the following.
      divergence: KL(reference || model) of the two distributions.
      agrees: whether both find the same token likeliest.
    """

    loss: np.ndarray
    right: np.ndarray
    reference_loss: np.ndarray | None = None
    divergence: np.ndarray | None = None
    agrees: np.ndarray | None = None


class Scorer:
    """One model in one numeric profile.

    Args:
      checkpoint: the model.
      window: most tokens that it sees at once.
      kv_dtype: as `EngineConfig.kv_dtype`; None: the dtype of the activations.
      chunk: tokens of a prefill step, a multiple of the block; moves no bit of the result on
        backends whose products are independent of the number of rows.
    """

    def __init__(
        self, checkpoint: Checkpoint, window: int, *, kv_dtype: str | None = None, chunk: int = 512
    ):
        config = checkpoint.config
        dtype = jnp.dtype(checkpoint.dtype)
        self.vocab_size = config.vocab_size
        self.chunk = min(chunk, -(-window // BLOCK) * BLOCK)
        pages = -(-window // self.chunk) * self.chunk // BLOCK
        graphdef, self.params = bind(config, dtype, place(checkpoint.params))
        self._state: Callable[[], ModelState] = jax.jit(
            lambda: init_state(
                config, batch=1, pages=pages + 1, dtype=dtype, kv_dtype=kv_storage(kv_dtype, dtype)
            )
        )
        self._table = np.arange(1, pages + 1, dtype=np.int32)[None]

        def step(
            params: Any, state: ModelState, tokens: jax.Array, start: jax.Array, length: jax.Array
        ) -> tuple[jax.Array, ModelState]:
            model = nnx.merge(graphdef, params)
            positions = start + jnp.arange(tokens.shape[0], dtype=jnp.int32)
            hidden, state = model(
                tokens[None],
                jnp.broadcast_to(positions, (3, 1, tokens.shape[0])),
                state,
                jnp.asarray(self._table),
                start[None],
                length[None],
            )
            return hidden[0], state

        self._step = jax.jit(step, donate_argnums=1)
        self.head = lambda params, hidden: nnx.merge(graphdef, params).logits(hidden)

    def hidden(self, tokens: np.ndarray) -> list[jax.Array]:
        """Hidden states of one window from an empty state: [chunk, hidden] for each chunk; rows
        beyond the window hold nothing."""
        state, found = self._state(), []
        for start in range(0, len(tokens), self.chunk):
            part = np.zeros(self.chunk, np.int32)
            length = min(self.chunk, len(tokens) - start)
            part[:length] = tokens[start : start + length]
            hidden, state = self._step(self.params, state, part, np.int32(start), np.int32(length))
            found.append(hidden)
        return found


def score_sequences(
    sequences: Iterable[TokenSequence],
    model: Scorer,
    reference: Scorer | None = None,
    *,
    size: int,
    stride: int,
    progress: Callable[[int, int], None] | None = None,
) -> TokenFigures:
    """Figures of all tokens that count, in order.

    Args:
      reference: a model with the same vocabulary and chunk, to compare with.
      size, stride: of the windows.
      progress: hears how many tokens have been run, of how many (more than are scored: windows
        overlap).

    Raises:
      ValueError: the two models don't fit together, or sizes are out of range.
    """
    if reference is not None and reference.vocab_size != model.vocab_size:
        raise ValueError(
            f"vocabularies of {model.vocab_size} and {reference.vocab_size} tokens "
            "cannot be compared"
        )
    if reference is not None and reference.chunk != model.chunk:
        raise ValueError(f"chunks of {model.chunk} and {reference.chunk} tokens differ")
    work = [part for one in sequences for part in _parts(one, size, stride)]
    total, done = sum(len(tokens) for tokens, _ in work), 0
    figures = _figures_program(model, reference)
    collected: list[dict[str, np.ndarray]] = []
    for tokens, wanted in work:
        collected += _score_window(figures, tokens, wanted, model, reference)
        done += len(tokens)
        if progress:
            progress(done, total)
    if not collected:
        raise ValueError("no token of these sequences counts")
    joined = {name: np.concatenate([one[name] for one in collected]) for name in collected[0]}
    return TokenFigures(**joined)


def _parts(
    sequence: TokenSequence, size: int, stride: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Windows of a sequence as (tokens, which of them are scored here), where any is."""
    tokens = np.asarray(sequence.tokens, np.int32)
    counts = np.ones(len(tokens), bool) if sequence.scored is None else sequence.scored
    for window in windows(len(tokens), size, stride):
        wanted = np.zeros(window.end - window.start, bool)
        wanted[window.scored - window.start :] = counts[window.scored : window.end]
        if wanted.any():
            yield tokens[window.start : window.end], wanted


def _score_window(
    figures: Callable[..., dict[str, jax.Array]],
    tokens: np.ndarray,
    wanted: np.ndarray,
    model: Scorer,
    reference: Scorer | None,
) -> list[dict[str, np.ndarray]]:
    """Figures of the wanted tokens. That of token t is made from the hidden state of t - 1."""
    own = model.hidden(tokens)
    other = own if reference is None else reference.hidden(tokens)
    found = []
    for index, (left, right) in enumerate(zip(own, other, strict=True)):
        first = index * model.chunk + 1
        targets = np.zeros(model.chunk, np.int32)
        here = tokens[first : first + model.chunk]
        keep = wanted[first : first + model.chunk]
        targets[: len(here)] = here
        if not keep.any():
            continue
        params = None if reference is None else reference.params
        made = figures(model.params, params, left, right, targets)
        found.append(
            {name: _wide(np.asarray(value)[: len(keep)][keep]) for name, value in made.items()}
        )
    return found


def _wide(values: np.ndarray) -> np.ndarray:
    return values if values.dtype == bool else values.astype(np.float64)


def _figures_program(
    model: Scorer, reference: Scorer | None
) -> Callable[..., dict[str, jax.Array]]:
    """(params, reference's params, hidden [T, H], reference's hidden, targets [T]) -> [T] each."""

    def rows(params: Any, other: Any, part: tuple[jax.Array, ...]) -> dict[str, jax.Array]:
        hidden, other_hidden, targets = part
        logits = model.head(params, hidden)
        logp = jax.nn.log_softmax(logits)
        best = jnp.argmax(logits, axis=-1)
        pick = functools.partial(jnp.take_along_axis, indices=targets[:, None], axis=-1)
        out = {"loss": -pick(logp)[:, 0], "right": best == targets}
        if reference is not None:
            truth = reference.head(other, other_hidden)
            truth_logp = jax.nn.log_softmax(truth)
            gap = jnp.where(truth_logp > -jnp.inf, truth_logp - logp, 0.0)
            out |= {
                "reference_loss": -pick(truth_logp)[:, 0],
                "divergence": jnp.sum(jnp.exp(truth_logp) * gap, axis=-1),
                "agrees": best == jnp.argmax(truth, axis=-1),
            }
        return out

    @jax.jit
    def run(
        params: Any, other: Any, hidden: jax.Array, other_hidden: jax.Array, targets: jax.Array
    ) -> dict[str, jax.Array]:
        split = tuple(
            x.reshape(x.shape[0] // _ROWS, _ROWS, *x.shape[1:])
            for x in (hidden, other_hidden, targets)
        )
        made = lax.map(functools.partial(rows, params, other), split)
        return {name: value.reshape(-1) for name, value in made.items()}

    return run
