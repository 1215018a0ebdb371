"""`Content`: the text outside of calls, on its way out."""

from __future__ import annotations

from njax.text.tool_calls.events import ContentDelta, Event
from njax.text.tool_calls.json_form import SPACE

_MOST_SPACE = 1024


class Content:
    """Passes text on; holds whitespace at its end (up to a limit), because a call may follow.

    Attributes:
      at_line_start: the next character begins a line.
    """

    def __init__(self) -> None:
        self._open = True
        self._space = ""
        self.at_line_start = True

    def add(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        self.at_line_start = text[-1] == "\n"
        if not self._open:
            return
        text = self._space + text
        kept = text.rstrip(SPACE)
        self._space = text[len(kept) :]
        if kept:
            events.append(ContentDelta(kept))
        if len(self._space) > _MOST_SPACE:
            self.finish(events)

    def call_follows(self) -> None:
        """The whitespace belongs to the call."""
        self._space = ""

    def call_begun(self, more: bool) -> None:
        """A call for certain: unless `more`, nothing is content from here on."""
        self._space = ""
        self._open = self._open and more

    def finish(self, events: list[Event]) -> None:
        """No call follows the whitespace."""
        if self._space:
            events.append(ContentDelta(self._space))
        self._space = ""
