"""Responses that were stored: by id, the least recently used leave first, gone with the process."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from njax.errors import InvalidRequest, RequestError

Item = dict[str, Any]
_encode = msgspec.json.Encoder().encode


class ResponseNotFound(RequestError):
    """No response of that id is stored."""

    code = "response_not_found"


@dataclasses.dataclass
class Record:
    """A stored response.

    Attributes:
      body: the response object.
      context: the items before this request's own, as far back as the conversation goes.
      input_items: this request's own items.
      preserve_thinking: what this conversation asked for; its children inherit it.
      cancel: ends the generation that still runs; None once it has ended.
      size, findable: the store's own: bytes of JSON of all of it (items that several records share
        count in each), and the items that were indexed.
    """

    body: dict[str, Any]
    context: tuple[Item, ...]
    input_items: tuple[Item, ...]
    preserve_thinking: bool | None = None
    cancel: Callable[[], None] | None = None
    size: int = 0
    findable: tuple[Item, ...] = ()

    @property
    def conversation(self) -> tuple[Item, ...]:
        """What a request that continues this response begins with."""
        return (*self.context, *self.input_items, *self.body["output"])


class ResponseStore:
    """Bounded by records and by bytes. For the event loop only, but for `get` and `find_item`,
    which read and may be called from any thread."""

    def __init__(self, max_records: int, max_bytes: int):
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._bytes = 0
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._items: dict[str, Item] = {}

    def get(self, response_id: str, param: str | None = None) -> Record:
        """
        Raises:
          ResponseNotFound: it is not stored (any more).
        """
        record = self._records.get(response_id)
        if record is None:
            raise ResponseNotFound(f"no response {response_id[:100]!r} is stored here", param=param)
        return record

    def find_item(self, item_id: str) -> Item | None:
        """An item of a stored response, input or output."""
        return self._items.get(item_id)

    def check_fits(self, size: int) -> None:
        """
        Raises:
          InvalidRequest: `size` bytes of input would not fit into the empty store.
        """
        if size > self._max_bytes:
            raise InvalidRequest(
                f"this conversation has {size} bytes, the store holds {self._max_bytes}; "
                "send store: false and the whole conversation with each request",
                param="store",
                code="response_store_capacity_exceeded",
            )

    def use(self, response_id: str) -> Record:
        """`get`, and it stays longer for it."""
        record = self.get(response_id)
        self._records.move_to_end(response_id)
        return record

    def put(self, record: Record) -> None:
        """Adds a record, or takes what has changed of one; others leave for it. The newest and
        those whose generation runs stay."""
        name = record.body["id"]
        self._drop(name)
        record.size = size_of([record.context, record.input_items, record.body])
        self._records[name] = record
        self._bytes += record.size
        record.findable = (*record.input_items, *record.body["output"])
        self._items.update((item["id"], item) for item in record.findable)
        for other in list(self._records):
            if self._bytes <= self._max_bytes and len(self._records) <= self._max_records:
                break
            if other != name and self._records[other].cancel is None:
                self._drop(other)

    def delete(self, response_id: str) -> None:
        """
        Raises:
          ResponseNotFound: it is not stored.
        """
        record = self.get(response_id)
        if record.cancel is not None:
            record.cancel()
        self._drop(response_id)

    def __contains__(self, response_id: str) -> bool:
        return response_id in self._records

    def _drop(self, response_id: str) -> None:
        record = self._records.pop(response_id, None)
        if record is None:
            return
        self._bytes -= record.size
        for item in record.findable:
            item_id = item["id"]
            if self._items.get(item_id) is item:
                del self._items[item_id]


def size_of(items: Any) -> int:
    """Bytes as JSON."""
    return len(_encode(items))
