"""Reading the small files of a checkpoint: whatever is in them, the error names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from njax.errors import CheckpointError


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
      CheckpointError: unreadable, or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not UTF-8 text: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
      CheckpointError: unreadable, not JSON, nested too deep, not an object, or with half a
        surrogate pair in a string (which could neither be printed nor written again).
    """
    text = read_text(path)
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise CheckpointError(f"{path}: not valid JSON: nested too deep") from None
    except UnicodeEncodeError:
        raise CheckpointError(f"{path}: a string holds half a surrogate pair") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, expected a JSON object")
    return value
