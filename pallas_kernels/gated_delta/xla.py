"""The gated delta rule for any device: chunked over blocks of 64 tokens, and one step.

Within a block, with gc the running sum of log_decay, G[i, j] = exp(gc_i - gc_j) for j <= i:

    A  = (I + strict_lower(beta_i k_i.k_j))^-1              no gate in the inverse: with
    Vd = (G * A * beta_j) (V - exp(gc) (K S))               D = diag(exp gc),
    O  = exp(gc) (Q S) + (G * (Q K^T)) Vd                   (I + D X D^-1)^-1 = D (I+X)^-1 D^-1
    S' = exp(gc_last) S + K^T (exp(gc_last - gc) Vd)

(Yang et al., arXiv 2412.06464, section 3.3; the gate-free inverse is that of FlashQLA.)

Bits: one loop walks the blocks of all sequences. Its body is one block of one sequence, a fixed
shape, and its bound is known only at run time, so that the compiler can neither unroll it nor fold
a single trip. Rows past the length enter as zeros (beta 0, decay 1) and add exact zeros.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pallas_kernels.dense_matmul.xla import rows_times_matrix

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
    blocks = (jnp.clip(lengths, 0, v.shape[1]) + BLOCK - 1) // BLOCK
    ends = jnp.cumsum(blocks)

    def body(trip: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        out, states = carry
        sequence = jnp.sum((trip >= ends).astype(jnp.int32))
        first = (trip - ends[sequence] + blocks[sequence]) * BLOCK

        def rows(x: jax.Array) -> jax.Array:
            at = [sequence, first] + [jnp.int32(0)] * (x.ndim - 2)
            return lax.dynamic_slice(x, at, (1, BLOCK, *x.shape[2:]))[0]

        real = jnp.arange(BLOCK) < lengths[sequence] - first
        block_out, state = _block(
            rows(q), rows(k), rows(v), rows(log_decay), rows(beta), states[sequence], real
        )
        out = lax.dynamic_update_slice(
            out, block_out.astype(out.dtype)[None], (sequence, first, jnp.int32(0), jnp.int32(0))
        )
        return out, lax.dynamic_update_index_in_dim(states, state, sequence, axis=0)

    return lax.fori_loop(jnp.int32(0), ends[-1], body, (jnp.zeros_like(v), state))


def _block(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    real: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """One block of one sequence.

    Args:
      q, k: [64, Hk, Dk]; v: [64, Hv, Dv]; log_decay, beta: [64, Hv].
      state: float32 [Hv, Dk, Dv].
      real: bool [64], False for padding.

    Returns: float32 outputs [64, Hv, Dv], the new state.
    """
    q, k, v = (jnp.where(real[:, None, None], x.astype(jnp.float32), 0.0) for x in (q, k, v))
    log_decay = jnp.where(real[:, None], jnp.maximum(log_decay, _LEAST_LOG_DECAY), 0.0).T
    beta = jnp.where(real[:, None], beta, 0.0).T
    group = v.shape[1] // q.shape[1]
    q, k, v = (jnp.moveaxis(x, 0, 1) for x in (q, k, v))
    q, k = unit(q) * np.float32(q.shape[-1] ** -0.5), unit(k)

    def for_value_heads(x: jax.Array) -> jax.Array:
        return jnp.repeat(x, group, axis=0)

    overlap = for_value_heads(_dot("hid,hjd->hij", k, k))
    scores = for_value_heads(_dot("hid,hjd->hij", q, k))
    q, k = for_value_heads(q), for_value_heads(k)

    # Masked before the exponential: above the diagonal it could overflow.
    lower = np.tril(np.ones((BLOCK, BLOCK), bool))
    decay = jnp.where(lower, jnp.exp(jnp.where(lower, _decay_sums(log_decay), 0.0)), 0.0)
    from_start = jnp.exp(jnp.cumsum(log_decay, axis=-1))[..., None]
    to_end = decay[:, -1, :, None]

    inverse = _unit_lower_inverse(overlap * beta[..., None])
    error = v - from_start * _dot("hik,hkv->hiv", k, state)
    written = _dot("hij,hjv->hiv", decay * inverse * beta[:, None, :], error)
    out = from_start * _dot("hik,hkv->hiv", q, state)
    out = out + _dot("hij,hjv->hiv", decay * scores, written)
    state = from_start[:, -1:] * state + _dot("hik,hiv->hkv", k, to_end * written)
    return jnp.moveaxis(out, 0, 1), state


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

    def one(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        out, memory = _step(q, k, v, log_decay, beta, state)
        return out.astype(v.dtype), jnp.where(active[:, None, None, None], memory, state)

    def looped(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = tuple(x[:, None] for x in (q, k, v, log_decay, beta))
        outs, state, _ = _steps(rows, state, active.astype(jnp.int32), keep=False)
        return outs[:, 0], state

    return lax.platform_dependent(state, cpu=looped, default=one)


def gated_delta_window(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    lengths: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Shapes as in the package."""
    tokens = (q, k, v, log_decay, beta)

    def unrolled(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        outs, states = [], []
        for t in range(tokens[2].shape[1]):
            q, k, v, log_decay, beta = (x[:, t] for x in tokens)
            out, memory = _step(q, k, v, log_decay, beta, state)
            state = jnp.where((t < lengths)[:, None, None, None], memory, state)
            outs.append(out.astype(v.dtype))
            states.append(state)
        return jnp.stack(outs, axis=1), jnp.stack(states)

    def looped(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        outs, _, states = _steps(tokens, state, lengths, keep=True)
        return outs, states

    return lax.platform_dependent(state, cpu=looped, default=unrolled)


def _steps(
    tokens: tuple[jax.Array, ...], state: jax.Array, lengths: jax.Array, *, keep: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The first lengths[b] of T tokens [B, T, ...] for the CPU, one a trip, all lanes at once.

    Bits: sums are matrix products whose rows do not know their number. Elementwise code rounds by
    how it was fused; nothing of the body is fused with what stands around the loop, as all of it
    depends on the trip. There are two rows at least: for one, XLA would drop the indexing.

    Returns: outputs [B, T, Hv, Dv], the last state, and with `keep` the state after each token.
    """
    length = tokens[2].shape[1]
    if length == 1:
        tokens = tuple(jnp.pad(x, ((0, 0), (0, 1)) + ((0, 0),) * (x.ndim - 2)) for x in tokens)

    def body(t: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        outs, state, states = carry
        q, k, v, log_decay, beta = (
            lax.dynamic_index_in_dim(x, t, axis=1, keepdims=False) for x in tokens
        )
        out, memory = _step(q, k, v, log_decay, beta, state)
        state = jnp.where((t < lengths)[:, None, None, None], memory, state)
        outs = lax.dynamic_update_index_in_dim(outs, out.astype(outs.dtype), t, axis=1)
        if keep:
            states = lax.dynamic_update_index_in_dim(states, state, t, axis=0)
        return outs, state, states

    kept = jnp.zeros((length if keep else 0, *state.shape), state.dtype)
    longest = jnp.minimum(jnp.max(lengths), length)
    start = jnp.zeros_like(tokens[2]), state, kept
    outs, state, kept = lax.fori_loop(jnp.int32(0), longest, body, start)
    return outs[:, :length], state, kept


def _step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """One token of each lane: float32 outputs [B, Hv, Dv], the new state. Arguments as above."""
    group = v.shape[1] // q.shape[1]
    q, k = (jnp.repeat(unit(x.astype(jnp.float32)), group, axis=1) for x in (q, k))
    q = q * np.float32(q.shape[-1] ** -0.5)
    decayed = jnp.exp(log_decay)[..., None, None] * state
    error = v.astype(jnp.float32) - _dot("bhk,bhkv->bhv", k, decayed)
    memory = decayed + k[..., None] * (beta[..., None] * error)[..., None, :]
    return _dot("bhk,bhkv->bhv", q, memory), memory


def unit(x: jax.Array) -> jax.Array:
    """x over its length along the last axis."""
    return x * lax.rsqrt(_row_sums(x * x) + np.float32(1e-6))


def _row_sums(x: jax.Array) -> jax.Array:
    """float32 [..., K] -> [..., 1].

    XLA:CPU picks the order of a fused sum by the size of the whole array, so that the bits of a row
    would depend on how many rows there are. A matrix product is never fused.
    """

    def by_dot(x: jax.Array) -> jax.Array:
        ones = jnp.ones((1, x.shape[-1]), x.dtype)
        sums = rows_times_matrix(x.reshape(-1, x.shape[-1]), ones)
        return sums.reshape(*x.shape[:-1], 1)

    def by_sum(x: jax.Array) -> jax.Array:
        return jnp.sum(x, axis=-1, keepdims=True)

    return lax.platform_dependent(x, cpu=by_dot, default=by_sum)


def _dot(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, precision=lax.Precision.HIGHEST)
