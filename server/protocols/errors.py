"""Error codes to HTTP statuses and the error bodies of the two families of protocols."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from njax.errors import RequestError

log = logging.getLogger("njax.server")

_STATUS: dict[str, tuple[int, str]] = {
    "invalid_api_key": (401, "authentication_error"),
    "model_not_found": (404, "invalid_request_error"),
    "response_not_found": (404, "invalid_request_error"),
    "request_too_large": (413, "invalid_request_error"),
    "server_overloaded": (429, "rate_limit_error"),
    "client_disconnected": (499, "invalid_request_error"),
    "numeric_failure": (500, "server_error"),
    "internal_error": (500, "server_error"),
    "service_unavailable": (503, "server_error"),
    "request_queue_timeout": (503, "server_error"),
}
"""Status and type by code; every other code is a fault of the request: 400."""

_RETRY_AFTER_S = {429: "1", 503: "1"}


class ErrorDetail(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every failure, and the event that ends a stream that failed."""

    error: ErrorDetail


def error_body(error: RequestError) -> tuple[int, ErrorBody]:
    """Status and body for a request that failed."""
    status, kind = _STATUS.get(error.code, (400, "invalid_request_error"))
    return status, ErrorBody(ErrorDetail(error.message, kind, error.param, error.code))


_ANTHROPIC: dict[int, tuple[int, str]] = {
    401: (401, "authentication_error"),
    403: (403, "permission_error"),
    404: (404, "not_found_error"),
    405: (405, "invalid_request_error"),
    413: (413, "request_too_large"),
    429: (529, "overloaded_error"),
    499: (499, "invalid_request_error"),
}
"""Status and type in that protocol by our status; any other below 500 is a fault of the request."""


class AnthropicError(msgspec.Struct, frozen=True):
    type: str
    message: str


class AnthropicErrorBody(msgspec.Struct, frozen=True):
    """The body of every failure under /v1/messages, and the event that ends such a stream."""

    error: AnthropicError
    type: str = "error"


def anthropic_error_body(error: RequestError) -> tuple[int, AnthropicErrorBody]:
    """Status and body for a request of that protocol that failed."""
    status, body = error_body(error)
    return _in_anthropic(status, body)


def _in_anthropic(status: int, body: ErrorBody) -> tuple[int, AnthropicErrorBody]:
    if body.error.code == "request_queue_timeout":
        found = (504, "timeout_error")
    elif status >= 500:
        found = (status, "api_error")
    else:
        found = _ANTHROPIC.get(status, (status, "invalid_request_error"))
    return found[0], AnthropicErrorBody(AnthropicError(found[1], body.error.message))


def handle_request_error(request: Request, error: RequestError) -> Response[Any]:
    """Answers a failure that was foreseen."""
    return _respond(request, *error_body(error))


def handle_http_error(request: Request, error: HTTPException) -> Response[Any]:
    """Answers what the framework refuses: unknown routes, methods."""
    status = error.status_code
    if status >= 500:
        return handle_unexpected(request, error)
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Bad Request"
    code = phrase.lower().replace(" ", "_")
    messages = {
        404: f"there is no {request.url.path}",
        405: f"{request.method} is not allowed on {request.url.path}",
    }
    message = messages.get(status, error.detail or phrase)
    detail = ErrorDetail(message[:500], "invalid_request_error", None, code)
    return _respond(request, status, ErrorBody(detail), dict(error.headers or {}))


def handle_unexpected(request: Request, error: Exception) -> Response[Any]:
    """Answers a fault of the server. The log has the details, the client gets none."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _respond(request, *error_body(RequestError("internal error", code="internal_error")))


def _respond(
    request: Request, status: int, body: ErrorBody, headers: dict[str, Any] | None = None
) -> Response[Any]:
    headers = headers or {}
    if status in _RETRY_AFTER_S:
        headers["Retry-After"] = _RETRY_AFTER_S[status]
    content: ErrorBody | AnthropicErrorBody = body
    if request.url.path.startswith("/v1/messages"):
        status, content = _in_anthropic(status, body)
    return Response(content, status_code=status, media_type="application/json", headers=headers)
