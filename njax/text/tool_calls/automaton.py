"""`ToolCallParser`: tells calls from text, for streams and for whole answers alike.

There is one automaton: what it lets pass as content and what it reads as calls cannot disagree.

A call is `<tool_call>`, whitespace, and one of
  `<function=NAME>`, then parameters (see `xml_form`), a JSON object, or nothing; `</function>`
  `{"name": NAME, "arguments": {...}}`
and `</tool_call>`. Tags may have blanks before `>`; a marker that comes twice counts once. All else
is text, whatever it names: a marker in prose is passed on as soon as no call can follow.

Text before the first call is content, without the whitespace right before the call. From the point
where a call has begun for certain (its name, and its first parameter, key or closing tag), nothing
is content any more: text between and after calls is left out, and a call that is cut or malformed
is dropped, never shown. `ToolCallDropped` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from njax.text.tool_calls import tags, tolerant
from njax.text.tool_calls.call import Call, new_call_id
from njax.text.tool_calls.content import Content
from njax.text.tool_calls.events import ContentDelta, Event, merge
from njax.text.tool_calls.json_call import JsonArguments, JsonCall
from njax.text.tool_calls.json_form import SPACE
from njax.text.tool_calls.schema import Tools
from njax.text.tool_calls.tags import Kind, Lexeme
from njax.text.tool_calls.xml_call import XmlArguments
from njax.text.tool_calls.xml_form import Outcome

_MOST_GAP = 64  # whitespace after a marker
_MOST_HELD = 1 << 16  # of a JSON object whose name has not come
_MOST_RETRIES = 8  # each reads what is left of the text once more


class ToolCallParser:
    """One stream of text. Not for several threads at once.

    Attributes:
      calls: how many calls are complete.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        tolerant: bool = False,
        live: bool = True,
        text_after_calls: bool = False,
        max_calls: int | None = None,
        new_id: Callable[[], str] = new_call_id,
    ):
        """
        Args:
          tools: declarations as a client sends them (see `Tools`). Without any, all is content.
          tolerant: accept the near misses of `njax.text.tool_calls.tolerant`.
          live: arguments come as they are written, so that a call may turn out to be cut after its
            start was sent (`ToolCallDropped`). False: a call comes whole when it is complete.
          text_after_calls: keep text between and after calls as content.
          max_calls: leave out all further calls.
          new_id: makes the ids.
        """
        self._tools = Tools(tools)
        self._tolerant = tolerant
        self._tags = tags.TOLERANT if tolerant else tags.STRICT
        self._live = live
        self._text_after_calls = text_after_calls
        self._max_calls, self._new_id = max_calls, new_id
        self._events: list[Event] = []
        self._text, self._at = "", 0
        self._state: Callable[[], bool] = self._outside
        self._ended = self._truncated = False
        self._content = Content()
        # Of what may be a call, or is one.
        self._held: list[str] = []
        self._held_size = 0
        self._call = Call(live, tolerant)
        self._xml: XmlArguments | None = None
        self._json: JsonArguments | JsonCall | None = None
        self._started = self._retries = 0
        self.calls = 0

    def push(self, text: str) -> list[Event]:
        """Takes more text; returns what is certain."""
        if not self._tools:
            return [ContentDelta(text)] if text else []
        self._text, self._at = self._text[self._at :] + text, 0
        self._run()
        return self._take()

    def finish(self, truncated: bool = False) -> list[Event]:
        """The rest, now that no more will come.

        Args:
          truncated: the text was cut by a limit rather than ended by the model. Then an unfinished
            marker at its end is left out, where a text that ended by itself keeps it.
        """
        if not self._tools:
            return []
        self._ended, self._truncated = True, truncated
        self._run()
        while self._state != self._outside:
            self._end_of_text()
            self._run()
        self._content.finish(self._events)
        return self._take()

    def _take(self) -> list[Event]:
        events, self._events = merge(self._events), []
        return events

    def _run(self) -> None:
        while self._at < len(self._text) and self._state():
            pass

    # Outside of calls.

    def _outside(self) -> bool:
        text, at = self._text, self._at
        if self._max_calls is not None and self.calls >= self._max_calls:
            self._at = len(text)
            return False
        found = text.find("<", at)
        end = found if found >= 0 else len(text)
        if self._tolerant and (
            line := tolerant.find_line(text, at, end, self._content.at_line_start)
        ):
            self._pass(line[0])
            if line[1] is not None:
                self._begin_held(line[1])
                self._state = self._line
                return True
            if not self._ended:
                return False
        self._pass(end)
        if found < 0:
            return False
        kinds = (Kind.CALL, Kind.FUNCTION) if self._tolerant else (Kind.CALL,)
        tag = self._tags.at(text, found)
        if tag is None and self._tags.may_begin(text, found, kinds):
            if self._ended and self._truncated:
                self._content.call_follows()
                self._at = len(text)
            elif self._ended:
                self._pass(found + 1)
            return self._ended
        if tag is not None and tag.kind is Kind.CALL:
            self._begin_held(found + len(tag.raw))
            self._call.near = tags.near(tag)
            self._call.shape.add(tag.kind.value)
            self._state = self._after_marker
        elif tag is not None and tag.kind in kinds and self._tools.declares(tag.name):
            self._begin_held(found)
            self._call.bare = True
            self._open_function(tag)
        else:
            self._pass(found + 1)
        return True

    def _pass(self, end: int) -> None:
        """Text up to `end` belongs to no call."""
        self._content.add(self._text[self._at : end], self._events)
        self._at = end

    # What may become a call.

    def _begin_held(self, end: int) -> None:
        self._held, self._held_size = [], 0
        self._call = Call(self._live, self._tolerant)
        self._hold(end)

    def _hold(self, end: int) -> None:
        self._held.append(self._text[self._at : end])
        self._held_size += end - self._at
        self._at = end

    def _reread(self, text: str) -> None:
        self._text, self._at = text + self._text[self._at :], 0

    def _as_text(self) -> None:
        """It is no call: the marker is text, and what follows is looked at again."""
        self._reread("".join(self._held))
        self._state = self._outside
        self._pass(len(self._held[0]) or 1)

    def _skip_space(self) -> bool:
        """Holds whitespace; False when there is no more text, or too much of it."""
        end = self._at
        while end < len(self._text) and self._text[end] in SPACE:
            end += 1
        if end > self._at:
            self._call.shape.add("t", end - self._at)
            self._hold(end)
        if self._call.tool is None and self._held_size > len(self._held[0]) + _MOST_GAP:
            self._as_text()
            return False
        return end < len(self._text)

    def _lexeme(self) -> Lexeme | None:
        tool = self._call.tool
        known = self._tags if tool is None or tool.declared else tags.STRICT
        return known.next(self._text, self._at)

    def _after_marker(self) -> bool:
        if not self._skip_space():
            return self._state == self._outside
        if self._text[self._at] == "{":
            keys = tolerant.TOLERANT_KEYS if self._tolerant else tolerant.STRICT_KEYS
            self._json = JsonCall(self._tools, self._call.writer, keys, self._call.near)
            self._state = self._in_json
            return True
        lexeme = self._lexeme()
        if lexeme is None:
            return False
        tool = self._tools.find(lexeme.name) if lexeme.kind is Kind.FUNCTION else None
        if tool is not None and (tool.declared or not (self._call.near or tags.near(lexeme))):
            self._open_function(lexeme)
        elif lexeme.kind is Kind.CALL:  # twice
            self._hold(self._at + len(lexeme.raw))
        else:
            self._as_text()
        return True

    def _open_function(self, lexeme: Lexeme) -> None:
        self._call.tool = self._tools.find(lexeme.name)
        self._call.shape.add(lexeme.kind.value)
        self._hold(self._at + len(lexeme.raw))
        self._state = self._after_function

    def _after_function(self) -> bool:
        if not self._skip_space():
            return self._state == self._outside
        tool = self._call.tool
        assert tool is not None
        if self._text[self._at] == "{":
            self._json = JsonArguments(tool, self._call.writer)
            self._state = self._in_json
            return True
        lexeme = self._lexeme()
        if lexeme is None:
            return False
        if lexeme.kind is Kind.PARAMETER and tool.legal_key(lexeme.name):
            self._start()
            self._read(lexeme)
            self._xml = XmlArguments(self._call, lexeme.name, self._retries >= _MOST_RETRIES)
            self._state = self._in_value
        elif lexeme.kind in (Kind.FUNCTION_END, Kind.CALL_END):
            self._json = None
            self._state = self._closing
        elif lexeme.raw[0] == "<" and tool.declared and not self._call.bare:
            self._drop("malformed")
        else:
            self._as_text()
        return True

    def _line(self) -> bool:
        """After the word of a line form."""
        head = tolerant.line_head(self._text, self._at)
        if head is None:
            if not self._ended and tolerant.may_be_line_head(self._text, self._at):
                return False
            self._as_text()
            return True
        name, end = head
        self._call.line_form = self._call.near = True
        self._state = self._after_marker
        if name:
            if not self._tools.declares(name):
                self._as_text()
                return True
            self._call.tool = self._tools.find(name)
            self._state = self._after_function
        self._hold(end)
        return True

    # Inside of a call.

    def _start(self) -> None:
        if not self._call.started:
            self._started += self._live
            self._call.start(self._started - 1, self._new_id(), self._events)
            self._content.call_begun(self._text_after_calls)

    def _read(self, lexeme: Lexeme) -> None:
        self._at += len(lexeme.raw)
        self._call.shape.add(lexeme.kind.value, len(lexeme.raw) if lexeme.kind is Kind.TEXT else 0)

    def _in_value(self) -> bool:
        assert self._xml is not None
        lexeme = self._lexeme()
        if lexeme is None:
            return False
        self._read(lexeme)
        outcome = self._xml.feed(lexeme)
        if outcome is not None:
            self._apply(outcome)
        else:
            self._call.flush(self._events)
        return True

    def _apply(self, outcome: Outcome) -> None:
        self._reread(outcome.rest)
        if outcome.kind == "call":
            self._complete()
        elif outcome.kind == "dropped":
            self._drop("malformed" if outcome.rest or not self._ended else "cut")
        self._retries += outcome.kind == "retry"
        self._call.flush(self._events)

    def _in_json(self) -> bool:
        reader = self._json
        assert reader is not None
        begin = self._at
        end = reader.feed(self._text, begin)
        self._call.shape.add("j", end - begin)
        self._call.tool = reader.tool
        if reader.begun:
            self._start()
        if self._call.started:
            self._at = end
        else:
            self._hold(end)
        if reader.failed or (self._call.tool is None and self._held_size > _MOST_HELD):
            if self._call.started or reader.certain:
                self._drop("malformed")
            else:
                self._as_text()
        elif reader.done:
            if self._call.line_form:
                self._complete()
            else:
                self._call.function_closed = not reader.in_function
                self._state = self._closing
        self._call.flush(self._events)
        return True

    def _closing(self) -> bool:
        """After complete arguments: `</function>` unless seen, and `</tool_call>`."""
        if not self._skip_space():
            return self._state == self._outside
        lexeme = self._lexeme()
        if lexeme is None:
            return False
        if lexeme.kind is Kind.FUNCTION_END and not self._call.function_closed:
            self._call.function_closed = True
            self._hold(self._at + len(lexeme.raw))
            self._call.shape.add(lexeme.kind.value)
            if self._call.bare:
                self._complete()
        elif lexeme.kind is Kind.CALL_END:
            self._at += len(lexeme.raw)
            self._complete()
        elif lexeme.kind is Kind.CALL and self._call.tolerant:
            self._complete()
        elif self._json is None and not self._call.declared:
            self._as_text()
        else:
            self._drop("malformed")
        return True

    # Ends of calls.

    def _complete(self) -> None:
        self._start()
        if not self._live:
            self._started += 1
        self._call.end(self._started - 1, self._events)
        self.calls += 1
        self._leave()

    def _drop(self, reason: str) -> None:
        self._call.drop("cut" if reason == "cut" else "malformed", self._events)
        self._content.call_begun(self._text_after_calls)
        self._leave()

    def _leave(self) -> None:
        self._state = self._outside
        self._content.at_line_start = True

    def _may_end(self) -> bool:
        return self._json is not None or self._call.function_closed

    def _end_of_text(self) -> None:
        """No more text, and the state is not outside."""
        if self._state == self._in_value:
            assert self._xml is not None
            self._apply(self._xml.finish(self._truncated))
        elif self._call.tolerant and self._state == self._closing and self._may_end():
            self._complete()
        elif self._call.started or self._call.declared or self._truncated:
            self._drop("cut")
        else:
            self._as_text()
