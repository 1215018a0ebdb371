"""GET or HEAD /health: whether a request sent now would be served. Needs no key."""

from __future__ import annotations

from litestar import HttpMethod, Response, route

from server.dependencies import TheEngine


@route("/health", http_method=[HttpMethod.GET, HttpMethod.HEAD])
async def health(engine: TheEngine) -> Response[dict[str, str]]:
    if engine.failed is not None:
        return Response({"status": "failed", "reason": engine.failed}, status_code=503)
    return Response({"status": "ok"})
