"""What a model's answer is made of, as a stream of events and as a whole.

`collect` puts a stream together; the whole answer is never computed in another way, so that
streamed and unstreamed answers cannot differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking; not empty."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer's text; not empty."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins.

    Attributes:
      index: counts the calls of the answer that were started, from 0.
      id: `call_` and 16 hexadecimal digits.
    """

    index: int
    id: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the arguments' JSON text; not empty."""

    index: int
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The call is complete: its deltas, put together, are a JSON object."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCallDropped:
    """What began as a call is none, and is part of no answer.

    Attributes:
      index: of the call, if it was started; None if nothing of it was sent.
      reason: "cut" when the text ended inside it, else "malformed".
      closing: what completes the JSON of the deltas already sent (complete values are kept, an
        unfinished text ends where it was cut), for protocols that cannot take a call back.
      shape: what it looked like, without its words: C F P for opening tags, c f p for closing
        ones, t and j with lengths for text and JSON.
    """

    index: int | None
    reason: Literal["cut", "malformed"]
    closing: str
    shape: str


Event = (
    ReasoningDelta | ContentDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | ToolCallDropped
)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call; `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    dropped: tuple[ToolCallDropped, ...] = ()


def collect(events: Iterable[Event]) -> Answer:
    """The whole answer of a stream; calls that were dropped are left out."""
    reasoning: list[str] = []
    content: list[str] = []
    started: dict[int, ToolCallStart] = {}
    arguments: dict[int, list[str]] = {}
    calls: list[ToolCall] = []
    dropped: list[ToolCallDropped] = []
    for event in events:
        match event:
            case ReasoningDelta(text):
                reasoning.append(text)
            case ContentDelta(text):
                content.append(text)
            case ToolCallStart(index):
                started[index], arguments[index] = event, []
            case ToolCallDelta(index, text):
                arguments[index].append(text)
            case ToolCallEnd(index):
                start = started[index]
                calls.append(ToolCall(start.id, start.name, "".join(arguments[index])))
            case ToolCallDropped():
                dropped.append(event)
    return Answer("".join(reasoning), "".join(content), tuple(calls), tuple(dropped))


def merge(events: Iterable[Event]) -> list[Event]:
    """The same stream with neighbouring deltas of one kind put together, and no empty ones."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        match last, event:
            case _, ContentDelta("") | ReasoningDelta("") | ToolCallDelta(_, ""):
                continue
            case ContentDelta(a), ContentDelta(b):
                out[-1] = ContentDelta(a + b)
            case ReasoningDelta(a), ReasoningDelta(b):
                out[-1] = ReasoningDelta(a + b)
            case ToolCallDelta(i, a), ToolCallDelta(j, b) if i == j:
                out[-1] = ToolCallDelta(i, a + b)
            case _:
                out.append(event)
    return out
