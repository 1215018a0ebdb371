"""`njax bench seed`: time to first token from a seed against a cold prefill, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from njax.cli.bench.report import print_report, spread


def seed(
    model: Annotated[
        str | None, typer.Argument(help="Converted model directory; none: the bundled model.")
    ] = None,
    heads: Annotated[str, typer.Option(help="Head lengths in tokens.")] = "512,2048,8192",
    tail: Annotated[int, typer.Option(help="Tokens after the head.")] = 32,
    repeats: Annotated[int, typer.Option(help="Timed requests of each kind.")] = 5,
    prefill_chunk: Annotated[int, typer.Option(help="Most tokens of a prefill step.")] = 512,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
) -> None:
    """Measures what a shared head saves: seeded against cold time to first token."""
    import numpy as np

    from njax.cli.compile_cache import use_compile_cache
    from njax.cli.models import load_model
    from njax.config import EngineConfig
    from njax.engine.engine import Engine
    from njax.engine.types import Failed, Finished, GenerationRequest, SamplingParams, Usage

    use_compile_cache()
    lengths = [int(head) for head in heads.split(",")]
    config = EngineConfig(
        max_context=max(lengths) + tail + 64,
        max_concurrency=1,
        prefill_chunk=prefill_chunk,
        prefix_cache_bytes=8 << 30,
    )
    rng = np.random.default_rng(0)
    with Engine(load_model(model), config) as engine:
        vocab = engine.model_config.vocab_size

        def tokens(count: int) -> tuple[int, ...]:
            return tuple(int(token) for token in rng.integers(0, vocab, count))

        def run(prompt: tuple[int, ...], head: int, *, prefix: bool) -> Usage:
            request = GenerationRequest(
                token_ids=prompt,
                max_tokens=1,
                sampling=SamplingParams(temperature=0.0),
                ignore_eos=True,
                frontiers=(head,),
                reuse_prefix=prefix,
                capture_prefix=prefix,
            )
            for event in engine.generate(request):
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Finished):
                    return event.usage
            raise AssertionError("a request ended without its last event")

        rows, data = [], []
        for length in lengths:
            head = tokens(length)
            run(head + tokens(tail), length, prefix=True)  # captures
            cold, seeded = [], []
            for _ in range(repeats):  # in turn, so that a drifting clock hits both alike
                usage = run(head + tokens(tail), length, prefix=False)
                cold.append(1e3 * usage.timings.time_to_first_token)
                usage = run(head + tokens(tail), length, prefix=True)
                assert usage.reuse_path == "seed_prefix", usage
                seeded.append(1e3 * usage.timings.time_to_first_token)
            ratio = spread([c / s for c, s in zip(cold, seeded, strict=True)])
            rows.append(
                [
                    str(length),
                    str(usage.cached_tokens),
                    f"{spread(cold)['median']:.1f}",
                    f"{spread(seeded)['median']:.1f}",
                    f"{ratio['median']:.1f} ({ratio['min']:.1f} to {ratio['max']:.1f})",
                ]
            )
            data.append(
                {
                    "head": length,
                    "tail": tail,
                    "cached": usage.cached_tokens,
                    "cold_ms": cold,
                    "seeded_ms": seeded,
                    "ratio": ratio,
                }
            )
    print_report(
        "time to first token, median",
        ["head tokens", "from the seed", "cold ms", "seeded ms", "cold / seeded"],
        rows,
        {"rows": data, "prefill_chunk": prefill_chunk},
        json_path,
    )
