"""Errors that end one request and leave everything else untouched.

Anything that is not a `RequestError` and escapes the executor is fatal for the process
(two kinds of failure, never a third). Codes are protocol independent; the server maps them
to each protocol's own status and error shape.
"""

from __future__ import annotations


class NjaxError(Exception):
    """Base of every error that njax raises on purpose; its text is meant for a user."""


class CheckpointError(NjaxError):
    """A model on disk cannot be read or written; the text names the tensor or the path."""


class StartupError(NjaxError):
    """The engine cannot start with these settings; the text says what would be right."""


class RequestError(NjaxError):
    """One request cannot be served.

    Attributes:
      code: stable machine-readable name, e.g. "context_length_exceeded".
      param: the offending request field as the caller spelled it, or None.
    """

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


class InvalidRequest(RequestError):
    """A field has a wrong type or a value out of range."""


class ContextLengthExceeded(RequestError):
    """The prompt leaves no room for even one generated token."""

    code = "context_length_exceeded"


class Overloaded(RequestError):
    """The queue of waiting requests is full."""

    code = "server_overloaded"


class QueueTimeout(RequestError):
    """The request waited longer than the configured time for a lane."""

    code = "request_queue_timeout"


class Unavailable(RequestError):
    """The engine has failed or is stopping."""

    code = "service_unavailable"


class UnsupportedCapability(RequestError):
    """The request asks for something that this model or build cannot do."""

    code = "unsupported_capability"
