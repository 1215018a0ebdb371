"""Streams of every cut, and what must hold for each of them."""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from njax.text.tool_calls import (
    Answer,
    AnswerStream,
    Event,
    ToolCallDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
    collect,
)

ID = re.compile("call_[0-9a-f]{16}")


def stream(pieces: Iterable[str], *args: Any, truncated: bool = False, **options: Any):
    """All events of one answer."""
    answer = AnswerStream(*args, **options)
    events: list[Event] = []
    for piece in pieces:
        events += answer.push(piece)
    return events + answer.finish(truncated)


def check_events(events: Sequence[Event]) -> None:
    """Order, ids and JSON: whatever the text was."""
    open_call: int | None = None
    parts: list[str] = []
    ids: list[str] = []
    for event in events:
        match event:
            case ToolCallStart(index, call_id, name):
                assert open_call is None and index == len(ids), events
                assert ID.fullmatch(call_id) and call_id not in ids and name
                ids.append(call_id)
                open_call, parts = index, []
            case ToolCallDelta(index, text):
                assert index == open_call and text
                parts.append(text)
            case ToolCallEnd(index):
                assert index == open_call
                assert_object("".join(parts))
                open_call = None
            case ToolCallDropped(index, _, closing, _):
                assert index == open_call
                if index is not None:
                    assert_object("".join(parts) + closing)
                open_call = None
            case _:
                assert open_call is None and event.text
    assert open_call is None


def assert_object(text: str) -> None:
    value = json.loads(text, parse_constant=lambda name: 1 / 0)
    assert isinstance(value, dict), text
    text.encode("utf-8")


def plain(answer: Answer) -> tuple[str, str, list[tuple[str, str]]]:
    """An answer without what is random in it."""
    return answer.reasoning, answer.content, [(c.name, c.arguments) for c in answer.tool_calls]


def calls_of(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"name": call.name, "arguments": json.loads(call.arguments)} for call in answer.tool_calls
    ]


def cut(text: str, edges: Iterable[int]) -> list[str]:
    ordered = sorted({0, len(text), *(min(edge, len(text)) for edge in edges)})
    return [text[a:b] for a, b in itertools.pairwise(ordered)]


def every(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def byte_by_byte(text: str) -> list[str]:
    """As a detokenizer passes bytes on: whole characters."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(bytes([byte])) for byte in text.encode("utf-8")]


def answer_of(text: str, *args: Any, **options: Any) -> Answer:
    """The answer, after the usual cuts agreed on it, live and not."""
    whole = collect(stream([text], *args, **options))
    for pieces in (byte_by_byte(text), every(text, 3), every(text, 7), [text]):
        for live in (True, False):
            events = stream(pieces, *args, live=live, **options)
            check_events(events)
            assert plain(collect(events)) == plain(whole)
    return whole
