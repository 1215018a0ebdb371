"""Rows of fixed length that hold several conversations each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from njax.demo.data.dice import Split
from njax.demo.data.mixture import sample
from njax.demo.data.render import Rendered, Renderer


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A shape of batch: `rows` rows of `length` tokens.

    Attributes:
      mix: the name of the mix that fills it; what room is left takes short samples.
    """

    mix: str
    rows: int
    length: int


@dataclasses.dataclass(frozen=True)
class Batch:
    """Packed conversations.

    Attributes:
      tokens: uint16 [rows, length]; 0 where nothing is.
      segments: uint8 [rows, length], 1, 2, ... for the conversations of a row, 0 for nothing.
      mask: bool [rows, length], tokens that the model writes.
    """

    tokens: np.ndarray
    segments: np.ndarray
    mask: np.ndarray


def make_batch(
    renderer: Renderer, bucket: Bucket, seed: int, step: int, split: Split = "train"
) -> Batch:
    """The batch of one training step: a function of its arguments, whoever makes it.

    Conversations go to the first row with room for them. Filling ends when many in a row fit
    nowhere; a conversation that is too long for any row is left out.
    """
    batch = Batch(
        np.zeros((bucket.rows, bucket.length), np.uint16),
        np.zeros((bucket.rows, bucket.length), np.uint8),
        np.zeros((bucket.rows, bucket.length), bool),
    )
    used = np.zeros(bucket.rows, np.int64)
    count = np.zeros(bucket.rows, np.int64)
    mixes = [bucket.mix] if bucket.mix == "short" else [bucket.mix, "short"]
    for mix in mixes:

        def draw(index: int, mix: str = mix) -> Rendered:
            return renderer(sample(seed, split, (step << 16) + index, mix))

        _fill(batch, used, count, draw)
    return batch


def _fill(
    batch: Batch, used: np.ndarray, count: np.ndarray, draw: Callable[[int], Rendered]
) -> None:
    length = batch.tokens.shape[1]
    misses = index = 0
    while misses < 8 and used.sum() < 0.98 * batch.tokens.size:
        rendered = draw(index)
        index += 1
        size = len(rendered.tokens)
        rows = np.flatnonzero((used + size <= length) & (count < 255))
        if not len(rows):
            misses += 1
            continue
        misses = 0
        row = rows[0]
        span = slice(used[row], used[row] + size)
        count[row] += 1
        batch.tokens[row, span] = rendered.tokens
        batch.segments[row, span] = count[row]
        batch.mask[row, span] = rendered.mask
        used[row] += size
