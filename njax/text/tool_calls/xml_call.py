"""`XmlArguments`: the parameters of one call in XML form, one after the other."""

from __future__ import annotations

from njax.text.tool_calls.call import Call
from njax.text.tool_calls.tags import Lexeme
from njax.text.tool_calls.writer import ValueSink
from njax.text.tool_calls.xml_form import Outcome, ValueReader


class XmlArguments:
    """
    Args:
      call: whose they are; its tool is known.
      key: of the first parameter, whose tag was read.
      flat: see `ValueReader`.
    """

    def __init__(self, call: Call, key: str, flat: bool):
        assert call.tool is not None
        self._tool = call.tool
        self._call = call
        self._flat = flat
        self._keys: set[str] = set()
        self._value = self._open(key)

    def feed(self, lexeme: Lexeme) -> Outcome | None:
        """Takes the next lexeme; an outcome (never "parameter") is the end of the call."""
        outcome = self._value.feed(lexeme)
        if outcome is None or outcome.kind != "parameter":
            return outcome
        self._value = self._open(outcome.key)
        return None

    def finish(self, truncated: bool) -> Outcome:
        """The text has ended; after "retry" there is more to read, and it ends again."""
        return self._value.finish(truncated)

    def _open(self, key: str) -> ValueReader:
        self._keys.add(key)
        return ValueReader(
            ValueSink(self._call.writer, key, self._tool.type_of(key), quoted=False),
            self._may_follow,
            tolerant=self._call.tolerant,
            bare=self._call.bare,
            flat=self._flat,
        )

    def _may_follow(self, key: str, both_begin_lines: bool) -> bool:
        """Whether a parameter of this name may come next: see `xml_form`."""
        tool = self._tool
        if key in self._keys or not tool.legal_key(key):
            return False
        if key in tool.properties or tool.open:
            return True
        return both_begin_lines and not tool.closed
