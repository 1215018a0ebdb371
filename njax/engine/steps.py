"""The jitted programs: prefill, decode, and the copies that make and restore snapshots.

A program is pure: state in, state out. The working state is donated, a snapshot never is.
`compile_programs` compiles everything ahead of time; afterwards a call with another shape is an
error instead of a hidden compilation.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from njax.config import EngineConfig, ModelConfig
from njax.engine.buckets import SEGMENT_PAGES, prefill_buckets
from njax.engine.logits import (
    Logprobs,
    TokenCounts,
    adjust,
    count_token,
    init_counts,
    log_probabilities,
)
from njax.engine.sampling import LaneSampling, sample
from njax.state import DeltaState, KVPages, ModelState, init_state, kv_storage

Progress = Callable[[str, int, int], None]
"""Called with (what has been done, steps done, steps in all)."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EngineState:
    """All device state of the engine.

    Attributes:
      model: state of every lane and the page pool.
      last_token: int32 [lanes], the newest token of each lane, not yet absorbed by the model.
      counts: tokens that each lane has seen, for penalties.
    """

    model: ModelState
    last_token: jax.Array
    counts: TokenCounts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepOutput:
    """What the host reads after a step; B is 1 after a prefill, else the lane width.

    Attributes:
      token: int32 [B], the chosen tokens.
      finite: bool [B], whether the logits that they were chosen from are.
      logprobs: of the chosen tokens.
    """

    token: jax.Array
    finite: jax.Array
    logprobs: Logprobs


def init_engine_state(model: ModelConfig, engine: EngineConfig, dtype: jnp.dtype) -> EngineState:
    """Zeroed state; `jax.eval_shape` of it costs nothing."""
    return EngineState(
        model=init_state(
            model,
            batch=engine.max_concurrency,
            pages=engine.pool_pages + 1,
            dtype=dtype,
            kv_dtype=kv_storage(engine.kv_dtype, dtype),
        ),
        last_token=jnp.zeros(engine.max_concurrency, jnp.int32),
        counts=init_counts(engine.max_concurrency, model.vocab_size),
    )


def _lane_slice(tree: Any, lane: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, lane, 1, axis=0), tree)


def _lane_update(tree: Any, lane: jax.Array, row: Any) -> Any:
    return jax.tree.map(
        lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, lane, axis=0), tree, row
    )


def _choose(
    logits: jax.Array, lanes: LaneSampling, counts: TokenCounts, index: jax.Array
) -> StepOutput:
    """Tokens at positions `index` int32 [B] from raw logits float32 [B, V]."""
    token = sample(adjust(logits, lanes, counts), lanes, index)
    return StepOutput(
        token=token,
        finite=jnp.all(jnp.isfinite(logits), axis=-1),
        logprobs=log_probabilities(logits, token, lanes),
    )


def make_prefill(graphdef: nnx.GraphDef) -> Callable[..., tuple[EngineState, StepOutput]]:
    """Prefill of one lane's chunk. Its padded length is the bucket, T below."""

    def prefill(
        params: Any,
        state: EngineState,
        tokens: jax.Array,  # int32 [T]
        lane: jax.Array,  # int32 []
        page_row: jax.Array,  # int32 [pages_per_lane]
        start: jax.Array,  # int32 [], absolute position of tokens[0]
        length: jax.Array,  # int32 [], real tokens of the T
        is_last: jax.Array,  # bool [], the chunk ends the prompt: choose a token
        sampling: LaneSampling,
    ) -> tuple[EngineState, StepOutput]:
        model = nnx.merge(graphdef, params)
        delta = jax.tree.map(
            lambda leaf: jnp.where(start == 0, jnp.zeros_like(leaf), leaf),
            _lane_slice(state.model.delta, lane),
        )
        positions = start + jnp.arange(tokens.shape[0], dtype=jnp.int32)
        hidden, new = model(
            tokens[None],
            jnp.broadcast_to(positions, (3, 1, tokens.shape[0])),
            ModelState(delta=delta, kv=state.model.kv),
            page_row[None],
            start[None],
            length[None],
        )
        row = jax.lax.dynamic_slice_in_dim(hidden[0], length - 1, 1, axis=0)
        seen = _lane_slice(state.counts, lane)
        fresh = TokenCounts(generated=jnp.zeros_like(seen.generated), prompt=seen.prompt)

        def choose() -> StepOutput:
            index = (start + length)[None]
            return _choose(model.logits(row), _lane_slice(sampling, lane), fresh, index)

        output = jax.lax.cond(
            is_last,
            choose,
            lambda: jax.tree.map(jnp.zeros_like, jax.eval_shape(choose)),
        )
        counts = count_token(fresh, output.token, is_last[None])
        state = EngineState(
            model=ModelState(delta=_lane_update(state.model.delta, lane, new.delta), kv=new.kv),
            last_token=_lane_update(state.last_token, lane, output.token),
            counts=_lane_update(state.counts, lane, counts),
        )
        return state, output

    return prefill


def make_decode(graphdef: nnx.GraphDef) -> Callable[..., tuple[EngineState, StepOutput]]:
    """One token for every active lane; B is the fixed lane width."""

    def decode(
        params: Any,
        state: EngineState,
        page_table: jax.Array,  # int32 [B, pages_per_lane]
        position: jax.Array,  # int32 [B], where each lane's last token goes
        active: jax.Array,  # bool [B]
        sampling: LaneSampling,
    ) -> tuple[EngineState, StepOutput]:
        model = nnx.merge(graphdef, params)
        hidden, new = model(
            state.last_token[:, None],
            jnp.broadcast_to(position[:, None], (3, position.shape[0], 1)),
            state.model,
            page_table,
            position,
            active.astype(jnp.int32),
        )
        output = _choose(model.logits(hidden[:, 0]), sampling, state.counts, position + 1)
        state = EngineState(
            model=new,
            last_token=jnp.where(active, output.token, state.last_token),
            counts=count_token(state.counts, output.token, active),
        )
        return state, output

    return decode


