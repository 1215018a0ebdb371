"""What the public NVFP4 dialects differ in: names, and the sense of the matrix scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Dialect:
    """One way to store an NVFP4 matrix; codes and block scales are alike in all.

    Attributes:
      title: for messages.
      packed: leaf of the codes, uint8 [N, K/2], low nibble = smaller K.
      global_scale: leaf of the matrix scale, float32, one element.
      input_scale: leaf of the calibrated activation scale, which weight-only arithmetic ignores.
      multiplier: stored matrix scale (float32) -> multiplier (float32).
    """

    title: str
    packed: str
    global_scale: str
    input_scale: str
    multiplier: Callable[[np.float32], np.float32]
