"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio

from litestar import Request, Response, post
from litestar.types import ASGIApp

from server.body import read_body
from server.bridge import Generation
from server.dependencies import TheEngine, TheSettings, TheThreads
from server.protocols.openai_chat import understand
from server.protocols.openai_chat_answer import ChatAnswer, ChatStream
from server.respond import read_all, stream_events


@post("/v1/chat/completions")
async def chat_completions(
    request: Request, engine: TheEngine, settings: TheSettings, threads: TheThreads
) -> ASGIApp:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    call = await loop.run_in_executor(threads, understand, body, engine, settings)
    del body
    generation = Generation(engine, call.generations)
    count = len(call.generations)
    try:
        if call.stream:
            writer = ChatStream(
                settings.model_id, call.style, count, call.include_usage, engine.tokenizer
            )
            return await stream_events(request, generation, writer, settings)
        answer = ChatAnswer(settings.model_id, call.style, count, engine.tokenizer)
        await read_all(request, generation, answer.add)
        return Response(answer.body()).to_asgi_response(app=None, request=request)
    except BaseException:
        generation.close()
        raise
