"""POST /tokenize and /detokenize. Stay up when the engine has failed: they need no device."""

from __future__ import annotations

import asyncio

from litestar import Request, post

from server.body import read_body
from server.dependencies import TheEngine, TheSettings, TheThreads
from server.protocols import tokens


@post("/tokenize", status_code=200)
async def tokenize(
    request: Request, engine: TheEngine, settings: TheSettings, threads: TheThreads
) -> tokens.Tokens:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, tokens.tokenize, body, engine, settings)


@post("/detokenize", status_code=200)
async def detokenize(
    request: Request, engine: TheEngine, settings: TheSettings, threads: TheThreads
) -> tokens.Text:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, tokens.detokenize, body, engine, settings)
