"""What all protocols ask of sampling, in whatever fields they spell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from njax.engine.types import SamplingParams
from njax.errors import InvalidRequest
from server.settings import Settings

_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "seed",
    "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip
_MOST_TOKENS = 1 << 40
"""Larger limits are as good as none, and need not fit into anything."""


def sampling_params(request: msgspec.Struct, settings: Settings, **more: Any) -> SamplingParams:
    """The server's defaults, and over them what a request sets.

    Args:
      request: any of `_NAMES` that it has count; null is the same as absent.
      more: fields that a protocol spells in its own way.

    Raises:
      InvalidRequest: a value is out of range.
    """
    given: dict[str, Any] = {name: getattr(request, name, None) for name in _NAMES}
    if given["top_k"] == -1:  # how some clients say "all"
        given["top_k"] = 0
    given = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(settings.default_sampling, **given, **more)


def token_limit(request: msgspec.Struct, settings: Settings, *names: str) -> int:
    """The most tokens of an answer: the first of these fields that is set.

    Raises:
      InvalidRequest: it is below 1.
    """
    for name in names:
        value = getattr(request, name)
        if value is not None:
            if value < 1:
                raise InvalidRequest(f"{name} is {value}; it must be at least 1", param=name)
            return min(value, _MOST_TOKENS)
    return settings.default_max_tokens


def stop_strings(
    name: str, given: Sequence[str], most: int, characters: int = 1024
) -> tuple[str, ...]:
    """Stop strings but for empty ones.

    Raises:
      InvalidRequest: there are too many, or one is too long.
    """
    if len(given) > most or any(len(stop) > characters for stop in given):
        raise InvalidRequest(
            f"{name} may hold {most} strings of {characters} characters at most", param=name
        )
    return tuple(stop for stop in given if stop)
