"""The engine's hold on the device: weights, working state, compiled programs.

Used by the executor thread alone. Calls return as soon as the work is dispatched; results are
device arrays that the caller reads when it wants to wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from njax.config import BLOCK, EngineConfig, ModelConfig
from njax.engine.buckets import bucket_for, segment_sizes
from njax.engine.programs import Progress, compile_programs
from njax.engine.sampling import LaneSampling
from njax.engine.speculative import RoundOutput, round_shape
from njax.engine.steps import EngineState, Graphs, StepOutput, capture_lane, init_engine_state
from njax.engine.types import SamplingParams
from njax.prefix.planner import Chunk
from njax.prefix.seeds import MINIMUM_FRONTIER, Segment
from njax.state import Snapshot, tree_bytes


class Device:
    """Weights, state and programs of one engine.

    Args:
      graphs, params: the modules and their weights on the device, as the steps take them.
      dtype: activation dtype.
    """

    def __init__(
        self,
        graphs: Graphs,
        params: Any,
        model: ModelConfig,
        engine: EngineConfig,
        dtype: jnp.dtype,
        progress: Progress | None = None,
    ):
        self._params = params
        self._vocab_size = model.vocab_size
        # First the state: what does not fit shows before minutes of compilation.
        self._state: EngineState = (
            jax.jit(lambda: init_engine_state(model, engine, dtype)).lower().compile()()
        )
        self._programs = compile_programs(graphs, self._params, model, engine, dtype, progress)
        self._sampling = LaneSampling.greedy(engine.max_concurrency)
        self._page_table = np.zeros((engine.max_concurrency, engine.pages_per_lane), np.int32)

    def assign_lane(
        self, lane: int, pages: list[int], sampling: SamplingParams, prompt: tuple[int, ...] = ()
    ) -> None:
        """Gives a lane its pages and sampling parameters; unused table entries are scratch.

        The prompt matters to a repetition penalty alone.
        """
        # Copies: a program dispatched earlier may still be reading the arrays it was given.
        self._page_table = self._page_table.copy()
        self._page_table[lane] = 0
        self._page_table[lane, : len(pages)] = pages
        self._sampling = self._sampling.with_lane(lane, sampling)
        if sampling.repetition_penalty != 1.0:
            marks = np.zeros(self._vocab_size, np.bool_)
            marks[list(prompt)] = True
            self._state = self._programs.mark_prompt(self._state, np.int32(lane), marks)

    def prefill(
        self, lane: int, token_ids: tuple[int, ...], chunk: Chunk, *, is_last: bool
    ) -> StepOutput:
        """Absorbs one chunk; the output means something if it is the last."""
        bucket = bucket_for(chunk.length, tuple(self._programs.prefill))
        tokens = np.zeros(bucket, np.int32)
        tokens[: chunk.length] = token_ids[chunk.start : chunk.end]
        self._state, output = self._programs.prefill[bucket](
            self._params,
            self._state,
            tokens,
            np.int32(lane),
            self._page_table[lane],
            np.int32(chunk.start),
            np.int32(chunk.length),
            np.bool_(is_last),
            self._sampling,
        )
        return output

    def decode(self, position: np.ndarray, active: np.ndarray) -> StepOutput:
        """One token for every active lane."""
        assert self._programs.decode is not None
        self._state, output = self._programs.decode(
            self._params, self._state, self._page_table, position, active, self._sampling
        )
        return output

    def speculate(
        self, lanes: Sequence[int], last: Sequence[int], window: Sequence[int]
    ) -> tuple[RoundOutput, dict[int, int]]:
        """A round for these lanes, in an engine that drafts.

        Args:
          last: the highest index that a token of each lane may have.
          window: drafts wanted of each; its own limits may allow fewer.

        Returns: the output, and which of its rows belongs to a lane.
        """
        shape = round_shape(self._programs.rounds, max(window), len(lanes))
        total = self._page_table.shape[0]
        # Idle lanes fill the shape.
        used = [*lanes, *(lane for lane in range(total) if lane not in lanes)][: shape[1]]
        rows = {lane: row for row, lane in enumerate(sorted(used))}
        wanted = np.zeros((2, shape[1]), np.int32)
        active = np.zeros(shape[1], np.bool_)
        at = [rows[lane] for lane in lanes]
        wanted[0, at], wanted[1, at], active[at] = last, window, True
        self._state, output = self._programs.rounds[shape](
            self._params,
            self._state,
            self._page_table,
            np.asarray(sorted(used), np.int32),
            wanted[0],
            wanted[1],
            active,
            self._sampling,
        )
        return output, rows

    def capture(
        self, lane: int, pages: list[int], length: int, shared: Sequence[Segment] = ()
    ) -> Snapshot:
        """A copy of a lane's state, which must have absorbed exactly `length` tokens.

        Args:
          shared: leading page runs that are known to hold the same and need no copy.
        """
        segments = list(shared)
        start = sum(segment[0].k.shape[0] for segment in shared)
        for size in segment_sizes(length // BLOCK)[len(segments) :]:
            ids = np.asarray(pages[start : start + size], np.int32)
            segments.append(self._programs.capture_pages[size](self._state, ids))
            start += size
        delta, tail = self._programs.capture_lane(self._state, np.int32(lane))
        return Snapshot(length=length, delta=delta, segments=tuple(segments), tail=tail)

    def restore(self, lane: int, pages: list[int], snapshot: Snapshot) -> None:
        """Copies a snapshot into a lane; the snapshot stays as it is."""
        start = 0
        for segment in snapshot.segments:
            size = segment[0].k.shape[0]
            ids = np.asarray(pages[start : start + size], np.int32)
            self._state = self._programs.restore_pages[size](self._state, ids, segment)
            start += size
        image = snapshot.delta, snapshot.tail
        self._state = self._programs.restore_lane(self._state, np.int32(lane), image)

    def memory(self) -> dict[str, int]:
        """Bytes by kind of what lives on the device, seeds left out."""
        return {
            "weights": tree_bytes(self._params),
            "kv_pool": tree_bytes(self._state.model.kv),
            "delta_state": tree_bytes(self._state.model.delta),
        }


def smallest_snapshot_bytes(model: ModelConfig, engine: EngineConfig, dtype: jnp.dtype) -> int:
    """Bytes of a snapshot at the shortest frontier that is ever captured."""
    state = jax.eval_shape(lambda: init_engine_state(model, engine, dtype))
    lane = jax.ShapeDtypeStruct((), jnp.int32)
    lane_image = tree_bytes(jax.eval_shape(capture_lane, state, lane))
    page = tree_bytes(state.model.kv) // (engine.pool_pages + 1)
    return lane_image + MINIMUM_FRONTIER // BLOCK * page
