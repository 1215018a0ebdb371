"""Checks and corrections that every protocol makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from njax.engine.engine import Engine
from njax.errors import ContextLengthExceeded
from njax.text.messages import normalize_messages
from server.errors import ModelNotFound
from server.settings import Settings

_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)


def prepared_messages(
    messages: Sequence[Mapping[str, Any]], settings: Settings
) -> list[dict[str, Any]]:
    """Messages as every protocol renders and counts them: normalised, without the billing line.

    Raises:
      InvalidRequest: something no template could render.
    """
    found = normalize_messages(messages)
    if not settings.drop_billing_header or found[0]["role"] != "system":
        return found
    text = _BILLING.sub("", found[0]["content"])
    rest = found[1:]
    return [{**found[0], "content": text.lstrip("\n")}, *rest] if text.strip() else rest


def check_model(name: str | None, settings: Settings) -> None:
    """None, where a protocol lets a client leave the name out, is the model that is served.

    Raises:
      ModelNotFound: another model is asked for.
    """
    if name is not None and name != settings.model_id:
        raise ModelNotFound(
            f"the model {name[:200]!r} is not served here; {settings.model_id!r} is", param="model"
        )


def check_fits(name: str, items: Sized, engine: Engine) -> None:
    """Each item takes a token at least: what cannot fit is refused before time is spent on it.

    Raises:
      ContextLengthExceeded: there are more than the context holds tokens.
    """
    if len(items) > engine.config.max_context:
        raise ContextLengthExceeded(
            f"{name} has {len(items)} entries, the context holds {engine.config.max_context} "
            "tokens",
            param=name,
        )
