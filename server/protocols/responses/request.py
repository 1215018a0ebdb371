"""The request: wire type, validation, translation.

As the protocol's own servers do, a field that nobody knows is refused: one that is misspelt would
otherwise change nothing without a word. Known ones that change nothing here are echoed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from njax.engine.engine import Engine
from njax.engine.types import GenerationRequest, SamplingParams
from njax.errors import InvalidRequest, RequestError, UnsupportedCapability
from njax.text.prompt import Prompt
from server.answer import AnswerStyle
from server.errors import InvalidJson
from server.protocols.checks import check_fits, check_model, prepared_messages
from server.protocols.decoding import decode_body
from server.protocols.responses.body import new_body
from server.protocols.responses.items import Item, messages_of, read_items
from server.protocols.responses.store import Record, ResponseStore, size_of
from server.protocols.responses.tools import Tools, read_tools
from server.protocols.sampling import sampling_params, token_limit
from server.protocols.template_options import template_options
from server.settings import Settings

MAX_METADATA = 16
_INCLUDE_LOGPROBS = "message.output_text.logprobs"
_INCLUDE_SEALED = "reasoning.encrypted_content"


class Reasoning(msgspec.Struct, frozen=True):
    """How to think; a summary is never made, as the whole text is there."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextFormat(msgspec.Struct, frozen=True):
    type: str = "text"


