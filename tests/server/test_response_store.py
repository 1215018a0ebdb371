"""What the store of responses keeps, and what leaves it."""

from __future__ import annotations

import pytest

from njax.errors import InvalidRequest
from server.protocols.responses.store import Record, ResponseNotFound, ResponseStore


def record(number: int, size: int = 10) -> Record:
    output = [{"id": f"out{number}", "text": "x" * size}]
    return Record({"id": f"resp{number}", "output": output}, (), ({"id": f"in{number}"},))


def kept(store: ResponseStore, count: int) -> list[int]:
    return [number for number in range(count) if f"resp{number}" in store]


def test_the_least_recently_used_leaves_first():
    store = ResponseStore(2, 1 << 20)
    for number in range(3):
        store.put(record(number))
    assert kept(store, 3) == [1, 2]
    store.use("resp1")
    store.put(record(3))
    assert kept(store, 4) == [1, 3]
    assert store.find_item("out2") is None and store.find_item("in2") is None
    with pytest.raises(ResponseNotFound):
        store.get("resp2")


def test_bytes_are_bounded():
    store = ResponseStore(100, 10_000)
    for number in range(8):
        store.put(record(number, 3000))
    assert kept(store, 8) == [5, 6, 7]
    store.check_fits(10_000)
    with pytest.raises(InvalidRequest) as caught:
        store.check_fits(10_001)
    assert caught.value.code == "response_store_capacity_exceeded"


def test_one_that_is_being_made_stays_and_deleting_ends_it():
    store = ResponseStore(1, 1 << 20)
    running, ended = record(0), []
    running.cancel = lambda: ended.append(True)
    store.put(running)
    store.put(record(1))
    assert kept(store, 2) == [0, 1]
    store.delete("resp0")
    assert ended and kept(store, 2) == [1]


def test_a_record_that_changed_is_counted_once():
    store = ResponseStore(4, 10_000)
    one = record(0, 6000)
    store.put(one)
    one.body = one.body | {"output": [{"id": "other", "text": "x" * 6000}]}
    store.put(one)
    assert store.find_item("out0") is None and store.find_item("other") is not None
    store.put(record(1, 3000))
    assert kept(store, 2) == [0, 1]
