"""Calls in JSON form: `JsonCall`, one object `{"name": ..., "arguments": {...}}`, and
`JsonArguments`, the object of arguments inside of `<function=NAME>`.

Both have the attributes
  tool: whose call it is, once known.
  begun: there is a first key of the arguments, or all of them.
  certain: it can be nothing but a call, well-formed or not.
  done, failed: the object is complete; it is no JSON or no call.
  in_function: `</function>` may follow.
"""

from __future__ import annotations

import json
from collections.abc import Set

from njax.text.tool_calls.json_form import (
    SPACE,
    ObjectReader,
    RawSlot,
    TextSlot,
    arguments_reader,
)
from njax.text.tool_calls.schema import Tool, Tools
from njax.text.tool_calls.tolerant import STRICT_KEYS
from njax.text.tool_calls.values import parse
from njax.text.tool_calls.writer import ArgumentsWriter

_OTHER_KEYS = frozenset({"id", "type"})


class JsonArguments:
    """Reads the arguments of a call to `tool` into `writer`."""

    in_function = True
    certain = False  # prose may have a brace there too

    def __init__(self, tool: Tool, writer: ArgumentsWriter):
        self.tool = tool
        self._object = arguments_reader(tool, writer)

    @property
    def begun(self) -> bool:
        return self._object.done or self._object.members > 0

    @property
    def done(self) -> bool:
        return self._object.done

    @property
    def failed(self) -> bool:
        return self._object.failed

    def feed(self, text: str, at: int) -> int:
        """As `ObjectReader.feed`."""
        return self._object.feed(text, at)


class JsonCall:
    """Reads a whole call; arguments go to `writer` as they come if the name stands before them.

    Arguments before the name, and arguments that are JSON inside a string, are held to their end.
    """

    in_function = False

    def __init__(
        self, tools: Tools, writer: ArgumentsWriter, argument_keys: Set[str], declared_only: bool
    ):
        self._tools = tools
        self._writer = writer
        self._argument_keys = argument_keys
        self._declared_only = declared_only
        self._arguments: ObjectReader | None = None
        self._raw: str | None = None
        self._object = ObjectReader(self._open_member)
        self.tool: Tool | None = None
        self.done = False
        self.failed = False

    @property
    def begun(self) -> bool:
        if self.done:
            return not self.failed
        return self._arguments is not None and self._arguments.members > 0

    @property
    def certain(self) -> bool:
        return self.tool is not None and self.tool.declared

    def feed(self, text: str, at: int) -> int:
        """As `ObjectReader.feed`."""
        at = self._object.feed(text, at)
        self.failed = self._object.failed
        if self._object.done and not self.done:
            self.done = True
            self.failed = self.tool is None or not self._late_arguments(self.tool)
        return at

    def _open_member(self, key: str, first: str) -> TextSlot | RawSlot | ObjectReader:
        if key == "name" and first == '"' and self.tool is None:
            return _NameSlot(self)
        if key in self._argument_keys and self._arguments is None and self._raw is None:
            if key not in STRICT_KEYS:
                self._declared_only = True
                if self.tool is not None and not self.tool.declared:
                    raise ValueError("not a function")
            if first == "{" and self.tool is not None:
                self._arguments = arguments_reader(self.tool, self._writer)
                return self._arguments
            return self._set_raw
        if key in _OTHER_KEYS:
            return parse  # checked, and not used
        raise ValueError("not a call")

    def _set_raw(self, raw: str) -> None:
        self._raw = raw

    def set_name(self, name: str) -> None:
        tool = self._tools.find(name)
        if tool is None or (self._declared_only and not tool.declared):
            raise ValueError("not a function")
        self.tool = tool

    def _late_arguments(self, tool: Tool) -> bool:
        raw = self._raw
        if raw is None or raw == "null":
            return True
        if raw.startswith('"'):
            try:
                raw = json.loads(raw, strict=False)
            except ValueError:
                return False
        reader = arguments_reader(tool, self._writer)
        raw = str(raw).strip(SPACE)
        return reader.feed(raw, 0) == len(raw) and reader.done


class _NameSlot:
    def __init__(self, reader: JsonCall):
        self._reader = reader
        self._name = ""

    def text(self, piece: str) -> None:
        self._name += piece
        if len(self._name) > 256:
            raise ValueError("too long for a name")

    def end(self) -> None:
        self._reader.set_name(self._name.strip())
