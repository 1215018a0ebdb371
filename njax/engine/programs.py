"""Every jitted program of the engine, compiled before it serves.

Afterwards a call with another shape is an error instead of a hidden compilation.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import jax
import jax.numpy as jnp

from njax.config import EngineConfig, ModelConfig
from njax.engine.buckets import SEGMENT_PAGES, prefill_buckets
from njax.engine.sampling import LaneSampling
from njax.engine.speculative import make_round, round_shapes
from njax.engine.steps import (
    Graphs,
    capture_lane,
    capture_pages,
    init_engine_state,
    make_decode,
    make_prefill,
    mark_prompt,
    restore_lane,
    restore_pages,
)

Progress = Callable[[str, int, int], None]
"""Called with (what has been done, steps done, steps in all)."""


@dataclasses.dataclass(frozen=True)
class Programs:
    """Compiled steps.

    Dictionaries are keyed by bucket (tokens), segment size (pages) or shape (drafts, lanes). An
    engine decodes with `decode` or, if it drafts, with `rounds`.
    """

    prefill: dict[int, Callable[..., Any]]
    decode: Callable[..., Any] | None
    rounds: dict[tuple[int, int], Callable[..., Any]]
    mark_prompt: Callable[..., Any]
    capture_lane: Callable[..., Any]
    restore_lane: Callable[..., Any]
    capture_pages: dict[int, Callable[..., Any]]
    restore_pages: dict[int, Callable[..., Any]]


def compile_programs(
    graphs: Graphs,
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
    image = jax.eval_shape(capture_lane, state, _ints())
    jobs: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {}
    buckets = prefill_buckets(engine.prefill_chunk, jax.default_backend())
    for bucket in buckets:
        scalars = (_ints(), _ints(), jax.ShapeDtypeStruct((), jnp.bool_))
        chunk = (weights, state, _ints(bucket), _ints(), _ints(row), *scalars, sampling)
        jobs[f"prefill of {bucket} tokens"] = make_prefill(graphs), chunk, (1,)
    active = jax.ShapeDtypeStruct((lanes,), jnp.bool_)
    shapes = round_shapes(engine) if engine.drafting else ()
    table = _ints(lanes, row)
    for window, width in shapes:
        busy = jax.ShapeDtypeStruct((width,), jnp.bool_)
        ints = [_ints(width)] * 3
        jobs[_round_name(window, width)] = (
            make_round(graphs, window), (weights, state, table, *ints, busy, sampling), (1,)
        )  # fmt: skip
    if not shapes:
        step = (weights, state, table, _ints(lanes), active, sampling)
        jobs["decode"] = make_decode(graphs), step, (1,)
    vocab = jax.ShapeDtypeStruct((model.vocab_size,), jnp.bool_)
    jobs["prompt marks"] = mark_prompt, (state, _ints(), vocab), (0,)
    jobs["state capture"] = capture_lane, (state, _ints()), ()
    jobs["state restore"] = restore_lane, (state, _ints(), image), (0,)
    for size in SEGMENT_PAGES:
        segment = jax.eval_shape(capture_pages, state, _ints(size))
        jobs[f"capture of {size} pages"] = capture_pages, (state, _ints(size)), ()
        jobs[f"restore of {size} pages"] = restore_pages, (state, _ints(size), segment), (0,)
    built = _compile_all(jobs, progress)
    return Programs(
        prefill={bucket: built[f"prefill of {bucket} tokens"] for bucket in buckets},
        decode=built.get("decode"),
        rounds={shape: built[_round_name(*shape)] for shape in shapes},
        mark_prompt=built["prompt marks"],
        capture_lane=built["state capture"],
        restore_lane=built["state restore"],
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


def _round_name(window: int, width: int) -> str:
    return f"round of {window} drafts in {width} lanes"


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _abstract(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
