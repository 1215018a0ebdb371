"""Real engines on the bundled model, compiled once a session for each configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from njax.config import EngineConfig
from njax.engine.engine import Engine
from njax.engine.types import Delta, Failed, Finished, GenerationRequest, SamplingParams, Usage
from tests.tiny import load_tiny

GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(scope="session")
def make_engine() -> Iterator[Callable[..., Engine]]:
    """Engines by configuration; equal configurations share one engine and its seed store."""
    engines: dict[EngineConfig, Engine] = {}

    def make(**options) -> Engine:
        config = EngineConfig(**({"max_context": 4096, "prefill_chunk": 256} | options))
        if config not in engines:
            engines[config] = Engine(load_tiny(), config)
            engines[config].start()
        return engines[config]

    yield make
    for engine in engines.values():
        engine.shutdown()


def random_prompt(rng: np.random.Generator, length: int, vocab: int = 256) -> tuple[int, ...]:
    return tuple(int(token) for token in rng.integers(0, vocab, length))


class Answer:
    """Everything that came back for one request."""

    def __init__(self, events):
        self.events = list(events)
        self.tokens = [t for e in self.events if isinstance(e, Delta) for t in e.token_ids]
        self.text = "".join(e.text for e in self.events if isinstance(e, Delta))
        self.end = self.events[-1]

    @property
    def usage(self) -> Usage:
        assert isinstance(self.end, Finished), self.end
        return self.end.usage

    @property
    def error(self):
        assert isinstance(self.end, Failed), self.end
        return self.end.error


def ask(engine: Engine, prompt, max_tokens: int = 16, **options) -> Answer:
    options = {"sampling": GREEDY, "ignore_eos": True} | options
    request = GenerationRequest(token_ids=tuple(prompt), max_tokens=max_tokens, **options)
    return Answer(engine.generate(request))


class Collector:
    """An event sink for requests that run side by side."""

    def __init__(self):
        import threading

        self.events = []
        self.done = threading.Event()

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, Finished | Failed):
            self.done.set()

    def answer(self, timeout: float = 60.0) -> Answer:
        assert self.done.wait(timeout), "no last event came"
        return Answer(self.events)


def ask_together(engine: Engine, prompts, max_tokens: int = 16, **options) -> list[Answer]:
    options = {"sampling": GREEDY, "ignore_eos": True} | options
    collectors = [Collector() for _ in prompts]
    for prompt, collector in zip(prompts, collectors, strict=True):
        engine.submit(
            GenerationRequest(token_ids=tuple(prompt), max_tokens=max_tokens, **options), collector
        )
    return [collector.answer() for collector in collectors]
