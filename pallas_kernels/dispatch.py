"""Choice of an implementation: an ordered mapping of names, the first that accepts the call runs.

An implementation declines a call (shape, dtype, device it was not written for) by raising
`NotImplementedError` while it is traced. Declines are collected, never swallowed: when nobody
accepts, one `NoImplementationError` lists every name with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class NoImplementationError(NotImplementedError):
    """Every implementation that was asked declined; the message lists the reasons."""


def dispatch(
    op: str,
    implementations: Mapping[str, Callable[..., Any]],
    implementation: str | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Calls the first of `implementations` (in their order) that does not decline.

    Args:
      op: name of the operation, for messages.
      implementations: name -> callable with the signature of the operation.
      implementation: a name restricts the choice to that one; None tries all.

    Raises:
      ValueError: `implementation` is not one of the names.
      NoImplementationError: all that were asked declined.
    """
    if implementation is None:
        chosen = implementations
    elif implementation in implementations:
        chosen = {implementation: implementations[implementation]}
    else:
        raise ValueError(
            f"{op}: there is no implementation {implementation!r}; "
            f"there are {', '.join(implementations)}"
        )
    declined = []
    for name, call in chosen.items():
        try:
            return call(*args, **kwargs)
        except NotImplementedError as error:
            declined.append(f"{name}: {error}")
    raise NoImplementationError(f"{op}: no implementation takes this call ({'; '.join(declined)})")
