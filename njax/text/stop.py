"""`StopStrings`: ends a stream of text at the first stop string, wherever its pieces are cut."""

from __future__ import annotations

from collections.abc import Iterable


class StopStrings:
    """Finds stop strings in streamed text. Not for several threads at once.

    The text that `push` and `finish` return, put together, is the text before the stop string that
    begins first, and does not depend on how the text was cut into pieces. Text that may yet turn
    out to begin a stop string is held back, at most one character less than the longest of them.

    Attributes:
      matched: the stop string that ended the text, or None.
    """

    def __init__(self, stops: Iterable[str] = ()):
        """
        Args:
          stops: the stop strings; empty ones are ignored.
        """
        self._stops = tuple(dict.fromkeys(stop for stop in stops if stop))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.matched: str | None = None

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def push(self, text: str) -> tuple[str, bool]:
        """Takes more text; returns (text that is safe to show, whether a stop string was met).

        After a stop every further call returns ("", True).
        """
        if not self._stops:
            return text, False
        if self.matched is not None:
            return "", True
        text = self._held + text
        begin, stop = self._first_match(text)
        hold = self._first_possible(text)
        if stop is not None and begin <= hold:
            self._held, self.matched = "", stop
            return text[:begin], True
        # Either no stop string is complete, or one that begins earlier may still become so.
        self._held = text[hold:]
        return text[:hold], False

    def finish(self) -> str:
        """The held text, now that no more will come; sets `matched` if it holds a stop string.

        That is the case when one string was complete while an earlier one was still possible.
        """
        text, self._held = self._held, ""
        if self.matched is not None:
            return ""
        begin, self.matched = self._first_match(text)
        return text[:begin]

    def _first_match(self, text: str) -> tuple[int, str | None]:
        """(begin, stop string) of the match that begins first; (len(text), None) without one."""
        begin, found = len(text), None
        for stop in self._stops:
            at = text.find(stop)
            if 0 <= at < begin:
                begin, found = at, stop
        return begin, found

    def _first_possible(self, text: str) -> int:
        """Where the longest tail begins that is an unfinished stop string; len(text) if none."""
        for begin in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = text[begin:]
            if any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stops):
                return begin
        return len(text)
