"""Windows over a sequence that is longer than what a model is to see at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Window:
    """Tokens [start, end) of a sequence; those in [scored, end) are scored here.

    The prediction of token t comes from the tokens [start, t), so the first token of a sequence is
    never scored.
    """

    start: int
    scored: int
    end: int


def windows(length: int, size: int, stride: int) -> Iterator[Window]:
    """Windows that score each token of `length`, but the first, exactly once.

    Every token but those of the first window sees at least `size - stride` tokens before it.

    Args:
      size: most tokens of a window, at least 2.
      stride: how far a window lies behind the one before it, 1 to size - 1.

    Raises:
      ValueError: sizes out of range.
    """
    if size < 2 or not 1 <= stride < size:
        raise ValueError(
            f"a window of {size} tokens and a stride of {stride}: needs 1 <= stride < size"
        )
    scored = 1
    while scored < length:
        start = max(0, scored + stride - size) if scored > 1 else 0
        end = min(length, start + size)
        yield Window(start, scored, end)
        scored = end
