"""Between the engine's thread and the event loop.

The engine calls a sink on its own thread, in order, and must not be held up. `Generation` is that
sink: it appends to a deque and wakes the loop, once for all events that wait to be taken.
"""

from __future__ import annotations

import asyncio
from collections import deque

from njax.engine.engine import Engine
from njax.engine.types import Event, Failed, Finished, GenerationRequest, RequestHandle


class Generation:
    """One submitted request, as a coroutine reads it.

    Make it in a running event loop; read it there only.

    Raises:
      RequestError: the engine refuses the request at once.
    """

    def __init__(self, engine: Engine, request: GenerationRequest):
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._notified = False  # a wake-up is on its way, or the reader has not slept since
        self._ended = False
        self.gone = False
        self._handle: RequestHandle | None = engine.submit(request, self._sink)

    def _sink(self, event: Event) -> None:
        """On the engine's thread."""
        self._events.append(event)
        # The reader lowers the flag before it takes events, so one that finds it raised will be
        # taken; waking the loop again would only cost.
        if not self._notified:
            self._notified = True
            try:
                self._loop.call_soon_threadsafe(self._news.set)
            except RuntimeError:  # the loop is closed: nobody reads any more
                pass

    async def events(self, timeout: float | None = None) -> list[Event]:
        """Waits for news and takes all there are, in order; none after a timeout or `hang_up`.

        After the last event (`Finished` or `Failed`) there is nothing to wait for.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._events and not self.gone:
                    self._news.clear()
                    self._notified = False
                    if not self._events:  # one may have come before the flag was lowered
                        await self._news.wait()
        except TimeoutError:
            return []
        if self.gone:
            return []
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        if isinstance(taken[-1], Finished | Failed):
            self._ended = True
        return taken

    def hang_up(self) -> None:
        """The client has gone: frees the lane and ends a wait in `events`."""
        self.gone = True
        self.close()
        self._news.set()

    def close(self) -> None:
        """Cancels the request unless it has ended. May be called any number of times."""
        handle, self._handle = self._handle, None
        if handle is not None and not self._ended:
            handle.cancel()
