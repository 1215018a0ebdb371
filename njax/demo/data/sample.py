"""What a sample is: a conversation with its right answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]

CATEGORIES = (
    "arithmetic",
    "calendar",
    "lookup",
    "text",
    "dialogue",
    "unknown",
    "tools",
    "chat",
)
"""What scores are given for. "calendar" has dates, times and units; "chat" is small talk."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A conversation that ends with an answer of the assistant.

    Attributes:
      category: one of `CATEGORIES`.
      kind: the idea within it, for finer reports.
      messages: in the form of the chat protocols; assistant messages may carry
        `reasoning_content` and `tool_calls`.
      tools: declarations in the chat protocols' form; empty for none.
      thinking: whether the answers after the last user turn are to be thought about first.
    """

    category: str
    kind: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    thinking: bool = True

    @property
    def targets(self) -> list[int]:
        """Indices of the assistant messages after the last user message: what is judged."""
        last = max(i for i, message in enumerate(self.messages) if message["role"] == "user")
        return [
            i
            for i, message in enumerate(self.messages)
            if i > last and message["role"] == "assistant"
        ]

    def options(self) -> dict[str, Any]:
        """Template options that this sample is rendered with."""
        return {"enable_thinking": self.thinking}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(
    text: str, thought: str = "", calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
) -> Message:
    """An answer; `calls` are (tool name, arguments)."""
    message: Message = {"role": "assistant", "content": text}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": dict(arguments)}}
            for name, arguments in calls
        ]
    return message


def tool_result(text: str) -> Message:
    return {"role": "tool", "content": text}


def question(
    category: str, kind: str, ask: str, answer: str, thought: str, thinking: bool
) -> Sample:
    """A sample of one question and its answer."""
    return Sample(
        category, kind, (user(ask), assistant(answer, thought if thinking else "")), (), thinking
    )
