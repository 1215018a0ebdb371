"""Server-sent events: one request's events as an HTTP response, for every protocol.

The response begins with the first event, so that a request that fails before it has a status of its
own; after `keep_alive_s` of silence it begins anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from litestar.types import Receive, Scope, Send

from njax.engine.types import Event
from njax.errors import RequestError
from server.bridge import Generation

KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class StreamWriter(Protocol):
    """A protocol's form of a stream. Everything it returns is whole events, or nothing."""

    def opening(self) -> bytes:
        """What a stream begins with."""

    def event(self, index: int, event: Event) -> bytes:
        """What an event of a generation adds.

        Raises:
          RequestError: that generation failed; the stream ends with `failure`.
        """

    def closing(self) -> bytes:
        """What comes after the last event of the last generation."""

    def failure(self, error: RequestError) -> bytes:
        """Ends a stream that has begun."""


class EventStream:
    """The response, an ASGI application. `first` are events that have been taken already."""

    def __init__(
        self,
        generation: Generation,
        writer: StreamWriter,
        first: list[tuple[int, Event]],
        keep_alive_s: float,
    ):
        self._generation = generation
        self._writer = writer
        self._first = first
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with watch_for_hang_up(receive, self._generation):
                await self._write(send)
        finally:
            self._generation.close()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        data, events = self._writer.opening(), self._first
        while not self._generation.gone:
            failed = False
            try:
                for index, event in events:
                    data += self._writer.event(index, event)
                if self._generation.ended:
                    data += self._writer.closing()
            except RequestError as error:
                data, failed = data + self._writer.failure(error), True
            ended = failed or self._generation.ended
            await send({"type": "http.response.body", "body": data, "more_body": not ended})
            if ended:
                return
            data = b""
            while not data and not self._generation.gone:
                events = await self._generation.events(self._keep_alive_s)
                if events:
                    break
                data = KEEP_ALIVE


@contextlib.asynccontextmanager
async def watch_for_hang_up(receive: Receive, generation: Generation) -> AsyncIterator[None]:
    """Inside the block, a client that goes away ends the generation at once."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        generation.hang_up()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await watcher
