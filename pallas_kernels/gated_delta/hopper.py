"""The gated delta rule on Hopper: which kernel takes a call."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels import mosaic
from pallas_kernels.gated_delta import hopper_step
from pallas_kernels.gated_delta.xla import unit


def gated_delta_step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    active: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Shapes as in the package, Dv 128; the state is updated in place where XLA may.

    Raises:
      NotImplementedError: wrong device or head sizes.
    """
    device = mosaic.require_hopper()
    config = hopper_step.Config()
    dk, dv = state.shape[-2:]
    if dv != hopper_step.COLUMNS:
        raise NotImplementedError(f"Dv must be {hopper_step.COLUMNS}, not {dv}")
    try:
        config.check(dk)
    except ValueError as error:
        raise NotImplementedError(str(error)) from None
    return step(q, k, v, log_decay, beta, state, active, config=config, sms=device.core_count)


def gated_delta_window(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    lengths: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Shapes as in the package, Dv 128: a launch for each token.

    Raises:
      NotImplementedError: as `gated_delta_step`.
    """
    outs, states = [], []
    for t in range(v.shape[1]):
        out, state = gated_delta_step(
            q[:, t], k[:, t], v[:, t], log_decay[:, t], beta[:, t], state, t < lengths
        )
        outs.append(out)
        states.append(state)
    return jnp.stack(outs, axis=1), jnp.stack(states)


@functools.partial(jax.jit, static_argnames=("config", "sms", "interpret"))
def step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    active: jax.Array,
    *,
    config: hopper_step.Config,
    sms: int,
    interpret: Any = None,
) -> tuple[jax.Array, jax.Array]:
    """Norms, gates and the kernel; one kernel for all layers of a program."""
    q, k = (unit(x.astype(jnp.float32)) for x in (q, k))
    on = jnp.broadcast_to(active[:, None].astype(jnp.float32), beta.shape)
    gates = jnp.stack([jnp.exp(log_decay), beta, on], axis=-1)
    gates = jnp.pad(gates, ((0, 0), (0, 0), (0, hopper_step.GATES - 3)))
    out, state = hopper_step.update(
        q * np.float32(q.shape[-1] ** -0.5),
        k,
        v.astype(jnp.float32),
        gates,
        state,
        config=config,
        sms=sms,
        interpret=interpret,
    )
    return out.astype(v.dtype), state
