"""What runs next. Pure bookkeeping over lanes, pages and the queue; no device, no threads.

Two kinds of unit: one prefill chunk of one request, or one decode round of every ready lane. They
alternate while both are wanted, so running lanes keep their cadence while a prompt is absorbed.
Requests get lanes in the order they came; one that does not fit yet is never overtaken.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque

from njax.engine.pages import PagePool
from njax.engine.sequence import Sequence


@dataclasses.dataclass(frozen=True)
class PrefillUnit:
    """The next chunk of one sequence."""

    sequence: Sequence


@dataclasses.dataclass(frozen=True)
class DecodeUnit:
    """One token for each of these sequences."""

    sequences: tuple[Sequence, ...]


class Scheduler:
    """Lanes, the queue and the choice of the next unit.

    Args:
      lanes: how many sequences decode together.
      pool: the KV pages that they share.
    """

    def __init__(self, lanes: int, pool: PagePool):
        self.pool = pool
        self.lanes: list[Sequence | None] = [None] * lanes
        self.waiting: deque[Sequence] = deque()
        self._prefilling: Sequence | None = None
        self._last_was_prefill = False

    @property
    def active(self) -> list[Sequence]:
        return [sequence for sequence in self.lanes if sequence is not None]

    def enqueue(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def next_unit(self) -> PrefillUnit | DecodeUnit | None:
        """Admits if possible, then says what to run; None if there is nothing to do."""
        if self._prefilling is None:
            self._prefilling = self._admit()
        ready = tuple(s for s in self.active if s.decodable)
        if self._prefilling is not None and not (ready and self._last_was_prefill):
            self._last_was_prefill = True
            return PrefillUnit(self._prefilling)
        if ready:
            self._last_was_prefill = False
            return DecodeUnit(ready)
        return None

    def prefill_dispatched(self, sequence: Sequence) -> None:
        """To be told after a chunk has been dispatched."""
        if not sequence.prefill_left and self._prefilling is sequence:
            self._prefilling = None

    def release(self, sequence: Sequence) -> None:
        """Frees lane and pages of an active sequence, or takes a waiting one off the queue."""
        if sequence.lane < 0:
            self.waiting.remove(sequence)
            return
        self.lanes[sequence.lane] = None
        self.pool.give_back(sequence.pages)
        sequence.pages = []
        sequence.lane = -1
        if self._prefilling is sequence:
            self._prefilling = None

    def _admit(self) -> Sequence | None:
        if not self.waiting or None not in self.lanes:
            return None
        pages = self.pool.take(self.waiting[0].pages_needed)
        if pages is None:
            return None
        sequence = self.waiting.popleft()
        sequence.lane = self.lanes.index(None)
        sequence.pages = pages
        sequence.admitted = time.monotonic()
        self.lanes[sequence.lane] = sequence
        return sequence
