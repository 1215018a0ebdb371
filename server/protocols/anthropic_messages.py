"""Anthropic Messages, the request: wire type, validation, translation to chat messages.

The model's name is a label: clients of this protocol name models of their own, so any name is
served and echoed. Fields that change nothing here (metadata, service_tier, ...) are ignored, and
`cache_control` is accepted wherever it may stand: prefixes are shared without being asked to.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from njax.engine.engine import Engine
from njax.engine.types import GenerationRequest
from njax.errors import InvalidRequest, UnsupportedCapability
from njax.text.prompt import Prompt
from server.answer import AnswerStyle
from server.errors import InvalidJson
from server.protocols.checks import check_fits, prepared_messages
from server.protocols.decoding import decode_body
from server.protocols.sampling import sampling_params, stop_strings, token_limit
from server.protocols.signature import is_ours
from server.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
MAX_STOPS = 64


class MessagesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /v1/messages and /v1/messages/count_tokens. null is the same as absent."""

    model: str
    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool | None = None


@dataclasses.dataclass(frozen=True)
class MessagesCall:
    """A request that was understood: what to generate and how to answer."""

    model: str
    generation: GenerationRequest
    style: AnswerStyle
    stream: bool


def understand(body: bytes, engine: Engine, settings: Settings) -> MessagesCall:
    """Decodes, checks, renders and tokenises. Processor work: keep it off the event loop.

    Raises:
      RequestError: the request cannot be served, and why.
    """
    request = decode_body(body, MessagesRequest)
    prompt, tools = _rendered(request, engine, settings)
    choice = request.tool_choice or {}
    generation = GenerationRequest(
        token_ids=prompt.token_ids,
        max_tokens=token_limit(request, settings, "max_tokens"),
        sampling=sampling_params(request, settings),
        stop=stop_strings("stop_sequences", request.stop_sequences or [], MAX_STOPS),
        frontiers=(*prompt.frontiers, prompt.live_turn),
    )
    max_calls = 1 if choice.get("disable_parallel_tool_use") is True else None
    return MessagesCall(
        model=request.model,
        generation=generation,
        style=AnswerStyle.of_prompt(prompt.text, tools=tools, max_calls=max_calls),
        stream=bool(request.stream),
    )


def count_tokens(body: bytes, engine: Engine, settings: Settings) -> int:
    """Tokens of the prompt, as a generation would report them.

    Raises:
      RequestError: as `understand`.
    """
    prompt, _ = _rendered(decode_body(body, MessagesRequest), engine, settings)
    return len(prompt.token_ids)


def _rendered(
    request: MessagesRequest, engine: Engine, settings: Settings
) -> tuple[Prompt, list[dict[str, Any]] | None]:
    """The prompt, and the declarations that it holds."""
    try:
        check_fits("messages", request.messages, engine)
        check_fits("tools", request.tools or [], engine)
        tools = _tools(request)
        given = [*_system(request.system), *_messages(request.messages)]
        messages = prepared_messages(given, settings)
        options = _options(request, engine)
        return engine.render(messages, tools, **options), tools
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None


def _options(request: MessagesRequest, engine: Engine) -> dict[str, Any]:
    """Thinking is the model's default; only the type "disabled" turns it off."""
    if request.thinking is None:
        return {}
    kind = request.thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        _refuse("thinking.type", f"is {kind!r}, expected enabled, disabled or adaptive")
    if "enable_thinking" not in engine.template_options:
        return {}
    return {"enable_thinking": kind != "disabled"}


