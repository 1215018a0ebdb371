"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio

from litestar import Request, Response, post
from litestar.types import ASGIApp

from server.body import read_body
from server.bridge import Generation
from server.dependencies import TheEngine, TheSettings, TheThreads
from server.protocols import anthropic_messages
from server.protocols.anthropic_answer import MessageAnswer, MessageStream
from server.respond import read_all, stream_events


@post("/v1/messages")
async def messages(
    request: Request, engine: TheEngine, settings: TheSettings, threads: TheThreads
) -> ASGIApp:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    understand = anthropic_messages.understand
    call = await loop.run_in_executor(threads, understand, body, engine, settings)
    del body
    generation = Generation(engine, [call.generation])
    try:
        if call.stream:
            writer = MessageStream(call.model, call.style, len(call.generation.token_ids))
            return await stream_events(request, generation, writer, settings)
        answer = MessageAnswer(call.model, call.style)
        await read_all(request, generation, answer.add)
        return Response(answer.body()).to_asgi_response(app=None, request=request)
    except BaseException:
        generation.close()
        raise


@post("/v1/messages/count_tokens", status_code=200)
async def count_tokens(
    request: Request, engine: TheEngine, settings: TheSettings, threads: TheThreads
) -> dict[str, int]:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    count = anthropic_messages.count_tokens
    return {"input_tokens": await loop.run_in_executor(threads, count, body, engine, settings)}
