"""Near misses that are calls in tolerant mode, and only for declared functions: the whole table.

1. A last `</tool_call>` that is missing, after `</function>` or a complete JSON object; also before
   another `<tool_call>`. A lone `</tool_call>` after a value.
2. `<function=NAME>` ... `</function>` without `<tool_call>` around it.
3. Other spellings of the tags, and names in quotes: see `njax.text.tool_calls.tags`.
4. `"parameters"` or `"input"` for `"arguments"` in the JSON form.
5. At the beginning of a line: `[tool_use: NAME {...}]`, `[tool_use: {"name": ...}]`, and the same
   after `tool_call:`.
"""

from __future__ import annotations

import re

STRICT_KEYS = frozenset({"arguments"})
TOLERANT_KEYS = frozenset({"arguments", "parameters", "input"})

_WORDS = ("[tool_use:", "tool_call:")
_BLANK = "[ \t]{0,16}"
_LINE = re.compile(_BLANK + "(?:" + "|".join(map(re.escape, _WORDS)) + ")")
_HEAD = re.compile(r"[ \t]{0,16}(?:([A-Za-z0-9_.-]{1,128})[ \t]{0,16})?(?=\{)")
_UNFINISHED_HEAD = re.compile(r"[ \t]{0,16}(?:[A-Za-z0-9_.-]{1,128}[ \t]{0,16})?\Z")


def find_line(text: str, at: int, end: int, at_line_start: bool) -> tuple[int, int | None] | None:
    """The first line in text[at:end] that begins like form 5.

    Returns:
      (where it begins, where the word ends, or None if it is not all there yet), or None.
    """
    begin = at if at_line_start else text.find("\n", at, end) + 1 or end
    while begin < end:
        match = _LINE.match(text, begin, end)
        if match is not None:
            return begin, match.end()
        if end == len(text) and any(word.startswith(text[begin:].lstrip(" \t")) for word in _WORDS):
            return begin, None
        begin = text.find("\n", begin, end) + 1 or end
    return None


def line_head(text: str, at: int) -> tuple[str, int] | None:
    """(name or "", where the JSON object begins) after the word of form 5, if it stands there."""
    match = _HEAD.match(text, at)
    return (match.group(1) or "", match.end()) if match else None


def may_be_line_head(text: str, at: int) -> bool:
    """Whether more text could make it one."""
    return _UNFINISHED_HEAD.match(text, at) is not None
