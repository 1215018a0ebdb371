"""Mosaic GPU kernel of `gated_delta_step`: one pass over the states, in place.

A decode step reads and writes every state once and computes next to nothing, so the kernel is a
stream: a persistent grid over all (lane, value head); a producer warpgroup loads states into slots
of shared memory; the consumer updates a slot in place and the copy engine writes it back while the
next one is at work. A thread owns a column of the state, so that both sums over rows stay in its
registers.

With S the old state, a = exp(log_decay), all per value head:

    d = beta (v - a S^T k)        S' = a S + k d^T        o = S'^T q
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels import mosaic

KERNEL_NAME = "gated_delta_step"
GATES = 32
"""float32 of a head's gates: three and padding, as the copy engine wants 128 bytes."""
COLUMNS = 128
"""Dv of the kernel: one column for each thread of a warpgroup."""

_BY_COLUMN: Any = plgpu.Layout.TILED(
    plgpu.Tiling(((1, COLUMNS), (32,), (1,))), warp_dims=(-3,), lane_dims=(-2,), vector_dim=-1
)
_PER_COLUMN = _BY_COLUMN.reduce(0)
_PER_ROW = _BY_COLUMN.reduce(1)  # the same in every thread


@dataclasses.dataclass(frozen=True)
class Config:
    """Attributes:
    slots: states in shared memory: one arriving, one at work, one leaving.
    chunk: rows of a state in registers at a time.
    """

    slots: int = 3
    chunk: int = 32

    def check(self, dk: int) -> None:
        """Raises ValueError when a block does not fit an SM."""
        need = self.slots * (dk * COLUMNS + 2 * dk + 2 * COLUMNS + GATES) * 4 + 7 * 1024
        if self.slots < 2 or dk % self.chunk or need > mosaic.SMEM_BYTES:
            raise ValueError(f"{self} with Dk = {dk} needs {need} of {mosaic.SMEM_BYTES} bytes")


