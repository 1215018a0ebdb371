"""OpenAI Chat Completions, the answer: whole, or as chunks in the protocol's order.

A stream is: a chunk with the role, chunks of reasoning, content and tool calls, one with the finish
reason, all that for each choice, then one with the usage (no choices, only if asked for), `[DONE]`.
A failure on the way is an error event, and then the stream ends without `[DONE]`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from njax.engine import field_names
from njax.engine.types import Drafts, Event, TokenLogprobs
from njax.errors import RequestError
from njax.text.tokenizer import Tokenizer
from njax.text.tool_calls import (
    Answer,
    ContentDelta,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallDropped,
    ToolCallStart,
)
from server.answer import AnswerEvent, AnswerReader, AnswerStyle, Ended, TokenLogs, WholeAnswer
from server.protocols.errors import error_body

_DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """`arguments` is JSON text, or in a chunk what is new of it."""

    name: str | None = None
    arguments: str = ""


class ToolCallBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, or in a chunk what is new of it; only chunks have an index."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function = Function()


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message, or in a chunk what is new of it."""

    role: str | None = None
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | None = None
    tool_calls: list[ToolCallBody] | None = None


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprob]
    refusal: None = None


class Choice(msgspec.Struct, frozen=True):
    index: int
    message: Message
    finish_reason: str
    logprobs: ChoiceLogprobs | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Message
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: dict[str, Any]
    timings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    timings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


def timings_body(ended: Sequence[Ended]) -> dict[str, Any] | msgspec.UnsetType:
    """Speculation of all answers to one prompt, under llama.cpp's names; nothing where none is."""
    drafts = sum((one.usage.drafts for one in ended), Drafts())
    return drafts.to_dict() if drafts.drafted else msgspec.UNSET


def usage_body(ended: Sequence[Ended]) -> dict[str, Any]:
    """Token counts of all answers to one prompt; `cached_tokens` is a part of `prompt_tokens`."""
    usage = ended[0].usage
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    completion = sum(one.usage.completion_tokens for one in ended)
    return {
        field_names.PROMPT_TOKENS: usage.prompt_tokens,
        field_names.COMPLETION_TOKENS: completion,
        field_names.TOTAL_TOKENS: usage.prompt_tokens + completion,
        "prompt_tokens_details": {field_names.CACHED_TOKENS: cached},
        "completion_tokens_details": {
            field_names.REASONING_TOKENS: sum(one.reasoning_tokens for one in ended)
        },
        field_names.PREFIX_CACHE_HIT_TOKENS: cached,
        field_names.PREFIX_REUSE_PATH: usage.reuse_path,
    }


def logprobs_body(tokenizer: Tokenizer, entries: Sequence[TokenLogprobs]) -> ChoiceLogprobs | None:
    """Log probabilities of tokens with their bytes; None if none were asked for."""
    if not entries:
        return None

    def spelled(token_id: int) -> tuple[str, list[int]]:
        data = tokenizer.token_bytes(token_id)
        return data.decode(errors="replace"), list(data)

    content = []
    for entry in entries:
        top = []
        for token_id, logprob in entry.top:
            text, data = spelled(token_id)
            top.append(TopLogprob(text, logprob, data))
        text, data = spelled(entry.token_id)
        content.append(TokenLogprob(text, entry.logprob, data, top))
    return ChoiceLogprobs(content)


class ChatAnswer:
    """The answers to one request, whole: feed it events, then ask for the body."""

    def __init__(self, model: str, style: AnswerStyle, count: int, tokenizer: Tokenizer):
        self._model = model
        self._tokenizer = tokenizer
        self._answers = [WholeAnswer(style) for _ in range(count)]

    def add(self, index: int, event: Event) -> None:
        """
        Raises:
          RequestError: that generation failed.
        """
        self._answers[index].add(event)

    def body(self) -> Completion:
        ended = [one.ended for one in self._answers if one.ended is not None]
        assert len(ended) == len(self._answers)
        choices = [
            Choice(
                index,
                _message(one.answer),
                end.finish,
                logprobs_body(self._tokenizer, one.logprobs),
            )
            for index, (one, end) in enumerate(zip(self._answers, ended, strict=True))
        ]
        return Completion(
            id=_new_id(),
            created=int(time.time()),
            model=self._model,
            choices=choices,
            usage=usage_body(ended),
            timings=timings_body(ended),
        )


