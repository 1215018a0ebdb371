"""What `dense_matmul` means, in NumPy float64."""

from __future__ import annotations

import numpy as np


def dense_matmul(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """x [..., K], w [N, K] -> float64 [..., N]."""
    return np.einsum("...k,nk->...n", np.asarray(x, np.float64), np.asarray(w, np.float64))
