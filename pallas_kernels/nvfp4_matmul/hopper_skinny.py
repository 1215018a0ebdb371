"""Mosaic GPU kernel of `nvfp4_matmul` for few rows: as fast as the weight can be read.

The work is a list of tiles (128 outputs x 256 k) in row-major order, cut into equal contiguous
ranges, one for each block of a persistent grid ("stream-K"): all blocks finish together whatever
the shape. A producer warpgroup streams tiles and the matching part of x through shared memory;
each consumer warpgroup multiplies 64 rows of a tile by `mma.sync`, weights as the 16-row operand
and rows of x as the 8 columns, so that one to eight rows cost the same.

A block keeps float32 sums for the outputs it is at and writes them to a slot of its own when it
leaves them. Slot p of an output tile belongs to the p-th block that touches the tile: the slots,
summed in that order outside, give one result whatever the timing. Since the ranges depend on the
matrix alone, the result of a row depends neither on the number of rows nor on the other rows.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels import mosaic
from pallas_kernels.mosaic import QUAD_ROWS, SMEM_BYTES, WGMMA
from pallas_kernels.nvfp4_matmul.hopper_fragments import X_ROWS, multiply_jnp, multiply_mgpu
from pallas_kernels.nvfp4_matmul.packing import DEPTH, ROWS, VALUE_SCALE, PackedNVFP4Weight

ROW_BUCKETS = (8, 16, 32, 64)
"""Rows that a kernel is compiled for; x is padded to the next."""
MAX_ROWS = ROW_BUCKETS[-1]
KERNEL_NAME = "nvfp4_matmul_skinny"
_CONSUMERS = 2
_CHAINS = 2


@dataclasses.dataclass(frozen=True)
class Config:
    """Attributes:
    stages: tiles in flight from memory for each block.
    blocks_per_sm: blocks that share an SM, one computing while another waits.
    ahead: whether the next tile's words are fetched to registers before this tile is multiplied.
    """

    stages: int = 5
    blocks_per_sm: int = 1
    ahead: bool = True

    def shared_bytes(self, rows: int, stages: int) -> int:
        """Shared memory of one block, with `rows` rows of x; bytes."""
        stage = ROWS * DEPTH * 9 // 16 + rows * DEPTH * 2
        return stages * stage + ROWS * rows * 4 + 2 * 1024  # 1 KB for each set of barriers

    def fitted(self, rows: int) -> Config:
        """This configuration with as many stages as fit; nothing that moves a sum changes."""
        stages = self.stages
        while stages > 2 and self.blocks_per_sm * self.shared_bytes(rows, stages) > SMEM_BYTES:
            stages -= 1
        return dataclasses.replace(self, stages=stages)

    def check(self, rows: int) -> None:
        """Raises ValueError when the blocks do not fit an SM."""
        need = self.blocks_per_sm * self.shared_bytes(rows, self.stages)
        if self.stages < 2 or need > SMEM_BYTES:
            raise ValueError(f"{self} needs {need} of {SMEM_BYTES} bytes of shared memory")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Which block does which tiles. `blocks` equal ranges of `tiles * steps` units."""

    tiles: int
    steps: int
    blocks: int

    @property
    def units(self) -> int:
        return self.tiles * self.steps

    def first_block(self, tile: Any) -> Any:
        """The block whose range holds the tile's first unit."""
        return ((tile * self.steps + 1) * self.blocks - 1) // self.units

    def last_block(self, tile: Any) -> Any:
        return ((tile + 1) * self.steps * self.blocks - 1) // self.units

    def slots(self) -> np.ndarray:
        """int [tiles]: how many blocks touch each tile."""
        tile = np.arange(self.tiles, dtype=np.int64)
        return self.last_block(tile) - self.first_block(tile) + 1


def make_schedule(weight: PackedNVFP4Weight, config: Config, sms: int) -> Schedule:
    """Never more blocks than units: a block without work would leave its slot unwritten."""
    tiles, steps = weight.words.shape[:2]
    return Schedule(tiles, steps, min(sms * config.blocks_per_sm, tiles * steps))


