"""Scores of a checkpoint on the held-out split, by generating: what the model card reports.

`python -m njax.demo.training.score CHECKPOINT --samples 50` runs the engine on every conversation
of the split, greedily, and judges the turns that it writes.
"""

from __future__ import annotations

import argparse
import json
import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from njax.checkpoint import Checkpoint, load_checkpoint
from njax.config import EngineConfig
from njax.demo.data.check import judge
from njax.demo.data.mixture import sample
from njax.demo.data.sample import Sample
from njax.demo.training.evaluate import SETS
from njax.engine.engine import Engine
from njax.engine.types import Delta, Failed, Finished, GenerationRequest, SamplingParams

SEED = 1
NAMES = tuple(score for score, _, _ in SETS)


def score(
    checkpoint: Checkpoint,
    samples: int,
    names: Sequence[str] = NAMES,
    *,
    max_tokens: int = 512,
    engine: EngineConfig | None = None,
    failures: int = 0,
) -> dict[str, Any]:
    """Shares by score name.

    Args:
      samples: conversations for each score.
      failures: how many wrong turns to report whole.

    Returns: `exact`: name -> share of conversations with every judged turn exact; `calls`: share of
    turns with calls that are `valid` and that are `right`; `wrong`: some turns that are not.
    """
    engine = engine or EngineConfig(max_context=8192, max_concurrency=8, prefill_chunk=512)
    turns: list[tuple[str, Sample, int, int]] = []
    for name, mix, category in SETS:
        if name not in names:
            continue
        for index in range(samples):
            one = sample(SEED, "test", index, mix, category)
            turns += [(name, one, index, target) for target in one.targets]
    whole: dict[tuple[str, int], bool] = {}
    calls = valid = right = 0
    wrong: list[dict[str, Any]] = []
    with Engine(checkpoint, engine) as running:
        texts = _generate(running, [(one, target) for _, one, _, target in turns], max_tokens)
    for (name, one, index, target), text in zip(turns, texts, strict=True):
        verdict = judge(one, target, text)
        whole[name, index] = whole.get((name, index), True) and verdict.exact
        if verdict.calls:
            calls, valid, right = calls + 1, valid + verdict.valid, right + verdict.right
        if not verdict.exact and len(wrong) < failures:
            wrong.append({"score": name, "kind": one.kind, "ask": one.messages[:target],
                          "want": one.messages[target], "got": text})  # fmt: skip
    exact = {
        name: sum(ok for (of, _), ok in whole.items() if of == name) / samples for name in names
    }
    return {
        "samples": samples,
        "exact": exact,
        "calls": {"turns": calls, "valid": valid / max(1, calls), "right": right / max(1, calls)},
        "wrong": wrong,
    }


def _generate(engine: Engine, turns: Sequence[tuple[Sample, int]], most: int) -> list[str]:
    """Greedy answers to the prompts of the turns, as many at a time as the engine has lanes."""
    lanes = engine.config.max_concurrency
    events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    texts = ["" for _ in turns]
    started = done = 0
    while done < len(turns):
        while started < len(turns) and started - done < lanes:
            one, target = turns[started]
            prompt = engine.render(one.messages[:target], one.tools, **one.options())
            request = GenerationRequest(
                token_ids=tuple(prompt.token_ids),
                max_tokens=most,
                sampling=SamplingParams(temperature=0.0),
            )
            engine.submit(request, lambda event, at=started: events.put((at, event)))  # type: ignore[misc]
            started += 1
        at, event = events.get()
        if isinstance(event, Delta):
            texts[at] += event.text
        elif isinstance(event, Failed):
            raise event.error
        elif isinstance(event, Finished):
            done += 1
    return texts


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m njax.demo.training.score", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--samples", type=int, default=50, help="conversations for each score")
    parser.add_argument("--names", nargs="*", default=NAMES)
    parser.add_argument("--failures", type=int, default=10, help="wrong turns to show")
    given = parser.parse_args(arguments)
    report = score(
        load_checkpoint(given.checkpoint), given.samples, given.names, failures=given.failures
    )
    print(json.dumps(report, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
