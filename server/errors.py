"""Refusals that only a server can utter; like all `RequestError`s they carry a stable code."""

from __future__ import annotations

from njax.errors import RequestError


class InvalidJson(RequestError):
    """The body is not JSON."""

    code = "invalid_json"


class RequestTooLarge(RequestError):
    """The body is larger than the server takes."""

    code = "request_too_large"


class InvalidApiKey(RequestError):
    """The key is missing or wrong."""

    code = "invalid_api_key"


class ModelNotFound(RequestError):
    """No model of that name is served."""

    code = "model_not_found"


class ClientDisconnected(RequestError):
    """Nobody is there any more to read the answer."""

    code = "client_disconnected"
