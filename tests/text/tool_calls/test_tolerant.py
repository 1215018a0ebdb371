"""Near misses: calls in tolerant mode, and text (or dropped) in strict mode."""

from __future__ import annotations

import pytest

from njax.text.tool_calls import ContentDelta, ReasoningDelta
from tests.text.tool_calls.support import answer_of, calls_of, stream

TOOLS = [
    {
        "name": "weather",
        "parameters": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    }
]
OSLO = [{"name": "weather", "arguments": {"city": "Oslo"}}]
BODY = "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>"
JSON = '{"name": "weather", "arguments": {"city": "Oslo"}}'

NEAR = {
    "no-call-close": f"<tool_call>\n{BODY}",
    "no-call-close-json": f"<tool_call>\n{JSON}\n",
    "no-call-close-json-in-function": '<tool_call>\n<function=weather>\n{"city": "Oslo"}\n',
    "only-call-close": "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</tool_call>",
    "bare": BODY,
    "bare-json": '<function=weather>{"city": "Oslo"}</function>',
    "bare-with-close": f"{BODY}\n</tool_call>",
    "alias": f"<function_call>\n{BODY}\n</function_call>",
    "alias-mixed": f"<tool-call>\n{BODY}\n</tool_call>",
    "quoted": f"<tool_call>\n{BODY}\n</tool_call>".replace("=weather", '="weather"'),
    "attribute": f"<tool_call>\n{BODY}\n</tool_call>".replace("=city", " name='city'"),
    "parameters-key": "<tool_call>\n" + JSON.replace("arguments", "parameters") + "\n</tool_call>",
    "tool-use-line": '[tool_use: weather {"city": "Oslo"}]',
    "tool-use-line-json": f"[tool_use: {JSON}]",
    "tool-call-line": f"tool_call: {JSON}",
    "tool-call-line-name": '  tool_call: weather {"city": "Oslo"}',
}


@pytest.mark.parametrize("before", ["", "Let me see.\n"])
@pytest.mark.parametrize("text", NEAR.values(), ids=list(NEAR))
def test_near_miss(text, before):
    answer = answer_of(before + text, TOOLS, tolerant=True)
    assert calls_of(answer) == OSLO
    assert answer.content == before.strip()
    strict = answer_of(before + text, TOOLS)
    assert strict.tool_calls == ()
    assert strict.content in ((before + text).lstrip("\n"), before.strip())


@pytest.mark.parametrize("text", NEAR.values(), ids=list(NEAR))
def test_only_declared_functions(text):
    other = [{"name": "other", "parameters": {}}]
    assert calls_of(answer_of(text, other, tolerant=True)) == calls_of(answer_of(text, other))
    assert answer_of(text, [], tolerant=True).content == text


@pytest.mark.parametrize(
    "text",
    [
        "I would write [tool_use: weather] or tool_call: weather here.",
        "see tool_call: {\"name\": \"weather\", \"arguments\": {}}",
        "tool_call: and then nothing",
        "tool_call: other {\"city\": \"Oslo\"}",
        "[tool_use: weather (Oslo)]",
        "tool_calls are fine\ntool_ca",
        "<function=weather> names it",
        "<function=other>\n<parameter=city>\nOslo\n</parameter>\n</function>",
    ],
)  # fmt: skip
def test_prose_stays_prose(text):
    answer = answer_of(text, TOOLS, tolerant=True)
    assert answer.tool_calls == () and answer.content == text


def test_second_call_after_a_missing_close():
    text = f"<tool_call>\n{BODY}\n<tool_call>\n{BODY}\n</tool_call>\n{BODY}\n{BODY}"
    assert calls_of(answer_of(text, TOOLS, tolerant=True)) == OSLO * 4
    assert calls_of(answer_of(text, TOOLS)) == OSLO


def test_calls_in_reasoning_count_if_content_has_none():
    call = f"<tool_call>\n{BODY}\n</tool_call>"
    options = {"tolerant": True, "starts_in_reasoning": True}
    answer = answer_of(f"Hm. {call} So.\n</think>\n\nDone.", TOOLS, **options)
    assert calls_of(answer) == OSLO
    assert (answer.reasoning, answer.content) == ("Hm. So.", "Done.")
    answer = answer_of(f"Hm. {call}\n</think>\n\n{call}{call}", TOOLS, **options)
    assert calls_of(answer) == OSLO * 2
    answer = answer_of(f"Hm. {call}", TOOLS, starts_in_reasoning=True)
    assert answer.tool_calls == () and answer.reasoning == f"Hm. {call}"


def test_reasoning_comes_before_content():
    options = {"tolerant": True, "starts_in_reasoning": True}
    events = stream(["Why <tool_call", "</think>\n\nSo."], TOOLS, **options)
    assert events == [
        ReasoningDelta("Why"),
        ReasoningDelta(" <tool_call"),
        ContentDelta("So."),
    ]
