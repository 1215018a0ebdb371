"""Chat messages as clients send them, brought into the one form that templates expect.

After `normalize_messages`:
- at most one system message, the first: all leading `system` and `developer` messages, joined by
  an empty line. It is the head of the prompt, which many conversations share;
- a later `system` or `developer` message is a user turn that says so (`<system>` ... `</system>`),
  in its place: the family's templates refuse a system role there, and moving the text to the front
  would change the head that is cached;
- `content` is a string, or a list of text, image and video parts when there is media;
- `reasoning` and `reasoning_content` are both read, and `reasoning_content` is what is kept;
- arguments of tool calls are objects, also when they came as JSON text.

Nothing here mutates what the caller passed. Applying it twice is the same as once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from njax.errors import InvalidRequest

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
_SYSTEM_ROLES = ("system", "developer")
_MEDIA = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "video": "video",
    "video_url": "video",
}


def normalize_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """See the module.

    Raises:
      InvalidRequest: something no template could render; names the message by its index.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidRequest("messages must be a list", param="messages")
    if not messages:
        raise InvalidRequest("messages must hold at least one message", param="messages")
    head: list[str] = []
    out: list[Message] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            _refuse(where, f"must be an object, not {_kind(message)}")
        role = message.get("role")
        if role in _SYSTEM_ROLES:
            text = _text(message.get("content"), where)
            if out:
                out.append({"role": "user", "content": f"<system>\n{text}\n</system>"})
            else:
                head.append(text)
        elif role == "assistant":
            out.append(_assistant(message, where))
        elif role in ROLES:
            out.append({**message, "content": _content(message.get("content"), where)})
        else:
            _refuse(f"{where}.role", f"is {role!r}, expected one of {', '.join(ROLES)}")
    system = [{"role": "system", "content": "\n\n".join(head)}] if head else []
    return [*system, *out]


def system_text(messages: Sequence[Message]) -> str | None:
    """Text of the leading system message of normalised messages, or None."""
    if messages and messages[0]["role"] == "system":
        return messages[0]["content"]
    return None


def has_media(messages: Sequence[Message]) -> bool:
    """Whether normalised messages hold an image or a video."""
    return any(not isinstance(message["content"], str) for message in messages)


def _assistant(message: Mapping[str, Any], where: str) -> Message:
    out = {key: value for key, value in message.items() if key != "reasoning"}
    content = message.get("content")
    out["content"] = "" if content is None else _content(content, where)
    reasoning = message.get("reasoning_content")
    if reasoning is None:
        reasoning = message.get("reasoning")
    if reasoning is None:
        out.pop("reasoning_content", None)
    elif isinstance(reasoning, str):
        out["reasoning_content"] = reasoning
    else:
        _refuse(f"{where}.reasoning_content", f"must be a string, not {_kind(reasoning)}")
    calls = message.get("tool_calls")
    if not calls:
        out.pop("tool_calls", None)
    elif isinstance(calls, list):
        out["tool_calls"] = [
            _tool_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)
        ]
    else:
        _refuse(f"{where}.tool_calls", f"must be a list, not {_kind(calls)}")
    return out


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        _refuse(where, f"must be an object, not {_kind(call)}")
    # Some clients leave out the "function" level.
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        _refuse(f"{where}.function", f"must be an object, not {_kind(function)}")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        _refuse(f"{where}.function.name", "must be a non-empty string")
    arguments = _arguments(function.get("arguments"), f"{where}.function.arguments")
    out: dict[str, Any] = {
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    if call.get("id") is not None:
        out["id"] = call["id"]
    return out


def _arguments(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, str):
        if not value.strip():
            return {}
        try:
            value = json.loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            _refuse(where, f"is not valid JSON ({error}): send the arguments of a call whole")
    if not isinstance(value, Mapping):
        _refuse(where, f"must be a JSON object, not {_kind(value)}")
    return dict(value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _content(content: Any, where: str) -> str | list[dict[str, str]]:
    """A string when there is only text: every template can render that."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        _refuse(f"{where}.content", f"must be a string or a list of parts, not {_kind(content)}")
    parts: list[dict[str, str]] = []
    for number, part in enumerate(content):
        at = f"{where}.content[{number}]"
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
            continue
        if not isinstance(part, Mapping):
            _refuse(at, f"must be an object, not {_kind(part)}")
        kind = part.get("type")
        if kind in ("text", "input_text", "output_text"):
            text = part.get("text")
            if not isinstance(text, str):
                _refuse(f"{at}.text", f"must be a string, not {_kind(text)}")
            parts.append({"type": "text", "text": text})
        elif isinstance(kind, str) and kind in _MEDIA:
            # The payload goes another way; a template only places the marker.
            parts.append({"type": _MEDIA[kind]})
        else:
            _refuse(f"{at}.type", f"is {kind!r}, which is not supported; send text parts")
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _text(content: Any, where: str) -> str:
    text = _content(content, where)
    if not isinstance(text, str):
        _refuse(f"{where}.content", "of a system message may hold text only")
    return text


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "an object" if isinstance(value, Mapping) else "something else")


def _refuse(where: str, problem: str) -> NoReturn:
    raise InvalidRequest(f"{where} {problem}", param="messages")
