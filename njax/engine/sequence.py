"""One request on its way through the engine: the host's side of its state."""

from __future__ import annotations

import dataclasses
import logging
import time

from njax.config import BLOCK
from njax.engine.output import OutputPipeline
from njax.engine.speculative import DraftRecord
from njax.engine.types import (
    Drafts,
    Event,
    EventSink,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Timings,
    Usage,
)
from njax.errors import RequestError
from njax.prefix.planner import Chunk, Plan

log = logging.getLogger("njax.engine")


@dataclasses.dataclass
class Sequence:
    """A request from submission to its last event; touched by the executor thread only.

    Attributes:
      limit: most tokens it may generate.
      root: digest that its prefix identity starts from.
      lane, pages: what it holds while active.
      plan, next_chunk: its prefill and how far that has been dispatched.
      captured: length of the longest snapshot that its prefill left.
      dispatched: tokens whose computation has been dispatched; runs ahead of what was read. A
        round counts as one token until it is read.
      record: how its drafts fared; None where nothing is drafted.
      done: its last event has been sent; results still in flight are ignored.
    """

    request_id: int
    request: GenerationRequest
    sink: EventSink
    output: OutputPipeline
    limit: int
    root: bytes
    submitted: float
    lane: int = -1
    pages: list[int] = dataclasses.field(default_factory=list)
    plan: Plan | None = None
    next_chunk: int = 0
    captured: int = 0
    dispatched: int = 0
    record: DraftRecord | None = None
    admitted: float | None = None
    first_token: float | None = None
    done: bool = False

    @property
    def prompt_length(self) -> int:
        return len(self.request.token_ids)

    @property
    def pages_needed(self) -> int:
        """Worst case: the last generated token is never absorbed, hence the minus one."""
        return -(-(self.prompt_length + self.limit - 1) // BLOCK)

    @property
    def position(self) -> int:
        """Where the newest dispatched token will go when it is absorbed."""
        return self.prompt_length + self.dispatched - 1

    @property
    def last_index(self) -> int:
        """The index that its last token has if it reaches its limit."""
        return self.prompt_length + self.limit - 1

    @property
    def decodable(self) -> bool:
        """Its newest token is (or will be) on the device and more are wanted."""
        return not self.done and 0 < self.dispatched < self.limit

    def take_chunk(self) -> Chunk:
        """The next prefill chunk, counted as dispatched."""
        assert self.plan is not None
        chunk = self.plan.chunks[self.next_chunk]
        self.next_chunk += 1
        if self.next_chunk == len(self.plan.chunks):
            self.dispatched = 1
        return chunk

    @property
    def prefill_left(self) -> bool:
        return self.plan is None or self.next_chunk < len(self.plan.chunks)

    def emit(self, event: Event) -> None:
        """Hands an event to the caller; a sink that raises cannot harm the engine."""
        try:
            self.sink(event)
        except Exception:
            log.exception("request %d: its event sink raised; event dropped", self.request_id)

    def finish(self, reason: FinishReason) -> None:
        """Sends the last event of a request that ended as it should."""
        self.done = True
        usage = self.usage()
        log.info(
            "request %d done finish=%s prompt=%d gen=%d cache=%d reuse=%s ttft=%.1fms wall=%.1fms",
            self.request_id, reason, usage.prompt_tokens, usage.completion_tokens,
            usage.cached_tokens, usage.reuse_path,
            1e3 * usage.timings.time_to_first_token, 1e3 * usage.timings.total,
        )  # fmt: skip
        stop_string = self.output.stop_string if reason == "stop_string" else None
        self.emit(Finished(reason, usage, stop_string))

    def fail(self, error: RequestError) -> None:
        """Sends the last event of a request that did not."""
        self.done = True
        log.info("request %d failed code=%s: %s", self.request_id, error.code, error)
        self.emit(Failed(error))

    def usage(self) -> Usage:
        now = time.monotonic()
        return Usage(
            prompt_tokens=self.prompt_length,
            completion_tokens=self.output.accepted,
            cached_tokens=self.plan.base if self.plan else 0,
            reuse_path=self.plan.path if self.plan else "full_reset",
            captured_tokens=max(0, self.captured - self.plan.base) if self.plan else 0,
            timings=Timings(
                queued=(self.admitted or now) - self.submitted,
                time_to_first_token=(self.first_token or now) - self.submitted,
                total=now - self.submitted,
            ),
            drafts=self.record.drafts() if self.record else Drafts(),
        )
