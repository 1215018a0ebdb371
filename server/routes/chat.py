"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio

from litestar import Request, Response, post
from litestar.types import ASGIApp

from njax.engine.types import Failed
from njax.text.tokenizer import Tokenizer
from server.body import read_body
from server.bridge import Generation
from server.dependencies import TheEngine, TheSettings, TheThreads
from server.errors import ClientDisconnected
from server.protocols.openai_chat import ChatCall, understand
from server.protocols.openai_chat_answer import ChatAnswer, ChatStream
from server.settings import Settings
from server.sse import EventStream, watch_for_hang_up


@post("/v1/chat/completions")
async def chat_completions(
    request: Request, engine: TheEngine, settings: TheSettings, threads: TheThreads
) -> ASGIApp:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    call = await loop.run_in_executor(threads, understand, body, engine, settings)
    del body
    generation = Generation(engine, call.generation)
    try:
        if call.stream:
            return await _stream(request, generation, call, settings, engine.tokenizer)
        return await _whole(request, generation, settings, engine.tokenizer)
    except BaseException:
        generation.close()
        raise


async def _stream(
    request: Request,
    generation: Generation,
    call: ChatCall,
    settings: Settings,
    tokenizer: Tokenizer,
) -> ASGIApp:
    async with watch_for_hang_up(request.receive, generation):
        first = await generation.events(settings.keep_alive_s)
    if generation.gone:
        raise ClientDisconnected("the client hung up")
    if first and isinstance(first[0], Failed):
        raise first[0].error
    writer = ChatStream(settings.model_id, call.include_usage, tokenizer)
    return EventStream(generation, writer, first, settings.keep_alive_s)


async def _whole(
    request: Request, generation: Generation, settings: Settings, tokenizer: Tokenizer
) -> ASGIApp:
    answer = ChatAnswer(settings.model_id, tokenizer)
    async with watch_for_hang_up(request.receive, generation):
        ended = False
        while not ended:
            for event in await generation.events():
                ended = answer.add(event)
            if generation.gone:
                raise ClientDisconnected("the client hung up")
    return Response(answer.body()).to_asgi_response(app=None, request=request)
