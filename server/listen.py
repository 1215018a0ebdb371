"""The server's socket. Imports nothing heavy: a wrong address shows before a model is loaded."""

from __future__ import annotations

import socket

from njax.errors import StartupError

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet; port 0 takes a free one.

    Raises:
      StartupError: the address is taken, unknown or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartupError(f"cannot serve on {host}: {error.strerror or error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise cannot_listen(host, port, error) from None
    return bound


def cannot_listen(host: str, port: int, error: OSError) -> StartupError:
    reason = (error.strerror or str(error)).lower()
    return StartupError(f"cannot serve on {host}:{port}: {reason}")


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