def mark_prompt(state: EngineState, lane: jax.Array, prompt: jax.Array) -> EngineState:
    """Notes which tokens (bool [V]) stand in a lane's prompt, for its repetition penalty."""
    marked = _lane_update(state.counts.prompt, lane, prompt[None])
    counts = TokenCounts(generated=state.counts.generated, prompt=marked)
    return dataclasses.replace(state, counts=counts)


def capture_delta(state: EngineState, lane: jax.Array) -> tuple[DeltaState, ...]:
    """A copy of one lane's delta state (batch 1)."""
    return _lane_slice(state.model.delta, lane)


def restore_delta(
    state: EngineState, lane: jax.Array, delta: tuple[DeltaState, ...]
) -> EngineState:
    """Copies a snapshot's delta state into a lane."""
    model = ModelState(delta=_lane_update(state.model.delta, lane, delta), kv=state.model.kv)
    return dataclasses.replace(state, model=model)


def capture_pages(state: EngineState, pages: jax.Array) -> tuple[KVPages, ...]:
    """A copy of these pool pages (int32 [n]) of every attention layer."""
    return jax.tree.map(lambda leaf: leaf[pages], state.model.kv)


def restore_pages(
    state: EngineState, pages: jax.Array, segment: tuple[KVPages, ...]
) -> EngineState:
    """Copies a snapshot's run of pages into these pool pages (int32 [n], distinct)."""
    kv = jax.tree.map(
        lambda leaf, new: leaf.at[pages].set(new, unique_indices=True), state.model.kv, segment
    )
    return dataclasses.replace(state, model=ModelState(delta=state.model.delta, kv=kv))


@dataclasses.dataclass(frozen=True)
class Programs:
    """Compiled steps. Dictionaries are keyed by bucket (tokens) or segment size (pages)."""

    prefill: dict[int, Callable[..., Any]]
    decode: Callable[..., Any]
    mark_prompt: Callable[..., Any]
    capture_delta: Callable[..., Any]
    restore_delta: Callable[..., Any]
    capture_pages: dict[int, Callable[..., Any]]
    restore_pages: dict[int, Callable[..., Any]]


def compile_programs(
    graphdef: nnx.GraphDef,
    params: Any,
    model: ModelConfig,
    engine: EngineConfig,
    dtype: jnp.dtype,
    progress: Progress | None = None,
) -> Programs:
    """Compiles every program for these shapes, several at a time; `progress` hears of each."""
    state = jax.eval_shape(lambda: init_engine_state(model, engine, dtype))
    weights = _abstract(params)
    lanes, row = engine.max_concurrency, engine.pages_per_lane
    sampling = _abstract(LaneSampling.greedy(lanes))
    delta = jax.eval_shape(capture_delta, state, _ints())
    jobs: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {}
    buckets = prefill_buckets(engine.prefill_chunk, jax.default_backend())
    for bucket in buckets:
        scalars = (_ints(), _ints(), jax.ShapeDtypeStruct((), jnp.bool_))
        chunk = (weights, state, _ints(bucket), _ints(), _ints(row), *scalars, sampling)
        jobs[f"prefill of {bucket} tokens"] = make_prefill(graphdef), chunk, (1,)
    active = jax.ShapeDtypeStruct((lanes,), jnp.bool_)
    round_ = (weights, state, _ints(lanes, row), _ints(lanes), active, sampling)
    jobs["decode"] = make_decode(graphdef), round_, (1,)
    vocab = jax.ShapeDtypeStruct((model.vocab_size,), jnp.bool_)
    jobs["prompt marks"] = mark_prompt, (state, _ints(), vocab), (0,)
    jobs["state capture"] = capture_delta, (state, _ints()), ()
    jobs["state restore"] = restore_delta, (state, _ints(), delta), (0,)
    for size in SEGMENT_PAGES:
        segment = jax.eval_shape(capture_pages, state, _ints(size))
        jobs[f"capture of {size} pages"] = capture_pages, (state, _ints(size)), ()
        jobs[f"restore of {size} pages"] = restore_pages, (state, _ints(size), segment), (0,)
    built = _compile_all(jobs, progress)
    return Programs(
        prefill={bucket: built[f"prefill of {bucket} tokens"] for bucket in buckets},
        decode=built["decode"],
        mark_prompt=built["prompt marks"],
        capture_delta=built["state capture"],
        restore_delta=built["state restore"],
        capture_pages={size: built[f"capture of {size} pages"] for size in SEGMENT_PAGES},
        restore_pages={size: built[f"restore of {size} pages"] for size in SEGMENT_PAGES},
    )


def _compile_all(
    jobs: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]],
    progress: Progress | None,
) -> dict[str, Callable[..., Any]]:
    """Compiles {name: (function, abstract arguments, donated arguments)}; XLA frees the GIL."""

    def compile_one(name: str) -> Callable[..., Any]:
        function, args, donate = jobs[name]
        return jax.jit(function, donate_argnums=donate).lower(*args).compile()

    built: dict[str, Callable[..., Any]] = {}
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        futures = {pool.submit(compile_one, name): name for name in jobs}
        try:
            for future in as_completed(futures):
                built[futures[future]] = future.result()
                if progress:
                    progress(f"compiled {futures[future]}", len(built), len(jobs))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return built


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _abstract(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
