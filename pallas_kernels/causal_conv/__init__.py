"""Depthwise causal convolution with SiLU, carrying its last inputs from call to call."""

from __future__ import annotations

import jax

from pallas_kernels.causal_conv import xla
from pallas_kernels.dispatch import dispatch

IMPLEMENTATIONS = {"xla": xla.causal_conv}


def causal_conv(
    x: jax.Array,
    weight: jax.Array,
    state: jax.Array,
    lengths: jax.Array,
    *,
    implementation: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """y[b, t, c] = silu(sum over w of weight[c, w] * input[b, t - (W-1) + w, c]).

    Inputs before row 0 come from `state`; sums and SiLU are float32. Splitting a sequence into
    several calls, and padding, leave the bits of the outputs and of the state as they are.

    Args:
      x: [B, T, C] bfloat16 or float32.
      weight: [C, W], W >= 2; the last tap meets the newest input.
      state: [B, W-1, C], dtype of `x`: the inputs before row 0, oldest first.
      lengths: int32 [B], 0 to T: rows that count; outputs of later rows are unspecified.
      implementation: a name from `IMPLEMENTATIONS`; default: the first that accepts.

    Returns:
      y [B, T, C] in the dtype of `x`; the new state [B, W-1, C]: the last W-1 inputs up to row
      lengths[b], reaching back into the old state when there are fewer.

    Raises:
      ValueError: shapes do not fit.
    """
    b, _, c = x.shape
    if weight.ndim != 2 or weight.shape[0] != c or weight.shape[1] < 2:
        raise ValueError(
            f"causal_conv: weight {weight.shape} does not fit x {x.shape}, expected [C, W]"
        )
    if state.shape != (b, weight.shape[1] - 1, c) or lengths.shape != (b,):
        raise ValueError(
            f"causal_conv: expected state {(b, weight.shape[1] - 1, c)} and lengths {(b,)}, "
            f"got {state.shape} and {lengths.shape}"
        )
    return dispatch("causal_conv", IMPLEMENTATIONS, implementation, x, weight, state, lengths)
