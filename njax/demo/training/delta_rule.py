"""The gated delta rule over packed sequences, in chunks, differentiable.

The algebra is that of `pallas_kernels.gated_delta.xla` (Yang et al., arXiv 2412.06464, section
3.3). Two things differ. Conversations that share a row must not see each other: pairs of tokens
count only within one, and the state counts only for tokens of the conversation that it came from.
And the recurrence over chunks is S' = M S + N with M and N made for all chunks at once, so that the
only sequential step is one small product.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CHUNK = 64
_LEAST_LOG_DECAY = -20.0  # exp of it is nothing beside 1, and running sums stay exact enough
_EXACT = lax.Precision.HIGHEST


def packed_delta_rule(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    segments: jax.Array,
) -> jax.Array:
    """Outputs of the rule for every token, each conversation from an empty state.

    Args:
      q, k: [B, T, Hk, Dk], raw; T a multiple of 64.
      v: [B, T, Hv, Dv].
      log_decay, beta: float32 [B, T, Hv].
      segments: int32 [B, T], conversation of each token; equal ones are contiguous.

    Returns: [B, T, Hv, Dv] in the dtype of `v`.
    """
    dtype, group = v.dtype, v.shape[2] // q.shape[2]

    def chunks(x: jax.Array) -> jax.Array:  # [B, T, H, D] -> [B, H, N, C, D]
        b, t, h, d = x.shape
        return jnp.moveaxis(x.reshape(b, t // CHUNK, CHUNK, h, d), 3, 1)

    def product(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.einsum(
            spec,
            a.astype(dtype),
            b.astype(dtype),
            precision=_EXACT if dtype == jnp.float32 else None,
            preferred_element_type=jnp.float32,
        )

    q = chunks(_unit(q)) * np.float32(q.shape[-1] ** -0.5)
    k = chunks(_unit(k))
    v = chunks(v)
    log_decay = jnp.maximum(chunks(log_decay[..., None])[..., 0], _LEAST_LOG_DECAY)
    beta = chunks(beta[..., None])[..., 0]
    overlap = jnp.repeat(product("bhnid,bhnjd->bhnij", k, k), group, axis=1)
    scores = jnp.repeat(product("bhnid,bhnjd->bhnij", q, k), group, axis=1)
    q, k = jnp.repeat(q, group, axis=1), jnp.repeat(k, group, axis=1)

    own = segments.reshape(segments.shape[0], 1, -1, CHUNK)
    same = own[..., :, None] == own[..., None, :]
    last = own[..., -1:]
    before = jnp.pad(last[:, :, :-1], ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=-1)

    total = jnp.cumsum(log_decay, axis=-1)
    lower = np.tril(np.ones((CHUNK, CHUNK), bool))
    seen = same & lower
    # Masked before the exponential: above the diagonal it could overflow.
    span = jnp.where(seen, total[..., :, None] - total[..., None, :], 0.0)
    decay = jnp.where(seen, jnp.exp(span), 0.0)
    from_start = jnp.where(own == before, jnp.exp(total), 0.0)[..., None]
    to_end = jnp.where(own == last, jnp.exp(total[..., -1:] - total), 0.0)[..., None]
    kept = jnp.where(last == before, jnp.exp(total[..., -1:]), 0.0)[..., None]

    inverse = unit_lower_inverse(jnp.where(same, overlap * beta[..., None], 0.0))
    solve = decay * inverse * beta[..., None, :]
    values = product("bhnij,bhnjv->bhniv", solve, v)
    keys = product("bhnij,bhnjk->bhnik", solve, from_start * k)
    fading = to_end * k
    identity = jnp.eye(k.shape[-1], dtype=jnp.float32)
    carry = kept * identity - product("bhnik,bhnil->bhnkl", fading, keys)
    write = product("bhnik,bhniv->bhnkv", fading, values)

    def step(state: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        carry, write = now
        return jnp.einsum("bhkl,bhlv->bhkv", carry, state, precision=_EXACT) + write, state

    empty = jnp.zeros_like(write[:, :, 0])
    _, states = lax.scan(step, empty, (jnp.moveaxis(carry, 2, 0), jnp.moveaxis(write, 2, 0)))
    states = jnp.moveaxis(states, 0, 2)

    written = values - product("bhnik,bhnkv->bhniv", keys, states)
    out = from_start * product("bhnik,bhnkv->bhniv", q, states)
    out = out + product("bhnij,bhnjv->bhniv", decay * scores, written)
    b, h, n, c, d = out.shape
    return jnp.moveaxis(out, 1, 3).reshape(b, n * c, h, d).astype(dtype)


@jax.custom_vjp
def unit_lower_inverse(strict: jax.Array) -> jax.Array:
    """(I + strict_lower(strict))^-1 for float32 [..., 64, 64], by merging inverses of blocks."""
    rows, columns = np.indices((CHUNK, CHUNK))
    inverse = jnp.broadcast_to(jnp.eye(CHUNK, dtype=jnp.float32), strict.shape)
    size = 1
    while size < CHUNK:
        corner = (rows // size == columns // size + 1) & (
            rows // (2 * size) == columns // (2 * size)
        )
        off = jnp.where(corner, strict, 0.0)
        if size == 1:
            inverse = inverse - off
        else:
            half = jnp.einsum("...ij,...jk->...ik", inverse, off, precision=_EXACT)
            inverse = inverse - jnp.einsum("...ij,...jk->...ik", half, inverse, precision=_EXACT)
        size *= 2
    return inverse


def _inverse_forward(strict: jax.Array) -> tuple[jax.Array, jax.Array]:
    inverse = unit_lower_inverse(strict)
    return inverse, inverse


def _inverse_backward(inverse: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    """d(A^-1) = -A^-1 dA A^-1, kept to the entries that count."""
    half = jnp.einsum("...ji,...jk->...ik", inverse, gradient, precision=_EXACT)
    whole = jnp.einsum("...ij,...kj->...ik", half, inverse, precision=_EXACT)
    return (jnp.where(np.tril(np.ones((CHUNK, CHUNK), bool), -1), -whole, 0.0),)


unit_lower_inverse.defvjp(_inverse_forward, _inverse_backward)


def _unit(x: jax.Array) -> jax.Array:
    x = x.astype(jnp.float32)
    return x * lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + np.float32(1e-6))
