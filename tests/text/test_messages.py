"""Messages in, messages that a template can render out."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from njax.errors import InvalidRequest
from njax.text.messages import has_media, normalize_messages, system_text


def test_leading_system_messages_are_the_head():
    out = normalize_messages(
        [
            {"role": "system", "content": "A"},
            {"role": "developer", "content": [{"type": "text", "text": "B"}]},
            {"role": "user", "content": "hi"},
        ]
    )
    assert out == [{"role": "system", "content": "A\n\nB"}, {"role": "user", "content": "hi"}]
    assert system_text(out) == "A\n\nB"


def test_a_later_system_message_stays_in_its_place():
    out = normalize_messages(
        [
            {"role": "system", "content": "A"},
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "ho"},
            {"role": "developer", "content": "Now long."},
        ]
    )
    assert [m["role"] for m in out] == ["system", "user", "user", "assistant", "user"]
    assert out[2]["content"] == "<system>\nBe brief.\n</system>"
    assert system_text(out) == "A"


def test_text_parts_become_one_string_and_media_keep_their_place():
    parts = [{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}]
    (out,) = normalize_messages([{"role": "user", "content": parts}])
    assert out["content"] == "abc"
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    (out,) = normalize_messages([{"role": "user", "content": [*parts, image]}])
    assert out["content"][-1] == {"type": "image"}
    assert has_media([out])


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_both_names_of_reasoning(field):
    (out,) = normalize_messages([{"role": "assistant", "content": None, field: "hm"}])
    assert out == {"role": "assistant", "content": "", "reasoning_content": "hm"}


def call(arguments):
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]}


@pytest.mark.parametrize(
    "arguments, expected",
    [('{"a": [1, "é"]}', {"a": [1, "é"]}), ({"a": 1}, {"a": 1}), ("", {}), (" ", {}), (None, {})],
)
def test_arguments_become_objects(arguments, expected):
    (out,) = normalize_messages([call(arguments)])
    assert out["tool_calls"][0]["function"] == {"name": "f", "arguments": expected}


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "3", '{"a": NaN}', "[" * 100_000, 7])
def test_arguments_that_are_no_object_name_the_message(arguments):
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.tool_calls\[0\]\.function") as error:
        normalize_messages([{"role": "user", "content": "x"}, call(arguments)])
    assert error.value.param == "messages"


@pytest.mark.parametrize(
    "messages, where",
    [
        ([], "messages must hold"),
        ("hi", "messages must be a list"),
        ([3], r"messages\[0\] must be an object, not a number"),
        ([{"content": "x"}], r"messages\[0\]\.role is None"),
        ([{"role": "function", "content": "x"}], "'function'"),
        ([{"role": ["user"], "content": "x"}], "role"),
        ([{"role": "user"}], r"messages\[0\]\.content must be a string.* not null"),
        ([{"role": "user", "content": {"a": 1}}], "not an object"),
        ([{"role": "user", "content": [{"type": "audio"}]}], r"content\[0\]\.type is 'audio'"),
        ([{"role": "user", "content": [{"type": ["text"]}]}], r"content\[0\]\.type"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\]\.text"),
        ([{"role": "system", "content": [{"type": "image"}]}], "text only"),
        ([{"role": "assistant", "content": "", "tool_calls": 3}], "tool_calls must be a list"),
        ([{"role": "assistant", "content": "", "tool_calls": [3]}], r"tool_calls\[0\]"),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "name"),
        ([{"role": "assistant", "content": "", "reasoning": 3}], "reasoning_content"),
    ],
)
def test_malformed_messages_are_named(messages, where):
    with pytest.raises(InvalidRequest, match=where):
        normalize_messages(messages)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool", "other"])
messages = st.lists(
    st.fixed_dictionaries(
        {"role": roles},
        optional={
            "content": st.text(max_size=5) | json_values,
            "reasoning": json_values,
            "tool_calls": json_values,
        },
    )
)


@settings(max_examples=300, deadline=None)
@given(messages)
def test_any_json_is_normalised_or_refused(messages):
    before = copy.deepcopy(messages)
    try:
        once = normalize_messages(messages)
    except InvalidRequest:
        once = None
    assert messages == before
    if once is not None:
        assert normalize_messages(once) == once
        assert all(m["role"] != "system" for m in once[1:])
