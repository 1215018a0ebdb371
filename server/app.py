"""The Litestar application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException

from njax.engine.engine import Engine
from njax.errors import RequestError
from server.auth import require_key
from server.protocols.errors import handle_http_error, handle_request_error, handle_unexpected
from server.protocols.responses.shared import Responses
from server.routes.chat import chat_completions
from server.routes.health import health
from server.routes.messages import count_tokens, messages
from server.routes.models import get_model, list_models
from server.routes.responses import ROUTES as RESPONSES
from server.routes.tokens import detokenize, tokenize
from server.settings import Settings


def create_app(engine: Engine, settings: Settings) -> Litestar:
    """The application for an engine that has been started; whoever made the engine stops it."""
    threads = ThreadPoolExecutor(settings.render_threads, thread_name_prefix="njax-render")

    @contextlib.asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    guards = [require_key(settings.api_key)] if settings.api_key is not None else []
    handlers = [
        chat_completions, messages, count_tokens, list_models, get_model, tokenize, detokenize,
        *RESPONSES,
    ]  # fmt: skip
    protected = Router("/", route_handlers=handlers, guards=guards)
    values = {
        "engine": engine,
        "settings": settings,
        "threads": threads,
        "responses": Responses(engine, settings),
    }
    return Litestar(
        route_handlers=[health, protected],
        dependencies={name: _provide(value) for name, value in values.items()},
        exception_handlers={
            RequestError: handle_request_error,
            HTTPException: handle_http_error,
            Exception: handle_unexpected,
        },
        lifespan=[lifespan],
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,  # `server.body` has the limit
    )


def _provide(value: object) -> Provide:
    return Provide(lambda: value, sync_to_thread=False)
