"""What handlers are given, by parameter name. Litestar need not validate it on every request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from litestar.params import Dependency

from njax.engine.engine import Engine
from server.protocols.responses.shared import Responses
from server.settings import Settings

TheEngine = Annotated[Engine, Dependency(skip_validation=True)]
TheSettings = Annotated[Settings, Dependency(skip_validation=True)]
TheResponses = Annotated[Responses, Dependency(skip_validation=True)]
TheThreads = Annotated[ThreadPoolExecutor, Dependency(skip_validation=True)]
