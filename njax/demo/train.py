"""Trains the demo model: `python -m njax.demo.train --out DIR --minutes 22`.

Everything lies in DIR: the tokenizer, saves to resume from (the same command goes on), curves.json
and curves.png, and at the end two njax checkpoints, `bfloat16` and `nvfp4`. Needs `njax[train]`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from pathlib import Path

from njax.demo.training.export import export
from njax.demo.training.loop import RunOptions, train
from njax.demo.training.recipe import MODELS, Recipe


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m njax.demo.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--minutes", type=float, help="time for the whole run")
    parser.add_argument("--steps", type=int, help="steps, instead of what the time allows")
    parser.add_argument("--size", choices=sorted(MODELS), default="small")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--learning-rate", type=float, default=Recipe.learning_rate)
    parser.add_argument("--optimizer", choices=("muon", "adamw"), default=Recipe.optimizer)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default=Recipe.dtype)
    parser.add_argument("--warmup", type=int, default=Recipe.warmup)
    parser.add_argument(
        "--rows-divisor", type=int, default=1, help="divides the rows of a batch (small machines)"
    )
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--log-every", type=int, default=RunOptions.log_every)
    parser.add_argument("--evaluate-every", type=int, default=RunOptions.evaluate_every)
    parser.add_argument("--save-every", type=int, default=RunOptions.save_every)
    parser.add_argument("--evaluation-samples", type=int, default=RunOptions.evaluation_samples)
    given = parser.parse_args(arguments)
    if given.minutes is None and given.steps is None:
        parser.error("give --minutes or --steps")
    recipe = Recipe(
        model=MODELS[given.size],
        seed=given.seed,
        learning_rate=given.learning_rate,
        optimizer=given.optimizer,
        dtype=given.dtype,
        warmup=given.warmup,
    )
    recipe = dataclasses.replace(
        recipe,
        phases=tuple(
            dataclasses.replace(
                phase,
                bucket=dataclasses.replace(
                    phase.bucket, rows=max(1, phase.bucket.rows // given.rows_divisor)
                ),
            )
            for phase in recipe.phases
        ),
    )
    options = RunOptions(
        minutes=given.minutes,
        steps=given.steps,
        workers=given.workers,
        log_every=given.log_every,
        evaluate_every=given.evaluate_every,
        save_every=given.save_every,
        evaluation_samples=given.evaluation_samples,
    )
    state = train(recipe, given.out, options, lambda line: print(line, flush=True))
    tokenizer_json = (given.out / "tokenizer.json").read_text(encoding="utf-8")
    progress = state.progress
    facts = {"trained_by": "njax.demo.train", "steps": progress.step, "tokens": progress.tokens}
    facts |= {"seed": recipe.seed, "scores": progress.scores[-1] if progress.scores else {}}
    for numbers in ("bfloat16", "nvfp4"):
        path = given.out / numbers
        shutil.rmtree(path, ignore_errors=True)
        export(path, state.params, recipe.model, tokenizer_json, numbers, facts)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        print(f"{path}: {size / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
