"""A conversation as items, and the chat messages that a template takes.

Neighbouring items of the assistant (its reasoning, its text, its calls) are one turn. A call that
was cut (`status` "incomplete") is no part of the history.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from njax.errors import InvalidRequest, UnsupportedCapability

Item = dict[str, Any]
CUSTOM_INPUT = "input"
"""The one parameter that a custom tool has for the model."""

_ROLES = ("user", "assistant", "system", "developer")
_IDS = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}
_SEAL = "njax-reasoning."


def new_id(kind: str) -> str:
    """An id for an item of that type."""
    return f"{_IDS[kind]}_{secrets.token_hex(16)}"


def seal(reasoning: str) -> str:
    """`encrypted_content` for clients that send back only that. It keeps no secret: the reasoning
    stands beside it."""
    return _SEAL + base64.b64encode(reasoning.encode()).decode()


def unseal(text: str) -> str | None:
    """The reasoning, or None for what another server has sealed."""
    if not text.startswith(_SEAL):
        return None
    try:
        return base64.b64decode(text.removeprefix(_SEAL), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def read_items(given: str | Sequence[Any], find: Callable[[str], Item | None]) -> list[Item]:
    """The items of a request in one form: with type and id, content as parts.

    Args:
      find: looks up what an `item_reference` refers to.

    Raises:
      RequestError: an item is malformed or of a type that is not supported; names it by its index.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    items = [_item(item, f"input[{index}]", find) for index, item in enumerate(given)]
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item["id"] in seen:
            _refuse(f"input[{index}].id", f"{item['id'][:100]!r} stands for two items")
        seen.add(item["id"])
    return items


def _item(item: Any, where: str, find: Callable[[str], Item | None]) -> Item:
    if not isinstance(item, Mapping):
        _refuse(where, "must be an object")
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "item_reference" or (kind is None and "id" in item):
        name = _string(item, "id", where)
        found = find(name)
        if found is None:
            _refuse(f"{where}.id", f"is {name[:100]!r}; no such item is stored here")
        return found
    if not isinstance(kind, str) or kind not in _IDS:
        raise UnsupportedCapability(
            f"{where}.type is {str(kind)[:100]!r}, expected one of {', '.join(_IDS)}",
            param=f"{where}.type",
            code="item_type_not_supported",
        )
    out = {name: value for name, value in item.items() if value is not None}
    out["type"] = kind
    out["id"] = _string(item, "id", where) if out.get("id") is not None else new_id(kind)
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidRequest(
                f"{where}.role is {str(role)[:100]!r}, expected one of {', '.join(_ROLES)}",
                param=f"{where}.role",
                code="unsupported_role",
            )
        out["content"] = _parts(item.get("content"), f"{where}.content", role == "assistant")
        out.setdefault("status", "completed")
    elif kind == "reasoning":
        out["summary"] = _texts(item.get("summary"), f"{where}.summary", "summary_text")
        if out.get("content") is not None:
            out["content"] = _texts(item["content"], f"{where}.content", "reasoning_text")
        if "encrypted_content" in out:
            _string(item, "encrypted_content", where)
    elif kind == "function_call":
        for name in ("call_id", "name", "arguments"):
            _string(item, name, where)
        out.setdefault("status", "completed")
    elif kind == "custom_tool_call":
        for name in ("call_id", "name", "input"):
            _string(item, name, where)
    else:
        _string(item, "call_id", where)
        if not isinstance(item.get("output"), str):
            out["output"] = _parts(item.get("output"), f"{where}.output", False)
        out.setdefault("status", "completed")
    return out


def _string(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        _refuse(f"{where}.{name}", "must be a string")
    return value


def _parts(content: Any, where: str, assistant: bool) -> list[Item]:
    if isinstance(content, str):
        content = [{"type": "output_text" if assistant else "input_text", "text": content}]
    if not isinstance(content, list):
        _refuse(where, "must be a string or a list of parts")
    return [_part(part, f"{where}[{index}]", assistant) for index, part in enumerate(content)]


def _part(part: Any, where: str, assistant: bool) -> Item:
    if not isinstance(part, Mapping):
        _refuse(where, "must be an object")
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        text = _string(part, "text", where)
        if not assistant:
            return {"type": "input_text", "text": text}
        return {
            "type": "output_text",
            "text": text,
            "annotations": part.get("annotations") or [],
            "logprobs": part.get("logprobs") or [],
        }
    if kind == "refusal":
        return {"type": "refusal", "refusal": _string(part, "refusal", where)}
    codes = {
        "input_image": ("vision_disabled", "this server takes text only, no images"),
        "input_file": ("file_inputs_not_supported", "files are not supported"),
        "input_audio": ("audio_inputs_not_supported", "audio is not supported"),
    }
    code, problem = codes.get(
        str(kind), ("modality_not_supported", f"{str(kind)[:100]!r} is not supported")
    )
    raise UnsupportedCapability(f"{where}: {problem}", param=f"{where}.type", code=code)


def _texts(value: Any, where: str, kind: str) -> list[Item]:
    if value is None:
        return []
    if not isinstance(value, list):
        _refuse(where, "must be a list")
    out = []
    for index, part in enumerate(value):
        if not isinstance(part, Mapping) or part.get("type") != kind:
            _refuse(f"{where}[{index}]", f"must be an object of type {kind}")
        out.append({"type": kind, "text": _string(part, "text", f"{where}[{index}]")})
    return out


def messages_of(items: Sequence[Item], instructions: str | None) -> list[dict[str, Any]]:
    """Chat messages for items from `read_items`; instructions come first."""
    out: list[dict[str, Any]] = []
    if instructions:
        out.append({"role": "developer", "content": instructions})
    turn: dict[str, Any] | None = None  # the assistant's, which the next item may add to

    def open_turn(*taken: str) -> dict[str, Any]:
        nonlocal turn
        if turn is None or any(turn.get(name) for name in taken):
            turn = {"role": "assistant", "content": ""}
            out.append(turn)
        return turn

    for item in items:
        kind = item["type"]
        if kind == "reasoning":
            if (reasoning := _reasoning(item)) is not None:
                open_turn("content", "tool_calls", "reasoning_content")["reasoning_content"] = (
                    reasoning
                )
        elif kind == "message" and item["role"] == "assistant":
            open_turn("content")["content"] = _text(item["content"])
        elif kind in ("function_call", "custom_tool_call"):
            if item.get("status") != "incomplete":
                open_turn().setdefault("tool_calls", []).append(_call(item))
        else:
            turn = None
            if kind == "message":
                out.append({"role": item["role"], "content": _text(item["content"])})
            else:
                output = item["output"]
                text = output if isinstance(output, str) else _text(output)
                out.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})
    return out


def _reasoning(item: Item) -> str | None:
    if item.get("content"):
        return "".join(part["text"] for part in item["content"])
    if "encrypted_content" in item:
        return unseal(item["encrypted_content"])
    return None


def _text(parts: Sequence[Item]) -> str:
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def _call(item: Item) -> dict[str, Any]:
    if item["type"] == "custom_tool_call":
        arguments = json.dumps({CUSTOM_INPUT: item["input"]})
    else:
        arguments = item["arguments"]
    return {
        "id": item["call_id"],
        "type": "function",
        "function": {"name": item["name"], "arguments": arguments},
    }


def _refuse(where: str, problem: str) -> NoReturn:
    raise InvalidRequest(f"{where} {problem}", param=where)
