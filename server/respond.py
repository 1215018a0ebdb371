"""Responses of routes that generate, for every protocol: streamed, or whole at the end."""

from __future__ import annotations

from collections.abc import Callable

from litestar import Request
from litestar.types import ASGIApp

from njax.engine.types import Event, Failed
from server.bridge import Generation
from server.errors import ClientDisconnected
from server.settings import Settings
from server.sse import EventStream, StreamWriter, watch_for_hang_up


async def stream_events(
    request: Request, generation: Generation, writer: StreamWriter, settings: Settings
) -> ASGIApp:
    """A stream of server-sent events, begun when the first news is there.

    Raises:
      RequestError: it failed before that, and so has a status of its own.
    """
    async with watch_for_hang_up(request.receive, generation):
        first = await generation.events(settings.keep_alive_s)
    if generation.gone:
        raise ClientDisconnected("the client hung up")
    for _, event in first:
        if isinstance(event, Failed):
            raise event.error
    return EventStream(generation, writer, first, settings.keep_alive_s)


async def read_all(
    request: Request, generation: Generation, add: Callable[[int, Event], None]
) -> None:
    """Hands every event to `add` until all generations have ended.

    Raises:
      RequestError: `add` does, or the client hung up.
    """
    async with watch_for_hang_up(request.receive, generation):
        while not generation.ended:
            for index, event in await generation.events():
                add(index, event)
            if generation.gone:
                raise ClientDisconnected("the client hung up")
