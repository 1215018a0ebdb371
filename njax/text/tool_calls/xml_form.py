"""Where the value of a `<parameter=KEY>` ends: `ValueReader`.

A value is any text, also one that holds closing tags or whole tool calls. It ends
  - before `</parameter>`, when only whitespace stands between that and `<parameter=KEY>` with a KEY
    that the call may still take: a declared one not given yet. An undeclared one counts only where
    the declaration does not forbid it and both tags begin a line;
  - before a closing chain, at which the call ends too: `</parameter>`, `</function>`,
    `</tool_call>` with nothing but whitespace between; one of the first two may be missing.

Which chain: the last one before the next opening tag or the end of the text. So a value may hold a
chain of its own, and text after a call may not.

What is nested does not count: `<function=NAME>` directly followed by a parameter, `{` or its own
closing tag opens a level inside the value, and `</function>` closes it; so do `<tool_call>` with
`{`, and `</tool_call>`. If by the end of the text the value has not ended that way, its first
possible end counts after all, levels or not (`retry`); but not in a text that was cut, where the
rest of the value may be what is missing. And if text follows on `</parameter></function>` in place
of `</tool_call>` and then a call begins, the value has lost its end: the call is dropped, and the
next one read. The same when a call begins right after any closing tags that are no chain.

One newline after the opening tag and one before the closing tag belong to the format.

What is certain, and when: a value's text at once, but for one newline, an unfinished tag (bounded)
and whitespace after a closing tag. From a possible end on, text is held until the end is decided:
for the next parameter at its opening tag, for the last one at the next opening tag or the end of
the text. Nested calls hold from their first closing chain to the end of the value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from njax.text.tool_calls.json_form import SPACE
from njax.text.tool_calls.tags import OPENING, Kind, Lexeme
from njax.text.tool_calls.writer import ValueSink

# A nested call: of parameters, with arguments as a JSON object, or one JSON object as a whole.
_Level = Literal["parameters", "arguments", "call"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a value ended.

    Attributes:
      kind: "parameter": `key` begins; "call": the call is complete; "dropped": the call is no call;
        "retry": the value goes on, `rest` is to be read again.
      rest: text that was read but does not belong to the value.
    """

    kind: Literal["parameter", "call", "dropped", "retry"]
    rest: str = ""
    key: str = ""


@dataclasses.dataclass
class _Chain:
    """Closing tags so far, with nothing but whitespace between."""

    last: Kind
    start: int
    nested: bool
    line_start: bool
    gap: str = ""
    two: bool = False


