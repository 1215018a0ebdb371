"""Texts and JSON values to the declared types, row by row."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.text.tool_calls.schema import Tool, Tools, parameter_type
from njax.text.tool_calls.values import from_json, from_text, quote

ROOT = {
    "$defs": {
        "Count": {"type": "integer"},
        "Loop": {"$ref": "#/$defs/Loop"},
        "Color": {"enum": ["red", "green"]},
        "a/b~c": {"type": "boolean"},
    },
    "definitions": {"Box": {"properties": {"deep": {"type": "boolean"}}}},
}
NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}


def text(schema, value):
    return json.loads(from_text(value, parameter_type(schema, ROOT)))


@pytest.mark.parametrize(
    "schema", [{}, {"type": "string"}, {"type": "any"}, {"type": []}, True, {"type": "float"}]
)
@pytest.mark.parametrize("value", ["5", "true", "null", "[1]", "", " x ", '"q"', "1e5", "02134"])
def test_text_stays_text(schema, value):
    assert text(schema, value) == value


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "FALSE", False),
        ({"type": "boolean"}, "1", True),
        ({"type": "boolean"}, "0", False),
        ({"type": "boolean"}, "null", None),
        ({"type": "boolean"}, "yes", "yes"),
        ({"type": "boolean"}, "2", "2"),
        ({"type": ["boolean", "null"]}, "True", True),
        ({"type": ["boolean", "null"]}, "[1]", "[1]"),
        ({"type": ["boolean", "integer"]}, "1", 1),
        ({"type": ["boolean", "integer"]}, "True", True),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " 5\n", 5),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "integer"}, "1e3", 1000),
        ({"type": "integer"}, "5.5", 5.5),
        ({"type": "integer"}, "05", "05"),
        ({"type": "integer"}, "five", "five"),
        ({"type": "integer"}, "NaN", "NaN"),
        ({"type": "integer"}, "Infinity", "Infinity"),
        ({"type": "integer"}, "True", "True"),
        ({"type": "number"}, "5.0", 5.0),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "array"}, "1, 2", "1, 2"),
        ({"type": "object"}, '{"a": {"b": [true]}}', {"a": {"b": [True]}}),
        ({"type": "object"}, "{'a': 1}", "{'a': 1}"),
        ({"type": "object"}, "[" * 100_000, "[" * 100_000),
        ({"type": "null"}, "null", None),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({"type": ["integer", "weird"]}, "5", "5"),
        (NULLABLE, "null", None),
        (NULLABLE, "Null", "Null"),
        (NULLABLE, "null ", "null "),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": "string", "nullable": True}, "null", None),
        ({"type": "integer", "nullable": True}, "null", None),
        ({"enum": ["red", "green"]}, "red", "red"),
        ({"enum": ["red", "green"]}, " red\n", "red"),
        ({"enum": ["red", "green"]}, "blue", "blue"),
        ({"enum": [1, 2, "auto"]}, "2", 2),
        ({"enum": [1, 2, "auto"]}, "auto", "auto"),
        ({"enum": ["1", 1]}, "1", "1"),
        ({"enum": [True, "x"]}, "1", "1"),
        ({"enum": ["red", None]}, "null", None),
        ({"const": 3}, "3", 3),
        ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"const": "a"}, {"const": 7}]}, "7", 7),
        ({"oneOf": [{"type": "integer"}, {"type": "array"}]}, "[1]", [1]),
        ({"anyOf": [{"type": "integer"}, {}]}, "1", "1"),
        ({"allOf": [{"$ref": "#/$defs/Count"}]}, "1", 1),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]}, "1", 1),
        ({"$ref": "#/$defs/Count", "description": "x"}, "1", 1),
        ({"$ref": "#/$defs/Color"}, "red", "red"),
        ({"$ref": "#/$defs/a~1b~0c"}, "True", True),
        ({"$ref": "#/definitions/Box"}, '{"deep": false}', {"deep": False}),
        ({"$ref": "#/$defs/Loop"}, "1", "1"),
        ({"$ref": "#/$defs/None"}, "1", "1"),
        ({"$ref": "https://example.com/x"}, "1", "1"),
        ({"items": {"type": "integer"}}, "[1]", [1]),
    ],
)
def test_declared_type(schema, value, expected):
    found = text(schema, value)
    assert found == expected and type(found) is type(expected)


def test_numbers_keep_their_digits():
    for number in [
        "0.1000000000000000055511151231257827",
        "1e999",
        "12345678901234567890123",
        "-0",
    ]:
        assert from_text(number, parameter_type({"type": "number"}, {})) == number


@pytest.mark.parametrize(
    ("schema", "raw", "expected"),
    [
        ({}, '"x"', "x"),
        ({}, "5", "5"),
        ({}, '{"a": 1}', '{"a": 1}'),
        ({"type": "string"}, "true", "true"),
        ({"type": "string"}, "null", "null"),
        (NULLABLE, "null", None),
        (NULLABLE, '"null"', "null"),
        ({"type": "boolean"}, "1", True),
        ({"type": "boolean"}, "0", False),
        ({"type": "boolean"}, "2", "2"),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "null", None),
        ({"type": "boolean"}, '"True"', True),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "integer"}, '"5"', 5),
        ({"type": "integer"}, '"five"', "five"),
        ({"type": "array"}, "[1, {}]", [1, {}]),
        ({"type": "object"}, '{"a": "x\ny"}', {"a": "x\ny"}),
        ({"enum": [1, "a"]}, "1", 1),
        ({"enum": [1, "a"]}, '"a"', "a"),
    ],
)
def test_from_json(schema, raw, expected):
    found = json.loads(from_json(raw, parameter_type(schema, ROOT)))
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize("raw", ["", "tru", "NaN", "{'a': 1}", "[1,]", "[" * 100_000])
def test_not_json(raw):
    with pytest.raises(ValueError):
        from_json(raw, parameter_type({}, {}))


_SCHEMAS = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": "boolean"}, {"type": "integer"}, True, None])
    | st.builds(lambda e: {"enum": e}, st.lists(st.none() | st.booleans() | st.text())),
    lambda inner: st.builds(
        lambda w, s: {w: s}, st.sampled_from(["anyOf", "allOf"]), st.lists(inner)
    ),
    max_leaves=5,
)


@given(_SCHEMAS, st.text() | st.sampled_from(["null", "1", "true", "[1]", "\ud800"]))
def test_any_text_of_any_type_is_json(schema, value):
    kind = parameter_type(schema, {})
    found = from_text(value, kind)
    json.loads(found)
    found.encode("utf-8")
    if kind.streams and value != "null" and value.isascii():
        assert from_text(value, kind) == quote(value)


def test_declarations_of_every_protocol():
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
    for declaration in (
        {"type": "function", "function": {"name": "f", "parameters": parameters}},
        {"type": "function", "name": "f", "parameters": parameters},
        {"name": "f", "input_schema": parameters},
    ):
        tool = Tools([declaration]).find("f")
        assert tool is not None and tool.declared
        assert tool.type_of("n").types == {"integer"}
    assert not Tools([{"type": "web_search"}])
    assert Tools(None).find("bad name") is None


def test_properties_behind_references():
    tool = Tool(
        "f",
        {
            "$ref": "#/$defs/Args",
            "$defs": {"Args": {"allOf": [{"properties": {"n": {"type": "integer"}}}]}},
            "additionalProperties": {"type": "boolean"},
        },
    )
    assert tool.type_of("n").types == {"integer"}
    assert tool.type_of("other").types == {"boolean"}
    assert tool.open and not tool.closed
    assert Tool("f", {"properties": {"a": {}}, "additionalProperties": False}).closed