def _message(answer: Answer) -> Message:
    calls = [
        ToolCallBody(id=call.id, type="function", function=Function(call.name, call.arguments))
        for call in answer.tool_calls
    ]
    return Message(
        role="assistant",
        content=answer.content or (None if calls else ""),
        reasoning_content=answer.reasoning or None,
        tool_calls=calls or None,
    )


class ChatStream:
    """The answers to one request as server-sent events (a `server.sse.StreamWriter`)."""

    def __init__(
        self,
        model: str,
        style: AnswerStyle,
        count: int,
        include_usage: bool,
        tokenizer: Tokenizer,
    ):
        self._model = model
        self._tokenizer = tokenizer
        self._include_usage = include_usage
        self._readers = [AnswerReader(style) for _ in range(count)]
        self._ended: list[Ended] = []
        self._id = _new_id()
        self._created = int(time.time())

    def opening(self) -> bytes:
        role = Message(role="assistant", content="")
        return b"".join(self._chunk(index, role) for index in range(len(self._readers)))

    def event(self, index: int, event: Event) -> bytes:
        data, logprobs, messages = b"", None, []
        finish: str | None = None
        for found in self._readers[index].read(event):
            if isinstance(found, TokenLogs):
                logprobs = logprobs_body(self._tokenizer, found.entries)
            elif isinstance(found, Ended):
                finish = found.finish
                self._ended.append(found)
            elif (message := _delta(found)) is not None:
                messages.append(message)
        if logprobs is not None and not messages:
            messages.append(Message())
        for at, message in enumerate(messages):
            data += self._chunk(index, message, None, None if at else logprobs)
        if finish is not None:
            data += self._chunk(index, Message(), finish)
        return data

    def closing(self) -> bytes:
        if not self._include_usage:
            return _DONE
        return self._write([], usage_body(self._ended), timings_body(self._ended)) + _DONE

    def failure(self, error: RequestError) -> bytes:
        _, body = error_body(error)
        return b"data: " + _encode(body) + b"\n\n"

    def _chunk(
        self,
        index: int,
        delta: Message,
        finish_reason: str | None = None,
        logprobs: ChoiceLogprobs | None = None,
    ) -> bytes:
        usage = None if self._include_usage else msgspec.UNSET
        return self._write([ChunkChoice(index, delta, finish_reason, logprobs)], usage)

    def _write(
        self,
        choices: list[ChunkChoice],
        usage: dict[str, Any] | msgspec.UnsetType | None,
        timings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET,
    ) -> bytes:
        chunk = Chunk(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage,
            timings=timings,
        )
        return b"data: " + _encode(chunk) + b"\n\n"


def _delta(event: AnswerEvent) -> Message | None:
    """What is new of a message. A call that was cut keeps what has been sent of it, its JSON
    completed, as a stream cannot take it back."""
    match event:
        case ContentDelta(text):
            return Message(content=text)
        case ReasoningDelta(text):
            return Message(reasoning_content=text)
        case ToolCallStart(index, call_id, name):
            call = ToolCallBody(index, call_id, "function", Function(name))
        case ToolCallDelta(index, arguments):
            call = ToolCallBody(index, function=Function(arguments=arguments))
        case ToolCallDropped(int(index), _, closing) if closing:
            call = ToolCallBody(index, function=Function(arguments=closing))
        case _:
            return None
    return Message(tool_calls=[call])


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"
