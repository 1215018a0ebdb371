"""The items of an answer as they grow. Whole responses and streams are made by the same steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from njax.text.tool_calls import (
    ContentDelta,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
)
from server.answer import AnswerEvent
from server.protocols.responses.items import CUSTOM_INPUT, Item, new_id, seal

Tell = Callable[[str, dict[str, Any]], None]


class Output:
    """Builds items one after another; each is closed before the next begins.

    Attributes:
      items: those that are closed, and the open one as it was when it began.
    """

    def __init__(self, tell: Tell, custom: frozenset[str] = frozenset(), sealed: bool = False):
        """
        Args:
          tell: hears of every step: the event's type and its fields.
          custom: names of tools that take free text.
          sealed: reasoning items carry `encrypted_content` too.
        """
        self.items: list[Item] = []
        self._tell = tell
        self._custom = custom
        self._sealed = sealed
        self._open: str | None = None  # type of the open item
        self._text: list[str] = []  # of the open item
        self._logprobs: list[Item] = []  # of the open message

    @property
    def in_message(self) -> bool:
        """Whether the next content belongs to an open message."""
        return self._open == "message"

    def add(self, event: AnswerEvent, logprobs: Sequence[Item] = ()) -> None:
        """Takes what is new. `logprobs` belong to content."""
        match event:
            case ReasoningDelta(text):
                self._begin_text("reasoning")
                self._grow("response.reasoning_text.delta", text, content_index=0)
            case ContentDelta(text):
                self._begin_text("message")
                self._logprobs += logprobs
                entries = list(logprobs)
                self._grow("response.output_text.delta", text, content_index=0, logprobs=entries)
            case ToolCallStart(_, call_id, name):
                self._begin_call(call_id, name)
            case ToolCallDelta(_, arguments):
                self._grow_call(arguments)
            case ToolCallEnd():
                self._close("completed")
            case ToolCallDropped(index, _, closing) if index is not None:
                if closing:
                    self._grow_call(closing)
                self._close("incomplete")

    def finish(self, cut: bool) -> list[Item]:
        """Closes what is open; all items. Without a call there is a message, if an empty one."""
        if all(item["type"] == "reasoning" for item in self.items):
            self._begin_text("message")
        self._close("incomplete" if cut else "completed")
        return self.items

    def stop(self) -> list[Item]:
        """Closes what is open, as there will be no end; all items."""
        self._close("incomplete")
        return self.items

    def _begin_text(self, kind: str) -> None:
        if self._open == kind:
            return
        item: Item = {"id": new_id(kind), "type": kind, "status": "in_progress"}
        if kind == "message":
            self._begin(item | {"role": "assistant", "content": []})
        else:
            self._begin(item | {"summary": [], "content": []})
        self._say("response.content_part.added", content_index=0, part=_part(kind, "", []))

    def _begin_call(self, call_id: str, name: str) -> None:
        kind = "custom_tool_call" if name in self._custom else "function_call"
        item: Item = {"id": new_id(kind), "type": kind, "status": "in_progress"}
        grows = "input" if kind == "custom_tool_call" else "arguments"
        self._begin(item | {"call_id": call_id, "name": name, grows: ""})

    def _begin(self, item: Item) -> None:
        self._close("completed")
        self.items.append(item)
        self._open = item["type"]
        self._text, self._logprobs = [], []
        self._tell("response.output_item.added", {"output_index": self._index, "item": item})

    def _grow(self, kind: str, text: str, **fields: Any) -> None:
        self._text.append(text)
        self._say(kind, delta=text, **fields)

    def _grow_call(self, arguments: str) -> None:
        if self._open == "custom_tool_call":  # free text is known when its JSON is whole
            self._text.append(arguments)
        elif self._open == "function_call":
            self._grow("response.function_call_arguments.delta", arguments)

    def _close(self, status: str) -> None:
        kind, self._open = self._open, None
        if kind is None:
            return
        item = self.items[-1] | {"status": status}
        text = "".join(self._text)
        if kind == "function_call":
            item["arguments"] = text
            self._say("response.function_call_arguments.done", arguments=text, name=item["name"])
        elif kind == "custom_tool_call":
            item["input"] = _free_text(text)
            self._say("response.custom_tool_call_input.delta", delta=item["input"])
            self._say("response.custom_tool_call_input.done", input=item["input"])
        else:
            part = _part(kind, text, self._logprobs)
            item["content"] = [part]
            if kind == "reasoning":
                self._say("response.reasoning_text.done", content_index=0, text=text)
                if self._sealed:
                    item["encrypted_content"] = seal(text)
            else:
                self._say(
                    "response.output_text.done",
                    content_index=0,
                    text=text,
                    logprobs=self._logprobs,
                )
            self._say("response.content_part.done", content_index=0, part=part)
        self.items[-1] = item
        self._tell("response.output_item.done", {"output_index": self._index, "item": item})

    @property
    def _index(self) -> int:
        return len(self.items) - 1

    def _say(self, kind: str, **fields: Any) -> None:
        """Of the open item."""
        place = {"output_index": self._index, "item_id": self.items[-1]["id"]}
        self._tell(kind, place | fields)


def _free_text(arguments: str) -> str:
    """What a call of a custom tool says: its one argument, under whatever name."""
    values = json.loads(arguments) if arguments else {}
    value = values.get(CUSTOM_INPUT, next(iter(values.values()), ""))
    return value if isinstance(value, str) else json.dumps(value)


def _part(kind: str, text: str, logprobs: list[Item]) -> Item:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
