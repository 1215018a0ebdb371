"""Loading the bundled model."""

from __future__ import annotations

import contextlib
import importlib.resources
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from njax.checkpoint import Checkpoint, load_checkpoint
from njax.demo.weights import unpacked

MODEL_NAME = "njax-demo"

Numbers = Literal["bfloat16", "nvfp4"]
"""What the linear weights are stored in; everything else is bfloat16."""

ARCHIVES: dict[Numbers, str] = {"bfloat16": "demo-bf16.zip", "nvfp4": "demo-nvfp4.zip"}


def load_demo(numbers: Numbers = "nvfp4", *, mtp: bool = False) -> Checkpoint:
    """The bundled model: as it is served, or as it was before its weights were quantised.

    Args:
      mtp: with its multi-token layer, for drafts.
    """
    with demo_directory(numbers) as directory:
        return load_checkpoint(directory, mtp=mtp)


@contextlib.contextmanager
def demo_directory(numbers: Numbers) -> Iterator[Path]:
    """Its checkpoint as a directory, which is gone afterwards."""
    resource = importlib.resources.files("njax.demo") / ARCHIVES[numbers]
    with importlib.resources.as_file(resource) as archive, unpacked(archive) as directory:
        yield directory
