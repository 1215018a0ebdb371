"""What the server is told once, at its start."""

from __future__ import annotations

import dataclasses
import time

from njax.engine.types import SamplingParams
from njax.errors import StartupError


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of one server; those of the engine are its own.

    Attributes:
      model_id: the name that requests must give, and that /v1/models lists.
      api_key: what clients must send (bearer or x-api-key); None lets everyone in.
      default_max_tokens: of a request that gives no limit; the room in the context caps both.
      default_sampling: what holds where a request says nothing, usually the model's own.
      max_request_bytes: larger bodies are refused with 413.
      keep_alive_s: a stream that has nothing to say sends a comment this often.
      drop_billing_header: leave out the line `x-anthropic-billing-header: ...` that an agent puts
        first in its system text, with a hash that changes on every request: it would change the
        head that requests share.
      response_store_max_records, response_store_bytes: what /v1/responses keeps at most.
      render_threads: threads that apply templates and tokenise.
      created: Unix time that /v1/models reports.
    """

    model_id: str
    api_key: str | None = dataclasses.field(default=None, repr=False)
    default_max_tokens: int = 8192
    default_sampling: SamplingParams = dataclasses.field(default_factory=SamplingParams)
    max_request_bytes: int = 384 << 20
    keep_alive_s: float = 5.0
    drop_billing_header: bool = True
    response_store_max_records: int = 1024
    response_store_bytes: int = 256 << 20
    render_threads: int = 4
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        if not self.model_id:
            raise StartupError("the model id is empty")
        if self.api_key is not None and not self.api_key:
            raise StartupError("the API key is empty; leave the option out to let everyone in")
        for name in ("default_max_tokens", "max_request_bytes", "render_threads"):
            if getattr(self, name) < 1:
                raise StartupError(f"{name} is {getattr(self, name)}; it must be at least 1")
