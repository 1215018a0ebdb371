"""The skinny NVFP4 kernel on the interpreter: right, free of races, equal for every row count."""

from __future__ import annotations

import itertools
import types

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.nvfp4_matmul import hopper_skinny, pack, reference
from pallas_kernels.nvfp4_matmul.hopper_skinny import Config, make_schedule
from tests.pallas_kernels.hopper.support import (
    INTERPRET,
    fresh_interpreter,
    packed_shape,
    races_found,
    random_nvfp4,
    reports_a_race,
)
from tests.pallas_kernels.support import assert_same_bits, normal, wide

SMALL = Config(stages=2, blocks_per_sm=1, ahead=True)

# rows, n, k, blocks: one row; ragged n and k; tiles shared by three blocks; more blocks than
# tiles; a pipeline that wraps around several times; one tile.
CASES = [
    (1, 128, 256, 1, SMALL),
    (3, 200, 704, 4, SMALL),
    (8, 128, 1024, 3, Config(stages=2, blocks_per_sm=1, ahead=False)),
    (16, 128, 512, 5, Config(stages=3, blocks_per_sm=2, ahead=True)),
    (9, 256, 1536, 1, Config(stages=2, blocks_per_sm=2, ahead=False)),
]


@pytest.mark.parametrize("rows,n,k,sms,config", CASES)
def test_against_float64(rows, n, k, sms, config):
    rng = np.random.default_rng(rows)
    weight = random_nvfp4(rng, n, k)
    x = normal(rng, rows, k, dtype=jnp.bfloat16)
    with fresh_interpreter():
        y = hopper_skinny.matmul(x, pack(weight), config=config, sms=sms, interpret=INTERPRET)
        y = np.asarray(y)
        assert not races_found()
    expected = reference.nvfp4_matmul(wide(x), weight.codes, weight.scales, weight.global_scale)
    assert y.shape == (rows, n) and np.isfinite(y).all()
    assert np.linalg.norm(y - expected) <= 1e-6 * np.linalg.norm(expected)


def test_a_row_does_not_depend_on_the_others():
    """Few against many rows of one call shape; the card's proof is in tests/gpu."""
    rng = np.random.default_rng(5)
    weight = pack(random_nvfp4(rng, 128, 512))
    x = normal(rng, 8, 512, dtype=jnp.bfloat16)
    with fresh_interpreter():
        every = hopper_skinny.matmul(x, weight, config=SMALL, sms=2, interpret=INTERPRET)
        first = hopper_skinny.matmul(x[:2], weight, config=SMALL, sms=2, interpret=INTERPRET)
        assert_same_bits(first, every[:2])


def test_the_detector_reports_a_missing_barrier(monkeypatch):
    """Proof that silence means something: the producer no longer waits for a slot to be read."""
    waits = []

    def barrier_wait(barrier):
        waits.append(barrier)
        if len(waits) > 1:  # the producer is traced first, and waits only for free slots
            plgpu.barrier_wait(barrier)

    broken = types.SimpleNamespace(**vars(plgpu))
    broken.barrier_wait, broken.barrier_arrive = barrier_wait, lambda barrier: None
    monkeypatch.setattr(hopper_skinny, "plgpu", broken)
    rng = np.random.default_rng(1)
    x = normal(rng, 8, 1024, dtype=jnp.bfloat16)
    with fresh_interpreter():
        weight = pack(random_nvfp4(rng, 128, 1024))
        assert reports_a_race(
            lambda: hopper_skinny.partial_sums(x, weight, config=SMALL, sms=1, interpret=INTERPRET)
        )


@pytest.mark.parametrize("n,k,sms", [(34816, 5120, 132), (5120, 17408, 132), (128, 256, 132)])
def test_schedule_covers_every_unit_once(n, k, sms):
    plan = make_schedule(packed_shape(n, k), Config(), sms)
    bounds = [block * plan.units // plan.blocks for block in range(plan.blocks + 1)]
    assert bounds[0] == 0 and bounds[-1] == plan.units
    assert all(1 <= b - a <= plan.units // plan.blocks + 1 for a, b in itertools.pairwise(bounds))
    touched = np.zeros(plan.tiles, int)
    for block, (a, b) in enumerate(itertools.pairwise(bounds)):
        for tile in range(a // plan.steps, (b - 1) // plan.steps + 1):
            assert block - plan.first_block(tile) == touched[tile]
            touched[tile] += 1
    np.testing.assert_array_equal(touched, plan.slots())


def test_a_config_that_does_not_fit_is_refused_before_launch():
    with pytest.raises(ValueError, match="shared memory"):
        Config(stages=16).check(8)
