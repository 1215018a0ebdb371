"""Request bodies to wire types, with errors in a client's terms."""

from __future__ import annotations

import re

import msgspec

from njax.errors import InvalidRequest
from server.errors import InvalidJson

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_AT = re.compile(r" - at `(?:key )?\$\.?([^`]*)`$")


def decode_body[T](body: bytes, kind: type[T]) -> T:
    """Decodes JSON and checks its types.

    Raises:
      InvalidJson: not JSON (NaN and Infinity are not), not UTF-8, or nested beyond reason.
      InvalidRequest: JSON of another form; `param` is the path of the offending field.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
        match = _AT.search(text)
        path = match.group(1) if match else ""
        if unknown := _UNKNOWN.match(text):
            path = f"{path}.{unknown.group(1)}" if path else unknown.group(1)
            raise InvalidRequest(
                f"there is no parameter {path!r}", param=path, code="unknown_parameter"
            ) from None
        problem = text[: match.start()] if match else text
        problem = problem[:1].lower() + problem[1:]
        raise InvalidRequest(
            f"{path}: {problem}" if path else f"request body: {problem}", param=path or None
        ) from None
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None
