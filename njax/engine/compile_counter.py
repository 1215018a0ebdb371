"""Counts XLA compilations in this process, so that one after boot can be seen and tested."""

from __future__ import annotations

import threading

import jax.monitoring

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """`count` compilations since the process's first counter was made; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILE_EVENT:
            with self._lock:
                self._count += 1

    @property
    def count(self) -> int:
        with self._lock:
            return self._count


_counter: CompileCounter | None = None
_counter_lock = threading.Lock()


def compile_counter() -> CompileCounter:
    """The process-wide counter; jax keeps listeners for ever, so there is only one."""
    global _counter
    with _counter_lock:
        if _counter is None:
            _counter = CompileCounter()
        return _counter
