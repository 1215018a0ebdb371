"""NVFP4 rounding inside the forward pass, with a straight-through gradient.

The rules are those of `njax.quantization.nvfp4` (which see) in jnp; a test holds the two together.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_MIN_SCALE = np.float32(2.0**-9)
_MIN_GLOBAL = np.float32(2.0**-100)
_TOP = np.float32(6 * 448)


def round_nvfp4(weight: jax.Array) -> jax.Array:
    """float32 [N, K] as NVFP4 would store it, K a multiple of 16."""
    rows = weight.shape[0]
    exact = jnp.max(jnp.abs(weight)) / _TOP
    bits = lax.bitcast_convert_type(exact, jnp.uint32) & np.uint32(0xFFFFFFC0)
    scale = jnp.maximum(lax.bitcast_convert_type(bits, jnp.float32), _MIN_GLOBAL)
    blocks = weight.reshape(rows, -1, 16)
    amax = jnp.max(jnp.abs(blocks), axis=-1)
    ratio = jnp.minimum(amax / (np.float32(6) * scale), np.float32(448))
    second = (ratio >= _MIN_SCALE * np.float32(7 / 6)) & (ratio < 2 * _MIN_SCALE)
    ratio = jnp.where(second, 2 * _MIN_SCALE, jnp.maximum(ratio, _MIN_SCALE))
    steps = jnp.where(amax > 0, ratio, np.float32(0)).astype(jnp.float8_e4m3fn)
    unit = (steps.astype(jnp.float32) * scale)[..., None]
    codes = _round_code(blocks / jnp.where(unit > 0, unit, np.float32(1)))
    return (codes * unit).reshape(weight.shape)


def straight_through(weight: jax.Array, share: jax.Array) -> jax.Array:
    """The weight for share 0, its rounded value for share 1; the gradient is that of the weight."""
    return weight + share * lax.stop_gradient(round_nvfp4(weight) - weight)


def _round_code(x: jax.Array) -> jax.Array:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 (ties to the even code), with the sign of x."""
    size = jnp.minimum(jnp.abs(x), np.float32(6))
    step = jnp.where(size < 2, np.float32(0.5), jnp.where(size < 4, np.float32(1), np.float32(2)))
    # The grid is a floating-point one (two exponent bits, one of mantissa): to even is to even.
    return jnp.sign(x) * jnp.round(size / step) * step
