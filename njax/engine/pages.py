"""The KV page pool's bookkeeping: who owns which page. The pages themselves live on the device."""

from __future__ import annotations


class PagePool:
    """Hands out pages 1..`pages`; page 0 is scratch and belongs to nobody.

    A request reserves its worst case when it gets a lane, so it never runs out half way.
    Invariant: free + used == pages, and no page has two owners.
    """

    def __init__(self, pages: int):
        self.pages = pages
        self._free = list(range(pages, 0, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.pages - len(self._free)

    def take(self, count: int) -> list[int] | None:
        """`count` pages, or None (and nothing taken) if there are not so many."""
        if count > len(self._free):
            return None
        if count == 0:
            return []
        taken = self._free[-count:]
        del self._free[-count:]
        return taken

    def give_back(self, pages: list[int]) -> None:
        """Returns pages that `take` handed out."""
        self._free.extend(pages)
