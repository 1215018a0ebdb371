"""JSON objects that arrive in pieces: `ObjectReader`, and the members of a call's arguments.

The reader knows strings, so that a closing tag inside one ends nothing. Raw line breaks and other
control characters inside strings, which models write, are accepted; everything else must be JSON.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Protocol

from njax.text.tool_calls.schema import Tool
from njax.text.tool_calls.values import from_json
from njax.text.tool_calls.writer import ArgumentsWriter, ValueSink

SPACE = " \t\r\n"
_PLAIN = re.compile(r'[^"\\]+')
_IN_RAW = re.compile(r'[^"\\{}\[\]]+')
_SCALAR = re.compile(r"[^<,}\] \t\r\n]+")
_HEX = re.compile("[0-9a-fA-F]{4}")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"} | {c: c for c in '"\\/'}
_MAX_RAW_DEPTH = 200


class StringDecoder:
    """The inside of a JSON string, decoded as it comes."""

    def __init__(self) -> None:
        self._escape = ""
        self._high = ""  # first half of a surrogate pair
        self.failed = False

    def feed(self, text: str, at: int) -> tuple[str, int, bool]:
        """Reads from `at`; returns (decoded, where it stopped, whether the string has ended)."""
        out: list[str] = []
        while at < len(text) and not self.failed:
            if self._escape:
                self._escape += text[at]
                at += 1
                self._end_escape(out)
                continue
            character = text[at]
            if character == "\\":
                self._escape = "\\"
                at += 1
                continue
            self._flush_high(out)
            if character == '"':
                return "".join(out), at + 1, True
            match = _PLAIN.match(text, at)
            assert match is not None
            out.append(match.group())
            at = match.end()
        return "".join(out), at, False

    def _end_escape(self, out: list[str]) -> None:
        escape = self._escape
        if escape[1] == "u":
            if len(escape) < 6:
                return
            if not _HEX.fullmatch(escape, 2):
                self.failed = True
                return
            character = chr(int(escape[2:], 16))
        elif escape[1] in _ESCAPES:
            character = _ESCAPES[escape[1]]
        else:
            self.failed = True
            return
        self._escape = ""
        if self._high and "\udc00" <= character <= "\udfff":
            pair = self._high + character
            out.append(pair.encode("utf-16", "surrogatepass").decode("utf-16"))
            self._high = ""
            return
        self._flush_high(out)
        if "\ud800" <= character <= "\udbff":
            self._high = character
        else:
            out.append("\ufffd" if "\udc00" <= character <= "\udfff" else character)

    def _flush_high(self, out: list[str]) -> None:
        if self._high:
            out.append("\ufffd")
            self._high = ""


class TextSlot(Protocol):
    """Takes a string member in pieces."""

    def text(self, piece: str) -> None: ...

    def end(self) -> None: ...


RawSlot = Callable[[str], None]


class _At(enum.Enum):
    OPEN = enum.auto()
    FIRST_KEY = enum.auto()
    KEY = enum.auto()
    IN_KEY = enum.auto()
    COLON = enum.auto()
    VALUE = enum.auto()
    IN_TEXT = enum.auto()
    IN_RAW = enum.auto()
    IN_SCALAR = enum.auto()
    IN_OBJECT = enum.auto()
    AFTER = enum.auto()


class ObjectReader:
    """Reads one JSON object, member by member.

    Args:
      open_member: called with (key, first character of the value); returns who takes the value: a
        `TextSlot` (only for strings), another `ObjectReader` (only for objects), or a function
        that gets the value's JSON text. It, and that function, may raise ValueError to refuse.

    Attributes:
      done: the object is complete. failed: it is no JSON, or was refused.
      members: how many keys were read.
    """

    def __init__(self, open_member: Callable[[str, str], TextSlot | RawSlot | ObjectReader]):
        self._open_member = open_member
        self._at = _At.OPEN
        self._string = StringDecoder()
        self._key = ""
        self._slot: TextSlot | None = None
        self._raw_slot: RawSlot | None = None
        self._object: ObjectReader | None = None
        self._raw: list[str] = []
        self._depth = 0
        self._in_raw_string = False
        self._escaped = False
        self.done = False
        self.failed = False
        self.members = 0

    def feed(self, text: str, at: int) -> int:
        """Reads from `at`; returns where it stopped: the end of the text or of the object."""
        try:
            while at < len(text) and not self.done and not self.failed:
                at = self._step(text, at)
        except ValueError:
            self.failed = True
        return at

    def _step(self, text: str, at: int) -> int:
        character = text[at]
        match self._at:
            case _At.IN_KEY:
                piece, at, ended = self._string.feed(text, at)
                self._key += piece
                if ended:
                    self.members += 1
                    self._at = _At.COLON
                self.failed = self._string.failed
                return at
            case _At.IN_TEXT:
                assert self._slot is not None
                piece, at, ended = self._string.feed(text, at)
                self._slot.text(piece)
                if ended:
                    self._slot.end()
                    self._at = _At.AFTER
                self.failed = self._string.failed
                return at
            case _At.IN_OBJECT:
                assert self._object is not None
                at = self._object.feed(text, at)
                self.failed = self._object.failed
                if self._object.done:
                    self._at = _At.AFTER
                return at
            case _At.IN_RAW:
                return self._raw_step(text, at)
            case _At.IN_SCALAR:
                if match := _SCALAR.match(text, at):
                    self._raw.append(match.group())
                    return match.end()
                self._end_raw()
                return at
        if character in SPACE:
            return at + 1
        match self._at, character:
            case _At.OPEN, "{":
                self._at = _At.FIRST_KEY
            case ((_At.FIRST_KEY | _At.KEY), '"'):
                self._string, self._key, self._at = StringDecoder(), "", _At.IN_KEY
            case ((_At.FIRST_KEY | _At.AFTER), "}"):
                self.done = True
            case _At.COLON, ":":
                self._at = _At.VALUE
            case _At.AFTER, ",":
                self._at = _At.KEY
            case _At.VALUE, _ if character not in "<,:}]":
                return self._begin_value(character, at)
            case _:
                self.failed = True
                return at
        return at + 1

    def _begin_value(self, character: str, at: int) -> int:
        slot = self._open_member(self._key, character)
        if isinstance(slot, ObjectReader):
            self._object, self._at = slot, _At.IN_OBJECT
            return at
        if callable(slot):
            self._raw_slot, self._raw, self._depth = slot, [], 0
            self._in_raw_string = self._escaped = False
            self._at = _At.IN_RAW if character in '"{[' else _At.IN_SCALAR
            return at
        self._slot, self._string, self._at = slot, StringDecoder(), _At.IN_TEXT
        return at + 1

    def _raw_step(self, text: str, at: int) -> int:
        """A string, list or object up to its end; whether it is valid is judged then."""
        if self._escaped:
            self._raw.append(text[at])
            self._escaped = False
            return at + 1
        pattern = _PLAIN if self._in_raw_string else _IN_RAW
        if match := pattern.match(text, at):
            self._raw.append(match.group())
            return match.end()
        character = text[at]
        self._raw.append(character)
        if character == "\\":
            self._escaped = self._in_raw_string
            self.failed = not self._in_raw_string
        elif character == '"':
            self._in_raw_string = not self._in_raw_string
        elif not self._in_raw_string:
            self._depth += 1 if character in "{[" else -1
            self.failed = self._depth > _MAX_RAW_DEPTH
        if self._depth <= 0 and not self._in_raw_string:
            self._end_raw()
        return at + 1

    def _end_raw(self) -> None:
        assert self._raw_slot is not None
        self._at = _At.AFTER
        self._raw_slot("".join(self._raw))


def arguments_reader(tool: Tool, writer: ArgumentsWriter) -> ObjectReader:
    """Reads the object of a call's arguments into `writer`, typed by the declaration."""
    seen: set[str] = set()

    def open_member(key: str, first: str) -> TextSlot | RawSlot:
        if key in seen:
            raise ValueError("a key twice")
        seen.add(key)
        kind = tool.type_of(key)
        if first == '"':
            return ValueSink(writer, key, kind, quoted=True)
        return lambda raw: writer.value(key, from_json(raw, kind))

    return ObjectReader(open_member)
