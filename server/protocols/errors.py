"""Error codes to HTTP statuses and the OpenAI error body."""

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


def handle_request_error(request: Request, error: RequestError) -> Response[ErrorBody]:
    """Answers a failure that was foreseen."""
    return _respond(*error_body(error))


def handle_http_error(request: Request, error: HTTPException) -> Response[ErrorBody]:
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
    return _respond(status, ErrorBody(detail), dict(error.headers or {}))


def handle_unexpected(request: Request, error: Exception) -> Response[ErrorBody]:
    """Answers a fault of the server. The log has the details, the client gets none."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _respond(*error_body(RequestError("internal error", code="internal_error")))


def _respond(
    status: int, body: ErrorBody, headers: dict[str, Any] | None = None
) -> Response[ErrorBody]:
    headers = headers or {}
    if status in _RETRY_AFTER_S:
        headers["Retry-After"] = _RETRY_AFTER_S[status]
    return Response(body, status_code=status, media_type="application/json", headers=headers)
