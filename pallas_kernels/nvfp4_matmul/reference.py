"""What `nvfp4_matmul` means, in NumPy float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np

E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def decode(codes: np.ndarray, scales: np.ndarray, global_scale: float) -> np.ndarray:
    """codes uint8 [N, K/2], scales uint8 [N, K/16] -> float64 [N, K]."""
    codes, scales = np.asarray(codes), np.asarray(scales)
    values = np.empty((codes.shape[0], 2 * codes.shape[1]))
    for half, nibble in enumerate((codes & 15, codes >> 4)):
        values[:, half::2] = E2M1[nibble & 7] * np.where(nibble & 8, -1.0, 1.0)
    block_scale = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return values * np.repeat(block_scale, 16, axis=1) * float(global_scale)


def nvfp4_matmul(
    x: np.ndarray, codes: np.ndarray, scales: np.ndarray, global_scale: float
) -> np.ndarray:
    """x [..., K] -> float64 [..., N]."""
    return np.einsum(
        "...k,nk->...n", np.asarray(x, np.float64), decode(codes, scales, global_scale)
    )
