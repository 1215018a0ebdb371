"""The seed store: immutable snapshots of complete sequence state, found by prefix.

A lookup never changes or consumes an entry, so any number of lanes can start from one. Entries
leave one by one, the least recently used first.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Sequence

from njax.config import BLOCK
from njax.state import Snapshot, tree_bytes

log = logging.getLogger("njax.prefix")

MINIMUM_FRONTIER = 256
"""Shortest prefix worth a snapshot: below it the fixed delta image costs more than it saves."""


@dataclasses.dataclass(frozen=True)
class Seed:
    """One entry: the snapshot after `token_ids`, under the chain digest of its last block."""

    digest: bytes
    token_ids: tuple[int, ...]
    snapshot: Snapshot
    nbytes: int


@dataclasses.dataclass
class SeedCounters:
    """What happened since the start; tokens are prompt tokens whose prefill was skipped."""

    captures: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    rejected_too_large: int = 0
    saved_tokens: int = 0


class SeedStore:
    """Snapshots keyed by the chain digest of their last block. Used by one thread.

    Args:
      budget: most bytes that the entries may hold together; 0 turns the store off.
    """

    def __init__(self, budget: int):
        self.budget = budget
        self.counters = SeedCounters()
        self._entries: OrderedDict[bytes, Seed] = OrderedDict()
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
        if seed.digest in self._entries:
            self._entries.move_to_end(seed.digest)

    def record_miss(self) -> None:
        """A request looked for an entry and found none."""
        self.counters.misses += 1

    def put(self, digest: bytes, token_ids: tuple[int, ...], snapshot: Snapshot) -> bool:
        """Adds an entry, evicting the least recently used until it fits.

        Returns:
          False if it is larger than the whole budget or already there; nothing changes then.
        """
        nbytes = tree_bytes(snapshot)
        if digest in self._entries:
            return False
        if nbytes > self.budget:
            self.counters.rejected_too_large += 1
            log.warning(
                "prefix seed not kept frontier=%d bytes=%d: larger than the budget of %d bytes",
                len(token_ids), nbytes, self.budget,
            )  # fmt: skip
            return False
        while self._bytes + nbytes > self.budget:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.nbytes
            self.counters.evictions += 1
            log.info(
                "prefix seed evicted frontier=%d bytes=%d reason=budget",
                len(oldest.token_ids), oldest.nbytes,
            )  # fmt: skip
        self._entries[digest] = Seed(digest, token_ids, snapshot, nbytes)
        self._bytes += nbytes
        self.counters.captures += 1
        log.info(
            "prefix seed captured frontier=%d bytes=%d entries=%d",
            len(token_ids), nbytes, len(self._entries),
        )  # fmt: skip
        return True

    def clear(self) -> None:
        """Drops every entry."""
        self._entries.clear()
        self._bytes = 0
