"""`gated_delta_step` on the card: `pytest -m gpu tests/gpu`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.gated_delta import gated_delta_step, reference
from tests.pallas_kernels.hopper.test_gated_delta_step import inputs
from tests.pallas_kernels.support import assert_close, assert_same_bits

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("lanes,hk,hv,dk", [(1, 1, 1, 128), (3, 16, 48, 128), (7, 2, 6, 64)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_against_float64(lanes, hk, hv, dk, dtype):
    arguments = inputs(1, lanes, hk, hv, dk, dtype)
    out, state = gated_delta_step(*arguments, implementation="hopper")
    again = gated_delta_step(*arguments, implementation="hopper")
    assert_same_bits(out, again[0])
    assert_same_bits(state, again[1])
    expected_out, expected_state = reference.gated_delta_step(*map(np.asarray, arguments))
    active = np.asarray(arguments[-1])
    rounding = 2.0**-8 if dtype == jnp.bfloat16 else 1e-5
    size = np.abs(expected_out).max()
    assert_close(np.asarray(out)[active], expected_out[active], rounding * size)
    assert_close(state, expected_state, 1e-5 * np.abs(expected_state).max())
    kept = np.asarray(arguments[-2])[~active]
    assert_same_bits(np.asarray(state)[~active], kept)


def test_a_lane_does_not_depend_on_the_others():
    arguments = inputs(2, 5, 2, 6, 128, jnp.bfloat16)
    out, state = gated_delta_step(*arguments, implementation="hopper")
    alone = gated_delta_step(*(x[3:4] for x in arguments), implementation="hopper")
    assert_same_bits(alone[0], out[3:4])
    assert_same_bits(alone[1], state[3:4])


def test_in_place_and_nothing_else_is_written():
    """A donated state stays where it is, and its neighbours in memory stay as they are."""
    *head, state, active = map(jnp.asarray, inputs(3, 2, 2, 6, 128))
    guards = [jnp.full(state.shape, 7.0) for _ in range(4)]
    want = gated_delta_step(*head, state, active, implementation="hopper")[1]
    step = jax.jit(lambda *a: gated_delta_step(*a, implementation="hopper"), donate_argnums=5)
    where = state.unsafe_buffer_pointer()
    _, new = step(*head, state, active)
    assert new.unsafe_buffer_pointer() == where
    assert_same_bits(new, want)
    for guard in guards:
        assert (np.asarray(guard) == 7.0).all()
