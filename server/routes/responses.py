"""/v1/responses: make one, and what can be done with one that is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.types import ASGIApp

from njax.errors import InvalidRequest, UnsupportedCapability
from server.body import read_body
from server.bridge import Generation
from server.dependencies import TheEngine, TheResponses, TheSettings, TheThreads
from server.protocols.responses.answer import ResponseMaker, ResponseStream
from server.protocols.responses.request import ResponseCall, count_input, understand
from server.protocols.responses.store import ResponseStore
from server.respond import read_all, stream_events

MAX_PAGE = 100


@post("/v1/responses")
async def create_response(
    request: Request,
    engine: TheEngine,
    settings: TheSettings,
    threads: TheThreads,
    responses: TheResponses,
) -> ASGIApp:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    call = await loop.run_in_executor(threads, understand, body, engine, settings, responses.store)
    del body
    if call.background:
        return _json(request, responses.background.start(call))
    keep = _keeper(call, responses.store)
    generation = Generation(engine, [call.generation])
    try:
        if call.stream:
            writer = ResponseStream(call, engine.tokenizer, keep)
            return await stream_events(request, generation, writer, settings)
        maker = ResponseMaker(call, engine.tokenizer)
        await read_all(request, generation, maker.add)
        keep(maker.body)
        return _json(request, maker.body)
    except BaseException:
        generation.close()
        raise


def _keeper(call: ResponseCall, store: ResponseStore) -> Callable[[dict[str, Any]], None]:
    def keep(body: dict[str, Any]) -> None:
        if call.store:
            store.put(call.record(body))

    return keep


def _json(request: Request, body: dict[str, Any]) -> ASGIApp:
    return Response(body).to_asgi_response(app=None, request=request)


@post("/v1/responses/input_tokens", status_code=200)
async def input_tokens(
    request: Request,
    engine: TheEngine,
    settings: TheSettings,
    threads: TheThreads,
    responses: TheResponses,
) -> dict[str, Any]:
    body = await read_body(request, settings.max_request_bytes)
    loop = asyncio.get_running_loop()
    count = await loop.run_in_executor(
        threads, count_input, body, engine, settings, responses.store
    )
    return {"object": "response.input_tokens", "input_tokens": count}


@post("/v1/responses/compact")
async def compact() -> None:
    raise UnsupportedCapability(
        "conversations are not compacted here", code="compaction_not_supported"
    )


@get("/v1/responses/{response_id:str}")
async def get_response(
    request: Request, response_id: str, responses: TheResponses
) -> dict[str, Any]:
    if request.query_params.get("stream", "false") not in ("false", "0", ""):
        raise UnsupportedCapability(
            "a stored response cannot be streamed; ask for it whole",
            param="stream",
            code="stored_stream_not_supported",
        )
    return responses.store.use(response_id).body


@delete("/v1/responses/{response_id:str}", status_code=200)
async def delete_response(response_id: str, responses: TheResponses) -> dict[str, Any]:
    responses.store.delete(response_id)
    return {"id": response_id, "object": "response.deleted", "deleted": True}


@post("/v1/responses/{response_id:str}/cancel", status_code=200)
async def cancel_response(response_id: str, responses: TheResponses) -> dict[str, Any]:
    record = responses.store.use(response_id)
    if not record.body["background"]:
        raise InvalidRequest(
            "only a background response can be cancelled; hang up to end another",
            param="response_id",
            code="background_not_supported",
        )
    await responses.background.cancel(record)
    return record.body


@get("/v1/responses/{response_id:str}/input_items")
async def input_items(
    request: Request, response_id: str, responses: TheResponses
) -> dict[str, Any]:
    items = list(responses.store.use(response_id).input_items)
    query = request.query_params
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest(f"order is {order[:100]!r}, expected asc or desc", param="order")
    if order == "desc":
        items.reverse()
    text = query.get("limit", "20")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_PAGE:
        raise InvalidRequest(
            f"limit is {text[:100]!r}; it must be between 1 and {MAX_PAGE}", param="limit"
        )
    limit = int(text[:9])
    after = query.get("after")
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise InvalidRequest(f"after is {after[:100]!r}, no item of this", param="after")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }


ROUTES = [
    create_response,
    input_tokens,
    compact,
    get_response,
    delete_response,
    cancel_response,
    input_items,
]
