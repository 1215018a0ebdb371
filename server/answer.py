"""What an answer is made of, whatever the protocol: engine events in, answer events out.

An `AnswerReader` follows one generation. Its text becomes reasoning, content and tool calls (the
events of `njax.text.tool_calls`), and the last event is `Ended`. Protocols write these events in
their own form as they come, or as a `WholeAnswer`, so the two cannot differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from njax.engine.types import Delta, Event, Failed, Finished, FinishReason, TokenLogprobs, Usage
from njax.errors import Unavailable
from njax.text.reasoning import starts_in_reasoning
from njax.text.tool_calls import Answer, AnswerStream, ToolCallEnd, collect
from njax.text.tool_calls import Event as TextEvent

Finish = Literal["stop", "length", "tool_calls"]
_CUT: frozenset[FinishReason] = frozenset({"output_limit", "context_capacity"})


@dataclasses.dataclass(frozen=True)
class AnswerStyle:
    """How the text of an answer is to be read.

    Attributes:
      tools: declarations that the model saw; with none, nothing is a call.
      in_reasoning: the prompt left a thinking block open.
      max_calls: most calls that count; None for all.
      tolerant: near misses of calls count too (`njax.text.tool_calls.tolerant`).
    """

    tools: Sequence[Mapping[str, Any]] | None = None
    in_reasoning: bool = False
    max_calls: int | None = None
    tolerant: bool = False

    @classmethod
    def of_prompt(cls, text: str, **fields: Any) -> AnswerStyle:
        """The style for a rendered prompt."""
        return cls(in_reasoning=starts_in_reasoning(text), **fields)


@dataclasses.dataclass(frozen=True, slots=True)
class TokenLogs:
    """Log probabilities of tokens, of whatever part of the answer."""

    entries: tuple[TokenLogprobs, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """The last event.

    Attributes:
      finish: "length" whenever a limit cut the answer, calls or not.
      reason: the engine's.
      usage: token counts.
      reasoning_tokens: completion tokens spent inside the thinking block.
      stop_string: the one that ended the answer, if one did.
    """

    finish: Finish
    reason: FinishReason
    usage: Usage
    reasoning_tokens: int
    stop_string: str | None = None


AnswerEvent = TextEvent | TokenLogs | Ended


class AnswerReader:
    """Reads one generation. Not for several threads at once."""

    def __init__(self, style: AnswerStyle):
        self._stream = AnswerStream(
            style.tools,
            starts_in_reasoning=style.in_reasoning,
            tolerant=style.tolerant,
            max_calls=style.max_calls,
        )
        self._calls = 0
        self._reasoning_tokens = 0

    def read(self, event: Event) -> list[AnswerEvent]:
        """What an engine event adds to the answer, in order.

        Raises:
          RequestError: the generation failed, or was cancelled by a server that stops.
        """
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Delta):
            if self._stream.in_reasoning:
                self._reasoning_tokens += len(event.token_ids)
            found: list[AnswerEvent] = [*self._count(self._stream.push(event.text))]
            if event.logprobs:
                found.append(TokenLogs(event.logprobs))
            return found
        if isinstance(event, Finished):
            return self._end(event)
        return []

    def _end(self, event: Finished) -> list[AnswerEvent]:
        if event.reason == "cancelled":
            raise Unavailable("the server is stopping")
        cut = event.reason in _CUT
        found: list[AnswerEvent] = [*self._count(self._stream.finish(truncated=cut))]
        finish: Finish = "length" if cut else "tool_calls" if self._calls else "stop"
        spent = self._reasoning_tokens
        found.append(Ended(finish, event.reason, event.usage, spent, event.stop_string))
        return found

    def _count(self, events: list[TextEvent]) -> list[TextEvent]:
        self._calls += sum(isinstance(event, ToolCallEnd) for event in events)
        return events


class WholeAnswer:
    """One generation put together: feed it events until `ended` is there."""

    def __init__(self, style: AnswerStyle):
        self._reader = AnswerReader(style)
        self._events: list[TextEvent] = []
        self.logprobs: list[TokenLogprobs] = []
        self.ended: Ended | None = None

    def add(self, event: Event) -> None:
        """
        Raises:
          RequestError: as `AnswerReader.read`.
        """
        for found in self._reader.read(event):
            if isinstance(found, Ended):
                self.ended = found
            elif isinstance(found, TokenLogs):
                self.logprobs += found.entries
            else:
                self._events.append(found)

    @property
    def answer(self) -> Answer:
        """Reasoning, content and complete calls."""
        return collect(self._events)
