"""What the routes of this protocol share."""

from __future__ import annotations

from njax.engine.engine import Engine
from server.protocols.responses.background import Background
from server.protocols.responses.store import ResponseStore
from server.settings import Settings


class Responses:
    """Stored responses, and those that are being made in the background."""

    def __init__(self, engine: Engine, settings: Settings):
        self.store = ResponseStore(
            settings.response_store_max_records, settings.response_store_bytes
        )
        self.background = Background(engine, self.store)
