"""The one thread that talks to the device.

Each turn: take commands, let the scheduler choose a unit, dispatch it, and only then read the
results of the unit before. The device therefore always has its next step queued; a stop is
noticed one step late and that step's token is dropped.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from njax.config import BLOCK, EngineConfig
from njax.engine.buckets import segment_sizes
from njax.engine.device import Device
from njax.engine.host_step import HostStep, read_step
from njax.engine.scheduler import DecodeUnit, PrefillUnit, Scheduler
from njax.engine.sequence import Sequence
from njax.engine.speculative import DraftRecord, RoundOutput, choose_window
from njax.engine.steps import StepOutput
from njax.engine.types import Drafts, Started
from njax.errors import Overloaded, QueueTimeout, RequestError, Unavailable
from njax.prefix.planner import Plan, make_plan
from njax.prefix.seeds import SeedStore

log = logging.getLogger("njax.engine")


class NonFiniteLogits(RequestError):
    """The model's logits for this request hold NaN or infinity; no token can be chosen."""

    code = "numeric_failure"


@dataclasses.dataclass(frozen=True)
class _InFlight:
    """A dispatched unit: which sequence reads which row of the result."""

    rows: tuple[tuple[Sequence, int], ...]
    output: StepOutput | RoundOutput


class Executor:
    """Runs sequences to their end on its own thread.

    Args:
      device: the compiled programs and their state.
      scheduler, store: host-side bookkeeping; owned by the executor from now on.
      on_fatal: called once, with one line, after a failure that is not a request's own.
    """

    def __init__(
        self,
        device: Device,
        scheduler: Scheduler,
        store: SeedStore,
        config: EngineConfig,
        on_fatal: Callable[[str], None],
    ):
        self._device = device
        self._scheduler = scheduler
        self._store = store
        self._config = config
        self._on_fatal = on_fatal
        self._in_flight: deque[_InFlight] = deque()
        self._drafts = DraftRecord.of(config.draft_tokens)
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        # Guarded by the lock: what other threads write.
        self._submitted: deque[Sequence] = deque()
        self._cancelled: set[int] = set()
        self._outstanding = 0
        self._stopping = False
        self._drain = True
        self._failed: str | None = None
        self._by_id: dict[int, Sequence] = {}
        self._thread = threading.Thread(target=self._run, name="njax-executor", daemon=True)

    # --- called from any thread ---------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def submit(self, sequence: Sequence) -> None:
        """Queues a sequence.

        Raises:
          Overloaded: too many requests are outstanding.
          Unavailable: the engine has failed or is stopping.
        """
        with self._lock:
            if self._failed is not None:
                raise Unavailable(f"the engine has failed: {self._failed}")
            if self._stopping:
                raise Unavailable("the engine is stopping")
            bound = self._config.max_concurrency + self._config.max_pending
            if self._outstanding >= bound:
                raise Overloaded(
                    f"{self._outstanding} requests are outstanding, the limit is {bound} "
                    f"({self._config.max_concurrency} lanes, {self._config.max_pending} waiting)"
                )
            self._outstanding += 1
            self._submitted.append(sequence)
            self._wake.notify()

    def cancel(self, request_id: int) -> None:
        """Ends a request at the next turn; unknown and finished ones are ignored."""
        with self._lock:
            self._cancelled.add(request_id)
            self._wake.notify()

    def stop(self, *, drain: bool, timeout: float | None) -> bool:
        """Takes no more work and ends the thread, after or without finishing what runs.

        Returns:
          Whether the thread ended within `timeout` seconds.
        """
        with self._lock:
            self._stopping = True
            self._drain = self._drain and drain
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def failed(self) -> str | None:
        """Why the engine can no longer serve, or None."""
        return self._failed

    @property
    def outstanding(self) -> int:
        return self._outstanding

    @property
    def drafts(self) -> Drafts:
        """Speculation of all requests so far."""
        return self._drafts.drafts() if self._config.drafting else Drafts()

    # --- the executor thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:
            self._fail(error)

    def _turn(self) -> bool:
        """One turn of the loop; False when there is nothing left to do for ever."""
        self._take_commands()
        unit = self._scheduler.next_unit()
        if unit is not None:
            self._dispatch(unit)
        while len(self._in_flight) > (1 if unit is not None else 0):
            self._collect(self._in_flight.popleft())
        if unit is None and not self._in_flight:
            return self._wait()
        return True

    def _wait(self) -> bool:
        with self._lock:
            idle = not self._by_id and not self._submitted
            if self._stopping and idle:
                return False
            if not self._submitted and not self._cancelled and not self._stopping:
                self._wake.wait(self._time_to_next_deadline())
        return True

    def _time_to_next_deadline(self) -> float | None:
        if not self._scheduler.waiting:
            return None
        oldest = self._scheduler.waiting[0].submitted
        return max(0.001, oldest + self._config.pending_timeout_s - time.monotonic())

    def _take_commands(self) -> None:
        with self._lock:
            submitted, self._submitted = self._submitted, deque()
            cancelled, self._cancelled = self._cancelled, set()
            abandon = self._stopping and not self._drain
        for sequence in submitted:
            self._by_id[sequence.request_id] = sequence
            self._scheduler.enqueue(sequence)
        for request_id in list(self._by_id) if abandon else cancelled:
            known = self._by_id.get(request_id)
            if known is not None:
                self._release(known)
                known.finish("cancelled")
        deadline = time.monotonic() - self._config.pending_timeout_s
        for sequence in [s for s in self._scheduler.waiting if s.submitted <= deadline]:
            self._release(sequence)
            sequence.fail(
                QueueTimeout(
                    f"no lane became free within {self._config.pending_timeout_s:g} seconds"
                )
            )

    def _release(self, sequence: Sequence) -> None:
        """Frees what a sequence holds. Steps already dispatched for it may still write to its
        pages, but they run before anything that a later owner dispatches."""
        sequence.done = True
        self._scheduler.release(sequence)
        del self._by_id[sequence.request_id]
        with self._lock:
            self._outstanding -= 1

    def _dispatch(self, unit: PrefillUnit | DecodeUnit) -> None:
        if isinstance(unit, DecodeUnit):
            self._dispatch_decode(unit.sequences)
            return
        try:
            self._dispatch_prefill(unit.sequence)
        except RequestError as error:
            self._release(unit.sequence)
            unit.sequence.fail(error)

    def _dispatch_prefill(self, sequence: Sequence) -> None:
        if sequence.plan is None:
            self._begin(sequence)
        plan = sequence.plan
        assert plan is not None
        chunk = sequence.take_chunk()
        output = self._device.prefill(
            sequence.lane, sequence.request.token_ids, chunk, is_last=not sequence.prefill_left
        )
        if chunk.capture:
            self._capture(sequence, plan, chunk.end)
        rows = () if sequence.prefill_left else ((sequence, 0),)
        self._in_flight.append(_InFlight(rows, output))
        self._scheduler.prefill_dispatched(sequence)

    def _capture(self, sequence: Sequence, plan: Plan, end: int) -> None:
        """Keeps the state after the first `end` tokens of the prompt, which is the lane's now."""
        digests = plan.digests[: end // BLOCK]
        tokens = sequence.request.token_ids[:end]
        shared = self._store.shared_segments(digests, tokens, segment_sizes(len(digests)))
        snapshot = self._device.capture(sequence.lane, sequence.pages, end, shared)
        self._store.put(digests, tokens, snapshot)
        sequence.captured = end

    def _begin(self, sequence: Sequence) -> None:
        """Plans a sequence when its prefill starts, as what ran before may have left a seed."""
        request = sequence.request
        if self._config.drafting:
            sequence.record = DraftRecord.of(self._config.draft_tokens)
        sequence.plan = make_plan(
            root=sequence.root,
            token_ids=request.token_ids,
            frontiers=request.frontiers,
            store=self._store,
            prefill_chunk=self._config.prefill_chunk,
            reuse=request.reuse_prefix,
            capture=request.capture_prefix,
        )
        self._device.assign_lane(sequence.lane, sequence.pages, request.sampling, request.token_ids)
        seed = sequence.plan.seed
        if seed is not None:
            self._device.restore(sequence.lane, sequence.pages, seed.snapshot)
            self._store.record_hit(seed)
        elif self._store.enabled and request.reuse_prefix:
            self._store.record_miss()
        sequence.emit(Started(sequence.plan.base, sequence.plan.path))

    def _dispatch_decode(self, sequences: tuple[Sequence, ...]) -> None:
        if self._config.drafting:
            self._dispatch_round(sequences)
            return
        position = np.zeros(self._config.max_concurrency, np.int32)
        active = np.zeros(self._config.max_concurrency, np.bool_)
        for sequence in sequences:
            position[sequence.lane] = sequence.position
            active[sequence.lane] = True
            sequence.dispatched += 1
        output = self._device.decode(position, active)
        rows = tuple((sequence, sequence.lane) for sequence in sequences)
        self._in_flight.append(_InFlight(rows, output))

    def _dispatch_round(self, sequences: tuple[Sequence, ...]) -> None:
        most = self._config.draft_tokens if len(sequences) <= self._config.draft_lanes else 0
        windows = [choose_window(s.record, most) if s.record and most else 0 for s in sequences]
        lanes = [sequence.lane for sequence in sequences]
        output, rows = self._device.speculate(lanes, [s.last_index for s in sequences], windows)
        for sequence in sequences:
            sequence.dispatched += 1
        self._in_flight.append(_InFlight(tuple((s, rows[s.lane]) for s in sequences), output))

    def _collect(self, result: _InFlight) -> None:
        step = read_step(result.output)  # waits for it
        for sequence, row in result.rows:
            if not sequence.done:
                self._take(sequence, step, row)

    def _take(self, sequence: Sequence, step: HostStep, row: int) -> None:
        """Hands a sequence its new tokens, up to its end if that is among them."""
        if sequence.first_token is None:
            sequence.first_token = time.monotonic()
        count = int(step.count[row])
        sequence.dispatched += max(0, count - 1)
        for index in range(count):
            if not step.finite[row, index]:
                self._release(sequence)
                sequence.fail(NonFiniteLogits("the model produced logits that are not finite"))
                return
            logprobs = step.logprobs_of(row, index, sequence.request.sampling.logprobs)
            made = sequence.output.push(int(step.token[row, index]), logprobs)
            if made.finish is not None or index + 1 == count:
                self._note_drafts(sequence, step, row, index + 1)
            if made.delta is not None:
                sequence.emit(made.delta)
            if made.finish is not None:
                self._release(sequence)
                sequence.finish(made.finish)
                return

    def _note_drafts(self, sequence: Sequence, step: HostStep, row: int, taken: int) -> None:
        """Counts a round's drafts, those beyond the end of an answer left out."""
        if sequence.record is None or not step.is_round:
            return
        drafted = min(int(step.drafted[row]), taken)
        accepted = min(int(step.count[row]) - 1, taken)
        for record in (sequence.record, self._drafts):
            record.add(drafted, accepted)

    def _fail(self, error: Exception) -> None:
        """The second kind of failure: nothing can be trusted any more."""
        reason = f"{type(error).__name__}: {error}"
        log.critical("engine failed, no request can be served any more: %s", reason, exc_info=error)
        with self._lock:
            self._failed = reason
            sequences = [*self._by_id.values(), *self._submitted]
            self._submitted.clear()
            self._outstanding = 0
        for sequence in sequences:
            if not sequence.done:
                sequence.fail(Unavailable(f"the engine has failed: {reason}"))
        self._on_fatal(reason)
