"""API keys: `Authorization: Bearer KEY` or `x-api-key: KEY`."""

from __future__ import annotations

import hmac

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from server.errors import InvalidApiKey


def require_key(key: str) -> Guard:
    """A guard that lets only requests with this key pass, comparing in constant time."""
    expected = key.encode()

    async def guard(connection: ASGIConnection, handler: BaseRouteHandler) -> None:
        given = connection.headers.get("x-api-key")
        if given is None:
            scheme, _, credentials = connection.headers.get("authorization", "").partition(" ")
            given = credentials.strip() if scheme.lower() == "bearer" else ""
        # Header values arrive as latin-1 text, whatever bytes the client sent.
        if not hmac.compare_digest(given.encode("latin-1", "replace"), expected):
            raise InvalidApiKey("the API key is missing or wrong")

    return guard
