"""Tags of tool calls in text that arrives in pieces.

A tag is one of the three pairs, with optional blanks inside as below; anything else is text:
  <tool_call>  </tool_call>  <function=NAME>  </function>  <parameter=KEY>  </parameter>
Near misses (`TOLERANT`) add other spellings of the same tags: a bounded table, not a guess.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Kind(enum.Enum):
    """What a piece of text is. The value is its letter in the shape of a dropped call."""

    TEXT = "t"
    CALL = "C"
    CALL_END = "c"
    FUNCTION = "F"
    FUNCTION_END = "f"
    PARAMETER = "P"
    PARAMETER_END = "p"


OPENING = frozenset({Kind.CALL, Kind.FUNCTION, Kind.PARAMETER})


class Lexeme(NamedTuple):
    """
    raw: the characters.
    name: of a function or a parameter, trimmed; "" otherwise.
    """

    kind: Kind
    raw: str
    name: str = ""


# Blanks and names have limits, so that an unfinished tag is held back for a bounded length.
_BLANK = "[ \t]{0,16}"
_NAME = "[^<>\r\n]{1,256}?"
_QUOTES = "\"'"


def _atoms(text: str) -> list[str]:
    """A tag as a list of regular expressions, one a character; ` ` is blanks, `*` a name."""
    special = {" ": _BLANK, "*": _NAME}
    return [special.get(character, re.escape(character)) for character in text]


def _unfinished(atoms: Sequence[str]) -> str:
    """Matches every proper beginning of a tag that reaches the end of the text."""
    pattern = r"\Z"
    for atom in reversed(atoms[:-1]):
        if atom == _NAME:
            pattern = rf"[^<>\r\n]{{0,256}}?(?:{pattern})"
        elif atom == _BLANK:
            pattern = f"{atom}(?:{pattern})"
        else:
            pattern = rf"(?:\Z|{atom}(?:{pattern}))"
    return pattern


class TagSet:
    """The spellings that count; stateless.

    Args:
      table: spellings by kind.
      unquote: names may stand in quotes.
    """

    def __init__(self, table: dict[Kind, tuple[str, ...]], unquote: bool):
        self._unquote = unquote
        self._kinds: list[Kind] = []
        complete: list[str] = []
        for kind, spellings in table.items():
            for spelling in spellings:
                self._kinds.append(kind)
                pattern = "".join(_atoms(spelling)).replace(_NAME, f"(?P<n{len(complete)}>{_NAME})")
                complete.append(f"(?P<t{len(complete)}>{pattern})")
        self._complete = re.compile("|".join(complete))
        self._partial = {
            kind: re.compile("|".join(_unfinished(_atoms(spelling)) for spelling in spellings))
            for kind, spellings in table.items()
        }

    def at(self, text: str, at: int) -> Lexeme | None:
        """The tag that begins at `at`, if it is complete."""
        match = self._complete.match(text, at)
        if match is None or match.lastgroup is None:
            return None
        number = int(match.lastgroup[1:])  # of t<number>, which closes after n<number>
        name = (match.groupdict().get(f"n{number}") or "").strip(" \t")
        if self._unquote and len(name) > 1 and name[0] == name[-1] and name[0] in _QUOTES:
            name = name[1:-1]
        return Lexeme(self._kinds[number], match.group(), name)

    def may_begin(self, text: str, at: int, kinds: Iterable[Kind] = tuple(Kind)) -> bool:
        """Whether more text could complete a tag of one of these kinds that begins at `at`."""
        return any(kind in self._partial and self._partial[kind].match(text, at) for kind in kinds)

    def next(self, text: str, at: int) -> Lexeme | None:
        """The lexeme at `at`; None if that takes more text."""
        if at >= len(text):
            return None
        if text[at] == "<":
            tag = self.at(text, at)
            if tag is not None:
                return tag
            if self.may_begin(text, at):
                return None
        end = text.find("<", at + 1)
        return Lexeme(Kind.TEXT, text[at : end if end >= 0 else len(text)])


_STRICT: dict[Kind, tuple[str, ...]] = {
    Kind.CALL: ("<tool_call >",),
    Kind.CALL_END: ("</tool_call >",),
    Kind.FUNCTION: ("<function = * >",),
    Kind.FUNCTION_END: ("</function >",),
    Kind.PARAMETER: ("<parameter = * >",),
    Kind.PARAMETER_END: ("</parameter >",),
}

# Other spellings seen from models, only read in tolerant mode.
_NEAR: dict[Kind, tuple[str, ...]] = {
    Kind.CALL: ("<tool-call >", "<toolcall >", "<function_call >"),
    Kind.CALL_END: ("</tool-call >", "</toolcall >", "</function_call >"),
    Kind.FUNCTION: ("<function name = * >",),
    Kind.PARAMETER: ("<parameter name = * >",),
}

STRICT = TagSet(_STRICT, unquote=False)
TOLERANT = TagSet(
    {kind: spellings + _NEAR.get(kind, ()) for kind, spellings in _STRICT.items()}, unquote=True
)


def near(lexeme: Lexeme) -> bool:
    """Whether a tag counts in tolerant mode only."""
    return STRICT.at(lexeme.raw, 0) != lexeme
