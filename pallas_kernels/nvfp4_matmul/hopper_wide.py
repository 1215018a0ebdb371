"""Mosaic GPU kernel of `nvfp4_matmul` for many rows: as fast as the tensor cores multiply.

A block computes 256 outputs of 128 rows of x, transposed: y.T = w @ x.T, because `wgmma` takes its
left operand from registers, where weights are decoded, and its right operand, here x, from shared
memory. Each of two consumer warpgroups owns 128 outputs as two accumulators; while the tensor cores
work on one, the weights for the other are decoded. A producer warpgroup runs ahead
through all tiles of its block, also while the consumers write a result out.

A sum over k is one chain in the order of k, so the result of a row depends neither on the number of
rows nor on the tile sizes.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels import mosaic
from pallas_kernels.mosaic import QUAD_ROWS, SMEM_BYTES
from pallas_kernels.nvfp4_matmul.hopper_fragments import (
    decode_group_jnp,
    decode_group_mgpu,
    wgmma_order,
)
from pallas_kernels.nvfp4_matmul.packing import DEPTH, ROWS, VALUE_SCALE, PackedNVFP4Weight

KERNEL_NAME = "nvfp4_matmul_wide"
_CONSUMERS = 2
_STEP = DEPTH // 2
"""k of a pipeline stage: the half of a packed tile that is contiguous."""
_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 40, 232


@dataclasses.dataclass(frozen=True)
class Config:
    """Attributes:
    rows: rows of x of a block's tile: 32, 64 or 128.
    outputs: outputs of a block's tile: 256 or, where that makes too few tiles, 128.
    stages: steps of 128 k in flight from memory.
    rows_minor: whether neighbouring blocks take other rows of x (or other outputs).
    tile_width: blocks of tiles of this width share data in the L2 cache.
    late: whether a stage is given back one step later, so that the tensor cores never drain.
    """

    rows: int = 128
    outputs: int = 256
    stages: int = 4
    rows_minor: bool = True
    tile_width: int = 8
    late: bool = True

    def chunk(self, itemsize: int) -> int:
        """Rows of y that a warpgroup stages at a time on the way out."""
        return min(self.rows, 64 // itemsize)

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory of a block whose results have `itemsize` bytes; bytes."""
        weights = self.outputs * (_STEP // 2 + DEPTH // 16)
        out = self.outputs * self.chunk(itemsize) * itemsize
        return self.stages * (weights + self.rows * _STEP * 2) + out + 3 * 1024

    def check(self, itemsize: int) -> None:
        """Raises ValueError when a block does not fit an SM."""
        need = self.shared_bytes(itemsize)
        known = self.rows in (32, 64, 128) and self.outputs in (128, 256)
        if not known or self.stages < 2 or need > SMEM_BYTES:
            raise ValueError(f"{self} needs {need} of {SMEM_BYTES} bytes of shared memory")


def choose(m: int, n: int, sms: int) -> Config:
    """The configuration for m rows and n outputs, by counting waves of tiles over the SMs.

    All choices give the same bits.
    """
    rows = 128 if m > 64 else 64
    row_tiles = pl.cdiv(m, rows)
    # A tile of half the outputs takes half the time and a little: x is read twice as often.
    waves = {
        outputs: pl.cdiv(row_tiles * pl.cdiv(n, outputs), sms) * outputs for outputs in (256, 128)
    }
    outputs = 128 if 1.1 * waves[128] < waves[256] else 256
    return Config(rows=rows, outputs=outputs)


def product(
    x: jax.Array,
    weight: PackedNVFP4Weight,
    scale: jax.Array,
    *,
    out_dtype: Any,
    config: Config,
    sms: int,
    interpret: Any = None,
) -> jax.Array:
    """x bfloat16 [M, K] in `wgmma_order`, padded to whole tiles; scale float32 [1] -> [M, N].

    N is the weight's n padded to a multiple of config.outputs.
    """
    tiles, steps = weight.words.shape[0], 2 * weight.words.shape[1]
    total_rows, depth = x.shape
    rows, stages = config.rows, config.stages
    assert depth == steps * _STEP and total_rows % rows == 0, (x.shape, weight.words.shape)
    packed = config.outputs // ROWS  # packed tiles side by side in a block's tile
    parts = config.outputs // 64 // _CONSUMERS  # accumulators of a warpgroup, 64 outputs each
    row_tiles, out_tiles = total_rows // rows, pl.cdiv(tiles, packed)
    count = row_tiles * out_tiles
    blocks = min(sms, count)
    itemsize = jnp.dtype(out_dtype).itemsize
    chunk = config.chunk(itemsize)
    decode = decode_group_jnp if interpret is not None else decode_group_mgpu

    def kernel(
        x_gmem: Any,
        words_gmem: Any,
        scales_gmem: Any,
        scale_gmem: Any,
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
        mine = lax.div(count - block + blocks - 1, blocks)  # tiles of this block
        total = mine * steps

        def place(j: jax.Array) -> tuple[jax.Array, jax.Array]:
            return plgpu.planar_snake(
                block + j * blocks,
                (row_tiles, out_tiles),
                0 if config.rows_minor else 1,
                config.tile_width,
            )

        def next_slot(slot: jax.Array) -> jax.Array:
            return jnp.where(slot == stages - 1, 0, slot + 1)

        @pl.when(group == _CONSUMERS)
        def producer() -> None:
            if interpret is None:
                plgpu.set_max_registers(_PRODUCER_REGISTERS, action="decrease")

            def tile(j: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
                row_tile, out_tile = place(j)
                rows_slice = pl.ds(pl.multiple_of(row_tile * rows, rows), rows)

                def copy(step: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
                    i, slot = carry

                    @pl.when(i >= stages)
                    def _() -> None:
                        plgpu.barrier_wait(empty.at[slot])
                        # The consumers' ordinary reads come before the copy engine's writes.
                        plgpu.commit_smem()

                    arrived = full.at[slot]
                    depth_tile, half = lax.div(step, 2), lax.rem(step, 2)
                    for c in range(packed):
                        # Past an odd last tile: any tile, its results are cut off.
                        n = jnp.minimum(out_tile * packed + c, tiles - 1)
                        words, scales = words_gmem.at[n, depth_tile], scales_gmem.at[n, depth_tile]
                        plgpu.copy_gmem_to_smem(words.at[half], words_smem.at[slot, c], arrived)
                        plgpu.copy_gmem_to_smem(scales, scales_smem.at[slot, c], arrived)
                    depth_slice = pl.ds(pl.multiple_of(step * _STEP, _STEP), _STEP)
                    x_part = x_gmem.at[rows_slice, depth_slice]
                    plgpu.copy_gmem_to_smem(x_part, x_smem.at[slot], arrived)
                    return i + 1, next_slot(slot)

                return lax.fori_loop(0, steps, copy, carry)

            lax.fori_loop(0, mine, tile, (jnp.int32(0), jnp.int32(0)))

        @pl.when(group < _CONSUMERS)
        def consumer() -> None:
            if interpret is None:
                plgpu.set_max_registers(_CONSUMER_REGISTERS, action="increase")

            def release(i: jax.Array, slot: jax.Array) -> None:
                # No arrival that nobody waits for: the producer is done after `total` stages.
                @pl.when(jnp.logical_and(i >= 0, i < total - stages))
                def _() -> None:
                    plgpu.barrier_arrive(empty.at[slot])

            def own_outputs(r: int) -> tuple[Any, Any]:
                """Packed tile and rows in it of this group's accumulator r."""
                first = group * (parts * 64) + r * 64
                if packed == 1:
                    return 0, pl.ds(first, 64)
                return group, pl.ds(r * 64, 64)

            def stage(accs: Any, half: int, carry: tuple[Any, ...]) -> tuple[Any, ...]:
                """One step of 128 k, on accumulator refs (card) or on `carry`'s arrays."""
                i, slot, before, sums = carry
                plgpu.barrier_wait(full.at[slot])
                for quarter in range(2):  # 64 k
                    columns = pl.ds(64 * quarter, 64)
                    for r in range(parts):  # 64 outputs
                        c, own = own_outputs(r)
                        words = plgpu.load(words_smem.at[slot, c, own], layout=QUAD_ROWS)
                        scales = plgpu.load(scales_smem.at[slot, c, own], layout=QUAD_ROWS)
                        w = decode(words, scales, half, quarter)
                        if interpret is None:
                            plgpu.wgmma(accs[r], w, x_smem.at[slot, :, columns].T)
                            # At most this product is under way: the one before has let go of its
                            # registers and, where it was the last of its stage, of that slot.
                            plgpu.wgmma_wait(1)
                        else:
                            x_part = x_smem[slot, :, columns].astype(jnp.float32)
                            sums = (*sums[:r], sums[r] + jnp.dot(w, x_part.T), *sums[r + 1 :])
                        if config.late and quarter == 0 and r == 0:
                            release(i - 1, before)
                if not config.late:
                    if interpret is None:
                        plgpu.wgmma_wait(0)
                    release(i, slot)
                return i + 1, next_slot(slot), slot, sums

            def multiply(accs: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
                def both(_: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
                    return stage(accs, 1, stage(accs, 0, carry))

                return lax.fori_loop(0, steps // 2, both, carry)

            scale = scale_gmem[0]

            def tile(j: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
                row_tile, out_tile = place(j)

                def on_card(*accs: Any) -> tuple[Any, ...]:
                    i, slot, before, _ = multiply(accs, (*carry, ()))
                    return i, slot, before, *(acc[...] for acc in accs)

                if interpret is None:
                    acc = plgpu.ACC((64, rows), jnp.float32)
                    i, slot, before, *sums = pl.run_scoped(on_card, *(acc,) * parts)
                else:
                    zero = jnp.zeros((64, rows), jnp.float32)
                    i, slot, before, sums = multiply((), (*carry, (zero,) * parts))
                for r in range(parts):
                    y = (sums[r] * scale).astype(out_dtype)
                    for first in range(0, rows, chunk):
                        write(y[:, first : first + chunk], row_tile * rows + first, out_tile, r)
                return i, slot, before

            def write(y: jax.Array, row: jax.Array, out_tile: jax.Array, r: int) -> None:
                """y [64, chunk] to rows `row` and on, outputs of this group's accumulator r."""
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                staged = out_smem.at[group, r]
                if interpret is None:
                    staged.T[...] = plgpu.layout_cast(y, plgpu.Layout.WGMMA_TRANSPOSED)
                else:
                    staged[...] = y.T
                plgpu.commit_smem()
                column = out_tile * config.outputs + group * (parts * 64) + 64 * r
                plgpu.copy_smem_to_gmem(
                    staged,
                    out_gmem.at[
                        pl.ds(pl.multiple_of(row, chunk), chunk),
                        pl.ds(pl.multiple_of(column, 64), 64),
                    ],
                )

            lax.fori_loop(0, mine, tile, (jnp.int32(0), jnp.int32(0), jnp.int32(0)))
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    make_kernel: Any = plgpu.kernel
    run = make_kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((total_rows, out_tiles * config.outputs), out_dtype),
        grid=(blocks,),
        grid_names=("block",),
        num_threads=_CONSUMERS + 1,
        thread_name="group",
        kernel_name=KERNEL_NAME,
        scratch_types={
            "x_smem": plgpu.SMEM(
                (stages, rows, _STEP), jnp.bfloat16, transforms=mosaic.swizzled(16)
            ),
            "words_smem": plgpu.SMEM((stages, packed, ROWS, 16), jnp.uint32),
            "scales_smem": plgpu.SMEM((stages, packed, ROWS, 16), jnp.uint8),
            "out_smem": plgpu.SMEM(
                (_CONSUMERS, parts, chunk, 64), out_dtype, transforms=mosaic.swizzled(8 * itemsize)
            ),
            "full": plgpu.Barrier(num_arrivals=2 * packed + 1, num_barriers=stages),
            "empty": plgpu.Barrier(num_arrivals=_CONSUMERS, num_barriers=stages),
        },
        compiler_params=plgpu.CompilerParams(approx_math=True, unsafe_no_auto_barriers=True),
        interpret=interpret,
    )
    return run(x, weight.words, weight.scales, scale)


@functools.partial(jax.jit, static_argnames=("out_dtype", "config", "sms", "interpret"))
def matmul(
    x: jax.Array,
    weight: PackedNVFP4Weight,
    *,
    out_dtype: Any,
    config: Config,
    sms: int,
    interpret: Any = None,
) -> jax.Array:
    """x bfloat16 [M, K] -> [M, N] in `out_dtype`, global scale applied.

    The order of k that the kernel wants is made here; XLA fuses it into what produced x.
    """
    m, k = x.shape
    config.check(jnp.dtype(out_dtype).itemsize)
    x = jnp.pad(x, ((0, -m % config.rows), (0, weight.words.shape[1] * DEPTH - k)))
    scale = (weight.global_scale * VALUE_SCALE).reshape(1)
    y = product(
        wgmma_order(x),
        weight,
        scale,
        out_dtype=out_dtype,
        config=config,
        sms=sms,
        interpret=interpret,
    )
    return y[:m, : weight.n]
