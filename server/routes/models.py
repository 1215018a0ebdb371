"""GET /v1/models: the one model that is served. Stays up when the engine has failed."""

from __future__ import annotations

import msgspec
from litestar import get

from njax.engine.engine import Engine
from server.dependencies import TheEngine, TheSettings
from server.protocols.checks import check_model
from server.settings import Settings


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A model; `max_model_len` is tokens of prompt and answer together."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "njax"
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelCard]
    object: str = "list"


def _card(engine: Engine, settings: Settings) -> ModelCard:
    return ModelCard(
        id=settings.model_id, created=settings.created, max_model_len=engine.config.max_context
    )


@get("/v1/models")
async def list_models(engine: TheEngine, settings: TheSettings) -> ModelList:
    return ModelList([_card(engine, settings)])


@get("/v1/models/{model_id:path}")
async def get_model(model_id: str, engine: TheEngine, settings: TheSettings) -> ModelCard:
    # A path parameter, as ids such as "Qwen/Qwen3.6-27B" hold slashes.
    name = str(model_id).removeprefix("/")
    check_model(name, settings)
    return _card(engine, settings)
