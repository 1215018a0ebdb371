"""`Shape`: what a call looked like, without a word of it, for logs."""

from __future__ import annotations

_MOST = 64


class Shape:
    """Letters with lengths: `C t1 F t1 P t14 p`. Neighbours of one kind are put together."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, int]] = []
        self._more = False

    def add(self, letter: str, length: int = 0) -> None:
        """A tag (no length), or that many characters of text."""
        if length and self._parts and self._parts[-1][0] == letter:
            self._parts[-1] = (letter, self._parts[-1][1] + length)
        elif len(self._parts) < _MOST:
            self._parts.append((letter, length))
        else:
            self._more = True

    def __str__(self) -> str:
        parts = [f"{letter}{length or ''}" for letter, length in self._parts]
        return " ".join(parts + ["..."] * self._more)
