"""What `causal_conv` means, in NumPy float64, token by token."""

from __future__ import annotations

import numpy as np


def causal_conv(
    x: np.ndarray, weight: np.ndarray, state: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As the public op; rows from lengths[b] on are zero."""
    x, weight, state = (np.asarray(a, np.float64) for a in (x, weight, state))
    y, new_state = np.zeros_like(x), state.copy()
    for b, length in enumerate(np.asarray(lengths)):
        window = state[b]
        for t in range(length):
            window = np.concatenate([window, x[b, t : t + 1]])
            total = np.einsum("wc,cw->c", window, weight)
            y[b, t] = total * np.exp(-np.logaddexp(0.0, -total))  # total * sigmoid(total)
            window = window[1:]
        new_state[b] = window
    return y, new_state
