"""Between the engine's thread and the event loop.

The engine calls a sink on its own thread, in order, and must not be held up. `Generation` holds
such sinks: they append to a deque and wake the loop, once for all events that wait to be taken.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Sequence

from njax.engine.engine import Engine
from njax.engine.types import Event, Failed, Finished, GenerationRequest, RequestHandle


class Generation:
    """The generations of one client's request, as a coroutine reads them.

    Make it in a running event loop; read it there only.

    Attributes:
      gone: the client has hung up.

    Raises:
      RequestError: the engine refuses one at once; none is left running.
    """

    def __init__(self, engine: Engine, requests: Sequence[GenerationRequest]):
        self._loop = asyncio.get_running_loop()
        self._events: deque[tuple[int, Event]] = deque()
        self._news = asyncio.Event()
        self._notified = False  # a wake-up is on its way, or the reader has not slept since
        self._open = set(range(len(requests)))
        self.gone = False
        self._handles: dict[int, RequestHandle] = {}
        try:
            for index, request in enumerate(requests):
                sink = functools.partial(self._sink, index)
                self._handles[index] = engine.submit(request, sink)
        except BaseException:
            self.close()
            raise

    def _sink(self, index: int, event: Event) -> None:
        """On the engine's thread."""
        self._events.append((index, event))
        # The reader lowers the flag before it takes events, so one that finds it raised will be
        # taken; waking the loop again would only cost.
        if not self._notified:
            self._notified = True
            try:
                self._loop.call_soon_threadsafe(self._news.set)
            except RuntimeError:  # the loop is closed: nobody reads any more
                pass

    @property
    def ended(self) -> bool:
        """Whether the last event of every generation has been taken."""
        return not self._open

    async def events(self, timeout: float | None = None) -> list[tuple[int, Event]]:
        """Waits for news and takes all there are, in order; none after a timeout or `hang_up`.

        Each comes with the index of its generation. The last of each is `Finished` or `Failed`;
        after all of them there is nothing to wait for.
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
        self._open -= {index for index, event in taken if isinstance(event, Finished | Failed)}
        return taken

    def hang_up(self) -> None:
        """The client has gone: frees the lanes and ends a wait in `events`."""
        self.gone = True
        self.close()
        self._news.set()

    def close(self) -> None:
        """Cancels what has not ended. May be called any number of times."""
        for index in self._open & self._handles.keys():
            self._handles.pop(index).cancel()
