"""Checkpoints as single files: what the package ships, instead of hundreds of small files.

An archive is a ZIP of an njax checkpoint directory, with fixed times and order: the same checkpoint
gives the same bytes.
"""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest that a ZIP can hold."""


def pack(directory: Path, archive: Path) -> None:
    """Writes the checkpoint in `directory` as `archive`, replacing what is there."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(directory).as_posix(), _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            out.writestr(entry, path.read_bytes(), compresslevel=9)


@contextlib.contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The checkpoint of an archive as a directory, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="njax-demo-") as folder:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        yield Path(folder)