class ValueReader:
    """Reads lexemes of one value. All offsets are into the text that is held.

    Args:
      sink: gets the value's text.
      is_key: whether (key, both tags begin a line) may come next in this call.
      tolerant: accept more missing closing tags: see `njax.text.tool_calls.tolerant`.
      bare: the call has no `<tool_call>` around it (tolerant only): `</function>` ends it.
      flat: nested calls are not looked for.
    """

    def __init__(
        self,
        sink: ValueSink,
        is_key: Callable[[str, bool], bool],
        *,
        tolerant: bool = False,
        bare: bool = False,
        flat: bool = False,
    ):
        self._sink = sink
        self._is_key = is_key
        self._tolerant = tolerant
        self._bare = bare
        self._flat = flat
        self._first = True
        self._last_character = "\n"
        self._reset()

    def _reset(self) -> None:
        self._held: list[str] = []
        self._length = 0
        self._chain: _Chain | None = None
        self._end: tuple[int, int] | None = None  # the closing chain that would end the call
        self._weak = False  # ... is a lone </tool_call>
        self._sticky = False  # hold until the end is decided
        self._levels: list[_Level] = []  # calls inside the value
        self._opened: Kind | None = None  # <tool_call> or <function=NAME> stands right before
        self._resume: int | None = None  # <tool_call> right after closing tags that are no chain
        self._broken = False  # text followed on </parameter></function>
        self._marker: int | None = None  # <tool_call> some time after that
        self._lost: int | None = None  # ... that turned out to begin a call

    def feed(self, lexeme: Lexeme) -> Outcome | None:
        """Takes the next lexeme; an outcome ends the value."""
        kind, raw = lexeme.kind, lexeme.raw
        if kind is Kind.TEXT:
            return self._text(raw)
        after_function = self._opened is Kind.FUNCTION
        self._opened = kind if kind in (Kind.CALL, Kind.FUNCTION) else None
        if after_function and kind in (Kind.PARAMETER, Kind.FUNCTION_END):
            self._nest("parameters")
        outcome = None
        if kind in OPENING:
            outcome = self._opening(lexeme)
        else:
            self._closing(kind, len(raw), after_function)
        if self._opened is None:
            self._marker = None
        if outcome is None:
            self._append(raw)
        return outcome

    def finish(self, truncated: bool) -> Outcome:
        """The text has ended."""
        if self._end is not None and not self._weak:
            return self._call(self._end)
        chain = self._chain
        if self._tolerant and chain is not None and chain.last is Kind.FUNCTION_END:
            if not chain.nested:
                return self._call((chain.start, self._length))
        if self._end is not None:
            return self._call(self._end)
        if self._lost is not None:
            return Outcome("dropped", "".join(self._held)[self._lost :])
        if self._sticky and not self._flat and not truncated:
            rest = "".join(self._held)
            self._reset()
            self._flat, self._last_character = True, ""
            return Outcome("retry", rest)
        return Outcome("dropped")

    def _text(self, raw: str) -> Outcome | None:
        if raw.strip(SPACE):
            if raw.lstrip().startswith("{"):
                if self._resume is not None:
                    return Outcome("dropped", "".join(self._held)[self._resume :] + raw)
                if self._opened is not None:
                    self._nest("arguments" if self._opened is Kind.FUNCTION else "call")
            if self._chain is not None and self._chain.two and not self._chain.nested:
                self._broken |= self._chain.last is Kind.FUNCTION_END and not self._levels
            self._chain = self._resume = self._marker = self._opened = None
        elif self._chain is not None:
            self._chain.gap += raw
        self._append(raw)
        return None

    def _nest(self, level: _Level) -> None:
        """A call begins inside the value, it seems."""
        if not self._flat and self._end is None:
            self._levels.append(level)
            if self._marker is not None:
                self._lost, self._sticky = self._marker, True

    def _closing(self, kind: Kind, size: int, after_function: bool) -> None:
        start, chain = self._length, self._chain
        after = chain.last if chain is not None else None
        nested = bool(self._levels)
        continues = (kind is Kind.FUNCTION_END and after is Kind.PARAMETER_END) or (
            kind is Kind.CALL_END and after in (Kind.PARAMETER_END, Kind.FUNCTION_END)
        )
        self._resume = None
        if kind is Kind.CALL_END and nested and self._levels[-1] == "call":
            self._levels.pop()
            self._chain = None
            return
        if kind is Kind.FUNCTION_END and nested:
            if continues or after_function or self._levels[-1] == "arguments":
                self._levels.pop()
        if chain is None or not continues:
            line_start = self._last_character == "\n"
            self._chain = chain = _Chain(kind, start, nested, line_start)
        else:
            chain.last, chain.gap, chain.two = kind, "", True
        whole = kind is Kind.CALL_END and continues
        whole |= self._bare and kind is Kind.FUNCTION_END
        weak = self._tolerant and kind is Kind.CALL_END and not whole
        if whole and chain.nested:
            self._sticky = True
        elif (whole or (weak and (self._end is None or self._weak))) and not nested:
            self._end, self._weak, self._sticky = (chain.start, start + size), weak, True
        elif whole:
            self._sticky = True

    def _opening(self, lexeme: Lexeme) -> Outcome | None:
        kind, raw = lexeme.kind, lexeme.raw
        chain, self._chain = self._chain, None
        if kind is Kind.PARAMETER and chain is not None and chain.last is Kind.PARAMETER_END:
            both_begin_lines = chain.line_start and chain.gap.endswith("\n")
            if self._is_key(lexeme.name, both_begin_lines):
                if not chain.nested:
                    return self._parameter(chain.start, lexeme.name)
                self._sticky = True
                return None
        if self._end is not None:
            outcome = self._call(self._end)
            return dataclasses.replace(outcome, rest=outcome.rest + raw)
        if kind is Kind.CALL and chain is not None and not self._levels and not chain.nested:
            self._resume, self._chain = self._length, chain
            return None
        if kind is Kind.CALL and self._broken and not self._levels and self._lost is None:
            self._marker = self._length
        if kind is Kind.FUNCTION:
            if self._resume is not None:
                rest = "".join(self._held)[self._resume :] + raw
                if self._tolerant and chain is not None and chain.last is Kind.FUNCTION_END:
                    outcome = self._call((chain.start, self._length))
                    return dataclasses.replace(outcome, rest=rest)
                return Outcome("dropped", rest)
        self._resume = None
        return None

    def _append(self, raw: str) -> None:
        self._held.append(raw)
        self._length += len(raw)
        self._last_character = raw[-1]
        if self._chain is not None or self._sticky or self._marker is not None:
            return
        text = "".join(self._held)
        keep = text.endswith("\n") and not (self._first and text == "\n")
        self._give(text[:-1] if keep else text)
        self._held, self._length = (["\n"], 1) if keep else ([], 0)

    def _give(self, text: str) -> None:
        if self._first and text:
            self._first = False
            text = text.removeprefix("\n")
        self._sink.text(text)

    def _finish_value(self, end: int) -> str:
        """Ends the value before offset `end`; returns everything held."""
        held = "".join(self._held)
        self._give(held[:end].removesuffix("\n"))
        self._sink.end()
        return held

    def _parameter(self, end: int, key: str) -> Outcome:
        self._finish_value(end)
        return Outcome("parameter", key=key)

    def _call(self, chain: tuple[int, int]) -> Outcome:
        return Outcome("call", self._finish_value(chain[0])[chain[1] :])