def partial_sums(
    x: jax.Array,
    weight: PackedNVFP4Weight,
    *,
    config: Config,
    sms: int,
    interpret: Any = None,
) -> jax.Array:
    """x bfloat16 [8 to 64, K padded] -> float32 [slots, N padded, rows], without VALUE_SCALE."""
    rows, depth = x.shape
    plan = make_schedule(weight, config, sms)
    tiles, steps, units, blocks = plan.tiles, plan.steps, plan.units, plan.blocks
    assert rows in ROW_BUCKETS and depth == steps * DEPTH, (x.shape, weight.words.shape)
    stages, x_tiles = config.stages, rows // 8
    multiply = multiply_jnp if interpret is not None else multiply_mgpu

    def kernel(
        x_gmem: Any,
        words_gmem: Any,
        scales_gmem: Any,
        out_gmem: Any,
        *,
        x_smem: Any,
        words_smem: Any,
        scales_smem: Any,
        out_smem: Any,
        full: Any,
        empty: Any,
    ) -> None:
        block, group = lax.axis_index("block"), lax.axis_index("group")
        begin = lax.div(block * units, blocks)
        count = lax.div((block + 1) * units, blocks) - begin
        tile0 = lax.div(begin, steps)
        step0 = begin - tile0 * steps

        def next_slot(slot: jax.Array) -> jax.Array:
            return jnp.where(slot == stages - 1, 0, slot + 1)

        @pl.when(group == _CONSUMERS)
        def producer() -> None:
            def copy(i: jax.Array, at: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
                tile, step, slot = at

                @pl.when(i >= stages)
                def _() -> None:
                    plgpu.barrier_wait(empty.at[slot])
                    # The consumers' ordinary reads come before the copy engine's writes.
                    plgpu.commit_smem()

                arrived = full.at[slot]
                # Contiguous and inside their arrays: plain bulk copies, which read the head of a
                # 27B model at 4.0 TB/s, where tensor maps reach 3.8.
                for source, target in ((words_gmem, words_smem), (scales_gmem, scales_smem)):
                    plgpu.copy_gmem_to_smem(
                        source.at[tile, step],
                        target.at[slot],
                        arrived,
                        oob_mode=plgpu.OOBFillMode.PROMISE_IN_BOUNDS,
                    )
                depth_slice = pl.ds(pl.multiple_of(step * DEPTH, DEPTH), DEPTH)
                plgpu.copy_gmem_to_smem(x_gmem.at[:, depth_slice], x_smem.at[slot], arrived)
                wrap = step == steps - 1
                return (
                    jnp.where(wrap, tile + 1, tile),
                    jnp.where(wrap, 0, step + 1),
                    next_slot(slot),
                )

            lax.fori_loop(0, count, copy, (tile0, step0, jnp.int32(0)))

        @pl.when(group < _CONSUMERS)
        def consumer() -> None:
            mine = pl.ds(group * 64, 64)

            def fetch(slot: jax.Array) -> Any:
                return (
                    plgpu.load(words_smem.at[slot, 0, mine], layout=QUAD_ROWS),
                    plgpu.load(words_smem.at[slot, 1, mine], layout=QUAD_ROWS),
                    plgpu.load(scales_smem.at[slot, mine], layout=QUAD_ROWS),
                )

            def release(i: jax.Array, slot: jax.Array) -> None:
                # No arrival that nobody waits for: the producer is done after `count` tiles.
                @pl.when(i < count - stages)
                def _() -> None:
                    plgpu.barrier_arrive(empty.at[slot])

            def unit(_: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
                i, slot, ready, sums = carry
                if config.ahead:
                    following = next_slot(slot)

                    @pl.when(i < count - 1)
                    def _() -> None:
                        plgpu.barrier_wait(full.at[following])

                    operands, ready = ready, fetch(following)
                else:
                    plgpu.barrier_wait(full.at[slot])
                    operands = fetch(slot)
                xs = [
                    plgpu.load(x_smem.at[slot, pl.ds(8 * m, 8)], layout=X_ROWS)
                    for m in range(x_tiles)
                ]
                first, second, scales = operands
                sums = multiply(sums, first, second, scales, xs)
                release(i, slot)
                return i + 1, next_slot(slot), ready, sums

            zero = jnp.zeros((64, rows), jnp.float32)
            if interpret is None:
                zero = plgpu.layout_cast(zero, WGMMA)

            def output_tile(j: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
                i, slot, ready = carry
                tile = tile0 + j
                length = jnp.minimum(count, (j + 1) * steps - step0) - i
                i, slot, ready, sums = lax.fori_loop(
                    0, length, unit, (i, slot, ready, (zero,) * _CHAINS)
                )
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                out_smem[mine] = functools.reduce(jnp.add, sums)
                plgpu.commit_smem()
                part = block - plan.first_block(tile)
                rows_out = pl.ds(pl.multiple_of(tile * ROWS + group * 64, 64), 64)
                plgpu.copy_smem_to_gmem(out_smem.at[mine], out_gmem.at[part, rows_out])
                return i, slot, ready

            ready: Any = ()
            if config.ahead:
                plgpu.barrier_wait(full.at[0])
                ready = fetch(jnp.int32(0))
            touched = lax.div(begin + count - 1, steps) - tile0 + 1
            lax.fori_loop(0, touched, output_tile, (jnp.int32(0), jnp.int32(0), ready))
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    slots = int(plan.slots().max())
    make_kernel: Any = plgpu.kernel
    run = make_kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((slots, tiles * ROWS, rows), jnp.float32),
        grid=(blocks,),
        grid_names=("block",),
        num_threads=_CONSUMERS + 1,
        thread_name="group",
        kernel_name=KERNEL_NAME,
        scratch_types={
            "x_smem": plgpu.SMEM(
                (stages, rows, DEPTH), jnp.bfloat16, transforms=mosaic.swizzled(16)
            ),
            "words_smem": plgpu.SMEM((stages, 2, ROWS, 16), jnp.uint32),
            "scales_smem": plgpu.SMEM((stages, ROWS, 16), jnp.uint8),
            "out_smem": plgpu.SMEM((ROWS, rows), jnp.float32),
            "full": plgpu.Barrier(num_arrivals=3, num_barriers=stages),
            "empty": plgpu.Barrier(num_arrivals=_CONSUMERS, num_barriers=stages),
        },
        compiler_params=plgpu.CompilerParams(approx_math=True, unsafe_no_auto_barriers=True),
        interpret=interpret,
    )
    return run(x, weight.words, weight.scales)


@functools.partial(jax.jit, static_argnames=("config", "sms", "interpret"))
def matmul(
    x: jax.Array,
    weight: PackedNVFP4Weight,
    *,
    config: Config,
    sms: int,
    interpret: Any = None,
) -> jax.Array:
    """x bfloat16 [M <= 64, K] -> float32 [M, N], global scale applied.

    Jitted, so that equal shapes in one program are one kernel: compiled once, and warm in the
    instruction caches when the next layer runs it.
    """
    m, k = x.shape
    rows = next(bucket for bucket in ROW_BUCKETS if m <= bucket)
    config = config.fitted(rows)
    config.check(rows)
    depth = weight.words.shape[1] * DEPTH
    x = jnp.pad(x, ((0, rows - m), (0, depth - k)))
    parts = partial_sums(x, weight, config=config, sms=sms, interpret=interpret)
    used = make_schedule(weight, config, sms).slots()
    slots, tiles = parts.shape[0], used.shape[0]
    if (used != slots).any():
        valid = np.arange(slots)[:, None] < used
        shaped = parts.reshape(slots, tiles, ROWS, rows)
        parts = jnp.where(valid[:, :, None, None], shaped, 0.0).reshape(parts.shape)
    total = functools.reduce(jnp.add, [parts[p] for p in range(slots)])
    return (total[: weight.n, :m] * (weight.global_scale * VALUE_SCALE)).T
