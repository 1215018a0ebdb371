"""Whether an answer is exactly right, and its tool calls valid against their schemas."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from njax.demo.data.sample import Sample


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Judgement of one generated turn.

    Attributes:
      exact: content and calls are those of the sample.
      calls: how many calls the sample has in this turn.
      valid: the generated calls parse, name declared tools and fit their schemas.
      right: the generated calls are those of the sample, in name and arguments.
    """

    exact: bool
    calls: int
    valid: bool
    right: bool


@dataclasses.dataclass(frozen=True)
class Turn:
    """A generated turn, taken apart. `calls` are (name, argument texts by parameter)."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, dict[str, str]], ...]
    well_formed: bool


_CALL = re.compile(
    r"<tool_call>\n<function=([A-Za-z0-9_.-]+)>\n((?:<parameter=[^>\n]+>\n.*?\n</parameter>\n)*)"
    r"</function>\n</tool_call>",
    re.DOTALL,
)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)


def read_turn(text: str, *, thinking: bool) -> Turn:
    """Takes apart what a model wrote after the opening of its turn, end mark excluded."""
    reasoning = ""
    if thinking:
        reasoning, closed, text = text.partition("</think>")
        if not closed:
            return Turn(reasoning, "", (), False)
    calls = tuple((match[1], dict(_PARAMETER.findall(match[2]))) for match in _CALL.finditer(text))
    content = _CALL.sub("", text)
    well_formed = "<tool_call>" not in content and "</think>" not in content
    return Turn(reasoning.strip(), content.strip(), calls, well_formed)


def judge(sample: Sample, target: int, text: str) -> Verdict:
    """Compares a generated turn with the assistant message at index `target` of the sample.

    Args:
      text: what was generated after the prompt, with `<think>` and `<tool_call>` marks, without
        the end mark.
    """
    wanted = sample.messages[target]
    expected = [
        (call["function"]["name"], call["function"]["arguments"])
        for call in wanted.get("tool_calls", ())
    ]
    turn = read_turn(text, thinking=sample.thinking)
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in sample.tools}
    found: list[tuple[str, dict[str, Any]]] = []
    valid = turn.well_formed
    for name, texts in turn.calls:
        schema = schemas.get(name)
        if schema is None:
            valid = False
            continue
        arguments = typed(texts, schema)
        found.append((name, arguments))
        valid = valid and not violations(arguments, schema)
    right = valid and _equal(found, expected)
    exact = right and turn.content == wanted["content"].strip()
    return Verdict(exact, len(expected), valid, right)


def typed(texts: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their declared types: strings as they are, everything else as JSON.

    A text that is not JSON stays a text, and then violates its schema.
    """
    properties = schema.get("properties", {})
    arguments: dict[str, Any] = {}
    for key, text in texts.items():
        arguments[key] = text
        if properties.get(key, {}).get("type", "string") != "string":
            try:
                arguments[key] = json.loads(text)
            except ValueError:
                pass
    return arguments


_TYPES: dict[Any, tuple[Any, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def violations(value: Any, schema: Mapping[str, Any], where: str = "") -> list[str]:
    """What is wrong with a value, for the part of JSON Schema that the world uses."""
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{where or 'value'} is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is none of {schema['enum']}"]
    found: list[str] = []
    if kind == "array":
        for index, item in enumerate(value):
            found += violations(item, schema.get("items", {}), f"{where}[{index}]")
    if kind == "object":
        properties = schema.get("properties", {})
        found += [f"{where}.{k} is missing" for k in schema.get("required", ()) if k not in value]
        for key, item in value.items():
            if key in properties:
                found += violations(item, properties[key], f"{where}.{key}")
            else:
                found.append(f"{where}.{key} is not declared")
    return found


def _equal(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Equal values of equal types (1 is not true, 1.0 is 1)."""
    return json.dumps(found, sort_keys=True) == json.dumps(
        [list(call) for call in expected], sort_keys=True
    )
