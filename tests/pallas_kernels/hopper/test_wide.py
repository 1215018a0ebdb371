"""The wide NVFP4 kernel on the interpreter: right and free of races."""

from __future__ import annotations

import types

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.nvfp4_matmul import hopper_wide, pack, reference
from pallas_kernels.nvfp4_matmul.hopper_fragments import wgmma_order
from pallas_kernels.nvfp4_matmul.hopper_wide import Config, choose
from tests.pallas_kernels.hopper.support import (
    INTERPRET,
    fresh_interpreter,
    races_found,
    random_nvfp4,
    reports_a_race,
)
from tests.pallas_kernels.support import assert_same_bits, normal, wide

# rows, n, k, blocks: several tiles a block with an odd last one; ragged everything; a tile of half
# the outputs; stages given back at once.
CASES = [
    (33, 384, 512, 1, Config(rows=32, stages=2)),
    (20, 200, 272, 2, Config(rows=32, stages=3)),
    (40, 140, 256, 2, Config(rows=32, outputs=128, stages=2)),
    (32, 256, 768, 1, Config(rows=32, stages=2, late=False)),
]


@pytest.mark.parametrize("rows,n,k,sms,config", CASES)
def test_against_float64(rows, n, k, sms, config):
    rng = np.random.default_rng(rows)
    weight = random_nvfp4(rng, n, k)
    x = normal(rng, rows, k, dtype=jnp.bfloat16)
    with fresh_interpreter():
        y = np.asarray(
            hopper_wide.matmul(
                x,
                pack(weight),
                out_dtype=jnp.float32,
                config=config,
                sms=sms,
                interpret=INTERPRET,
            )
        )
        assert not races_found()
    expected = reference.nvfp4_matmul(wide(x), weight.codes, weight.scales, weight.global_scale)
    assert y.shape == (rows, n) and np.isfinite(y).all()
    assert np.linalg.norm(y - expected) <= 1e-6 * np.linalg.norm(expected)


def test_the_detector_reports_a_slot_given_back_too_early(monkeypatch):
    """The producer no longer waits for a slot to be read."""
    waits = []

    def barrier_wait(barrier):
        waits.append(barrier)
        if len(waits) > 1:  # the producer is traced first, and waits only for free slots
            plgpu.barrier_wait(barrier)

    broken = types.SimpleNamespace(**vars(plgpu))
    broken.barrier_wait, broken.barrier_arrive = barrier_wait, lambda barrier: None
    monkeypatch.setattr(hopper_wide, "plgpu", broken)
    rng = np.random.default_rng(1)
    with fresh_interpreter():
        x = normal(rng, 32, 512, dtype=jnp.bfloat16)
        weight = pack(random_nvfp4(rng, 128, 512))
        assert reports_a_race(
            lambda: hopper_wide.product(
                x,
                weight,
                jnp.ones(1, jnp.float32),
                out_dtype=jnp.float32,
                config=Config(rows=32, outputs=128, stages=2),
                sms=1,
                interpret=INTERPRET,
            )
        )


def test_the_order_of_k_is_the_same_for_every_dtype():
    x = normal(np.random.default_rng(0), 3, 192, dtype=jnp.bfloat16)
    assert_same_bits(wgmma_order(x.astype(jnp.float32)).astype(x.dtype), wgmma_order(x))
    positions = np.asarray(wgmma_order(jnp.arange(64)))
    assert sorted(positions) == list(range(64))
    # Lane t of step i reads columns 2t, 2t + 1, 2t + 8, 2t + 9 and must get 16t + 4i + 0..3.
    for step in range(4):
        for lane in range(4):
            columns = 16 * step + 2 * lane + np.array([0, 1, 8, 9])
            np.testing.assert_array_equal(positions[columns], 16 * lane + 4 * step + np.arange(4))


def test_choice_of_tiles_fills_the_card():
    assert choose(8192, 34816, 132) == Config()
    assert choose(1024, 5120, 132).outputs == 128  # 160 large tiles would take two waves
    assert choose(64, 5120, 132).rows == 64


def test_a_config_that_does_not_fit_is_refused_before_launch():
    with pytest.raises(ValueError, match="shared memory"):
        Config(stages=5).check(itemsize=2)
