"""The training run: steps, evaluations, saves, until the time or the steps are used up."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from njax.demo.training.curves import write_curves
from njax.demo.training.evaluate import EvaluationSet, evaluate, make_set
from njax.demo.training.optimizer import learning_rate, make_optimizer
from njax.demo.training.programs import Programs
from njax.demo.training.recipe import Recipe
from njax.demo.training.state import Progress, RunState, Saves, initial_params
from njax.demo.training.stream import Stream
from njax.demo.training.vocabulary import make_renderer, make_vocabulary


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How a run goes about its recipe.

    Attributes:
      minutes: time for everything, the exports after it included; None for no limit.
      steps: steps of the run; None to let the time decide. The number that it decided on is in
        `curves.json`: given as `steps` it makes the same run again.
      workers: processes that make batches; 0 for none.
      log_every, evaluate_every, save_every: in steps.
      evaluation_samples: conversations for every score.
      stop_at: end early after this step, saving; for tests of resuming.
    """

    minutes: float | None = None
    steps: int | None = None
    workers: int = 0
    log_every: int = 20
    evaluate_every: int = 500
    save_every: int = 1000
    evaluation_samples: int = 64
    stop_at: int | None = None


_RESERVE_S = 60.0
"""Time kept for the last evaluation and the exports."""

Say = Callable[[str], None]


def train(recipe: Recipe, folder: Path, options: RunOptions, say: Say = print) -> RunState:
    """Trains in `folder`, going on from the newest save there; returns the final state.

    Raises:
      ValueError: neither minutes nor steps, or the folder holds a run of another recipe.
    """
    if options.minutes is None and options.steps is None:
        raise ValueError("a run needs minutes or steps")
    if options.steps is None and recipe.fake_quant_from < 1 - recipe.decay:
        raise ValueError("fake_quant_from must not lie before the decay when time decides")
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    _check_recipe(recipe, folder)
    tokenizer_json = _tokenizer(recipe, folder, say)
    optimizer = make_optimizer(recipe)
    params = initial_params(recipe)
    state = RunState(params, optimizer.init(params), Progress(total=options.steps))
    saves = Saves(folder / "saves")
    newest = saves.latest()
    if newest is not None:
        state = saves.restore(newest, state)
        say(f"resuming at step {state.progress.step}")
    progress = state.progress
    began -= progress.seconds
    count = sum(value.size for value in state.params.values())
    say(f"{count / 1e6:.2f} million parameters on {jax.devices()[0].device_kind}")

    programs = Programs(recipe, optimizer, state.params, state.optimizer)
    judge = _Judge(recipe, programs, tokenizer_json, options.evaluation_samples)
    pending: list[tuple[int, float, int, dict[str, jax.Array]]] = []
    marked = (time.monotonic(), progress.tokens)
    with Stream(recipe, tokenizer_json, progress.step, workers=options.workers) as stream:
        for batch in stream:
            if progress.step == progress.total or progress.step == options.stop_at:
                break
            step = progress.step
            rate = learning_rate(recipe, step, progress.total or 1 << 60)
            rounded = progress.total is not None and step >= recipe.fake_quant_from * progress.total
            state.params, state.optimizer, report = programs.step(
                state.params, state.optimizer, batch, rate, rounded
            )
            progress.step += 1
            progress.tokens += batch.tokens.size
            pending.append((progress.step, rate, batch.tokens.size, report))
            last = progress.step == progress.total
            if progress.step % options.log_every == 0 or last:
                _log(progress, pending)
                now = time.monotonic()
                speed = (progress.tokens - marked[1]) / (now - marked[0])
                marked = (now, progress.tokens)
                progress.seconds = now - began
                _say_losses(say, progress, speed)
                _decide(recipe, options, progress, say)
            if progress.step % options.evaluate_every == 0 or last:
                judge(state, rounded, say)
                write_curves(folder, progress)
                marked = (time.monotonic(), progress.tokens)
            if progress.step % options.save_every == 0 or last:
                progress.seconds = time.monotonic() - began
                saves.save(state)
                marked = (time.monotonic(), progress.tokens)
    _log(progress, pending)
    progress.seconds = time.monotonic() - began
    saves.save(state)
    write_curves(folder, progress)
    return state


class _Judge:
    """Evaluations; the set is made at the first one."""

    def __init__(self, recipe: Recipe, programs: Programs, tokenizer_json: str, samples: int):
        self._recipe, self._programs = recipe, programs
        self._tokenizer_json, self._samples = tokenizer_json, samples
        self._set: EvaluationSet | None = None

    def __call__(self, state: RunState, rounded: bool, say: Say) -> None:
        if self._set is None:
            buckets = {phase.bucket.mix: phase.bucket for phase in self._recipe.phases}
            renderer = make_renderer(self._tokenizer_json)
            self._set = make_set(renderer, buckets, self._recipe.seed, self._samples)
        scores = evaluate(
            lambda batch: self._programs.predict(state.params, batch, rounded), self._set
        )
        row = {"step": state.progress.step, "rounded": rounded, **scores}
        state.progress.scores.append(row)
        say("  exact: " + ", ".join(f"{name} {value:.3f}" for name, value in scores.items()))


def _decide(recipe: Recipe, options: RunOptions, progress: Progress, say: Say) -> None:
    """Fixes the number of steps when the constant part has used up its share of the time."""
    if progress.total is not None or options.minutes is None:
        return
    budget = options.minutes * 60 - _RESERVE_S
    if progress.seconds >= (1 - recipe.decay) * budget:
        progress.total = max(progress.step + 1, round(progress.step / (1 - recipe.decay)))
        say(f"decay begins; the run will have {progress.total} steps")


def _log(progress: Progress, pending: list[tuple[int, float, int, dict[str, jax.Array]]]) -> None:
    reports = jax.device_get([report for *_, report in pending])
    for (step, rate, tokens, _), report in zip(pending, reports, strict=True):
        row: dict[str, Any] = {"step": step, "tokens": tokens, "learning_rate": rate}
        row |= {name: round(float(value), 5) for name, value in report.items()}
        progress.losses.append(row)
    pending.clear()


def _say_losses(say: Say, progress: Progress, speed: float) -> None:
    row = progress.losses[-1]
    say(
        f"step {progress.step:6d}  {progress.seconds:7.1f} s  {speed / 1e3:8.1f} k tok/s  "
        + "  ".join(
            f"{name} {row[name]:.4f}"
            for name in ("loss", "accuracy", "prompt_loss", "mtp_accuracy_1", "mtp_accuracy_3")
            if name in row
        )
    )


def _check_recipe(recipe: Recipe, folder: Path) -> None:
    path, text = folder / "recipe.json", json.dumps(dataclasses.asdict(recipe), indent=1) + "\n"
    if path.exists() and path.read_text() != text:
        raise ValueError(f"{folder} holds a run of another recipe ({path} differs)")
    path.write_text(text)


def _tokenizer(recipe: Recipe, folder: Path, say: Say) -> str:
    """The run's tokenizer, made if the folder has none."""
    path = folder / "tokenizer.json"
    if not path.exists():
        say("learning the vocabulary")
        text = make_vocabulary(recipe.model.vocab_size, recipe.seed, recipe.vocabulary_samples)
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")
