"""The gated delta rule against the float64 recurrence."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import gated_delta_rule, gated_delta_step
from pallas_kernels.gated_delta import RULE_IMPLEMENTATIONS, STEP_IMPLEMENTATIONS, reference
from tests.pallas_kernels.support import (
    DTYPES,
    ROUNDING,
    assert_close,
    assert_same_bits,
    normal,
    run,
)

rule = functools.partial(jax.jit, static_argnames="implementation")(gated_delta_rule)
step = functools.partial(jax.jit, static_argnames="implementation")(gated_delta_step)
by_rule = pytest.mark.parametrize("implementation", RULE_IMPLEMENTATIONS)
by_step = pytest.mark.parametrize("implementation", STEP_IMPLEMENTATIONS)

# Hk, Hv, Dk, Dv
SHAPES = [(1, 1, 16, 16), (2, 4, 64, 32), (1, 3, 48, 80), (2, 2, 128, 128)]
ROUNDINGS = 2.0**-17
"""Error of an output or a state entry in units of the largest: what float32 sums over a block,
a substitution and a memory of unit keys were seen to need, with a margin of about ten."""


def inputs(
    seed: int, b: int, t: int, hk: int, hv: int, dk: int, dv: int, dtype: Any
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "q": normal(rng, b, t, hk, dk, dtype=dtype),
        "k": normal(rng, b, t, hk, dk, dtype=dtype),
        "v": normal(rng, b, t, hv, dv, dtype=dtype),
        "log_decay": -np.abs(normal(rng, b, t, hv)) * 0.3,
        "beta": rng.uniform(0, 1, (b, t, hv)).astype(np.float32),
        "state": normal(rng, b, hv, dk, dv),
    }


def check(arrays: dict[str, np.ndarray], lengths: list[int], implementation: str) -> None:
    t = arrays["v"].shape[1]
    padded = {
        name: x if name == "state" else np.pad(x, [(0, 0), (0, -t % 64)] + [(0, 0)] * (x.ndim - 2))
        for name, x in arrays.items()
    }
    lanes = np.asarray(lengths, np.int32)
    out, state = run(rule, **padded, lengths=lanes, implementation=implementation)
    out, state = np.asarray(out), np.asarray(state)
    assert out.dtype == arrays["v"].dtype and state.dtype == jnp.float32
    assert np.isfinite(np.asarray(out)).all()
    expected, expected_state = reference.gated_delta_rule(**arrays, lengths=np.asarray(lengths))
    compare(out[:, :t], expected, state, expected_state, lengths)


def compare(
    out: Any,
    expected: np.ndarray,
    state: Any,
    expected_state: np.ndarray,
    lengths: list[int],
) -> None:
    out, state = np.asarray(out), np.asarray(state)
    rounding = 1.01 * ROUNDING[out.dtype.type] * np.abs(expected)
    for b, length in enumerate(lengths):
        largest = np.abs(expected[b]).max(initial=0.0)
        bound = ROUNDINGS * largest + rounding[b, :length] + 1e-37
        assert_close(out[b, :length], expected[b, :length], bound)
        assert_close(state[b], expected_state[b], ROUNDINGS * np.abs(expected_state[b]).max())


@by_rule
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rule_against_float64(
    shape: tuple[int, int, int, int], dtype: Any, seed: int, implementation: str
) -> None:
    check(inputs(seed, 2, 200, *shape, dtype), [200, 65], implementation)


@by_rule
def test_rule_lengths(implementation: str) -> None:
    for t in (1, 63, 64, 65):
        check(inputs(t, 1, t, 1, 2, 32, 16, jnp.float32), [t], implementation)
    lengths = [0, 1, 63, 64, 65, 192]
    check(inputs(9, 6, 192, 1, 2, 32, 16, jnp.float32), lengths, implementation)


@by_rule
def test_rule_on_hard_prompts(implementation: str) -> None:
    """Repeated tokens, keys of zero, no decay, total decay, full and no writing."""
    base = inputs(1, 1, 128, 1, 2, 32, 16, jnp.float32)
    ones = np.ones_like(base["beta"])
    same_key = np.broadcast_to(base["k"][:, :1], base["k"].shape)
    sudden = np.where(np.arange(128)[None, :, None] % 7 == 3, -1e4, -0.01) * ones
    for change in (
        {"k": same_key, "beta": ones, "log_decay": 0 * ones},
        {"k": same_key, "beta": ones, "log_decay": -0.01 * ones},
        {"k": same_key * np.where(np.arange(128) % 2, 1.0, -1.0)[None, :, None, None]},
        {"k": 0 * base["k"], "q": 0 * base["q"]},
        {"log_decay": -1e4 * ones},
        {"log_decay": jnp.finfo(jnp.float32).min * ones},
        {"log_decay": sudden},
        {"beta": 0 * ones, "log_decay": 0 * ones},
        {"v": base["v"] * 2.0**60, "state": base["state"] * 2.0**60},
        {"v": base["v"] * 2.0**-60, "state": base["state"] * 2.0**-60},
        {"k": base["k"] * 2.0**30, "q": base["q"] * 2.0**-30},
    ):
        check(base | change, [128], implementation)


@by_rule
def test_rule_of_zeros_is_zero(implementation: str) -> None:
    arrays = {
        name: np.zeros_like(x) for name, x in inputs(0, 1, 64, 1, 2, 32, 16, jnp.float32).items()
    }
    out, state = run(
        rule, **arrays, lengths=np.asarray([64], np.int32), implementation=implementation
    )
    assert not np.asarray(out).any() and not np.asarray(state).any()


@by_rule
def test_rule_ignores_what_lies_behind_the_length(implementation: str) -> None:
    arrays = inputs(2, 2, 128, 1, 2, 32, 16, jnp.float32)
    lengths = np.asarray([70, 0], np.int32)
    out, state = run(rule, **arrays, lengths=lengths, implementation=implementation)
    for name in set(arrays) - {"state"}:
        arrays[name][0, 70:] = arrays[name][1] = np.nan
    out, state = np.asarray(out), np.asarray(state)
    out_nan, state_nan = rule(**arrays, lengths=lengths, implementation=implementation)
    assert np.isfinite(np.asarray(out_nan)).all()
    assert_same_bits(np.asarray(out_nan)[0, :70], out[0, :70])
    assert_same_bits(state_nan, state)
    assert_same_bits(state[1], arrays["state"][1])


@by_step
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_step_against_float64(
    shape: tuple[int, int, int, int], dtype: Any, seed: int, implementation: str
) -> None:
    arrays = inputs(seed, 4, 1, *shape, dtype)
    arrays = {name: x if name == "state" else x[:, 0] for name, x in arrays.items()}
    active = np.array([True, False, True, True])
    out, state = run(step, **arrays, active=active, implementation=implementation)
    assert out.dtype == dtype
    expected, expected_state = reference.gated_delta_step(**arrays, active=active)
    compare(
        np.asarray(out)[:, None], expected[:, None], state, expected_state, [int(a) for a in active]
    )
    assert_same_bits(state[1], arrays["state"][1])


@by_step
def test_many_steps_are_the_rule(implementation: str) -> None:
    """Decoding a sequence token by token gives what its prefill gives, to rounding."""
    arrays = inputs(3, 2, 100, 2, 4, 32, 16, jnp.float32)
    lengths = [100, 41]
    expected, expected_state = reference.gated_delta_rule(**arrays, lengths=np.asarray(lengths))
    state = arrays.pop("state")
    outs = []
    for t in range(100):
        token = {name: x[:, t] for name, x in arrays.items()}
        active = np.asarray([t < length for length in lengths])
        out, state = run(step, **token, state=state, active=active, implementation=implementation)
        outs.append(out)
    compare(np.stack(outs, axis=1), expected, state, expected_state, lengths)


@by_step
def test_step_extremes(implementation: str) -> None:
    arrays = inputs(4, 2, 1, 1, 2, 32, 16, jnp.float32)
    arrays = {name: x if name == "state" else x[:, 0] for name, x in arrays.items()}
    for change in (
        {"log_decay": np.full((2, 2), jnp.finfo(jnp.float32).min)},
        {"k": 0 * arrays["k"], "q": 0 * arrays["q"]},
        {"v": arrays["v"] * 2.0**60, "state": arrays["state"] * 2.0**60},
    ):
        changed = arrays | change
        out, state = run(step, **changed, active=np.ones(2, bool), implementation=implementation)
        expected, expected_state = reference.gated_delta_step(**changed, active=np.ones(2, bool))
        compare(np.asarray(out)[:, None], expected[:, None], state, expected_state, [1, 1])


def test_shapes_that_do_not_fit_are_named() -> None:
    arrays = inputs(0, 1, 64, 2, 4, 16, 16, jnp.float32)
    lengths = np.asarray([64], np.int32)
    for name, wrong in (
        ("q", arrays["q"][:, :32]),
        ("k", arrays["k"][:, :, :1]),
        ("beta", arrays["beta"][:, :32]),
        ("log_decay", arrays["log_decay"][..., :2]),
        ("state", arrays["state"][:, :2]),
    ):
        with pytest.raises(ValueError, match=f"gated_delta_rule: {name} is"):
            gated_delta_rule(**(arrays | {name: wrong}), lengths=lengths)
    with pytest.raises(ValueError, match="T is 32, expected a multiple of 64"):
        short = {n: x if n == "state" else x[:, :32] for n, x in arrays.items()}
        gated_delta_rule(**short, lengths=lengths)
    with pytest.raises(ValueError, match="3 value heads are no multiple of 2 key heads"):
        odd = {n: x if n in "qk" else x[:, :, :3] for n, x in arrays.items()}
        odd["state"] = arrays["state"][:, :3]
        gated_delta_rule(**odd, lengths=lengths)
    with pytest.raises(ValueError, match="lengths is"):
        gated_delta_rule(**arrays, lengths=np.asarray([64, 64], np.int32))
    token = {n: x if n == "state" else x[:, 0] for n, x in arrays.items()}
    with pytest.raises(ValueError, match="gated_delta_step: active is"):
        gated_delta_step(**token, active=np.ones(3, bool))
