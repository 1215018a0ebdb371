"""A new directory that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from njax.errors import CheckpointError


def check_free(destination: Path) -> None:
    """Raises `CheckpointError` if something is at `destination` or its parent does not exist."""
    if os.path.lexists(destination):
        raise CheckpointError(f"{destination}: exists already; remove it or choose another name")
    parent = destination.absolute().parent
    if not parent.is_dir():
        raise CheckpointError(f"{destination}: the directory {parent} does not exist")


def check_space(destination: Path, needed: int) -> None:
    """Raises `CheckpointError` if the file system of `destination` has less than `needed` bytes."""
    free = shutil.disk_usage(destination.absolute().parent).free
    if free < needed:
        raise CheckpointError(
            f"{destination}: needs {needed / 1e9:.2f} GB of disk, only {free / 1e9:.2f} GB are free"
        )


@contextlib.contextmanager
def appearing(destination: Path) -> Iterator[Path]:
    """Gives a directory to fill; on leaving it is renamed to `destination`, which must be free.

    On any error it is removed. A process that is killed leaves it under the name
    `DESTINATION.partial-xxxxxxxx`, which nothing ever reads.
    """
    check_free(destination)
    partial = destination.with_name(f"{destination.name}.partial-{secrets.token_hex(4)}")
    try:
        partial.mkdir()
        yield partial
        check_free(destination)
        partial.rename(destination)
    except OSError as error:
        raise CheckpointError(f"{destination}: cannot write: {error}") from error
    finally:
        _remove(partial)


def _remove(directory: Path) -> None:
    """Removes a directory even if a writer that is being stopped adds a last file meanwhile."""
    for _ in range(50):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.lexists(directory):
            return
        time.sleep(0.1)
