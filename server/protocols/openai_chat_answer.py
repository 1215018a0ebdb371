"""OpenAI Chat Completions, the answer: whole, or as chunks in the protocol's order.

A stream is: a chunk with the role, chunks of content, one with the finish reason, one with the
usage (no choices, only if asked for), `[DONE]`. A failure on the way is an error event, and then
the stream ends without `[DONE]`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from njax.engine import field_names
from njax.engine.types import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    TokenLogprobs,
    Usage,
)
from njax.errors import RequestError, Unavailable
from njax.text.tokenizer import Tokenizer
from server.protocols.errors import error_body

_DONE = b"data: [DONE]\n\n"
_FINISH: dict[FinishReason, str] = {
    "stop_token": "stop",
    "stop_string": "stop",
    "output_limit": "length",
    "context_capacity": "length",
}
_encode = msgspec.json.Encoder().encode


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message, or in a chunk what is new of it."""

    role: str | None = None
    content: str | None = None


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


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts; `cached_tokens` is a part of `prompt_tokens`."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    return {
        field_names.PROMPT_TOKENS: usage.prompt_tokens,
        field_names.COMPLETION_TOKENS: usage.completion_tokens,
        field_names.TOTAL_TOKENS: usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {field_names.CACHED_TOKENS: cached},
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


def _finish_reason(finished: Finished) -> str:
    """
    Raises:
      Unavailable: the request was cancelled, and not by its client: the server is stopping.
    """
    if finished.reason == "cancelled":
        raise Unavailable("the server is stopping")
    return _FINISH[finished.reason]


class ChatAnswer:
    """The answer to one request, whole: feed it events, then ask for the body."""

    def __init__(self, model: str, tokenizer: Tokenizer):
        self._model = model
        self._tokenizer = tokenizer
        self._text: list[str] = []
        self._logprobs: list[TokenLogprobs] = []
        self._finished: Finished | None = None

    def add(self, event: Event) -> bool:
        """Takes an event; True after the last one.

        Raises:
          RequestError: the request failed.
        """
        if isinstance(event, Delta):
            self._text.append(event.text)
            self._logprobs += event.logprobs
        elif isinstance(event, Failed):
            raise event.error
        elif isinstance(event, Finished):
            self._finished = event
        return self._finished is not None

    def body(self) -> Completion:
        assert self._finished is not None
        message = Message(role="assistant", content="".join(self._text))
        return Completion(
            id=_new_id(),
            created=int(time.time()),
            model=self._model,
            choices=[
                Choice(
                    0,
                    message,
                    _finish_reason(self._finished),
                    logprobs_body(self._tokenizer, self._logprobs),
                )
            ],
            usage=usage_body(self._finished.usage),
        )


class ChatStream:
    """The answer to one request as server-sent events (a `server.sse.StreamWriter`)."""

    def __init__(self, model: str, include_usage: bool, tokenizer: Tokenizer):
        self._model = model
        self._tokenizer = tokenizer
        self._include_usage = include_usage
        self._id = _new_id()
        self._created = int(time.time())

    def opening(self) -> bytes:
        """What a stream begins with."""
        return self._chunk(Message(role="assistant", content=""))

    def event(self, event: Event) -> bytes:
        """What an event adds to the stream, perhaps nothing."""
        if isinstance(event, Delta):
            logprobs = logprobs_body(self._tokenizer, event.logprobs)
            if not event.text and logprobs is None:
                return b""
            return self._chunk(Message(content=event.text), logprobs=logprobs)
        if isinstance(event, Failed):
            return self.failure(event.error)
        if not isinstance(event, Finished):
            return b""
        try:
            last = self._chunk(Message(), _finish_reason(event))
        except RequestError as error:
            return self.failure(error)
        if self._include_usage:
            last += self._write([], usage_body(event.usage))
        return last + _DONE

    def failure(self, error: RequestError) -> bytes:
        """Ends a stream that has begun."""
        _, body = error_body(error)
        return b"data: " + _encode(body) + b"\n\n"

    def _chunk(
        self,
        delta: Message,
        finish_reason: str | None = None,
        logprobs: ChoiceLogprobs | None = None,
    ) -> bytes:
        usage = None if self._include_usage else msgspec.UNSET
        return self._write([ChunkChoice(0, delta, finish_reason, logprobs)], usage)

    def _write(
        self, choices: list[ChunkChoice], usage: dict[str, Any] | msgspec.UnsetType | None
    ) -> bytes:
        chunk = Chunk(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        )
        return b"data: " + _encode(chunk) + b"\n\n"


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"
