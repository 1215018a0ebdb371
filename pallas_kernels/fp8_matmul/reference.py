"""What `fp8_matmul` means, in NumPy float64."""

from __future__ import annotations

import numpy as np


def fp8_matmul(x: np.ndarray, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """x [..., K], values [N, K] float8_e4m3fn, scale [N] -> float64 [..., N]."""
    matrix = np.asarray(values).astype(np.float64) * np.asarray(scale, np.float64)[:, None]
    return np.einsum("...k,nk->...n", np.asarray(x, np.float64), matrix)
