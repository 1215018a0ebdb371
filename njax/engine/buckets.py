"""Which array lengths the jitted steps are compiled for.

Every step runs at one of a few fixed lengths, so that nothing compiles after boot; what does not
fill a bucket is padded. Padding never changes a bit of the result (see `pallas_kernels`).
"""

from __future__ import annotations

from njax.config import BLOCK

SEGMENT_PAGES = (16, 4, 1)
"""Pages that one snapshot copy moves, largest first: few launches and no padding."""


def prefill_buckets(prefill_chunk: int, backend: str) -> tuple[int, ...]:
    """Ascending token counts of the prefill programs: doubling from one block to the chunk.

    Only the chunk itself where the backend's matrix products give a row other bits in a product of
    another height (cuBLAS does): one program for every chunk keeps a seeded prompt's tokens equal
    to a cold one's, at the price of padding short tails.
    """
    if backend != "cpu":
        return (prefill_chunk,)
    buckets = []
    size = BLOCK
    while size < prefill_chunk:
        buckets.append(size)
        size *= 2
    return (*buckets, prefill_chunk)


def bucket_for(length: int, buckets: tuple[int, ...]) -> int:
    """The smallest bucket that holds `length` tokens."""
    for bucket in buckets:
        if length <= bucket:
            return bucket
    raise ValueError(f"{length} tokens exceed the largest bucket {buckets[-1]}")


def segment_sizes(pages: int) -> list[int]:
    """Splits a page count into runs of `SEGMENT_PAGES` sizes, largest first."""
    sizes = []
    for size in SEGMENT_PAGES:
        sizes += [size] * (pages // size)
        pages %= size
    return sizes
