"""What the gated delta rule means, in NumPy float64: the recurrence, token by token."""

from __future__ import annotations

import numpy as np


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def gated_delta_rule(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    log_decay: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray,
    lengths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """As the public op, any T; rows from lengths[b] on are zero."""
    q, k, v, log_decay, beta = (np.asarray(a, np.float64) for a in (q, k, v, log_decay, beta))
    state = np.array(state, np.float64)
    out = np.zeros(v.shape)
    group = v.shape[2] // q.shape[2]
    q, k = _unit(q) * q.shape[-1] ** -0.5, _unit(k)
    for b, length in enumerate(np.asarray(lengths)):
        for h in range(v.shape[2]):
            memory = state[b, h]
            for t in range(length):
                query, key = q[b, t, h // group], k[b, t, h // group]
                memory = memory * np.exp(log_decay[b, t, h])
                error = v[b, t, h] - key @ memory
                memory = memory + np.outer(key, beta[b, t, h] * error)
                out[b, t, h] = query @ memory
            state[b, h] = memory
    return out, state


def gated_delta_step(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    log_decay: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray,
    active: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """As the public op; outputs of inactive lanes are zero."""
    q, k, v, log_decay, beta = (np.asarray(a)[:, None] for a in (q, k, v, log_decay, beta))
    lengths = np.asarray(active).astype(int)
    out, state = gated_delta_rule(q, k, v, log_decay, beta, state, lengths)
    return out[:, 0], state
