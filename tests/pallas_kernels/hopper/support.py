"""Running Mosaic GPU kernels without a GPU: the interpreter with its race detector."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.nvfp4_matmul.packing import DEPTH, ROWS, PackedNVFP4Weight
from pallas_kernels.weights import NVFP4Weight

INTERPRET = plgpu.InterpretGPUParams(detect_races=True)


def races_found() -> bool:
    """Whether the last interpreted kernel had a race."""
    # The detector's verdict has no public name yet.
    from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call

    return bool(interpret_pallas_call.get_races().races_found)


def reports_a_race(run: Callable[[], Any]) -> bool:
    """Whether the interpreter notices that barriers are missing when it runs this.

    How depends on which thread comes first: a race that the detector notes or raises, or a barrier
    that ran a phase ahead of the threads that should have waited for it.
    """
    try:
        jax.block_until_ready(run())
    except jax.errors.JaxRuntimeError as error:
        if "RACE DETECTED" not in str(error) and "arrier" not in str(error):
            raise
        return True
    return races_found()


@contextlib.contextmanager
def fresh_interpreter() -> Iterator[None]:
    """The interpreter keeps state after an exception; start and leave without any."""
    from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call

    interpret_pallas_call.reset_gpu_interpret_mode_state()
    try:
        yield
    finally:
        interpret_pallas_call.reset_gpu_interpret_mode_state()


def random_nvfp4(rng: np.random.Generator, n: int, k: int) -> NVFP4Weight:
    """Any codes, any non-negative finite scales (zero and subnormal ones too)."""
    return NVFP4Weight(
        jnp.asarray(rng.integers(0, 256, (n, k // 2), dtype=np.uint8)),
        jnp.asarray(rng.integers(0, 127, (n, k // 16), dtype=np.uint8)),
        jnp.float32(rng.uniform(0.01, 1)),
    )


def packed_shape(n: int, k: int) -> PackedNVFP4Weight:
    """The avals of a packed weight, for lowering."""
    tiles, steps = -(-n // ROWS), -(-k // DEPTH)
    struct: Any = jax.ShapeDtypeStruct
    return PackedNVFP4Weight(
        struct((tiles, steps, 2, ROWS, 16), jnp.uint32),
        struct((tiles, steps, ROWS, 16), jnp.uint8),
        struct((), jnp.float32),
        n,
        k,
    )
