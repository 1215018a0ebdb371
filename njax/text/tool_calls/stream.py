"""`AnswerStream`: a model's text to reasoning, content and calls. What the protocols build on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from njax.text.reasoning import Piece, ReasoningSplitter
from njax.text.tool_calls.automaton import ToolCallParser
from njax.text.tool_calls.call import new_call_id
from njax.text.tool_calls.events import (
    Answer,
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
    collect,
    merge,
)


class AnswerStream:
    """One answer. Not for several threads at once.

    In tolerant mode the reasoning is searched for calls too. They are taken out of it, and count
    only if the content has none: then they follow at the end.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        starts_in_reasoning: bool = False,
        reasoning: bool = True,
        tolerant: bool = False,
        live: bool = True,
        max_calls: int | None = None,
        new_id: Callable[[], str] = new_call_id,
    ):
        """
        Args:
          tools, tolerant, live, max_calls, new_id: see `ToolCallParser`.
          starts_in_reasoning, reasoning: see `ReasoningSplitter` (`reasoning` is its `enabled`).
        """
        self._splitter = ReasoningSplitter(starts_in_reasoning, enabled=reasoning)
        self._parser = ToolCallParser(
            tools, tolerant=tolerant, live=live, max_calls=max_calls, new_id=new_id
        )
        self._search: ToolCallParser | None = None
        if tolerant and tools:
            self._search = ToolCallParser(
                tools,
                tolerant=True,
                live=False,
                text_after_calls=True,
                max_calls=max_calls,
                new_id=new_id,
            )
        self._found: list[Event] = []
        self._started = 0

    @property
    def in_reasoning(self) -> bool:
        """Whether the text that comes next is thinking, as far as is known."""
        return self._splitter.in_reasoning

    def push(self, text: str) -> list[Event]:
        """Takes more text; returns what is certain, in order."""
        return merge(self._events(self._splitter.push(text)))

    def finish(self, truncated: bool = False) -> list[Event]:
        """The rest. `truncated`: the text was cut by a limit, not ended by the model."""
        events = list(self._events(self._splitter.finish(truncated)))
        events += self._end_search(truncated)
        events += self._count(self._parser.finish(truncated))
        if self._parser.calls == 0:
            events += [_moved(event, self._started) for event in self._found]
        return merge(events)

    def _events(self, pieces: Iterable[Piece]) -> Iterable[Event]:
        for channel, text in pieces:
            if channel == "content":
                yield from self._end_search(False)
                yield from self._count(self._parser.push(text))
            elif self._search is not None:
                yield from self._of_reasoning(self._search.push(text))
            else:
                yield ReasoningDelta(text)

    def _end_search(self, truncated: bool) -> list[Event]:
        """The reasoning is over."""
        search, self._search = self._search, None
        return [] if search is None else self._of_reasoning(search.finish(truncated))

    def _of_reasoning(self, events: Iterable[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, ContentDelta):
                out.append(ReasoningDelta(event.text))
            else:
                self._found.append(event)
        return out

    def _count(self, events: list[Event]) -> list[Event]:
        self._started += sum(isinstance(event, ToolCallStart) for event in events)
        return events


def parse_answer(text: str, *args: Any, truncated: bool = False, **options: Any) -> Answer:
    """The whole answer of a whole text; arguments as for `AnswerStream`."""
    stream = AnswerStream(*args, **options)
    return collect([*stream.push(text), *stream.finish(truncated)])


def _moved(event: Event, by: int) -> Event:
    if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd):
        return dataclasses.replace(event, index=event.index + by)
    if isinstance(event, ToolCallDropped) and event.index is not None:
        return dataclasses.replace(event, index=event.index + by)
    return event
