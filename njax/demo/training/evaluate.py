"""Scores by category during training, teacher-forced: one forward pass, no generation.

A turn counts as exact if the likeliest token is the right one everywhere in it, thinking included,
given the right tokens before. Then greedy decoding writes exactly this turn. The score is a lower
bound of what `score` measures by generating: a thought that goes another way to the same answer
counts as wrong here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from njax.demo.data.mixture import sample
from njax.demo.data.pack import Batch, Bucket
from njax.demo.data.render import Rendered, Renderer

Predict = Callable[[Batch], tuple[np.ndarray, np.ndarray]]
"""Likeliest next tokens [B, T] and drafts [depth, B, T], as `loss.predictions`."""

SETS: tuple[tuple[str, str, str], ...] = (
    ("arithmetic", "short", "arithmetic"),
    ("calendar", "short", "calendar"),
    ("lookup", "short", "lookup"),
    ("text", "short", "text"),
    ("dialogue", "short", "dialogue"),
    ("unknown", "short", "unknown"),
    ("tools", "short", "tools"),
    ("chat", "short", "chat"),
    ("tools_many", "medium", "tools"),
    ("lookup_4k", "long", "lookup"),
    ("unknown_4k", "long", "unknown"),
)
"""(name of the score, mix, category)."""


@dataclasses.dataclass(frozen=True)
class Placed:
    """Where a conversation of a score lies: batch, row, first token."""

    score: str
    batch: int
    row: int
    first: int
    rendered: Rendered


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """Conversations of the test split, packed into batches of the training shapes."""

    batches: tuple[Batch, ...]
    placed: tuple[Placed, ...]


def make_set(
    renderer: Renderer, buckets: dict[str, Bucket], seed: int, samples: int
) -> EvaluationSet:
    """`samples` conversations for every score.

    Args:
      buckets: mix -> shape to pack it into. Scores of other mixes are left out, conversations that
        are too long for their bucket too.
    """
    batches: list[Batch] = []
    placed: list[Placed] = []
    for mix, bucket in buckets.items():
        fresh: list[tuple[str, Rendered]] = []
        for name, of, category in SETS:
            if of == mix:
                fresh += [
                    (name, renderer(sample(seed, "test", index, mix, category)))
                    for index in range(samples)
                ]
        row, used, number = bucket.rows, 0, 0
        for name, rendered in fresh:
            size = len(rendered.tokens)
            if size > bucket.length:
                continue
            if row == bucket.rows or used + size > bucket.length:
                row, used, number = row + 1, 0, 0
                if row >= bucket.rows:
                    batches.append(_empty(bucket))
                    row = 0
            number += 1
            batch = batches[-1]
            batch.tokens[row, used : used + size] = rendered.tokens
            batch.segments[row, used : used + size] = number
            batch.mask[row, used : used + size] = rendered.mask
            placed.append(Placed(name, len(batches) - 1, row, used, rendered))
            used += size
    return EvaluationSet(tuple(batches), tuple(placed))


def _empty(bucket: Bucket) -> Batch:
    shape = (bucket.rows, bucket.length)
    return Batch(np.zeros(shape, np.uint16), np.zeros(shape, np.uint8), np.zeros(shape, bool))


def evaluate(predict: Predict, data: EvaluationSet) -> dict[str, Any]:
    """Per score the share of exact conversations, and the acceptance of drafts over all of them.

    `acceptance` is accepted drafts over drafted ones, with as many drafts a round as the model was
    trained for; `acceptance_first` counts the first of each round only.
    """
    hits: dict[str, list[bool]] = {}
    drafted = accepted = rounds = firsts = 0
    results = [predict(batch) for batch in data.batches]
    for item in data.placed:
        best, drafts = results[item.batch]
        size = len(item.rendered.tokens)
        span = slice(item.first, item.first + size)
        tokens = item.rendered.tokens.astype(np.int32)
        judged = np.flatnonzero(item.rendered.judged)
        right = best[item.row, span][judged - 1] == tokens[judged]
        hits.setdefault(item.score, []).append(bool(right.all()))
        for taken, asked in _rounds(drafts[:, item.row, span], tokens, item.rendered.judged):
            drafted, accepted = drafted + asked, accepted + taken
            rounds, firsts = rounds + 1, firsts + (taken > 0)
    scores: dict[str, Any] = {name: float(np.mean(found)) for name, found in hits.items()}
    scores["acceptance"] = accepted / max(1, drafted)
    scores["acceptance_first"] = firsts / max(1, rounds)
    return scores


def _rounds(drafts: np.ndarray, tokens: np.ndarray, judged: np.ndarray) -> list[tuple[int, int]]:
    """(accepted, drafted) of each speculative round over the judged turns of a conversation.

    A round starts when token t + 1 is known; draft i (from 1) guesses token t + 1 + i. Drafts end
    with the turn, for nobody would look at them.
    """
    found = []
    depth, size = drafts.shape
    at = 0
    while at + 2 < size:
        if not (judged[at + 1] and judged[at + 2]):
            at += 1
            continue
        asked = taken = 0
        while asked < depth and at + 2 + asked < size and judged[at + 2 + asked]:
            asked += 1
        while taken < asked and drafts[taken, at] == tokens[at + 2 + taken]:
            taken += 1
        found.append((taken, asked))
        at += taken + 1
    return found
