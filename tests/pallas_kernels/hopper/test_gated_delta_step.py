"""The one-step kernel of the gated delta rule on the interpreter, and lowered for CUDA."""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels import mosaic
from pallas_kernels.gated_delta import hopper, hopper_step, reference
from pallas_kernels.gated_delta.hopper_step import Config
from tests.pallas_kernels.hopper.support import (
    INTERPRET,
    fresh_interpreter,
    races_found,
    reports_a_race,
)
from tests.pallas_kernels.support import assert_close, assert_same_bits, normal


def inputs(seed, lanes, hk, hv, dk, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    return (
        normal(rng, lanes, hk, dk, dtype=dtype),
        normal(rng, lanes, hk, dk, dtype=dtype),
        normal(rng, lanes, hv, 128, dtype=dtype),
        jnp.asarray(-rng.exponential(0.3, (lanes, hv)), jnp.float32),
        jnp.asarray(rng.uniform(0, 1, (lanes, hv)), jnp.float32),
        normal(rng, lanes, hv, dk, 128),
        jnp.asarray(np.arange(lanes) % 3 != 1),
    )


# lanes, key heads, value heads, Dk, blocks, dtype: a ring that wraps; more blocks than states.
CASES = [(3, 1, 2, 64, 1, jnp.float32), (1, 1, 1, 32, 4, jnp.bfloat16)]


@pytest.mark.parametrize("lanes,hk,hv,dk,sms,dtype", CASES)
def test_against_float64(lanes, hk, hv, dk, sms, dtype):
    arguments = inputs(lanes, lanes, hk, hv, dk, dtype)
    with fresh_interpreter():
        out, state = hopper.step(*arguments, config=Config(slots=2), sms=sms, interpret=INTERPRET)
        out, state = np.asarray(out), np.asarray(state)
        assert not races_found()
    *_, before, active = arguments
    expected_out, expected_state = reference.gated_delta_step(*map(np.asarray, arguments))
    assert out.dtype == dtype
    active = np.asarray(active)
    rounding = 2.0**-8 if dtype == jnp.bfloat16 else 1e-5
    assert_close(out[active], expected_out[active], rounding * np.abs(expected_out).max())
    assert_close(state, expected_state, 1e-5 * np.abs(expected_state).max())
    assert_same_bits(state[~active], np.asarray(before)[~active])


def test_the_detector_reports_a_missing_barrier(monkeypatch):
    waits = []

    def barrier_wait(barrier):
        waits.append(barrier)
        if len(waits) > 1:  # the producer is traced first, and waits only for free slots
            plgpu.barrier_wait(barrier)

    broken = types.SimpleNamespace(**vars(plgpu))
    broken.barrier_wait, broken.barrier_arrive = barrier_wait, lambda barrier: None
    monkeypatch.setattr(hopper_step, "plgpu", broken)
    q, k, v, _, beta, state, _ = inputs(0, 4, 1, 1, 32)
    gates = jnp.repeat(beta[..., None], hopper_step.GATES, axis=-1)
    with fresh_interpreter():
        step = jax.jit(
            lambda *a: hopper_step.update(*a, config=Config(slots=2), sms=1, interpret=INTERPRET)
        )
        assert reports_a_race(lambda: step(q, k, v, gates, state))


def test_lowers_for_cuda_with_the_state_in_place():
    lanes, hk, hv, dk = 64, 16, 48, 128
    step = jax.jit(
        lambda *a: hopper.step(*a, config=Config(), sms=mosaic.H200_SMS), donate_argnums=5
    )
    shapes = jax.eval_shape(lambda: inputs(0, 1, 1, 1, 32))
    sizes = [(lanes, hk, dk)] * 2 + [(lanes, hv, 128)] + [(lanes, hv)] * 2
    sizes += [(lanes, hv, dk, 128), (lanes,)]
    avals = [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(sizes, shapes, strict=True)]
    text = step.trace(*avals).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("mosaic_gpu_v2") == 1
    assert "output_operand_alias<output_tuple_indices = [1], operand_index = 4" in text


def test_a_config_that_does_not_fit_is_refused_before_launch():
    with pytest.raises(ValueError, match="bytes"):
        Config(slots=4).check(128)
