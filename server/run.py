"""The server as a process: its signals, its end.

SIGTERM and SIGINT: no new connections, running requests may finish within a deadline, exit code 0.
A failed engine: whoever waits is told, exit code 1 within a deadline. Both deadlines are enforced
from a thread of the C runtime (`faulthandler`), which also works when Python hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import uvicorn
from litestar import Litestar

from njax.engine.engine import Engine
from server.listen import BACKLOG, cannot_listen

log = logging.getLogger("njax.server")

DRAIN_S = 10
"""Seconds that running requests get to finish when the server is told to stop."""

_MARGIN_S = 5
"""After it: half for uvicorn to close connections, the rest for the engine's thread."""


class Fatal:
    """What happens when the engine fails for good: the process must end, whatever hangs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._stop: Callable[[], None] | None = None

    def __call__(self, reason: str) -> None:
        """The engine's `on_fatal`."""
        faulthandler.dump_traceback_later(DRAIN_S, exit=True)
        with self._lock:
            self._reason, stop = reason, self._stop
        if stop is not None:
            stop()

    def on_failure(self, stop: Callable[[], None]) -> None:
        """Calls `stop` at the failure, at once if it has been."""
        with self._lock:
            self._stop, failed = stop, self._reason is not None
        if failed:
            stop()


class _Server(uvicorn.Server):
    """uvicorn with the end described above."""

    def __init__(self, config: uvicorn.Config, engine: Engine, on_ready: Callable[[], None]):
        super().__init__(config)
        self._engine = engine
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # What still runs at the deadline is ended by the engine, so that its client is told.
        asyncio.get_running_loop().call_later(
            DRAIN_S, lambda: self._engine.shutdown(drain=False, timeout=0)
        )
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again at the end, and the exit code would not be 0.
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback_later(DRAIN_S + _MARGIN_S, exit=True)
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Ends the server; from any thread."""
        self.should_exit = True


def run(
    app: Litestar,
    engine: Engine,
    bound: socket.socket,
    fatal: Fatal,
    on_ready: Callable[[], None] = lambda: None,
) -> int:
    """Listens and serves until a signal or a fatal failure.

    Args:
      bound: from `server.listen.bind`.
      fatal: the engine's `on_fatal`.
      on_ready: called once the server answers.

    Returns:
      The exit code for the process.

    Raises:
      StartupError: another process listens there since the socket was bound.
    """
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise cannot_listen(host, port, error) from None
    config = uvicorn.Config(
        app,
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=65,
        timeout_graceful_shutdown=DRAIN_S + _MARGIN_S // 2,
    )
    server = _Server(config, engine, on_ready)
    fatal.on_failure(server.stop)
    server.run(sockets=[bound])
    if engine.failed is not None:
        log.critical("exiting: the engine has failed: %s", engine.failed)
        return 1
    if not engine.shutdown(timeout=1):
        log.warning("the engine did not stop in time")
    return 0


def exit_now(code: int) -> NoReturn:
    """Ends the process without tearing down what a stuck device could hold up."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
