"""Reasoning and content, for any cut of the text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from njax.text.reasoning import ReasoningSplitter, starts_in_reasoning


def run(pieces, inside, truncated=False, **options):
    splitter = ReasoningSplitter(inside, **options)
    out = {"reasoning": "", "content": ""}
    order = []
    found = [piece for text in pieces for piece in splitter.push(text)]
    for channel, text in found + splitter.finish(truncated):
        assert text
        out[channel] += text
        order.append(channel)
    assert order == sorted(order, reverse=True)
    return out["reasoning"], out["content"]


@pytest.mark.parametrize(
    ("text", "inside", "expected"),
    [
        ("why\n</think>\n\nanswer", True, ("why", "answer")),
        ("<think>\nwhy\n</think>\n\nanswer", False, ("why", "answer")),
        ("<think>\nwhy\n</think>\n\nanswer", True, ("why", "answer")),
        ("\n<think>why</think>answer", False, ("why", "answer")),
        ("answer", False, ("", "answer")),
        ("\n\nanswer", False, ("", "answer")),
        ("</think>\n\nanswer", True, ("", "answer")),
        ("\n\n</think>\n\nanswer", True, ("", "answer")),
        ("why", True, ("why", "")),
        ("why\n\n", True, ("why", "")),
        ("  \n\n  why \n so \n</think> \n\n    code\n\n", True, ("  why \n so", "    code\n\n")),
        ("a</think>b</think>c<think>d", True, ("a", "b</think>c<think>d")),
        ("a</think>```\n<think>x</think>\n```", True, ("a", "```\n<think>x</think>\n```")),
        ("`<think>` is a tag", False, ("", "`<think>` is a tag")),
        ("a <think> b", False, ("", "a <think> b")),
        ("<thinking> a", False, ("", "<thinking> a")),
        ("a < b </ </thin </think >\n</think>c", True, ("a < b </ </thin </think >", "c")),
        ("a</think>", True, ("a", "")),
        ("a</thi", True, ("a</thi", "")),
        ("<thi", False, ("", "<thi")),
        ("a</think>\n \n", True, ("a", "")),
        ("a</think>  ", True, ("a", "  ")),
        ("", True, ("", "")),
        ("", False, ("", "")),
        (" ", False, ("", " ")),
    ],
)
def test_split(text, inside, expected):
    assert run([text], inside) == expected
    assert run(text, inside) == expected
    for a, b in itertools.combinations(range(len(text) + 1), 2):
        assert run([text[:a], text[a:b], text[b:]], inside) == expected


@pytest.mark.parametrize(
    ("text", "inside", "expected"),
    [
        ("why</thi", True, ("why", "")),
        ("why <", True, ("why", "")),
        ("<thi", False, ("", "")),
        ("why", True, ("why", "")),
        ("a</think>b <", True, ("a", "b <")),
    ],
)
def test_a_cut_text_loses_an_unfinished_tag(text, inside, expected):
    assert run([text], inside, truncated=True) == expected
    assert run(text, inside, truncated=True) == expected


_TEXT = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</th", "\n", " ", "\t", "a", "é", "`", "think>"])
).map("".join)


@given(_TEXT, st.booleans(), st.lists(st.integers(0, 60)), st.booleans())
@settings(max_examples=300)
def test_any_cut(text, inside, cuts, truncated):
    edges = [0, *sorted(min(at, len(text)) for at in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = run([text], inside, truncated)
    assert run(pieces, inside, truncated) == whole
    reasoning, content = whole
    assert "</think>" not in reasoning and reasoning == reasoning.rstrip(" \t\r\n")
    assert not content.split("\n")[0].isspace() or "\n" not in content
    if not truncated:
        assert text.endswith(content) and reasoning in text


@given(_TEXT, st.booleans())
def test_not_enabled(text, inside):
    assert run(text, inside, enabled=False) == ("", text)


def test_everything_certain_is_passed_on_at_once():
    splitter = ReasoningSplitter(True)
    assert splitter.push("so far") == [("reasoning", "so far")] and splitter.in_reasoning
    assert splitter.push(" <") == []
    assert splitter.push("b") == [("reasoning", " <b")]
    assert splitter.push("</think>\nyes ") == [("content", "yes ")] and not splitter.in_reasoning


def test_what_a_prompt_says():
    assert starts_in_reasoning("<|im_start|>assistant\n<think>\n")
    assert not starts_in_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not starts_in_reasoning("What is <think>?<|im_end|>\n<|im_start|>assistant\n")
