"""The gated delta rule: an associative memory that decays, forgets and writes, token by token.

Per value head, with S [Dk, Dv], alpha = exp(log_decay), k and q of unit length:

    S <- alpha S
    S <- S + k (beta (v - S^T k))^T
    o  = S^T q / sqrt(Dk)

(Yang et al., "Gated Delta Networks", arXiv 2412.06464, equation 10.) `gated_delta_rule` runs
whole prompts in blocks of 64 tokens, `gated_delta_step` one token of each lane, and
`gated_delta_window` a few of each, with the bits of as many steps. The rule sums in another order
than the steps: they agree to rounding, not to the bit.
"""

from __future__ import annotations

import jax

from pallas_kernels.dispatch import dispatch
from pallas_kernels.gated_delta import hopper, xla
from pallas_kernels.gated_delta.xla import BLOCK

RULE_IMPLEMENTATIONS = {"xla": xla.gated_delta_rule}
STEP_IMPLEMENTATIONS = {"hopper": hopper.gated_delta_step, "xla": xla.gated_delta_step}
WINDOW_IMPLEMENTATIONS = {"hopper": hopper.gated_delta_window, "xla": xla.gated_delta_window}


def gated_delta_rule(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    lengths: jax.Array,
    *,
    implementation: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Runs the rule over T tokens of each sequence.

    q and k come raw: the op normalises them, x * rsqrt(sum x^2 + 1e-6), and scales q by
    Dk ** -0.5. Value head h reads key head h // (Hv // Hk). Row 0 stands at an absolute multiple
    of 64 of its sequence; cutting a sequence at such multiples, in any number of calls, and
    padding it to any T give the same bits, in outputs and state.

    Args:
      q, k: [B, T, Hk, Dk] bfloat16 or float32; T a multiple of 64.
      v: [B, T, Hv, Dv] bfloat16 or float32; Hv a multiple of Hk.
      log_decay: float32 [B, T, Hv], <= 0.
      beta: float32 [B, T, Hv], 0 to 1.
      state: float32 [B, Hv, Dk, Dv].
      lengths: int32 [B], 0 to T: rows from lengths[b] on leave the state alone and give
        unspecified, finite outputs.
      implementation: a name from `RULE_IMPLEMENTATIONS`; default: the first that accepts.

    Returns: outputs [B, T, Hv, Dv] in the dtype of `v`, the new state.

    Raises:
      ValueError: shapes do not fit.
    """
    if q.ndim != 4 or v.ndim != 4:
        raise ValueError(f"gated_delta_rule: expected q, k, v of 4 axes, got {q.shape}, {v.shape}")
    b, t = v.shape[:2]
    _check("gated_delta_rule", q, k, v, log_decay, beta, state)
    if t % BLOCK:
        raise ValueError(f"gated_delta_rule: T is {t}, expected a multiple of {BLOCK}")
    if lengths.shape != (b,):
        raise ValueError(f"gated_delta_rule: lengths is {lengths.shape}, expected {(b,)}")
    return dispatch(
        "gated_delta_rule",
        RULE_IMPLEMENTATIONS,
        implementation,
        *(q, k, v, log_decay, beta, state, lengths),
    )


def gated_delta_step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    active: jax.Array,
    *,
    implementation: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Runs the rule over one token of each lane; a lane does not see its neighbours.

    Args:
      q, k: [B, Hk, Dk] bfloat16 or float32, raw as in `gated_delta_rule`.
      v: [B, Hv, Dv].
      log_decay, beta: float32 [B, Hv].
      state: float32 [B, Hv, Dk, Dv].
      active: bool [B]; a lane that is not keeps its state bit for bit, its output is unspecified.
      implementation: a name from `STEP_IMPLEMENTATIONS`; default: the first that accepts.

    Returns: outputs [B, Hv, Dv] in the dtype of `v`, the new state.

    Raises:
      ValueError: shapes do not fit.
    """
    if q.ndim != 3 or v.ndim != 3:
        raise ValueError(f"gated_delta_step: expected q, k, v of 3 axes, got {q.shape}, {v.shape}")
    _check("gated_delta_step", q, k, v, log_decay, beta, state)
    if active.shape != v.shape[:1]:
        raise ValueError(f"gated_delta_step: active is {active.shape}, expected {v.shape[:1]}")
    return dispatch(
        "gated_delta_step",
        STEP_IMPLEMENTATIONS,
        implementation,
        *(q, k, v, log_decay, beta, state, active),
    )


def gated_delta_window(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    lengths: jax.Array,
    *,
    implementation: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Runs the rule step by step over a few tokens of each lane, and keeps every state.

    Args:
      q, k, v, log_decay, beta, state, lengths: as in `gated_delta_rule`, for any T.
      implementation: a name from `WINDOW_IMPLEMENTATIONS`; default: the first that accepts.

    Returns: outputs [B, T, Hv, Dv] in the dtype of `v`; states [T, B, Hv, Dk, Dv], after each
    token. For t >= lengths[b] both are unspecified, finite.

    Raises:
      ValueError: shapes do not fit.
    """
    if q.ndim != 4 or v.ndim != 4:
        raise ValueError(
            f"gated_delta_window: expected q, k, v of 4 axes, got {q.shape}, {v.shape}"
        )
    _check("gated_delta_window", q, k, v, log_decay, beta, state)
    if lengths.shape != v.shape[:1]:
        raise ValueError(f"gated_delta_window: lengths is {lengths.shape}, expected {v.shape[:1]}")
    return dispatch(
        "gated_delta_window",
        WINDOW_IMPLEMENTATIONS,
        implementation,
        *(q, k, v, log_decay, beta, state, lengths),
    )


def _check(
    op: str,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    state: jax.Array,
) -> None:
    leading, (hk, dk), (hv, dv) = v.shape[:-2], q.shape[-2:], v.shape[-2:]
    expected = {
        "q": (q.shape, (*leading, hk, dk)),
        "k": (k.shape, (*leading, hk, dk)),
        "log_decay": (log_decay.shape, (*leading, hv)),
        "beta": (beta.shape, (*leading, hv)),
        "state": (state.shape, (leading[0], hv, dk, dv)),
    }
    for name, (actual, wanted) in expected.items():
        if actual != wanted:
            raise ValueError(f"{op}: {name} is {actual}, expected {wanted}")
    if hv % hk:
        raise ValueError(f"{op}: {hv} value heads are no multiple of {hk} key heads")
