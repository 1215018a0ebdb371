"""Batches for the steps, made ahead by worker processes, handed out in order.

A batch is a function of (recipe, step), so their number changes nothing but speed.
"""

from __future__ import annotations

import collections
import concurrent.futures
import multiprocessing
import os
from collections.abc import Iterator
from types import TracebackType

import jax

from njax.demo.data.dice import Dice
from njax.demo.data.pack import Batch, Bucket, make_batch
from njax.demo.data.render import Renderer
from njax.demo.training.recipe import Recipe
from njax.demo.training.vocabulary import make_renderer

_renderer: Renderer | None = None
"""Of a worker process, made once."""


def bucket_of(recipe: Recipe, step: int) -> Bucket:
    """The bucket of a step, drawn by the shares."""
    dice = Dice(recipe.seed, "train", f"bucket/{step}")
    shares = [phase.share for phase in recipe.phases]
    return dice.choices(recipe.phases, shares)[0].bucket


class Stream:
    """Batches of steps `first`, `first + 1`, ... as an iterator; a context manager.

    Args:
      workers: processes; 0 makes batches here when they are asked for.
      ahead: batches that may wait.
    """

    def __init__(
        self, recipe: Recipe, tokenizer_json: str, first: int, *, workers: int, ahead: int = 0
    ):
        self._recipe, self._first = recipe, first
        self._ahead = ahead or 3 * workers
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        if workers:
            # Forking would copy the threads and locks of JAX.
            self._pool = concurrent.futures.ProcessPoolExecutor(
                workers,
                multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=(tokenizer_json,),
            )
        else:
            self._renderer = make_renderer(tokenizer_json)

    def __iter__(self) -> Iterator[Batch]:
        step = self._first
        if self._pool is None:
            while True:
                yield make_batch(
                    self._renderer, bucket_of(self._recipe, step), self._recipe.seed, step
                )
                step += 1
        waiting: collections.deque[concurrent.futures.Future[Batch]] = collections.deque()
        while True:
            while len(waiting) < self._ahead:
                bucket = bucket_of(self._recipe, step)
                waiting.append(self._pool.submit(_make, bucket, self._recipe.seed, step))
                step += 1
            yield waiting.popleft().result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _start(tokenizer_json: str) -> None:
    global _renderer
    # The packages import JAX; a worker must not take memory of the accelerator.
    jax.config.update("jax_platforms", "cpu")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _renderer = make_renderer(tokenizer_json)


def _make(bucket: Bucket, seed: int, step: int) -> Batch:
    assert _renderer is not None
    return make_batch(_renderer, bucket, seed, step)
