"""`ReasoningSplitter`: tells a model's thinking from its answer while the text arrives.

The dialect: one block, `<think>` ... `</think>`, at the head of the answer. The prompt usually
holds the start tag already (thinking on), or an empty block (thinking off).

Rules, the same however the text is cut into pieces:
- a block begins in the prompt, or with a start tag at the head of the text (only whitespace before
  it). Start tags that repeat it at its head are ignored;
- the first end tag ends it. Everything later is content, tags included, in code or not;
- a block that is never closed is reasoning to the end: there is no content;
- reasoning loses the blank lines before it and all whitespace after it; content loses the blank
  lines before it (an indented first line keeps its indent) and keeps what stands at its end;
- text that was cut (`finish(truncated=True)`) loses an unfinished tag at its end; text that ended
  by itself keeps it.

Held back: whitespace that may have to go, and what may be the beginning of the awaited tag.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Literal

START = "<think>"
END = "</think>"
_SPACE = " \t\r\n"

Channel = Literal["reasoning", "content"]
Piece = tuple[Channel, str]


def starts_in_reasoning(prompt: str) -> bool:
    """Whether a prompt ends inside an open block, so that the model begins by thinking."""
    return prompt.rstrip().endswith(START)


class _State(enum.Enum):
    HEAD = enum.auto()  # nothing but whitespace so far; a start tag may come
    REASONING = enum.auto()
    CONTENT = enum.auto()


class ReasoningSplitter:
    """Splits one stream of text. Not for several threads at once.

    Attributes:
      in_reasoning: whether the text that comes next belongs to the block, as far as is known.
    """

    def __init__(self, starts_in_reasoning: bool = False, *, enabled: bool = True):
        """
        Args:
          starts_in_reasoning: the prompt left the block open (see the function of that name).
          enabled: False for models without this dialect: everything is content, unchanged.
        """
        self._enabled = enabled
        self._state = _State.REASONING if starts_in_reasoning and enabled else _State.HEAD
        self._text = ""  # not looked at yet, or an unfinished tag
        self._space = ""  # whitespace that may have to go
        self._spaces: list[str] = []  # ... and pieces of nothing else, not looked at yet
        self._begun = False  # the channel has had a character other than whitespace

    @property
    def in_reasoning(self) -> bool:
        return self._state is _State.REASONING

    def push(self, text: str) -> list[Piece]:
        """Takes more text; returns what is certain, in order."""
        if not self._enabled:
            return [("content", text)] if text else []
        may_go = self._state is _State.REASONING or not self._begun
        if may_go and not self._text and not text.strip(_SPACE):
            self._spaces.append(text)
            return []
        self._take_spaces(text)
        return list(self._run())

    def finish(self, truncated: bool = False) -> list[Piece]:
        """The rest, now that no more will come.

        Args:
          truncated: the text was cut by a limit rather than ended by the model.
        """
        self._take_spaces("")
        rest, self._text = self._text, ""
        if not self._enabled or (truncated and rest.lstrip()):
            return []  # an unfinished tag
        if self._state is _State.REASONING:
            return [("reasoning", self._lead(self._space + rest))] if rest.strip(_SPACE) else []
        tail = self._space + rest
        self._space = ""
        tail = tail if self._begun else _without_blank_lines(tail)
        return [("content", tail)] if tail else []

    def _take_spaces(self, text: str) -> None:
        self._text += "".join([*self._spaces, text])
        self._spaces.clear()

    def _run(self) -> Iterator[Piece]:
        if self._state is _State.HEAD:
            self._head()
        if self._state is _State.REASONING:
            yield from self._reasoning()
        if self._state is _State.CONTENT and self._text:
            text, self._text = self._text, ""
            if piece := self._content(text):
                yield "content", piece

    def _head(self) -> None:
        text = self._text.lstrip(_SPACE)
        if text.startswith(START):
            self._enter(_State.REASONING, text[len(START) :])
        elif text and not START.startswith(text):
            self._state = _State.CONTENT

    def _reasoning(self) -> Iterator[Piece]:
        if not self._begun:
            head = self._text.lstrip(_SPACE)
            while head.startswith(START):  # says again what the prompt said
                self._text = head[len(START) :]
                self._space, head = "", self._text.lstrip(_SPACE)
            if START.startswith(head):
                return
        at = self._text.find(END)
        end = at if at >= 0 else len(self._text) - _overlap(self._text, END)
        text, self._text = self._space + self._text[:end], self._text[end:]
        piece = text.rstrip(_SPACE)
        self._space = text[len(piece) :]
        if piece:
            yield "reasoning", self._lead(piece)
        if at >= 0:
            self._enter(_State.CONTENT, self._text[len(END) :])

    def _content(self, text: str) -> str:
        if self._begun:
            return text
        text = self._space + text
        if not text.lstrip(_SPACE):
            self._space = text
            return ""
        self._space = ""
        return self._lead(text)

    def _lead(self, text: str) -> str:
        """`text` without blank lines before it, if it is the first of its channel."""
        if self._begun:
            return text
        self._begun = True
        return _without_blank_lines(text)

    def _enter(self, state: _State, text: str) -> None:
        self._state, self._text, self._space, self._begun = state, text, "", False


def _without_blank_lines(text: str) -> str:
    indent = len(text) - len(text.lstrip(_SPACE))
    return text[text.rfind("\n", 0, indent) + 1 :]


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of `text` that is an unfinished `tag`."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0
