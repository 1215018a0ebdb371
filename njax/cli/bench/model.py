"""`njax bench model`: decode and prefill of a model shape with random weights."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from njax.cli.bench.report import print_report, spread


def model(
    layers: Annotated[int, typer.Option(help="Layers of the 27B shape; 64 is the whole.")] = 64,
    lanes: Annotated[int, typer.Option(help="Sequences that decode together.")] = 1,
    context: Annotated[int, typer.Option(help="Tokens already in each sequence.")] = 512,
    steps: Annotated[int, typer.Option(help="Decode steps of one sample.")] = 64,
    samples: Annotated[int, typer.Option(help="Samples of each figure.")] = 5,
    prompt: Annotated[int, typer.Option(help="Prompt to prefill, 0 for none.")] = 8192,
    prefill_chunk: Annotated[int, typer.Option(help="Tokens of a prefill step.")] = 2048,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
) -> None:
    """Measures steps of the 27B shape, NVFP4 weights; random ones cost what trained ones do."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from njax.cli.bench.shapes import dense_27b, random_nvfp4_params
    from njax.cli.compile_cache import use_compile_cache
    from njax.config import BLOCK, EngineConfig
    from njax.engine.sampling import LaneSampling
    from njax.engine.steps import Graphs, init_engine_state, make_decode, make_prefill
    from njax.models.params import bind
    from njax.state import tree_bytes

    use_compile_cache()
    config = dense_27b(layers)
    longest = max(prompt, context + (samples + 1) * steps) + BLOCK
    engine = EngineConfig(
        max_context=longest, max_concurrency=lanes, prefill_chunk=-(-prefill_chunk // 64) * 64
    )
    dtype = jnp.dtype(jnp.bfloat16)
    began = time.perf_counter()
    graphdef, params = bind(config, dtype, random_nvfp4_params(config, dtype))
    jax.block_until_ready(params)
    print(f"weights: {tree_bytes(params) / 1e9:.2f} GB in {time.perf_counter() - began:.1f} s")
    state = jax.jit(lambda: init_engine_state(config, engine, dtype))()
    table = np.arange(1, engine.pool_pages + 1, dtype=np.int32).reshape(lanes, -1)
    greedy = LaneSampling.greedy(lanes)
    rows, data = [], {}

    began = time.perf_counter()
    decode = jax.jit(make_decode(Graphs(graphdef)), donate_argnums=1)
    active = np.ones(lanes, bool)
    position = context

    def run_decode() -> float:
        nonlocal state, position
        start = time.perf_counter()
        for _ in range(steps):
            where = np.full(lanes, position, np.int32)
            state, output = decode(params, state, table, where, active, greedy)
            position += 1
        output.token.block_until_ready()
        return 1e3 * (time.perf_counter() - start) / steps

    run_decode()
    print(f"decode compiled in {time.perf_counter() - began:.1f} s")
    times = [run_decode() for _ in range(samples)]
    step = spread(times)
    weight_bytes = tree_bytes(params) - tree_bytes(bind_embedding(params))
    rows.append(
        [
            f"decode, {lanes} lanes at {context}",
            f"{step['median']:.2f} ms",
            f"{1e3 * lanes / step['median']:.1f} tok/s",
            f"{weight_bytes / step['median'] / 1e9:.2f} TB/s of weights",
        ]
    )
    data["decode_ms"] = times

    if prompt:
        began = time.perf_counter()
        prefill = jax.jit(make_prefill(Graphs(graphdef)), donate_argnums=1)
        chunk = engine.prefill_chunk
        tokens = np.random.default_rng(0).integers(0, config.vocab_size, prompt).astype(np.int32)

        def run_prefill() -> float:
            nonlocal state
            start = time.perf_counter()
            for first in range(0, prompt, chunk):
                part = np.zeros(chunk, np.int32)
                length = min(chunk, prompt - first)
                part[:length] = tokens[first : first + length]
                state, output = prefill(
                    params, state, part, np.int32(0), table[0], np.int32(first),
                    np.int32(length), np.bool_(first + chunk >= prompt), greedy,
                )  # fmt: skip
            output.token.block_until_ready()
            assert bool(output.finite[0]), "the random model overflowed"
            return time.perf_counter() - start

        run_prefill()
        print(f"prefill compiled in {time.perf_counter() - began:.1f} s")
        seconds = [run_prefill() for _ in range(samples)]
        rate = prompt / spread(seconds)["median"]
        rows.append(
            [
                f"prefill of {prompt} in chunks of {chunk}",
                f"{1e3 * spread(seconds)['median']:.0f} ms",
                f"{rate:.0f} tok/s",
                "",
            ]
        )
        data["prefill_s"] = seconds
    print_report(
        f"27B shape, {layers} of 64 layers, NVFP4 weights, bf16 KV",
        ["what", "median", "rate", ""],
        rows,
        {**data, "layers": layers, "lanes": lanes, "context": context, "prompt": prompt},
        json_path,
    )


def bind_embedding(params: object) -> object:
    """The embedding's part of a bound parameter tree: a decode step reads only a row of it."""
    return params["embedding"]  # type: ignore[index]
