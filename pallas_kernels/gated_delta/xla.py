"""The gated delta rule for any device: chunked over blocks of 64 tokens, and one step.

Within a block, with gc the running sum of log_decay, G[i, j] = exp(gc_i - gc_j) for j <= i:

    A  = (I + strict_lower(beta_i k_i.k_j))^-1              no gate in the inverse: with
    Vd = (G * A * beta_j) (V - exp(gc) (K S))               D = diag(exp gc),
    O  = exp(gc) (Q S) + (G * (Q K^T)) Vd                   (I + D X D^-1)^-1 = D (I+X)^-1 D^-1
    S' = exp(gc_last) S + K^T (exp(gc_last - gc) Vd)

(Yang et al., arXiv 2412.06464, section 3.3; the gate-free inverse is that of FlashQLA.)

Bits: the loop over blocks has a body of one fixed shape and a bound known only at run time, so
that the compiler can neither unroll it nor fold a single trip; rows past the length enter as
zeros (beta 0, decay 1) and add exact zeros.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BLOCK = 64
_LEAST_LOG_DECAY = -200.0  # exp of it is 0 in float32, and sums of 64 stay finite


def gated_delta_rule(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    lengths: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Shapes as in the package; T is a multiple of 64."""
    blocks = jnp.minimum((jnp.max(lengths) + BLOCK - 1) // BLOCK, v.shape[1] // BLOCK)

    def body(index: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        out, state = carry
        first = index * BLOCK
        arrays = [
            lax.dynamic_slice_in_dim(a, first, BLOCK, axis=1) for a in (q, k, v, log_decay, beta)
        ]
        rows = lengths - first
        block_out, new_state = _block(*arrays, state, rows)
        state = jnp.where((rows > 0)[:, None, None, None], new_state, state)
        out = lax.dynamic_update_slice_in_dim(out, block_out.astype(v.dtype), first, axis=1)
        return out, state

    return lax.fori_loop(jnp.int32(0), blocks, body, (jnp.zeros_like(v), state))


def _block(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    rows: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """One block of 64 tokens, `rows` [B] of them real -> float32 outputs [B, 64, Hv, Dv], state."""
    real = (jnp.arange(BLOCK) < rows[:, None])[:, :, None]
    q, k, v = (jnp.where(real[..., None], x.astype(jnp.float32), 0.0) for x in (q, k, v))
    log_decay = jnp.where(real, jnp.maximum(log_decay, _LEAST_LOG_DECAY), 0.0)
    beta = jnp.where(real, beta, 0.0)

    group = v.shape[2] // q.shape[2]
    # Head-major from here on: [B, Hk, 1, 64, Dk] and [B, Hk, group, 64, ...].
    q, k = (jnp.moveaxis(_unit(x), 1, 2)[:, :, None] for x in (q, k))
    q = q * np.float32(q.shape[-1] ** -0.5)

    def by_key_head(x: jax.Array) -> jax.Array:
        x = jnp.moveaxis(x, 1, 2)
        return x.reshape(x.shape[0], -1, group, *x.shape[2:])

    v, log_decay, beta = (by_key_head(x) for x in (v, log_decay, beta))
    memory = state.reshape(*v.shape[:3], *state.shape[2:])
    q, k = (jnp.broadcast_to(x, (*v.shape[:3], *x.shape[3:])) for x in (q, k))

    since = _decay_sums(log_decay)
    lower = np.tril(np.ones((BLOCK, BLOCK), bool))
    # Masked before the exponential: above the diagonal it could overflow.
    decay = jnp.where(lower, jnp.exp(jnp.where(lower, since, 0.0)), 0.0)
    total = jnp.cumsum(log_decay, axis=-1)
    from_start = jnp.exp(total)[..., None]
    to_end = decay[..., -1, :, None]

    overlap = _dot("bhgid,bhgjd->bhgij", k, k)
    inverse = _unit_lower_inverse(overlap * beta[..., None])
    error = v - from_start * _dot("bhgik,bhgkv->bhgiv", k, memory)
    written = _dot("bhgij,bhgjv->bhgiv", decay * inverse * beta[..., None, :], error)
    scores = decay * _dot("bhgid,bhgjd->bhgij", q, k)
    out = from_start * _dot("bhgik,bhgkv->bhgiv", q, memory)
    out = out + _dot("bhgij,bhgjv->bhgiv", scores, written)
    memory = from_start[..., -1:, :] * memory
    memory = memory + _dot("bhgik,bhgiv->bhgkv", k, to_end * written)
    out = out.reshape(out.shape[0], -1, *out.shape[3:])
    return jnp.moveaxis(out, 1, 2), memory.reshape(state.shape)


def _decay_sums(log_decay: jax.Array) -> jax.Array:
    """[..., 64] -> [..., i, j] the sum of log_decay over j < t <= i.

    Summed directly: the difference of two running sums would cancel after a strong decay.
    """
    steps = np.arange(BLOCK)
    after = (steps[:, None] > steps[None, :]).astype(np.float32)
    upto = (steps[:, None] >= steps[None, :]).astype(np.float32)
    return _dot("it,...tj->...ij", jnp.asarray(upto), log_decay[..., None] * after)


def _unit_lower_inverse(strict: jax.Array) -> jax.Array:
    """(I + strict_lower(strict))^-1 for [..., 64, 64], by merging inverses of diagonal blocks.

    Level by level [[A, 0], [L, B]]^-1 = [[A', 0], [-B' L A', B']]. As stable as substitution;
    the product of (I + N^(2^j)) is not: its powers reach 1e17 when the keys of a block agree.
    """
    rows, columns = np.indices((BLOCK, BLOCK))
    inverse = jnp.asarray(np.eye(BLOCK, dtype=np.float32))
    size = 1
    while size < BLOCK:
        corner = (rows // size == columns // size + 1) & (
            rows // (2 * size) == columns // (2 * size)
        )
        off = jnp.where(corner, strict, 0.0)
        if size == 1:
            inverse = inverse - off
        else:
            inverse = inverse - _dot(
                "...ij,...jk->...ik", _dot("...ij,...jk->...ik", inverse, off), inverse
            )
        size *= 2
    return inverse


def gated_delta_step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    active: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Shapes as in the package."""
    group = v.shape[1] // q.shape[1]
    q, k = (jnp.repeat(_unit(x.astype(jnp.float32)), group, axis=1)[..., None] for x in (q, k))
    q = q * np.float32(q.shape[-2] ** -0.5)
    decayed = jnp.exp(log_decay)[..., None, None] * state
    error = v.astype(jnp.float32) - jnp.sum(k * decayed, axis=-2)
    memory = decayed + k * (beta[..., None] * error)[..., None, :]
    out = jnp.sum(q * memory, axis=-2).astype(v.dtype)
    return out, jnp.where(active[:, None, None, None], memory, state)


def _unit(x: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + np.float32(1e-6))


def _dot(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, precision=lax.Precision.HIGHEST)
