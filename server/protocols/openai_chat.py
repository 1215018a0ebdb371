"""OpenAI Chat Completions, the request: wire type, validation, translation.

Fields that real clients send and that change nothing here (user, metadata, store, ...) are ignored,
as the protocol's servers do. Fields whose silence would change the meaning are refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from njax.engine.engine import Engine
from njax.engine.types import GenerationRequest, SamplingParams
from njax.errors import InvalidRequest, UnsupportedCapability
from njax.text.messages import ROLES, has_media
from njax.text.prompt import Prompt
from server.answer import AnswerStyle
from server.errors import InvalidJson
from server.protocols.checks import check_fits, check_model, prepared_messages
from server.protocols.decoding import decode_body
from server.protocols.sampling import sampling_params, stop_strings, token_limit
from server.protocols.template_options import template_options
from server.settings import Settings

MAX_ANSWERS = 16
MAX_STOPS = 16
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /v1/chat/completions. null is the same as absent."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    ignore_eos: bool | None = None  # for benchmarks, as other servers spell it
    n: int | None = None
    # Not supported, or only with some values: see `_REFUSED` and `_check_supported`.
    functions: Any = None
    function_call: Any = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    modalities: list[str] | None = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    grammar: Any = None
    json_schema: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None


_REFUSED = {
    "functions": "tools_not_supported",
    "function_call": "tools_not_supported",
    "audio": "audio_not_supported",
    "prediction": "prediction_not_supported",
    "web_search_options": "web_search_not_supported",
    "grammar": "constrained_decoding_not_supported",
    "json_schema": "constrained_decoding_not_supported",
    "guided_json": "constrained_decoding_not_supported",
    "guided_regex": "constrained_decoding_not_supported",
    "guided_choice": "constrained_decoding_not_supported",
    "guided_grammar": "constrained_decoding_not_supported",
    "structured_outputs": "constrained_decoding_not_supported",
}
_INSTEAD = {"functions": "; send tools", "function_call": "; send tools and tool_choice"}


@dataclasses.dataclass(frozen=True)
class ChatCall:
    """A request that was understood: what to generate and how to answer."""

    generations: tuple[GenerationRequest, ...]
    style: AnswerStyle
    stream: bool
    include_usage: bool


def understand(body: bytes, engine: Engine, settings: Settings) -> ChatCall:
    """Decodes, checks, renders and tokenises. Processor work: keep it off the event loop.

    Raises:
      RequestError: the request cannot be served, and why.
    """
    request = decode_body(body, ChatRequest)
    check_model(request.model, settings)
    try:
        _check_supported(request)
        check_fits("messages", request.messages, engine)
        check_fits("tools", request.tools or [], engine)
        _check_messages(request.messages)
        tools = _tools(request)
        options = template_options(
            enable_thinking=request.enable_thinking,
            preserve_thinking=request.preserve_thinking,
            reasoning_effort=request.reasoning_effort,
            kwargs=request.chat_template_kwargs,
            known=engine.template_options,
        )
        sampling = _sampling(request, settings)
        limit = token_limit(request, settings, "max_completion_tokens", "max_tokens")
        stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
        stop = stop_strings("stop", stops, MAX_STOPS)
        messages = prepared_messages(request.messages, settings)
        if has_media(messages):
            raise UnsupportedCapability(
                "this server takes text only, no images and no video",
                param="messages",
                code="vision_disabled",
            )
        prompt: Prompt = engine.render(messages, tools, **options)
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    usage = request.stream_options and request.stream_options.include_usage
    generation = GenerationRequest(
        token_ids=prompt.token_ids,
        max_tokens=limit,
        sampling=sampling,
        stop=stop,
        ignore_eos=bool(request.ignore_eos),
        frontiers=(*prompt.frontiers, prompt.live_turn),
    )
    max_calls = 1 if request.parallel_tool_calls is False else None
    return ChatCall(
        generations=repeated(generation, request.n or 1),
        style=AnswerStyle.of_prompt(prompt.text, tools=tools, max_calls=max_calls),
        stream=bool(request.stream),
        include_usage=bool(usage),
    )


def repeated(generation: GenerationRequest, count: int) -> tuple[GenerationRequest, ...]:
    """`count` answers to one prompt; a seed counts on, so that they differ."""
    seed = generation.sampling.seed
    if seed is None or count == 1:
        return (generation,) * count
    return tuple(
        dataclasses.replace(
            generation,
            sampling=dataclasses.replace(generation.sampling, seed=(seed + index) % 2**64),
        )
        for index in range(count)
    )


def _check_supported(request: ChatRequest) -> None:
    for name, code in _REFUSED.items():
        if getattr(request, name) is not None:
            message = f"{name} is not supported{_INSTEAD.get(name, '')}"
            raise UnsupportedCapability(message, param=name, code=code)
    if request.n is not None and not 1 <= request.n <= MAX_ANSWERS:
        raise InvalidRequest(f"n is {request.n}; it must be between 1 and {MAX_ANSWERS}", param="n")
    kind = (request.response_format or {}).get("type", "text")
    if kind != "text":
        raise UnsupportedCapability(
            f"response_format {kind!r} is not supported, only 'text' is",
            param="response_format",
            code="response_format_not_supported",
        )
    if request.modalities not in (None, [], ["text"]):
        raise UnsupportedCapability(
            "only the modality 'text' is supported",
            param="modalities",
            code="modality_not_supported",
        )


def _check_messages(messages: list[dict[str, Any]]) -> None:
    """What `prepared_messages` leaves to the protocol."""
    for index, message in enumerate(messages):
        role, where = message.get("role"), f"messages[{index}]"
        if not isinstance(role, str) or role not in ROLES:
            raise InvalidRequest(
                f"{where}.role is {str(role)[:100]!r}, expected one of {', '.join(ROLES)}",
                param=f"{where}.role",
                code="unsupported_role",
            )
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            raise InvalidRequest(
                f"{where}.tool_call_id must be the id of the call that this answers",
                param=f"{where}.tool_call_id",
            )
        if role == "assistant" and message.get("content") is None and not message.get("tool_calls"):
            raise InvalidRequest(f"{where} needs content or tool_calls", param=f"{where}.content")


def _tools(request: ChatRequest) -> list[dict[str, Any]] | None:
    """The declarations to render: with tool_choice "none" the model sees none."""
    choice = request.tool_choice
    tools = request.tools or []
    for index, tool in enumerate(tools):
        _check_tool(tool, f"tools[{index}]")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise InvalidRequest(
            f"tool_choice is {choice[:100]!r}, expected none, auto, required or a function",
            param="tool_choice",
        )
    if choice is None or choice == "none":
        return None if choice == "none" else tools or None
    if not tools:
        raise InvalidRequest("tool_choice needs tools", param="tool_choice")
    if choice != "auto":
        raise UnsupportedCapability(
            "tool_choice can be auto or none: calls cannot be forced",
            param="tool_choice",
            code="tool_choice_not_supported",
        )
    return tools


def _check_tool(tool: Mapping[str, Any], where: str) -> None:
    if tool.get("type", "function") != "function":
        raise UnsupportedCapability(
            f"{where}.type is {str(tool['type'])[:100]!r}, only 'function' is supported",
            param=f"{where}.type",
            code="tool_type_not_supported",
        )
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InvalidRequest(f"{where}.function must be an object", param=f"{where}.function")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{where}.function.name must be 1 to 64 letters, digits, '_' or '-'",
            param=f"{where}.function.name",
        )
    if not isinstance(function.get("parameters", {}), Mapping | None):
        raise InvalidRequest(
            f"{where}.function.parameters must be a JSON schema object",
            param=f"{where}.function.parameters",
        )


def _sampling(request: ChatRequest, settings: Settings) -> SamplingParams:
    more: dict[str, Any] = {}
    if request.logit_bias:
        more["logit_bias"] = _logit_bias(request.logit_bias)
    if request.logprobs:
        more["logprobs"] = request.top_logprobs or 0
    elif request.top_logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    return sampling_params(request, settings, **more)


def _logit_bias(given: dict[str, float]) -> tuple[tuple[int, float], ...]:
    for token in given:
        if not (token.isascii() and token.isdigit()) or len(token) > 9:
            raise InvalidRequest(
                f"logit_bias has the key {token[:40]!r}; keys are token ids", param="logit_bias"
            )
    return tuple((int(token), bias) for token, bias in given.items())
