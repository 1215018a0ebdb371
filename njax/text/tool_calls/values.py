"""Texts and JSON values to the JSON text of the declared type.

From the text of an XML parameter (`from_text`):

| declared                          | text                   | value          |
|-----------------------------------|------------------------|----------------|
| string, nothing, unknown          | any                    | the text       |
| string or null                    | null                   | null           |
| boolean (also among others)       | true, 1, false, 0 (*)  | boolean        |
| integer, number, array, object,   | JSON                   | that JSON (**) |
| null, boolean: no string          |                        |                |
| the same                          | anything else          | the text       |
| enum                              | one of its values      | that value     |

(*) in any case; 1 and 0 stay numbers where numbers are allowed too. (**) an integral number where
only integers are allowed is written as an integer (5.0 is 5); everything else is kept digit for
digit. A list of types with "string" or an unknown name in it counts as string.

From a JSON value (`from_json`, calls in JSON form): a string is itself where a string is allowed,
and is read like a text otherwise; another value where only a string is allowed becomes its JSON
text; booleans accept 0 and 1, and other numbers for them become text.
"""

from __future__ import annotations

import decimal
import json
from typing import Any, NoReturn

from njax.text.tool_calls.schema import ParameterType

_BOOLEANS = {"true": "true", "1": "true", "false": "false", "0": "false"}
_BOOLEAN_ONLY = frozenset({"boolean", "null"})
_SPACE = " \t\r\n"
_MISSING = object()


def quote(text: str) -> str:
    """A text as JSON; halves of surrogate pairs, which UTF-8 cannot hold, become U+FFFD."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.dumps(text, ensure_ascii=False)


def escape(text: str) -> str:
    """A part of a text as it stands inside a JSON string."""
    return quote(text)[1:-1]


def parse(text: str) -> Any:
    """A JSON value, by the standard: no NaN, no control characters in strings.

    Raises:
      ValueError: it is none, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def from_text(text: str, kind: ParameterType) -> str:
    """JSON for the text of a parameter; see the module."""
    bare = text.strip(_SPACE)
    if kind.enum is not None:
        if any(isinstance(value, str) and value == text for value in kind.enum):
            return quote(text)
        if any(isinstance(value, str) and value == bare for value in kind.enum):
            return quote(bare)
        value = _parsed(bare)
        if value is not _MISSING and any(_same(value, member) for member in kind.enum):
            return _number(bare, value, kind)
    if "string" in kind.types:
        return "null" if kind.nullable and text == "null" else quote(text)
    if "boolean" in kind.types and (word := _BOOLEANS.get(bare.lower())) is not None:
        if not (bare in "01" and kind.types & {"integer", "number"}):
            return word
    value = _parsed(bare)
    if value is _MISSING:
        return quote(text)
    if "boolean" in kind.types <= _BOOLEAN_ONLY and not (value is None or isinstance(value, bool)):
        return quote(text)
    return _number(bare, value, kind)


def from_json(raw: str, kind: ParameterType) -> str:
    """JSON for a JSON value as the model wrote it; see the module.

    Raises:
      ValueError: `raw` is not JSON.
    """
    try:
        value = parse(raw)
    except ValueError:
        try:  # line breaks and the like in strings, not escaped
            value = json.loads(raw, strict=False, parse_constant=_no_constant)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        raw = json.dumps(value)
    if isinstance(value, str):
        return from_string(value, kind)
    if kind.enum is not None and any(_same(value, member) for member in kind.enum):
        return _number(raw, value, kind)
    if "string" in kind.types:
        return raw if value is None and kind.nullable else quote(raw)
    if "boolean" in kind.types <= _BOOLEAN_ONLY:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return "true" if value == 1 else "false" if value == 0 else quote(raw)
    return _number(raw, value, kind)


def from_string(value: str, kind: ParameterType) -> str:
    """JSON for a JSON string: itself where strings are allowed, else read like a text."""
    if "string" in kind.types and kind.enum is None:
        return quote(value)
    return from_text(value, kind)


def _number(raw: str, value: Any, kind: ParameterType) -> str:
    """`raw`, but an integral number as an integer where only integers are allowed."""
    if not isinstance(value, float) or "integer" not in kind.types or "number" in kind.types:
        return raw
    number = decimal.Decimal(raw)
    if number.adjusted() < 400 and number == number.to_integral_value():
        return str(int(number))
    return raw


def _parsed(text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return _MISSING


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
