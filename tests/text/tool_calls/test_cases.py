"""Answers one by one: `cases.jsonl`, each with the rule it shows; tools are in `tools.json`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from njax.text.tool_calls import ToolCallDropped, collect
from tests.text.tool_calls.support import (
    answer_of,
    byte_by_byte,
    calls_of,
    check_events,
    cut,
    every,
    plain,
    stream,
)

HERE = Path(__file__).parent
DECLARED = json.loads((HERE / "tools.json").read_text("utf-8"))
CASES = [json.loads(line) for line in (HERE / "cases.jsonl").read_text("utf-8").strip().split("\n")]


def tools_of(case):
    return [DECLARED[name] for name in case["tools"]]


@pytest.fixture(params=CASES, ids=[case["name"] for case in CASES])
def case(request):
    return request.param


@pytest.mark.parametrize(
    "pieces",
    [lambda text: [text], byte_by_byte, lambda text: every(text, 1), lambda text: every(text, 3)],
    ids=["whole", "bytes", "characters", "threes"],
)
@pytest.mark.parametrize("live", [True, False], ids=["live", "complete"])
def test_case(case, pieces, live):
    events = stream(pieces(case["text"]), tools_of(case), truncated=case["truncated"], live=live)
    check_events(events)
    answer = collect(events)
    assert [[call["name"], call["arguments"]] for call in calls_of(answer)] == case["calls"]
    assert answer.content == case["content"]


def test_every_cut_into_two(case):
    tools, text, options = tools_of(case), case["text"], {"truncated": case["truncated"]}
    whole = plain(collect(stream([text], tools, **options)))
    for at in range(len(text)):
        assert plain(collect(stream(cut(text, [at]), tools, **options))) == whole, at


def test_every_cut_into_three_of_a_marker():
    text = "Hello \n<tool_call >\n<function= get_weather >\n</function></tool_call>"
    tools = [DECLARED["get_weather"]]
    whole = plain(collect(stream([text], tools)))
    assert whole == ("", "Hello", [("get_weather", "{}")])
    for edges in itertools.combinations(range(len(text)), 2):
        assert plain(collect(stream(cut(text, edges), tools))) == whole


def test_every_prefix_is_a_cut_answer(case):
    """A limit that strikes anywhere: no markup in content, and nothing half a call."""
    text, tools = case["text"], tools_of(case)
    if not case["calls"]:
        return
    for end in range(len(text)):
        events = stream(every(text[:end], 4), tools, truncated=True)
        check_events(events)
        answer = collect(events)
        assert text.startswith(answer.content)
        assert "<" not in answer.content
        later = case["content"].startswith(answer.content)
        assert later or answer.content.rstrip() == case["content"]


def test_without_tools_everything_is_content():
    for text in (case["text"] for case in CASES):
        assert answer_of(text, []).content == text
        assert answer_of(text, None).content == text


def test_nothing_is_held_for_long_after_a_marker_in_prose():
    text = "A <tool_call> starts it, <function=foo> names it, <parameter=a> gives a value. " * 3
    events = stream(every(text, 1), [DECLARED["get_weather"]])
    assert collect(events).content == text
    assert max(len(event.text) for event in events) <= len(" <tool_call> s")


def test_a_dropped_call_leaves_its_shape_and_no_words():
    (dropped,) = collect(
        stream(["<tool_call>\n<function=get_weather>\n<parameter=city>\nSecret"],
               [DECLARED["get_weather"]], truncated=True)
    ).dropped  # fmt: skip
    assert dropped == ToolCallDropped(0, "cut", '"}', "C t1 F t1 P t7")


def test_max_calls():
    text = CASES[4]["text"]
    answer = answer_of(text, [DECLARED["get_weather"]], max_calls=1)
    assert len(answer.tool_calls) == 1


def test_arguments_stream_while_they_are_written():
    """A text value is passed on at once; at most a newline and an unfinished tag wait."""
    head = "<tool_call>\n<function=write_file>\n<parameter=content>\n"
    events = stream([head, "line one\n", "two <", "b>\n"], [DECLARED["write_file"]], truncated=True)
    assert [event.arguments for event in events if hasattr(event, "arguments")] == [
        '{"content": "line one', "\\ntwo ", "<b>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 500,
        '<tool_call>{"' * 500,
        "<tool_call><function=write_file><parameter=content>x" * 200,
        ("<tool_call><function=write_file><parameter=path>x " * 2 + "</function></tool_call>") * 99,
        "<tool_call><function=write_file>" + "<parameter=content></parameter>" * 300,
        "<tool_call><function=write_file><parameter=content>" + "</parameter>\n</function>\n" * 300,
        " \n" * 5000,
        "<" * 5000,
    ],
)  # fmt: skip
def test_what_a_model_in_a_loop_writes(text):
    for size in (2, 1000):
        events = stream(every(text, size), [DECLARED["write_file"]])
        check_events(events)
        assert plain(collect(events)) == plain(collect(stream([text], [DECLARED["write_file"]])))
