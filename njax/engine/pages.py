"""The KV page pool's bookkeeping: who owns which page. The pages themselves live on the device."""

from __future__ import annotations


class PagePool:
    """Hands out pages 1..`pages`; page 0 is scratch and belongs to nobody.

    A request reserves its worst case when it gets a lane, so it never runs out half way.
    Invariant: free + used == pages, and no page has two owners.
    """

    def __init__(self, pages: int):
        self.pages = pages
        self._returned: list[int] = []
        self._fresh = 1  # pages from here on have never been lent

    @property
    def free(self) -> int:
        return len(self._returned) + self.pages + 1 - self._fresh

    @property
    def used(self) -> int:
        return self.pages - self.free

    def take(self, count: int) -> list[int] | None:
        """`count` pages, or None (and nothing taken) if there are not so many."""
        if count > self.free:
            return None
        taken = [self._returned.pop() for _ in range(min(count, len(self._returned)))]
        more = count - len(taken)
        taken += range(self._fresh, self._fresh + more)
        self._fresh += more
        return taken

    def give_back(self, pages: list[int]) -> None:
        """Returns pages that `take` handed out."""
        self._returned.extend(pages)