def _system(system: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    if system is None or system == "" or system == []:
        return []
    if isinstance(system, list):
        for index, block in enumerate(system):
            if block.get("type") != "text" or not isinstance(block.get("text"), str):
                _refuse(f"system[{index}]", "must be a text block")
        system = "\n".join(block["text"] for block in system)
    return [{"role": "system", "content": system}]


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the form of chat messages. Tool results come before the text of their turn."""
    if not messages:
        _refuse("messages", "must hold at least one message")
    out: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", message.get("role")
        if role not in ("user", "assistant", "system"):
            _refuse(f"{where}.role", f"is {role!r}, expected user, assistant or system")
        content = message.get("content")
        if isinstance(content, str):
            out.append({"role": role, "content": content})
        elif isinstance(content, list):
            blocks = [_block(block, f"{where}.content[{at}]") for at, block in enumerate(content)]
            made = _assistant(blocks, where) if role == "assistant" else _user(blocks, role, where)
            out += made
        else:
            _refuse(f"{where}.content", "must be a string or a list of blocks")
    return out


def _block(block: Any, where: str) -> tuple[str, Mapping[str, Any], str]:
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        _refuse(where, "must be an object with a type")
    return block["type"], block, where


def _user(
    blocks: list[tuple[str, Mapping[str, Any], str]], role: str, where: str
) -> list[dict[str, Any]]:
    results, texts = [], []
    for kind, block, at in blocks:
        if kind == "text":
            texts.append(_text(block, at))
        elif kind == "tool_result" and role == "user":
            results.append(_tool_result(block, at))
        else:
            _unsupported(kind, at)
    if texts or not results:
        return [*results, {"role": role, "content": "\n".join(texts)}]
    return results


def _tool_result(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    """An error is marked as one, as the chat form has no field for it."""
    call_id, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call_id, str):
        _refuse(f"{where}.tool_use_id", "must be the id of the tool_use block that this answers")
    if isinstance(content, list):
        parts = []
        for index, part in enumerate(content):
            kind, inner, at = _block(part, f"{where}.content[{index}]")
            if kind != "text":
                _unsupported(kind, at)
            parts.append(_text(inner, at))
        content = "\n".join(parts)
    elif content is not None and not isinstance(content, str):
        _refuse(f"{where}.content", "must be a string or a list of blocks")
    text = content or ""
    if block.get("is_error") is True:
        text = f"Error: {text}" if text else "Error"
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _assistant(
    blocks: list[tuple[str, Mapping[str, Any], str]], where: str
) -> list[dict[str, Any]]:
    texts, thoughts, calls = [], [], []
    for kind, block, at in blocks:
        if kind == "text":
            texts.append(_text(block, at))
        elif kind == "thinking":
            thought = block.get("thinking")
            if not isinstance(thought, str):
                _refuse(f"{at}.thinking", "must be a string")
            # What another server thought, or somebody altered, is not this model's own thinking.
            if is_ours(thought, block.get("signature")):
                thoughts.append(thought)
        elif kind == "tool_use":
            calls.append(_tool_use(block, at))
        elif kind != "redacted_thinking":
            _unsupported(kind, at)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return [message]


def _tool_use(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    call_id, name, arguments = block.get("id"), block.get("name"), block.get("input")
    if not isinstance(call_id, str):
        _refuse(f"{where}.id", "must be a string")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(f"{where}.name", "must be 1 to 128 letters, digits, '_' or '-'")
    if not isinstance(arguments, Mapping | None):
        _refuse(f"{where}.input", "must be an object")
    function = {"name": name, "arguments": dict(arguments or {})}
    return {"id": call_id, "type": "function", "function": function}


def _text(block: Mapping[str, Any], where: str) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        _refuse(f"{where}.text", "must be a string")
    return text


def _tools(request: MessagesRequest) -> list[dict[str, Any]] | None:
    """The declarations in the form of chat; with tool_choice "none" the model sees none."""
    choice = request.tool_choice or {}
    kind = choice.get("type", "auto")
    if kind not in ("auto", "none", "any", "tool"):
        _refuse("tool_choice.type", f"is {json.dumps(kind)[:100]}, expected auto, any, none, tool")
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or [])]
    if kind in ("any", "tool"):
        if not tools:
            _refuse("tool_choice", "needs tools")
        raise UnsupportedCapability(
            "tool_choice can be auto or none: calls cannot be forced",
            param="tool_choice",
            code="tool_choice_not_supported",
        )
    return None if kind == "none" else tools or None


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise UnsupportedCapability(
            f"{where}.type is {str(tool['type'])[:100]!r}: only tools of the client are supported",
            param=f"{where}.type",
            code="tool_type_not_supported",
        )
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(f"{where}.name", "must be 1 to 128 letters, digits, '_' or '-'")
    if not isinstance(schema, Mapping):
        _refuse(f"{where}.input_schema", "must be a JSON schema object")
    function: dict[str, Any] = {"name": name}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    return {"type": "function", "function": function | {"parameters": dict(schema)}}


def _unsupported(kind: str, where: str) -> NoReturn:
    if kind in ("image", "document"):
        raise UnsupportedCapability(
            f"{where}: this server takes text only", param=where, code="vision_disabled"
        )
    _refuse(f"{where}.type", f"is {kind[:100]!r}, which does not belong here")


def _refuse(where: str, problem: str) -> NoReturn:
    raise InvalidRequest(f"{where} {problem}", param=where)
