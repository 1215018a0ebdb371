"""Responses that are made although nobody waits: the client asks for them later by their id."""

from __future__ import annotations

import asyncio

from njax.engine.engine import Engine
from njax.errors import RequestError
from server.bridge import Generation
from server.protocols.responses.answer import ResponseMaker
from server.protocols.responses.request import ResponseCall
from server.protocols.responses.store import Record, ResponseStore


class Background:
    """Runs such responses on the event loop and keeps their records up to date."""

    def __init__(self, engine: Engine, store: ResponseStore):
        self._engine = engine
        self._store = store
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, call: ResponseCall) -> dict[str, object]:
        """Begins; returns the response object as it stands.

        Raises:
          RequestError: the engine refuses it at once.
        """
        generation = Generation(self._engine, [call.generation])
        record = call.record(call.body | {"status": "queued"})
        record.cancel = generation.hang_up
        self._store.put(record)
        maker = ResponseMaker(call, self._engine.tokenizer)

        async def follow() -> None:
            try:
                while not generation.ended and not generation.gone:
                    for index, event in await generation.events():
                        maker.add(index, event)
                    if not generation.ended:
                        record.body = maker.body
            except RequestError as error:
                maker.fail(error)
            finally:
                generation.close()
                record.cancel = None
            if maker.body["status"] == "in_progress":
                maker.cancel()
            if maker.body["id"] in self._store:
                record.body = maker.body
                self._store.put(record)

        task = self._tasks[call.body["id"]] = asyncio.create_task(follow())
        task.add_done_callback(lambda _: self._tasks.pop(call.body["id"], None))
        return record.body

    async def cancel(self, record: Record) -> None:
        """Ends a response that is being made; one that has ended stays as it is."""
        task = self._tasks.get(record.body["id"])
        if record.cancel is not None and task is not None:
            record.cancel()
            await asyncio.wait([task])
