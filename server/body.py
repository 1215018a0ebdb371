"""Reading a request's body with a limit."""

from __future__ import annotations

from typing import Any, cast

from litestar import Request

from server.errors import ClientDisconnected, RequestTooLarge

_DRAIN_BYTES = 64 << 20


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    What is beyond the limit is read and dropped, up to a bound: many clients look for the answer
    only after they have sent everything, and closing on them earlier would lose it.

    Raises:
      RequestTooLarge: more than `limit` bytes.
      ClientDisconnected: the client went away before the end.
    """
    parts: list[bytes] = []
    size = 0
    more = True
    while more and size <= limit + _DRAIN_BYTES:
        message = cast(dict[str, Any], await request.receive())
        if message["type"] == "http.disconnect":
            raise ClientDisconnected("the client hung up")
        part = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
    if size > limit:
        raise RequestTooLarge(f"the body is larger than the limit of {limit} bytes")
    return b"".join(parts)