def update(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    gates: jax.Array,
    state: jax.Array,
    *,
    config: Config,
    sms: int,
    interpret: Any = None,
) -> tuple[jax.Array, jax.Array]:
    """One step on prepared inputs.

    Args:
      q, k: float32 [B, Hk, Dk], of unit length, q scaled.
      v: float32 [B, Hv, 128].
      gates: float32 [B, Hv, 32]: exp(log_decay), beta, 1 where the lane is active, unused.
      state: float32 [B, Hv, Dk, 128]; written in place where XLA may.

    Returns: outputs float32 [B, Hv, 128], the new state.
    """
    lanes, heads, dk, dv = state.shape
    assert dv == COLUMNS and v.shape == (lanes, heads, dv) and gates.shape == (lanes, heads, GATES)
    group = heads // q.shape[1]
    count, slots, chunk = lanes * heads, config.slots, config.chunk
    blocks = min(sms, count)

    def kernel(
        q_gmem: Any,
        k_gmem: Any,
        v_gmem: Any,
        gates_gmem: Any,
        state_gmem: Any,
        out_gmem: Any,
        *,
        state_smem: Any,
        q_smem: Any,
        k_smem: Any,
        v_smem: Any,
        gates_smem: Any,
        out_smem: Any,
        full: Any,
        empty: Any,
    ) -> None:
        block, part = lax.axis_index("block"), lax.axis_index("part")
        mine = lax.div(count - block + blocks - 1, blocks)

        def place(i: jax.Array) -> tuple[jax.Array, jax.Array]:
            item = block + i * blocks
            lane = lax.div(item, heads)
            return lane, item - lane * heads

        @pl.when(part == 1)
        def producer() -> None:
            @pl.loop(0, mine)
            def _(i: jax.Array) -> None:
                slot = lax.rem(i, slots)
                lane, head = place(i)
                key_head = lax.div(head, group)

                @pl.when(i >= slots)
                def _() -> None:
                    plgpu.barrier_wait(empty.at[slot])
                    # The consumer's ordinary reads come before the copy engine's writes.
                    plgpu.commit_smem()

                for source, target in (
                    (state_gmem.at[lane, head], state_smem),
                    (q_gmem.at[lane, key_head], q_smem),
                    (k_gmem.at[lane, key_head], k_smem),
                    (v_gmem.at[lane, head], v_smem),
                    (gates_gmem.at[lane, head], gates_smem),
                ):
                    # Each is contiguous and inside its array: no tensor map is needed.
                    plgpu.copy_gmem_to_smem(
                        source,
                        target.at[slot],
                        full.at[slot],
                        oob_mode=plgpu.OOBFillMode.PROMISE_IN_BOUNDS,
                    )

        @pl.when(part == 0)
        def consumer() -> None:
            def load(ref: Any, layout: Any) -> jax.Array:
                return plgpu.load(ref, layout=layout, optimized=False)

            def over_columns(x: jax.Array) -> jax.Array:
                return lax.broadcast_in_dim(x, (chunk, COLUMNS), (0,))

            def over_rows(x: jax.Array) -> jax.Array:
                return lax.broadcast_in_dim(x, (chunk, COLUMNS), (1,))

            def release(i: jax.Array) -> None:
                # No arrival that nobody waits for: the producer is done after `mine` states.
                @pl.when(jnp.logical_and(i >= 0, i < mine - slots))
                def _() -> None:
                    plgpu.barrier_arrive(empty.at[lax.rem(i, slots)])

            @pl.loop(0, mine)
            def _(i: jax.Array) -> None:
                slot = lax.rem(i, slots)
                lane, head = place(i)
                plgpu.barrier_wait(full.at[slot])
                decay, beta = gates_smem[slot, 0], gates_smem[slot, 1]
                active = gates_smem[slot, 2] > 0.0
                recalled = jnp.zeros((COLUMNS,), jnp.float32)
                for first in range(0, dk, chunk):
                    rows = pl.ds(first, chunk)
                    s = load(state_smem.at[slot, rows], _BY_COLUMN)
                    key = load(k_smem.at[slot, rows], _PER_ROW)
                    recalled = recalled + jnp.sum(over_columns(key) * s, axis=0)
                value = load(v_smem.at[slot], _PER_COLUMN)
                written = over_rows(beta * (value - decay * recalled))
                out = jnp.zeros((COLUMNS,), jnp.float32)
                for first in range(0, dk, chunk):
                    rows = pl.ds(first, chunk)
                    s = load(state_smem.at[slot, rows], _BY_COLUMN)
                    key = load(k_smem.at[slot, rows], _PER_ROW)
                    query = load(q_smem.at[slot, rows], _PER_ROW)
                    new = decay * s + over_columns(key) * written
                    out = out + jnp.sum(over_columns(query) * new, axis=0)

                    @pl.when(active)
                    def _(rows: Any = rows, new: jax.Array = new) -> None:
                        state_smem[slot, rows] = new

                out_smem[slot] = out
                plgpu.commit_smem()
                out_at = out_gmem.at[lane, head]
                plgpu.copy_smem_to_gmem(out_smem.at[slot], out_at, commit_group=False)
                plgpu.copy_smem_to_gmem(state_smem.at[slot], state_gmem.at[lane, head])
                # All but the newest have been read out of their slots.
                plgpu.wait_smem_to_gmem(1, wait_read_only=True)
                release(i - 1)

            plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    make_kernel: Any = plgpu.kernel
    run = make_kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((lanes, heads, COLUMNS), jnp.float32),
        grid=(blocks,),
        grid_names=("block",),
        num_threads=2,
        thread_name="part",
        kernel_name=KERNEL_NAME,
        scratch_types={
            "state_smem": plgpu.SMEM((slots, dk, COLUMNS), jnp.float32),
            "q_smem": plgpu.SMEM((slots, dk), jnp.float32),
            "k_smem": plgpu.SMEM((slots, dk), jnp.float32),
            "v_smem": plgpu.SMEM((slots, COLUMNS), jnp.float32),
            "gates_smem": plgpu.SMEM((slots, GATES), jnp.float32),
            "out_smem": plgpu.SMEM((slots, COLUMNS), jnp.float32),
            "full": plgpu.Barrier(num_arrivals=5, num_barriers=slots),
            "empty": plgpu.Barrier(num_arrivals=1, num_barriers=slots),
        },
        compiler_params=plgpu.CompilerParams(approx_math=True, unsafe_no_auto_barriers=True),
        interpret=interpret,
    )
    memory = jax.new_ref(state)
    out = run(q, k, v, gates, memory)
    return out, jax.freeze(memory)
