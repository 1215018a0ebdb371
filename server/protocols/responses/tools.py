"""Tools as Responses declares them, and as chat templates take them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from njax.errors import InvalidRequest, UnsupportedCapability
from server.protocols.responses.items import CUSTOM_INPUT

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclasses.dataclass(frozen=True)
class Tools:
    """What the model may call.

    Attributes:
      declared: as a template takes them; None for none.
      custom: names of those that take free text.
      echoed: as the response object shows them.
    """

    declared: list[dict[str, Any]] | None
    custom: frozenset[str]
    echoed: list[dict[str, Any]]


def read_tools(given: list[dict[str, Any]] | None, choice: str | dict[str, Any] | None) -> Tools:
    """
    Raises:
      RequestError: a declaration is malformed or of a kind that is not supported, or calls would
        have to be forced.
    """
    declared: dict[str, dict[str, Any]] = {}
    custom: set[str] = set()
    echoed = []
    for index, tool in enumerate(given or []):
        where = f"tools[{index}]"
        name = _name(tool, where)
        if name in declared:
            raise InvalidRequest(f"{where}.name is {name!r} again", param=f"{where}.name")
        declared[name] = (
            _custom(tool, where) if tool["type"] == "custom" else _function(tool, where)
        )
        if tool["type"] == "custom":
            custom.add(name)
            echoed.append(tool)
        else:
            echoed.append({"parameters": None, "strict": False, **tool})
    names = _chosen(choice, declared)
    return Tools([declared[name] for name in names] or None, frozenset(custom & set(names)), echoed)


def _name(tool: Mapping[str, Any], where: str) -> str:
    if tool.get("type") not in ("function", "custom"):
        raise UnsupportedCapability(
            f"{where}.type is {str(tool.get('type'))[:100]!r}, only function and custom tools are "
            "supported",
            param=f"{where}.type",
            code="tool_type_not_supported",
        )
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{where}.name must be 1 to 128 letters, digits, '_' or '-'", param=f"{where}.name"
        )
    return name


def _function(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(tool.get("parameters"), Mapping | None):
        raise InvalidRequest(
            f"{where}.parameters must be a JSON schema object", param=f"{where}.parameters"
        )
    fields = ("name", "description", "parameters")
    function = {name: tool[name] for name in fields if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _custom(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """For the model a function of one text."""
    form = tool.get("format") or {"type": "text"}
    if not isinstance(form, Mapping) or form.get("type") != "text":
        raise UnsupportedCapability(
            f"{where}.format: only the format 'text' is supported",
            param=f"{where}.format",
            code="tool_format_not_supported",
        )
    function: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    text = {"type": "string", "description": "The input"}
    function["parameters"] = {
        "type": "object",
        "properties": {CUSTOM_INPUT: text},
        "required": [CUSTOM_INPUT],
    }
    return {"type": "function", "function": function}


def _chosen(choice: str | dict[str, Any] | None, declared: Mapping[str, Any]) -> list[str]:
    """Names of the tools that the model is told of."""
    if choice is None or choice == "auto":
        return list(declared)
    if choice == "none":
        return []
    if isinstance(choice, str) and choice != "required":
        raise InvalidRequest(
            f"tool_choice is {choice[:100]!r}, expected none, auto, required or an object",
            param="tool_choice",
        )
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        if choice.get("mode") == "auto":
            return _allowed(choice.get("tools"), declared)
    raise UnsupportedCapability(
        "tool_choice can be auto, none, or allowed_tools in mode auto: calls cannot be forced",
        param="tool_choice",
        code="tool_choice_not_supported",
    )


def _allowed(tools: Any, declared: Mapping[str, Any]) -> list[str]:
    names = []
    for tool in tools if isinstance(tools, list) else [None]:
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(name, str) or name not in declared:
            raise InvalidRequest(
                f"tool_choice.tools names {str(name)[:100]!r}, which tools does not declare",
                param="tool_choice",
            )
        names.append(name)
    return [name for name in declared if name in names]
