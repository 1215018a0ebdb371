"""Randomness of one sample: seeded, and knowing the split that it draws for."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Literal

Split = Literal["train", "test"]

_TEST_SHARE = 8
"""One in so many names, tools and sums belongs to the test split."""


def belongs(text: str, split: Split) -> bool:
    """Whether a name (or any text that identifies something) belongs to a split."""
    return (zlib.crc32(text.encode()) % _TEST_SHARE == 0) == (split == "test")


class Dice(random.Random):
    """A random stream of its own for (seed, split, what), the same on every machine."""

    def __init__(self, seed: int, split: Split, what: str):
        digest = hashlib.blake2b(f"{seed}/{split}/{what}".encode(), digest_size=8).digest()
        super().__init__(int.from_bytes(digest, "big"))
        self.split: Split = split
        self.thinking = self.chance(0.65)

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def pick[T](self, items: Sequence[T]) -> T:
        return items[int(self.random() * len(items))]

    def whole(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return low + int(self.random() * (high - low + 1))

    def digits(self, longest: int) -> int:
        """A whole number whose length is uniform in 1..longest, so that short ones occur."""
        length = self.whole(1, longest)
        return self.whole(10 ** (length - 1) if length > 1 else 0, 10**length - 1)

    def several[T](self, draw: Callable[[], T], count: int) -> list[T]:
        """`count` different values of `draw`."""
        found: list[T] = []
        while len(found) < count:
            value = draw()
            if value not in found:
                found.append(value)
        return found

    def held[T](self, draw: Callable[[], T]) -> T:
        """A value of `draw` whose text belongs to the split."""
        while True:
            value = draw()
            if belongs(str(value), self.split):
                return value
