"""Anthropic Messages, the answer: whole, or as events in the protocol's order.

A stream is: `message_start`; content blocks one after the other (`content_block_start`, deltas,
`content_block_stop`), a `ping` after the first has started; `message_delta` with stop reason and
usage; `message_stop`. An answer without anything in it has one empty text block.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

import msgspec

from njax.engine.types import Event, Started, Usage
from njax.errors import RequestError
from njax.text.tool_calls import (
    ContentDelta,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
)
from server.answer import AnswerEvent, AnswerReader, AnswerStyle, Ended, WholeAnswer
from server.protocols.errors import anthropic_error_body
from server.protocols.signature import sign

_encode = msgspec.json.Encoder().encode


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer; in `message_start` still without content."""

    id: str
    type: str = "message"
    role: str = "assistant"
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: dict[str, int]


def usage_body(usage: Usage) -> dict[str, int]:
    """The prompt in three parts: read from a snapshot, put into one, and the rest."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    created = min(usage.captured_tokens, usage.prompt_tokens - cached)
    return {
        "input_tokens": usage.prompt_tokens - cached - created,
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }


def stop_reason(ended: Ended) -> str:
    """In the protocol's words."""
    if ended.finish == "length":
        return "max_tokens"
    if ended.finish == "tool_calls":
        return "tool_use"
    return "stop_sequence" if ended.stop_string is not None else "end_turn"


class MessageAnswer:
    """The answer to one request, whole: feed it events, then ask for the body."""

    def __init__(self, model: str, style: AnswerStyle):
        self._model = model
        self._whole = WholeAnswer(style)

    def add(self, index: int, event: Event) -> None:
        """
        Raises:
          RequestError: the generation failed.
        """
        self._whole.add(event)

    def body(self) -> Message:
        ended, answer = self._whole.ended, self._whole.answer
        assert ended is not None
        content: list[dict[str, Any]] = []
        if answer.reasoning:
            content.append(_thinking(answer.reasoning, sign(answer.reasoning)))
        if answer.content:
            content.append({"type": "text", "text": answer.content})
        content += [
            _tool_use(call.id, call.name, json.loads(call.arguments)) for call in answer.tool_calls
        ]
        return Message(
            id=_new_id(),
            model=self._model,
            content=content or [{"type": "text", "text": ""}],
            stop_reason=stop_reason(ended),
            stop_sequence=ended.stop_string,
            usage=usage_body(ended.usage),
        )


class MessageStream:
    """The answer to one request as server-sent events (a `server.sse.StreamWriter`)."""

    def __init__(self, model: str, style: AnswerStyle, prompt_tokens: int):
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._reader = AnswerReader(style)
        self._begun = False
        self._blocks = 0
        self._open: str | None = None  # the kind of the block that is open
        self._thought: list[str] = []

    def opening(self) -> bytes:
        """Nothing: `message_start` has the cached tokens, which are known when prefill begins."""
        return b""

    def event(self, index: int, event: Event) -> bytes:
        data = b""
        if isinstance(event, Started):
            data += self._begin(event.cached_tokens)
        for found in self._reader.read(event):
            data += self._begin(0) + self._write(found)
        return data

    def closing(self) -> bytes:
        return _event("message_stop")

    def failure(self, error: RequestError) -> bytes:
        _, body = anthropic_error_body(error)
        return b"event: error\ndata: " + _encode(body) + b"\n\n"

    def _begin(self, cached: int) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        usage = {
            "input_tokens": self._prompt_tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": 0,
        }
        message = Message(id=_new_id(), model=self._model, content=[], usage=usage)
        return _event("message_start", message=message)

    def _write(self, found: AnswerEvent) -> bytes:
        match found:
            case ReasoningDelta(text):
                self._thought.append(text)
                delta = {"type": "thinking_delta", "thinking": text}
                return self._enter("thinking", _thinking("", "")) + self._delta(delta)
            case ContentDelta(text):
                delta = {"type": "text_delta", "text": text}
                return self._enter("text", {"type": "text", "text": ""}) + self._delta(delta)
            case ToolCallStart(_, call_id, name):
                return self._leave() + self._enter("tool_use", _tool_use(call_id, name, {}))
            case ToolCallDelta(_, arguments):
                return self._delta({"type": "input_json_delta", "partial_json": arguments})
            case ToolCallEnd():
                return self._leave()
            case ToolCallDropped(int(), _, closing):
                # A stream cannot take a call back: its JSON is completed.
                delta = {"type": "input_json_delta", "partial_json": closing}
                return (self._delta(delta) if closing else b"") + self._leave()
            case Ended():
                return self._end(found)
        return b""

    def _end(self, ended: Ended) -> bytes:
        data = self._leave()
        if not self._blocks:
            data = self._enter("text", {"type": "text", "text": ""}) + self._leave()
        delta = {"stop_reason": stop_reason(ended), "stop_sequence": ended.stop_string}
        return data + _event("message_delta", delta=delta, usage=usage_body(ended.usage))

    def _enter(self, kind: str, block: dict[str, Any]) -> bytes:
        """Makes a block of this kind the open one."""
        if self._open == kind:
            return b""
        data = self._leave()
        self._open = kind
        data += _event("content_block_start", index=self._blocks, content_block=block)
        if self._blocks == 0:
            data += _event("ping")
        self._blocks += 1
        return data

    def _leave(self) -> bytes:
        """Closes the open block, if there is one."""
        if self._open is None:
            return b""
        data = b""
        if self._open == "thinking":
            signature = sign("".join(self._thought))
            data += self._delta({"type": "signature_delta", "signature": signature})
            self._thought.clear()
        self._open = None
        return data + _event("content_block_stop", index=self._blocks - 1)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._blocks - 1, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind} | fields))


def _thinking(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _tool_use(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _new_id() -> str:
    return f"msg_{secrets.token_hex(12)}"
