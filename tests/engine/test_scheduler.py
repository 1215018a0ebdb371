"""Scheduling order, admission and release on real sequences; no device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.engine.pages import PagePool
from njax.engine.scheduler import DecodeUnit, PrefillUnit, Scheduler
from njax.engine.sequence import Sequence
from njax.engine.types import GenerationRequest
from njax.prefix.planner import make_plan
from njax.prefix.seeds import SeedStore


def sequence(number: int, prompt: int = 100, limit: int = 5) -> Sequence:
    request = GenerationRequest(token_ids=(1,) * prompt, max_tokens=limit)
    return Sequence(
        request_id=number,
        request=request,
        sink=lambda event: None,
        output=None,  # type: ignore[arg-type]  # the scheduler never reads it
        limit=limit,
        root=b"",
        submitted=0.0,
    )


def dispatch(scheduler: Scheduler, unit: PrefillUnit | DecodeUnit, chunk: int = 64) -> None:
    """What the executor does with a unit, less the device."""
    if isinstance(unit, DecodeUnit):
        for s in unit.sequences:
            s.dispatched += 1
        return
    s = unit.sequence
    if s.plan is None:
        s.plan = make_plan(
            root=b"",
            token_ids=s.request.token_ids,
            frontiers=(),
            store=SeedStore(0),
            prefill_chunk=chunk,
        )
    s.take_chunk()
    scheduler.prefill_dispatched(s)


def test_prefill_and_decode_alternate():
    scheduler = Scheduler(2, PagePool(100))
    scheduler.enqueue(sequence(1, prompt=10, limit=50))
    scheduler.enqueue(sequence(2, prompt=64 * 4))
    kinds = []
    for _ in range(8):
        unit = scheduler.next_unit()
        kinds.append("P" if isinstance(unit, PrefillUnit) else "D")
        dispatch(scheduler, unit)
    assert "".join(kinds) == "PDPDPDPD"


def test_head_of_the_queue_is_never_overtaken():
    scheduler = Scheduler(3, PagePool(4))
    small, large, tiny = sequence(1, 64, 2), sequence(2, 64 * 4, 1), sequence(3, 1, 1)
    for s in (small, large, tiny):
        scheduler.enqueue(s)
    dispatch(scheduler, scheduler.next_unit())
    dispatch(scheduler, scheduler.next_unit())
    assert scheduler.next_unit() is None, "large does not fit yet and tiny must wait behind it"
    scheduler.release(small)
    assert scheduler.next_unit() == PrefillUnit(large)


def test_worst_case_pages_are_reserved():
    # 64 prompt tokens and one generated one, which is never absorbed: exactly one page.
    assert sequence(1, prompt=64, limit=1).pages_needed == 1
    assert sequence(1, prompt=64, limit=2).pages_needed == 2


def test_a_released_waiting_sequence_leaves_the_queue():
    scheduler = Scheduler(1, PagePool(10))
    s = sequence(1)
    scheduler.enqueue(s)
    scheduler.release(s)
    assert not scheduler.waiting and scheduler.next_unit() is None
    with pytest.raises(ValueError):
        scheduler.release(s)


@given(st.data())
def test_everything_ends_and_nothing_leaks(data):
    pool = PagePool(12)
    scheduler = Scheduler(data.draw(st.integers(1, 4)), pool)
    count = data.draw(st.integers(1, 8))
    todo = [
        sequence(i, data.draw(st.integers(1, 300)), data.draw(st.integers(1, 6)))
        for i in range(count)
    ]
    for s in todo:
        scheduler.enqueue(s)
    for _ in range(2000):
        unit = scheduler.next_unit()
        if unit is None:
            break
        dispatch(scheduler, unit)
        for s in list(scheduler.active):
            cancelled = data.draw(st.integers(0, 30)) == 0
            if (not s.prefill_left and s.dispatched == s.limit) or cancelled:
                s.done = True
                scheduler.release(s)
        assert pool.used == sum(len(s.pages) for s in scheduler.active)
    assert not scheduler.active and not scheduler.waiting and pool.used == 0
    assert all(s.done for s in todo)
