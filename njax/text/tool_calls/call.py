"""`Call`: one call while it is read, and its events."""

from __future__ import annotations

import secrets
from typing import Literal

from njax.text.tool_calls.events import (
    Event,
    ToolCallDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
)
from njax.text.tool_calls.schema import Tool
from njax.text.tool_calls.shape import Shape
from njax.text.tool_calls.writer import ArgumentsWriter


def new_call_id() -> str:
    return f"call_{secrets.token_hex(8)}"


class Call:
    """
    Args:
      tolerant: closing tags may be missing, if the function is declared.
      live: events come at once; otherwise all of them at the end of a complete call.

    Attributes:
      tool: whose call it is, once known. started: it is a call for certain.
      near: it began in a way that counts for declared functions only.
      bare: it has no `<tool_call>` around it. line_form: it is a line, without tags.
      function_closed: `</function>` was read, or has no place in this form.
    """

    def __init__(self, live: bool, tolerant: bool):
        self._live = live
        self._tolerant = tolerant
        self._index = -1
        self._id = ""
        self.tool: Tool | None = None
        self.writer = ArgumentsWriter()
        self.shape = Shape()
        self.started = self.near = self.bare = self.line_form = self.function_closed = False

    @property
    def declared(self) -> bool:
        return self.tool is not None and self.tool.declared

    @property
    def tolerant(self) -> bool:
        return self._tolerant and self.declared

    def start(self, index: int, call_id: str, events: list[Event]) -> None:
        self.started = True
        self._index, self._id = index, call_id
        if self._live:
            events.append(self._start_event())

    def flush(self, events: list[Event]) -> None:
        """What is new of the arguments."""
        if self.started and self._live and (text := self.writer.take()):
            events.append(ToolCallDelta(self._index, text))

    def end(self, index: int, events: list[Event]) -> None:
        """The call is complete; `index` counts complete calls when events come at the end."""
        self.writer.end()
        if not self._live:
            self._index = index
            events.append(self._start_event())
        events.append(ToolCallDelta(self._index, self.writer.take()))
        events.append(ToolCallEnd(self._index))

    def drop(self, reason: Literal["cut", "malformed"], events: list[Event]) -> None:
        sent = self.started and self._live
        self.flush(events)
        closing = self.writer.closing if sent else ""
        index = self._index if sent else None
        events.append(ToolCallDropped(index, reason, closing, str(self.shape)))

    def _start_event(self) -> ToolCallStart:
        assert self.tool is not None
        return ToolCallStart(self._index, self._id, self.tool.name)
