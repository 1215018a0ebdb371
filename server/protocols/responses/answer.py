"""A response as it is made: whole, or as events in the protocol's order.

A stream is `response.created`, `response.in_progress`, the events of each item, and one terminal
event with the whole object. Every event has a `sequence_number`, from 0; there is no sentinel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from njax.engine.types import Event
from njax.errors import RequestError
from njax.text.tokenizer import Tokenizer
from njax.text.tool_calls import ContentDelta
from server.answer import AnswerEvent, AnswerReader, Ended, TokenLogs
from server.protocols.openai_chat_answer import logprobs_body
from server.protocols.responses import body as bodies
from server.protocols.responses.items import Item
from server.protocols.responses.output import Output, Tell
from server.protocols.responses.request import ResponseCall

_encode = msgspec.json.Encoder().encode


class ResponseMaker:
    """Follows the generation of one response.

    Attributes:
      body: the response object as it stands.
    """

    def __init__(self, call: ResponseCall, tokenizer: Tokenizer, tell: Tell = lambda *_: None):
        self.body = call.body
        self._tokenizer = tokenizer
        self._reader = AnswerReader(call.style)
        self._output = Output(tell, call.custom, call.sealed)
        self._logprobs: list[Item] = []  # of tokens whose text is still to come

    def add(self, index: int, event: Event) -> None:
        """
        Raises:
          RequestError: the generation failed.
        """
        found = self._reader.read(event)
        self._take_logprobs(found)
        for one in found:
            if isinstance(one, Ended):
                items = self._output.finish(cut=one.finish == "length")
                self.body = bodies.finished(self.body, items, one)
            elif isinstance(one, ContentDelta):
                self._output.add(one, self._logprobs)
                self._logprobs = []
            else:
                self._output.add(one)

    def fail(self, error: RequestError) -> None:
        """The response ends here, with what there is of it."""
        self.body = bodies.failed(self.body, self._output.stop(), error)

    def cancel(self) -> None:
        """The response ends here because the client wanted so."""
        self.body = self.body | {"status": "cancelled", "output": self._output.stop()}

    def _take_logprobs(self, found: list[AnswerEvent]) -> None:
        """Only those of a message's tokens are told: of its text, or while it is open and the text
        has yet to come (a character's first bytes)."""
        content = any(isinstance(one, ContentDelta) for one in found)
        entries = [entry for one in found if isinstance(one, TokenLogs) for entry in one.entries]
        if content or self._output.in_message:
            told = logprobs_body(self._tokenizer, entries)
            self._logprobs += msgspec.to_builtins(told.content) if told else []
        else:
            self._logprobs = []


class ResponseStream:
    """A response as server-sent events (a `server.sse.StreamWriter`)."""

    def __init__(
        self, call: ResponseCall, tokenizer: Tokenizer, keep: Callable[[dict[str, Any]], None]
    ):
        """
        Args:
          keep: is given the object once it is complete.
        """
        self._keep = keep
        self._number = 0
        self._data: list[bytes] = []
        self._maker = ResponseMaker(call, tokenizer, self._tell)

    def opening(self) -> bytes:
        for kind in ("response.created", "response.in_progress"):
            self._tell(kind, {"response": self._maker.body})
        return self._take()

    def event(self, index: int, event: Event) -> bytes:
        self._maker.add(index, event)
        return self._take()

    def closing(self) -> bytes:
        body = self._maker.body
        self._keep(body)
        self._tell(f"response.{body['status']}", {"response": body})
        return self._take()

    def failure(self, error: RequestError) -> bytes:
        self._maker.fail(error)
        return self.closing()

    def _tell(self, kind: str, fields: dict[str, Any]) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        self._data.append(b"event: " + kind.encode() + b"\ndata: " + _encode(event) + b"\n\n")

    def _take(self) -> bytes:
        data = b"".join(self._data)
        self._data.clear()
        return data
