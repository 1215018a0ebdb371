"""Random answers with calls in them: known ones, cut at random, and damaged ones.

`python -m tests.text.tool_calls.fuzz 100000 [seed]` runs as many cases and prints what they were.

Every case: all cuts give the same answer, live and not; arguments are JSON objects; the order of
events is right. Undamaged: exactly the calls that were written, and exactly the text before them.
Damaged: content holds nothing from the first thing that is a call for certain; calls before the
damage are kept, and after it, unless the damage took away where a value ends.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import re
import sys
from typing import Any

from njax.text.tool_calls import Answer, collect
from tests.text.tool_calls.support import calls_of, check_events, cut, every, plain, stream

_STRING = {"type": "string"}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "write_file",
        "parameters": {"type": "object", "properties": {"path": _STRING, "content": _STRING}},
    },
    {
        "name": "edit",
        "parameters": {
            "type": "object",
            "properties": {
                "old": _STRING,
                "new": {"type": ["string", "null"]},
                "count": {"type": "integer"},
                "all": {"type": "boolean"},
                "where": {"anyOf": [{"type": "object"}, {"type": "array"}, {"type": "null"}]},
            },
            "additionalProperties": False,
        },
    },
    {"name": "refresh", "parameters": {"type": "object", "properties": {}}},
]
_KEYS = {tool["name"]: list(tool["parameters"]["properties"]) for tool in TOOLS}
_WORDS = ["a", "Oslo", "上海", "😀", "null", "it's", '"q"', "\\n", "\\", "{", "}", "[1]", "é", "0"]
_SPACES = ["\n", " ", "\n\n", "    ", "\t", ""]
# Each is followed by a word, so that it is no part of a chain.
_TAGS = [
    "<", ">", "</", "<tool", "<tool_call>", "</tool_call>", "<function=foo>", "</function>",
    "<parameter=path>", "</parameter>", "</parameter", "</parameter>\n</function>", "<think>",
    "<parameter=", "</tool_call >", '<a href="x">', "</a>",
]  # fmt: skip
_CHAIN = "</parameter>\n</function>\n</tool_call>"

THOUGHT = "Is <function=foo> or </tool_call> right?\n</think>\n\n"


@dataclasses.dataclass
class Case:
    text: str
    before: str
    calls: list[dict[str, Any]]
    spans: list[tuple[int, int]]


def prose(rng: random.Random, tags: bool) -> str:
    out = []
    for _ in range(rng.randrange(6)):
        if tags and rng.random() < 0.3:
            out.append(rng.choice(["<tool_call>", "<function=foo>", "<", "<tool_call", "</think>"]))
        out.append(rng.choice(["so", "Well,", "x", "上海", "😀"]))
    return rng.choice([" ", "\n"]).join(out)


def value(rng: random.Random, depth: int = 0) -> str:
    out = []
    for _ in range(rng.randrange(5)):
        if rng.random() < 0.35 and not depth:
            out.append(rng.choice(_TAGS) + rng.choice([" ", "\n", ""]) + rng.choice(_WORDS[:4]))
        elif rng.random() < 0.1 and depth < 2:
            if rng.random() < 0.3:
                nested = as_json(rng, *arguments(rng, 2))
            else:
                nested = xml(rng, *arguments(rng, depth + 1), False)
            out.append(f"so:\n{nested} so")
        else:
            out.append(rng.choice(_WORDS) + rng.choice(_SPACES))
    if rng.random() < 0.05 and not depth:
        out.append(f"\n{_CHAIN}\nlast{rng.choice(_SPACES)}")
    return rng.choice(["", "", "\n", "  "]) + "".join(out)


def arguments(rng: random.Random, depth: int = 0) -> tuple[str, dict[str, Any]]:
    name = rng.choice(list(_KEYS))
    keys = [key for key in _KEYS[name] if rng.random() < 0.7]
    rng.shuffle(keys)
    out: dict[str, Any] = {}
    for key in keys:
        if key == "count":
            out[key] = rng.choice([0, 5, -3, 10**20])
        elif key == "all":
            out[key] = rng.random() < 0.5
        elif key == "where":
            out[key] = rng.choice([None, [], {"a": value(rng, 2)}, [1, "</parameter>x"]])
        else:
            out[key] = None if key == "new" and rng.random() < 0.2 else value(rng, depth)
            if out[key] == "null" and key == "new":
                out[key] = None
    return name, out


def xml(rng: random.Random, name: str, arguments: dict[str, Any], sloppy: bool) -> str:
    blank = rng.choice(["", "", "", " "])
    gap = "" if rng.random() < 0.1 else "\n"
    parts = [f"<tool_call{blank}>{gap}<function={name}{blank}>{gap}"]
    for number, (key, item) in enumerate(arguments.items()):
        text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        edge = gap if not text[:1].isspace() and not text[-1:].isspace() else "\n"
        last = number == len(arguments) - 1
        missing = last and sloppy and rng.random() < 0.05
        close = "" if missing else f"</parameter{blank}>{gap}"
        parts.append(f"<parameter={key}>{edge}{text}{edge}{close}")
    missing = arguments and close and sloppy and rng.random() < 0.05
    parts.append(f"{'' if missing else f'</function{blank}>{gap}'}</tool_call{blank}>")
    return "".join(parts)


def as_json(rng: random.Random, name: str, arguments: dict[str, Any]) -> str:
    text = json.dumps(arguments, ensure_ascii=rng.random() < 0.3, indent=rng.choice([None, 1]))
    if rng.random() < 0.5:
        return f"<tool_call>\n<function={name}>\n{text}\n</function>\n</tool_call>"
    members = [f'"name": "{name}"', f'"arguments": {text}']
    if rng.random() < 0.2:
        members.reverse()
    return "<tool_call>\n{" + ", ".join(members) + "}\n</tool_call>"


def known(rng: random.Random, sloppy: bool) -> Case:
    """`sloppy`: closing tags may be missing where they may."""
    text = before = prose(rng, tags=True)
    text += rng.choice(["", "\n", "\n\n", " "])
    if not before:
        text = ""
    calls, spans = [], []
    for _ in range(rng.randrange(4)):
        name, given = arguments(rng)
        begin = len(text)
        text += as_json(rng, name, given) if rng.random() < 0.25 else xml(rng, name, given, sloppy)
        calls.append({"name": name, "arguments": given})
        spans.append((begin, len(text)))
        text += rng.choice(["", "\n", "\n\n", f"\n{prose(rng, tags=False)}\n"])
    return Case(text, before if calls else text, calls, spans)


_ANY_TAG = re.compile(r"</?(?:tool_call|function|parameter)\b[^<>\n]*>")


def damage(rng: random.Random, text: str) -> tuple[str, int, bool]:
    """(text, where it begins to differ, whether only one whole tag went or came twice)."""
    found = list(_ANY_TAG.finditer(text))
    kind = rng.randrange(6)
    if kind < 2 and found:
        tag = rng.choice(found)
        again = tag.group() * (2 * kind)
        return text[: tag.start()] + again + text[tag.end() :], tag.start(), not kind
    if kind == 2 and len(found) > 1:
        one, two = sorted(rng.sample(found, 2), key=lambda match: match.start())
        middle = two.group() + text[one.end() : two.start()] + one.group()
        return text[: one.start()] + middle + text[two.end() :], one.start(), False
    at = rng.randrange(len(text) + 1)
    if kind == 3:
        return text[:at], at, False
    if kind == 4:
        return text[:at] + rng.choice('<>/ \n"{}x') + text[at:], at, False
    return text[:at] + text[at + 1 :], at, False


_CERTAIN = re.compile(
    r"<tool_call[ \t]*>\s*(?:<function[ \t]*=[ \t]*[\w-]+[ \t]*>\s*"
    r"(?:<parameter[ \t]*=[ \t]*[\w-]+[ \t]*>|</function[ \t]*>\s*</tool_call[ \t]*>)|"
    r'\{\s*"name"\s*:\s*"(?:write_file|edit|refresh)")'
)


def _prefixes(tag: str) -> str:
    return "|".join(tag[:end] for end in range(1, len(tag) + 1))


_UNFINISHED = re.compile(
    rf"(?:(?:{_prefixes('<tool_call')})|"
    rf"<tool_call[ \t]*>\s*(?:{_prefixes('<function=')}|<function=[\w-]*)?)\Z"
)
_BLANK_LINES = re.compile(r"\A(?:[ \t]*\n)+")


def check_no_leak(text: str, content: str, truncated: bool) -> None:
    """Content is the text before something that may be a call, or all of it."""
    assert text.startswith(content)
    assert not _CERTAIN.search(content), content
    if truncated and content == text:
        assert not _UNFINISHED.search(content), content
    rest = text[len(content) :]
    if rest:
        assert re.match(r"\s*(?:<tool_call[ \t]*>\s*)+(?:<function|\{)", rest) or (
            truncated and re.match(r"\s*(?:<tool_call[ \t]*>\s*)*(?:<[^>]*)?\Z", rest)
        ), rest


def check_cuts(rng: random.Random, text: str, truncated: bool, tolerant: bool = False) -> Answer:
    options = {"starts_in_reasoning": True, "truncated": truncated, "tolerant": tolerant}
    text = THOUGHT + text
    whole = stream([text], TOOLS, **options)
    check_events(whole)
    answer = collect(whole)
    cuts = [cut(text, (rng.randrange(len(text) + 1) for _ in range(rng.randrange(1, 9))))]
    cuts.append(every(text, rng.choice([1, 1, 2, 3, 5])))
    for pieces in cuts:
        events = stream(pieces, TOOLS, live=rng.random() < 0.7, **options)
        check_events(events)
        assert plain(collect(events)) == plain(answer), pieces
    assert answer.reasoning == THOUGHT.partition("\n</think>")[0]
    return answer


def run_case(seed: int) -> str:
    """One case; returns its kind."""
    rng = random.Random(seed)
    known_only = rng.random() < 0.4
    case = known(rng, sloppy=known_only)
    if known_only or not case.text:
        answer = check_cuts(rng, case.text, truncated=False)
        assert calls_of(answer) == case.calls
        assert answer.content == case.before
        return "known"
    text, at, tag_removed = case.text, len(case.text), False
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        text, where, removed = damage(rng, text)
        tag_removed = removed and at == len(case.text)
        at = min(at, where)
    truncated = rng.random() < 0.3
    answer = check_cuts(rng, text, truncated)
    check_no_leak(_BLANK_LINES.sub("", text), answer.content, truncated)
    check_cuts(rng, text, truncated, tolerant=True)
    kept = [call for call, (_, end) in zip(case.calls, case.spans, strict=True) if end <= at]
    after = _ANY_TAG.search(text, case.spans[len(kept) - 1][1]) if kept else None
    if after is not None and after.group().startswith("</"):
        kept.pop()  # the next tag closes: the last value may go on
    assert calls_of(answer)[: len(kept)] == kept
    if tag_removed and not truncated:  # a cut text is read with more care
        later = [c for c, (begin, _) in zip(case.calls, case.spans, strict=True) if begin > at]
        assert not later or calls_of(answer)[-len(later) :] == later
    return "damaged"


def main() -> None:
    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kinds: collections.Counter[str] = collections.Counter()
    for seed in range(first, first + count):
        try:
            kinds[run_case(seed)] += 1
        except Exception:
            print(f"seed {seed}")
            raise
    print(dict(kinds))


if __name__ == "__main__":
    main()
