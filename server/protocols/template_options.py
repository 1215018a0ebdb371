"""Switches of the chat template, in the spellings that clients use.

Three spellings turn thinking off: `enable_thinking: false`, the same inside
`chat_template_kwargs`, and `reasoning_effort: "none"`. Two that differ are refused, and so is every
other keyword: one that is misspelt would leave thinking on without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from njax.errors import InvalidRequest

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def template_options(
    *,
    enable_thinking: bool | None,
    preserve_thinking: bool | None,
    reasoning_effort: str | None,
    kwargs: Mapping[str, Any] | None,
    known: frozenset[str],
    effort_field: str = "reasoning_effort",
) -> dict[str, Any]:
    """Keywords for `Engine.render`; only those that the request sets.

    Args:
      kwargs: `chat_template_kwargs`; null values count as absent.
      known: the options that the model's template reads.
      effort_field: what the protocol calls `reasoning_effort`, for errors.

    Raises:
      InvalidRequest: a conflict, an unknown keyword or effort, or an option that the template of
        this model does not have.
    """
    thinking: dict[str, bool] = {}
    if enable_thinking is not None:
        thinking["enable_thinking"] = enable_thinking
    for name, value in (kwargs or {}).items():
        if value is None:
            continue
        where = f"chat_template_kwargs.{name}"
        if name != "enable_thinking":
            raise InvalidRequest(
                f"{where} is not supported; enable_thinking is",
                param="chat_template_kwargs",
                code="chat_template_option_not_supported",
            )
        if not isinstance(value, bool):
            raise InvalidRequest(f"{where} must be true or false", param="chat_template_kwargs")
        thinking[where] = value
    options: dict[str, Any] = {}
    if reasoning_effort is not None:
        if reasoning_effort not in EFFORTS:
            raise InvalidRequest(
                f"{effort_field} is {reasoning_effort[:100]!r}, expected one of "
                f"{', '.join(EFFORTS)}",
                param=effort_field,
            )
        if reasoning_effort == "none":
            thinking[effort_field] = False
        elif "reasoning_effort" not in known:
            raise InvalidRequest(
                f"the template of this model has no reasoning effort {reasoning_effort!r}; "
                'leave it out, or send "none" to turn thinking off',
                param=effort_field,
                code="reasoning_effort_not_supported",
            )
        else:
            options["reasoning_effort"] = reasoning_effort
    if len(set(thinking.values())) > 1:
        raise InvalidRequest(
            " and ".join(thinking) + " contradict each other",
            param=next(iter(thinking)),
            code="conflicting_template_option",
        )
    if thinking:
        options["enable_thinking"] = next(iter(thinking.values()))
    if preserve_thinking is not None:
        options["preserve_thinking"] = preserve_thinking
    for name in ("enable_thinking", "preserve_thinking"):
        if name in options and name not in known:
            raise InvalidRequest(
                f"the template of this model has no {name}",
                param=name if name != "enable_thinking" else next(iter(thinking)),
                code="chat_template_option_not_supported",
            )
    return options
