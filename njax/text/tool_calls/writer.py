"""`ArgumentsWriter`: the arguments of one call as JSON text that grows.

The text is what `json.dumps` would write for the whole object, a piece at a time. A key is written
only with the first of its value, so that at any moment `closing` completes the JSON.
"""

from __future__ import annotations

from njax.text.tool_calls.schema import ParameterType
from njax.text.tool_calls.values import escape, from_string, from_text, quote


class ArgumentsWriter:
    """Collects pieces; `take` returns what is new."""

    def __init__(self) -> None:
        self._new: list[str] = []
        self._in_string = False
        self._begun = False

    def take(self) -> str:
        """What was written since the last time."""
        text = "".join(self._new)
        self._new.clear()
        return text

    def value(self, key: str, json_text: str) -> None:
        """A whole member."""
        self._key(key)
        self._new.append(json_text)

    def begin_text(self, key: str) -> None:
        """A member whose value is a text that comes in pieces."""
        self._key(key)
        self._new.append('"')
        self._in_string = True

    def text(self, piece: str) -> None:
        self._new.append(escape(piece))

    def end_text(self) -> None:
        self._new.append('"')
        self._in_string = False

    def end(self) -> None:
        """The object is complete."""
        self._new.append("}" if self._begun else "{}")

    @property
    def closing(self) -> str:
        """What completes the JSON of everything written so far."""
        return ('"' if self._in_string else "") + ("}" if self._begun else "{}")

    def _key(self, key: str) -> None:
        self._new.append(f"{', ' if self._begun else '{'}{quote(key)}: ")
        self._begun = True


class ValueSink:
    """The text of one parameter on its way into the arguments.

    Text goes on as it comes where the type allows any text. A value that may be null is held while
    it could still be `null`; every other type is held to its end, which alone tells its value.
    """

    def __init__(self, writer: ArgumentsWriter, key: str, kind: ParameterType, *, quoted: bool):
        """
        Args:
          quoted: the text is the content of a JSON string rather than of an XML parameter.
        """
        self._writer = writer
        self._key = key
        self._kind = kind
        self._quoted = quoted
        self._held: list[str] = []
        self._size = 0
        self._streaming = False

    def text(self, piece: str) -> None:
        if not piece:
            return
        if not self._streaming:
            self._held.append(piece)
            self._size += len(piece)
            if not self._kind.streams or self._may_be_null():
                return
            piece = "".join(self._held)
            self._writer.begin_text(self._key)
            self._streaming = True
        self._writer.text(piece)

    def end(self) -> None:
        if self._streaming:
            self._writer.end_text()
            return
        text = "".join(self._held)
        convert = from_string if self._quoted else from_text
        self._writer.value(self._key, convert(text, self._kind))

    def _may_be_null(self) -> bool:
        if self._quoted or not self._kind.nullable or self._size > len("null"):
            return False
        return "null".startswith("".join(self._held))
