"""Where a prompt's prefill starts, how it is cut into chunks, and what is captured on the way."""

from __future__ import annotations

import dataclasses

from njax.config import BLOCK
from njax.engine.types import ReusePath
from njax.prefix.identity import block_digests
from njax.prefix.seeds import MINIMUM_FRONTIER, Seed, SeedStore


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Prompt tokens [start, end) of one prefill step; `capture` asks for a snapshot at its end."""

    start: int
    end: int
    capture: bool = False

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclasses.dataclass(frozen=True)
class Plan:
    """How one prompt is prefilled.

    Attributes:
      base: tokens that come from the seed; a multiple of `BLOCK`.
      path: the name of the source, for log and usage.
      seed: the entry to restore, if any.
      chunks: the rest of the prompt in order; never empty.
      digests: chain digests of the prompt's whole blocks.
    """

    base: int
    path: ReusePath
    seed: Seed | None
    chunks: tuple[Chunk, ...]
    digests: tuple[bytes, ...]


def make_plan(
    *,
    root: bytes,
    token_ids: tuple[int, ...],
    frontiers: tuple[int, ...],
    store: SeedStore,
    prefill_chunk: int,
    reuse: bool = True,
    capture: bool = True,
) -> Plan:
    """Plans one prompt against the store as it is now.

    Chunk boundaries sit at absolute multiples of `BLOCK` (only the last chunk ends where the
    prompt does), so the state at a boundary does not depend on how the prompt was cut. A frontier
    inside a block is rounded down to it; the few tokens after are prefilled again by whoever uses
    the seed. A frontier less than `MINIMUM_FRONTIER` past the one before, or past the restored
    seed, is left out: its snapshot would cost more than it saves.

    Args:
      root: digest of model, profile and tenant (`identity.root_digest`).
      token_ids: the prompt, at least one token.
      frontiers: token counts worth a snapshot.
      prefill_chunk: most tokens of a chunk, a multiple of `BLOCK`.
      reuse, capture: whether this request may start from a seed, or leave one.
    """
    digests = tuple(block_digests(root, token_ids)) if store.enabled else ()
    seed = store.longest(digests, token_ids) if reuse and digests else None
    base = len(seed.token_ids) if seed else 0
    captures = set()
    last = base
    for frontier in sorted(frontiers) if capture and store.enabled else ():
        end = min(frontier, len(token_ids)) // BLOCK * BLOCK
        if end >= last + MINIMUM_FRONTIER:
            last = end
            if digests[end // BLOCK - 1] not in store:
                captures.add(end)
    chunks = []
    start = base
    while start < len(token_ids):
        end = min(start + prefill_chunk, len(token_ids))
        end = min([end, *(point for point in captures if point > start)])
        chunks.append(Chunk(start, end, capture=end in captures))
        start = end
    return Plan(
        base=base,
        path="seed_prefix" if seed else "full_reset",
        seed=seed,
        chunks=tuple(chunks),
        digests=digests,
    )
