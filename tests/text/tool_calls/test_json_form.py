"""The JSON reader against `json.loads`, for any cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from njax.text.tool_calls.json_form import ObjectReader, StringDecoder, arguments_reader
from njax.text.tool_calls.schema import Tool
from njax.text.tool_calls.writer import ArgumentsWriter

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
OPEN = {"additionalProperties": {"type": ["object", "array", "number", "boolean", "null"]}}


def read(text, parameters, size):
    writer = ArgumentsWriter()
    reader = arguments_reader(Tool("f", parameters), writer)
    out = []
    for i in range(0, len(text), size):
        piece, at = text[i : i + size], 0
        while at < len(piece) and not reader.done and not reader.failed:
            at = reader.feed(piece, at)
            out.append(writer.take())
            if not reader.failed:
                json.loads("".join(out) + writer.closing)
    if not reader.done or reader.failed:
        return None
    writer.end()
    return json.loads("".join(out) + writer.take())


@given(
    st.dictionaries(st.text(), _VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
)
@example({"a": "\ud83d\ude00"}, True, None, 1)
def test_round_trip(value, ascii_only, indent, size):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    expected = {
        key: item if not isinstance(item, str) else json.loads(_typed(item))
        for key, item in value.items()
    }
    assert read(text, OPEN, size) == expected


def _typed(text):
    from njax.text.tool_calls.schema import parameter_type
    from njax.text.tool_calls.values import from_string

    return from_string(text, parameter_type(OPEN["additionalProperties"], {}))


@given(st.text(alphabet='{}[]",:\\ntu019ae. <', max_size=30), st.integers(1, 3))
def test_what_is_read_is_json(text, size):
    text = "{" + text
    found = read(text, OPEN, size)
    assert found == read(text, OPEN, len(text))
    if found is None:
        with pytest.raises(ValueError):
            value = json.loads(text, strict=False, object_pairs_hook=_no_doubles)
            assert isinstance(value, dict)


def _no_doubles(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError("a key twice")
    return dict(pairs)


@pytest.mark.parametrize("raw", [r"\ud800", r"\udc00", r"\ud800x", r"\ud800\n", r"\ud800\ud800"])
def test_half_characters_become_one_that_can_be_written(raw):
    for size in (1, 100):
        decoder, out = StringDecoder(), ""
        for i in range(0, len(raw) + 1, size):
            piece, _, ended = decoder.feed((raw + '"')[i : i + size], 0)
            out += piece
        assert ended and not decoder.failed
        assert out[0] == "\ufffd"
        out.encode("utf-8")


def test_strings_are_passed_on_while_they_come():
    got = []

    class Slot:
        def text(self, piece):
            got.append(piece)

        def end(self):
            got.append(None)

    reader = ObjectReader(lambda key, first: Slot())
    for piece in ['{"a": "one', " two\\", 'n"', "}"]:
        reader.feed(piece, 0)
    assert got == ["one", " two", "\n", None] and reader.done
