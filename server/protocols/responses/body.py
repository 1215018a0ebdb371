"""The response object."""

from __future__ import annotations

import secrets
import time
from typing import Any

from njax.engine import field_names
from njax.errors import RequestError
from server.answer import Ended
from server.protocols.errors import error_body

_NEVER = (
    "access_programs", "conversation", "image", "input_transformations", "moderation", "prompt",
    "prompt_cache_diagnostics", "prompt_cache_options", "tool_usage",
)  # fmt: skip
"""Fields of the public object about what is not done here: null."""


def new_body(model: str, asked: dict[str, Any]) -> dict[str, Any]:
    """A response that is about to be made, with every field of the public object.

    Args:
      asked: the fields that repeat the request.
    """
    return {
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "usage": None,
        **asked,
        **dict.fromkeys(_NEVER),
    }


def finished(body: dict[str, Any], output: list[dict[str, Any]], ended: Ended) -> dict[str, Any]:
    """The same response, ended as it should."""
    cut = ended.finish == "length"
    return body | {
        "status": "incomplete" if cut else "completed",
        "completed_at": None if cut else int(time.time()),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": usage_body(ended),
    }


def failed(
    body: dict[str, Any], output: list[dict[str, Any]], error: RequestError
) -> dict[str, Any]:
    """The same response, ended by a failure."""
    status, detail = error_body(error)
    kinds = {429: "rate_limit_exceeded", 503: "server_error", 500: "server_error"}
    code = kinds.get(status, "invalid_prompt")
    problem = {"code": code, "message": detail.error.message}
    return body | {"status": "failed", "output": output, "error": problem}


def usage_body(ended: Ended) -> dict[str, Any]:
    """Token counts. `cached_tokens` and `cache_write_tokens` are parts of `input_tokens`."""
    usage = ended.usage
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    written = min(usage.captured_tokens, usage.prompt_tokens - cached)
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {field_names.CACHED_TOKENS: cached, "cache_write_tokens": written},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {field_names.REASONING_TOKENS: ended.reasoning_tokens},
        field_names.TOTAL_TOKENS: usage.prompt_tokens + usage.completion_tokens,
        field_names.PREFIX_CACHE_HIT_TOKENS: cached,
        field_names.PREFIX_REUSE_PATH: usage.reuse_path,
    }
