"""The seed store: immutable snapshots of complete sequence state, found by prefix.

A lookup never changes or consumes an entry, so any number of lanes can start from one. Entries
leave one by one, the least recently used first.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from njax.config import BLOCK
from njax.state import KVPages, Snapshot, tree_bytes

log = logging.getLogger("njax.prefix")

MINIMUM_FRONTIER = 256
"""Shortest prefix worth a snapshot: below it the fixed delta image costs more than it saves."""


Segment = tuple[KVPages, ...]


@dataclasses.dataclass(frozen=True)
class Seed:
    """One entry: the snapshot after `token_ids`.

    Attributes:
      digests: chain digests of the blocks of `token_ids`; the last one is the entry's key.
    """

    digests: tuple[bytes, ...]
    token_ids: tuple[int, ...]
    snapshot: Snapshot

    @property
    def key(self) -> bytes:
        return self.digests[-1]


@dataclasses.dataclass
class SeedCounters:
    """What happened since the start; tokens are prompt tokens whose prefill was skipped."""

    captures: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    rejected_too_large: int = 0
    saved_tokens: int = 0


@dataclasses.dataclass
class _Held:
    """A page run, the tokens up to its end, and how many entries hold it."""

    segment: Segment
    token_ids: tuple[int, ...]
    holders: int = 0


class SeedStore:
    """Snapshots keyed by the chain digest of their last block. Used by one thread.

    Entries with a common head share its pages, so that a second frontier of the same conversation
    costs one delta image and its own new pages.

    Args:
      budget: most bytes that the entries may hold together; 0 turns the store off.
    """

    def __init__(self, budget: int):
        self.budget = budget
        self.counters = SeedCounters()
        self._entries: OrderedDict[bytes, Seed] = OrderedDict()
        self._segments: dict[tuple[bytes, int], _Held] = {}
        self._bytes = 0

    @property
    def enabled(self) -> bool:
        return self.budget > 0

    @property
    def nbytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._entries

    def longest(self, digests: Sequence[bytes], token_ids: Sequence[int]) -> Seed | None:
        """The entry with the longest prefix of the prompt that leaves a token to prefill.

        Args:
          digests: chain digests of the prompt's whole blocks.
          token_ids: the prompt; compared with the entry's own tokens, not only by digest.
        """
        usable = min(len(digests), (len(token_ids) - 1) // BLOCK)
        for blocks in range(usable, 0, -1):
            seed = self._entries.get(digests[blocks - 1])
            if seed is not None and tuple(token_ids[: blocks * BLOCK]) == seed.token_ids:
                return seed
        return None

    def record_hit(self, seed: Seed) -> None:
        """A request started from this entry: it becomes the last to be evicted."""
        self.counters.hits += 1
        self.counters.saved_tokens += len(seed.token_ids)
        if seed.key in self._entries:
            self._entries.move_to_end(seed.key)

    def record_miss(self) -> None:
        """A request looked for an entry and found none."""
        self.counters.misses += 1

    def shared_segments(
        self, digests: Sequence[bytes], token_ids: Sequence[int], sizes: Sequence[int]
    ) -> list[Segment]:
        """The leading page runs that a snapshot of this prefix can share with entries here.

        Args:
          digests, token_ids: the prefix of the snapshot to come.
          sizes: pages of each of its runs, in order.

        Returns: runs for the first so many of `sizes`; immutable, so sharing changes no bit.
        """
        shared = []
        end = 0
        for size in sizes:
            end += size
            found = self._segments.get((digests[end - 1], size))
            if found is None or tuple(token_ids[: end * BLOCK]) != found.token_ids:
                break
            shared.append(found.segment)
        return shared

    def put(self, digests: Sequence[bytes], token_ids: tuple[int, ...], snapshot: Snapshot) -> bool:
        """Adds an entry, evicting the least recently used until it fits.

        Page runs that came from `shared_segments` are counted once, however many entries hold them.

        Returns:
          False if it is larger than the whole budget or already there; nothing changes then.
        """
        seed = Seed(tuple(digests), token_ids, snapshot)
        if seed.key in self._entries:
            return False
        nbytes = tree_bytes(snapshot)
        if nbytes > self.budget:
            self.counters.rejected_too_large += 1
            log.warning(
                "prefix seed not kept frontier=%d bytes=%d: larger than the budget of %d bytes",
                len(token_ids), nbytes, self.budget,
            )  # fmt: skip
            return False
        # An eviction can leave this entry as the only holder of a run: the sum is taken anew.
        while self._bytes + (added := self._new_bytes(seed)) > self.budget:
            self._evict()
        self._entries[seed.key] = seed
        self._bytes += added
        for key, held in self._runs(seed):
            self._segments.setdefault(key, held).holders += 1
        self.counters.captures += 1
        log.info(
            "prefix seed captured frontier=%d bytes=%d shared_bytes=%d entries=%d",
            len(token_ids), added, nbytes - added, len(self._entries),
        )  # fmt: skip
        return True

    def _evict(self) -> None:
        _, oldest = self._entries.popitem(last=False)
        before = self._bytes
        self._bytes -= tree_bytes((oldest.snapshot.delta, oldest.snapshot.tail))
        for key, _ in self._runs(oldest):
            held = self._segments[key]
            held.holders -= 1
            if held.holders == 0:
                del self._segments[key]
                self._bytes -= tree_bytes(held.segment)
        self.counters.evictions += 1
        log.info(
            "prefix seed evicted frontier=%d bytes=%d reason=budget",
            len(oldest.token_ids), before - self._bytes,
        )  # fmt: skip

    def _new_bytes(self, seed: Seed) -> int:
        """Bytes that an entry would add to what is here."""
        fresh = [held.segment for key, held in self._runs(seed) if key not in self._segments]
        return tree_bytes((seed.snapshot.delta, seed.snapshot.tail)) + tree_bytes(fresh)

    @staticmethod
    def _runs(seed: Seed) -> Iterator[tuple[tuple[bytes, int], _Held]]:
        """Each page run of an entry with its name: the chain digest at its end, and its size."""
        end = 0
        for segment in seed.snapshot.segments:
            size = segment[0].k.shape[0]
            end += size
            yield (seed.digests[end - 1], size), _Held(segment, seed.token_ids[: end * BLOCK])

    def clear(self) -> None:
        """Drops every entry."""
        self._entries.clear()
        self._segments.clear()
        self._bytes = 0