class TextOptions(msgspec.Struct, frozen=True):
    format: TextFormat | None = None
    verbosity: str | None = None


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/responses. null is the same as absent."""

    model: str | None = None
    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # As other servers spell them.
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    # Nothing comes of these.
    client_metadata: Any = None
    max_tool_calls: int | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Any = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    stream_options: Any = None
    user: str | None = None
    # Not supported: see `REFUSED`.
    conversation: Any = None
    context_management: Any = None
    moderation: Any = None
    prompt: Any = None
    image: Any = None
    access_programs: Any = None
    background_options: Any = None


REFUSED = (
    "conversation", "context_management", "moderation", "prompt", "image", "access_programs",
    "background_options",
)  # fmt: skip
_ECHOED = (
    "instructions", "previous_response_id", "max_output_tokens", "max_tool_calls",
    "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ResponseCall:
    """A request that was understood.

    Attributes:
      body: the response object, in progress.
      context, input_items, preserve_thinking: see `Record`.
      custom: names of tools that take free text.
      sealed: reasoning items carry `encrypted_content`.
    """

    generation: GenerationRequest
    style: AnswerStyle
    body: dict[str, Any]
    context: tuple[Item, ...]
    input_items: tuple[Item, ...]
    preserve_thinking: bool | None
    custom: frozenset[str]
    sealed: bool
    stream: bool
    background: bool
    store: bool

    def record(self, body: dict[str, Any]) -> Record:
        """What is stored of it."""
        return Record(body, self.context, self.input_items, self.preserve_thinking)


def understand(
    data: bytes, engine: Engine, settings: Settings, store: ResponseStore
) -> ResponseCall:
    """Decodes, checks, renders and tokenises. Processor work: keep it off the event loop.

    Raises:
      RequestError: the request cannot be served, and why.
    """
    request = decode_body(data, ResponsesRequest)
    for name in ("model", "input"):
        if getattr(request, name) is None:
            raise InvalidRequest(f"{name} is missing", param=name)
    check_model(request.model, settings)
    try:
        return _understand(request, engine, settings, store)
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None


def count_input(data: bytes, engine: Engine, settings: Settings, store: ResponseStore) -> int:
    """Tokens of the prompt of a request that need not be whole.

    Raises:
      RequestError: as `understand`.
    """
    request = decode_body(data, ResponsesRequest)
    check_model(request.model, settings)
    try:
        call = _understand(request, engine, settings, store)
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    return len(call.generation.token_ids)


def _understand(
    request: ResponsesRequest, engine: Engine, settings: Settings, store: ResponseStore
) -> ResponseCall:
    _check_supported(request)
    check_fits("input", request.input or [], engine)
    check_fits("tools", request.tools or [], engine)
    tools = read_tools(request.tools, request.tool_choice)
    own = tuple(read_items(request.input or [], store.find_item))
    parent = _parent(request, store)
    context = parent.conversation if parent else ()
    preserve = request.preserve_thinking
    if preserve is None and parent is not None:
        preserve = parent.preserve_thinking
    options = template_options(
        enable_thinking=request.enable_thinking,
        preserve_thinking=preserve,
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
        kwargs=request.chat_template_kwargs,
        known=engine.template_options,
        effort_field="reasoning.effort",
    )
    keep = request.store is not False
    if keep:
        store.check_fits(size_of([context, own]))
    sampling = _sampling(request, settings)
    limit = token_limit(request, settings, "max_output_tokens")
    messages = messages_of([*context, *own], request.instructions)
    prompt = _render(engine, settings, messages, tools, options)
    generation = GenerationRequest(
        token_ids=prompt.token_ids,
        max_tokens=limit,
        sampling=sampling,
        ignore_eos=bool(request.ignore_eos),
        frontiers=(*prompt.frontiers, prompt.live_turn),
    )
    max_calls = 1 if request.parallel_tool_calls is False else None
    return ResponseCall(
        generation=generation,
        style=AnswerStyle.of_prompt(prompt.text, tools=tools.declared, max_calls=max_calls),
        body=new_body(settings.model_id, _asked(request, tools, sampling, keep)),
        context=context,
        input_items=own,
        preserve_thinking=preserve,
        custom=tools.custom,
        sealed=_INCLUDE_SEALED in (request.include or []),
        stream=bool(request.stream),
        background=bool(request.background),
        store=keep,
    )


def _parent(request: ResponsesRequest, store: ResponseStore) -> Record | None:
    if request.previous_response_id is None:
        return None
    record = store.get(request.previous_response_id, "previous_response_id")
    if record.cancel is not None:
        raise InvalidRequest(
            "the previous response is still being made", param="previous_response_id"
        )
    return record


def _render(
    engine: Engine,
    settings: Settings,
    messages: list[dict[str, Any]],
    tools: Tools,
    options: dict[str, Any],
) -> Prompt:
    if not messages:
        raise InvalidRequest("input holds nothing to answer", param="input")
    try:
        return engine.render(prepared_messages(messages, settings), tools.declared, **options)
    except RequestError as error:
        if error.param == "messages":  # as the template knows them
            error.param = "input"
        raise


def _check_supported(request: ResponsesRequest) -> None:
    for name in REFUSED:
        if getattr(request, name) is not None:
            raise UnsupportedCapability(
                f"{name} is not supported", param=name, code="parameter_not_supported"
            )
    if request.background:
        if request.store is False:
            raise InvalidRequest("background needs store", param="background")
        if request.stream:
            raise UnsupportedCapability(
                "a background response cannot be streamed; ask for it by its id",
                param="stream",
                code="background_stream_not_supported",
            )
    for name in request.include or []:
        if name not in (_INCLUDE_LOGPROBS, _INCLUDE_SEALED):
            raise UnsupportedCapability(
                f"include holds {name[:100]!r}; {_INCLUDE_LOGPROBS} and {_INCLUDE_SEALED} are "
                "supported",
                param="include",
                code="include_not_supported",
            )
    if request.truncation not in (None, "disabled"):
        raise UnsupportedCapability(
            f"truncation is {request.truncation[:100]!r}, only 'disabled' is supported",
            param="truncation",
            code="truncation_not_supported",
        )
    form = request.text and request.text.format
    if form and form.type != "text":
        raise UnsupportedCapability(
            f"text.format is {form.type[:100]!r}, only 'text' is supported",
            param="text.format",
            code="structured_outputs_not_supported",
        )
    pairs = (request.metadata or {}).items()
    if len(pairs) > MAX_METADATA or any(len(k) > 64 or len(v) > 512 for k, v in pairs):
        raise InvalidRequest(
            f"metadata may hold {MAX_METADATA} pairs of 64 and 512 characters at most",
            param="metadata",
        )


def _sampling(request: ResponsesRequest, settings: Settings) -> SamplingParams:
    wanted = request.top_logprobs or _INCLUDE_LOGPROBS in (request.include or [])
    more = {"logprobs": request.top_logprobs or 0} if wanted else {}
    try:
        return sampling_params(request, settings, **more)
    except InvalidRequest as error:
        if error.param == "logprobs":
            raise InvalidRequest(
                error.message.replace("logprobs", "top_logprobs"), param="top_logprobs"
            ) from None
        raise


def _asked(
    request: ResponsesRequest, tools: Tools, sampling: SamplingParams, keep: bool
) -> dict[str, Any]:
    """The fields of the response object that repeat the request."""
    effort = request.reasoning.effort if request.reasoning else None
    verbosity = request.text.verbosity if request.text else None
    parallel = request.parallel_tool_calls
    return {name: getattr(request, name) for name in _ECHOED} | {
        "background": bool(request.background),
        "metadata": request.metadata or {},
        "parallel_tool_calls": True if parallel is None else parallel,
        "reasoning": {"effort": effort, "summary": None},
        "service_tier": "default",
        "store": keep,
        "temperature": sampling.temperature,
        "text": {"format": {"type": "text"}, "verbosity": verbosity or "medium"},
        "tool_choice": request.tool_choice or "auto",
        "tools": tools.echoed,
        "top_logprobs": request.top_logprobs or 0,
        "top_p": sampling.top_p,
        "truncation": "disabled",
    }
