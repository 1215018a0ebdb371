"""Text or messages to token ids, and back: what clients of vLLM and of llama.cpp send.

The two servers spell the same questions differently, so both spellings are read, and an answer
holds both.
"""

from __future__ import annotations

from typing import Any

import msgspec

from njax.engine.engine import Engine
from njax.errors import InvalidRequest
from njax.text.tokenizer import Tokenizer
from server.errors import InvalidJson
from server.protocols.checks import check_fits, check_model, prepared_messages
from server.protocols.decoding import decode_body
from server.protocols.template_options import template_options
from server.settings import Settings

MAX_CHARACTERS = 4 << 20
"""Longest text of one request; tokenising runs at about a megabyte a second."""

MAX_TOKENS = 1 << 20


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /tokenize: one of `prompt`, `content` (the same) and `messages`.

    `parse_special` false reads special tokens in the text as ordinary characters. Nothing is put
    before a text, whatever `add_special_tokens` or `add_special` say: the families served here
    have no token for that.
    """

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    parse_special: bool = True
    return_token_strs: bool | None = None
    with_pieces: bool = False


class Piece(msgspec.Struct, frozen=True):
    """A token and its text, or its bytes where they are no whole characters."""

    id: int
    piece: str | list[int]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """`token_strs` are the spellings of the vocabulary, if asked for."""

    count: int
    max_model_len: int
    tokens: list[int] | list[Piece]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /detokenize."""

    model: str | None = None
    tokens: list[int]


class Text(msgspec.Struct, frozen=True):
    """The text under both names."""

    prompt: str
    content: str


def tokenize(body: bytes, engine: Engine, settings: Settings) -> Tokens:
    """
    Raises:
      RequestError: the request is malformed, or the template refuses the messages.
    """
    request = decode_body(body, TokenizeRequest)
    check_model(request.model, settings)
    ids = _token_ids(request, engine, settings)
    spelled = request.return_token_strs or None
    return Tokens(
        count=len(ids),
        max_model_len=engine.config.max_context,
        tokens=[_piece(engine.tokenizer, i) for i in ids] if request.with_pieces else ids,
        token_strs=spelled and [engine.tokenizer.id_to_token(i) or "" for i in ids],
    )


def detokenize(body: bytes, engine: Engine, settings: Settings) -> Text:
    """The text of tokens, special ones included.

    Raises:
      RequestError: the request is malformed, or an id lies outside the model's vocabulary.
    """
    request = decode_body(body, DetokenizeRequest)
    check_model(request.model, settings)
    if len(request.tokens) > MAX_TOKENS:
        raise InvalidRequest(
            f"tokens holds {len(request.tokens)} ids; {MAX_TOKENS} are taken at once",
            param="tokens",
        )
    last = engine.model_config.vocab_size - 1
    for index, token_id in enumerate(request.tokens):
        if not 0 <= token_id <= last:
            raise InvalidRequest(
                f"tokens[{index}] is {token_id}; ids are 0 to {last}", param=f"tokens[{index}]"
            )
    text = engine.tokenizer.decode(request.tokens, skip_special=False)
    return Text(text, text)


def _token_ids(request: TokenizeRequest, engine: Engine, settings: Settings) -> list[int]:
    given = [
        name for name in ("prompt", "content", "messages") if getattr(request, name) is not None
    ]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise InvalidRequest(f"send one of prompt, content and messages; found {found}")
    if request.messages is not None:
        options = template_options(
            enable_thinking=request.enable_thinking,
            preserve_thinking=request.preserve_thinking,
            reasoning_effort=request.reasoning_effort,
            kwargs=request.chat_template_kwargs,
            known=engine.template_options,
        )
        for name in ("messages", "tools"):
            check_fits(name, getattr(request, name) or [], engine)
        try:
            prompt = engine.render(
                prepared_messages(request.messages, settings),
                request.tools,
                add_generation_prompt=request.add_generation_prompt,
                **options,
            )
        except RecursionError:
            raise InvalidJson("the body is nested too deeply") from None
        return list(prompt.token_ids)
    text = request.prompt if request.prompt is not None else request.content
    assert text is not None
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequest(
            f"{given[0]} has {len(text)} characters; {MAX_CHARACTERS} are taken at once",
            param=given[0],
        )
    return engine.tokenizer.encode(text, parse_special=request.parse_special)


def _piece(tokenizer: Tokenizer, token_id: int) -> Piece:
    text = tokenizer.decode([token_id], skip_special=False)
    if "\ufffd" not in text:
        return Piece(token_id, text)
    return Piece(token_id, list(tokenizer.token_bytes(token_id)) or text)
