"""What the op suites share: random inputs and the two ways to compare arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import NoImplementationError

DTYPES = [jnp.float32, jnp.bfloat16]
ROUNDING = {jnp.float32: 2.0**-24, jnp.bfloat16: 2.0**-8}
"""Largest relative error of one rounding to the dtype."""


def normal(rng: np.random.Generator, *shape: int, dtype: Any = jnp.float32) -> np.ndarray:
    """A NumPy array: shuffling those costs no compilation."""
    return rng.standard_normal(shape, np.float32).astype(dtype)


def wide(x: Any) -> np.ndarray:
    """As float64, exactly."""
    return np.asarray(x).astype(np.float64)


def assert_close(actual: Any, expected: np.ndarray, bound: Any) -> None:
    """|actual - expected| <= bound everywhere; NaN and infinity never pass."""
    actual = wide(actual)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    excess = np.abs(actual - expected) - bound
    worst = np.unravel_index(np.argmax(excess), excess.shape) if excess.size else ()
    assert (excess <= 0).all(), f"at {worst}: {actual[worst]} instead of {expected[worst]}"


def assert_same_bits(actual: Any, expected: Any) -> None:
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    as_bytes = (np.frombuffer(a.tobytes(), np.uint8) for a in (actual, expected))
    different = np.not_equal(*as_bytes)
    assert not different.any(), f"{different.sum()} of {different.size} bytes differ"


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls an op with a named implementation; a decline skips the test."""
    try:
        return op(*args, **kwargs)
    except NoImplementationError as error:
        pytest.skip(str(error))
