"""`njax bench spec`: decoding with drafts against plain decoding, in one run."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import queue
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from njax.cli.bench.report import print_report, spread
from njax.cli.progress import Progress, steps
from njax.config import MAX_DRAFT_TOKENS
from njax.errors import StartupError

if TYPE_CHECKING:
    from njax.engine.engine import Engine
    from njax.engine.types import GenerationRequest

PLAIN = "plain"


def spec(
    model: Annotated[
        str | None, typer.Argument(help="Converted model directory; none: the bundled model.")
    ] = None,
    draft_tokens: Annotated[
        str, typer.Option(help=f"Drafts of a round to try, each 1 to {MAX_DRAFT_TOKENS}.")
    ] = "1,3,5",
    lanes: Annotated[str, typer.Option(help="How many requests run together.")] = "1,4",
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='JSON lines of {"messages", "tools", "options"}.',
            show_default="held-out conversations of the bundled model's world",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Prompts to use.")] = 16,
    max_new: Annotated[int, typer.Option(min=2, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes over the prompts.")] = 3,
    max_context: Annotated[int, typer.Option(min=1, help="Of a prompt and its answer.")] = 2048,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
) -> None:
    """Measures what drafts bring: speed against plain decoding, and how many are accepted.

    Plain and drafting engines live side by side and answer every prompt in turn. Their answers are
    compared too.
    """
    from njax.cli.compile_cache import use_compile_cache
    from njax.cli.models import load_model
    from njax.config import EngineConfig
    from njax.engine.engine import Engine
    from njax.engine.types import GenerationRequest, SamplingParams

    windows, widths = _numbers("--draft-tokens", draft_tokens), _numbers("--lanes", lanes)
    plain = EngineConfig(max_context=max_context, max_concurrency=max(widths))
    configs = {PLAIN: plain} | {
        f"mtp {window}": dataclasses.replace(
            plain, spec="mtp", draft_tokens=window, draft_lanes=max(widths)
        )
        for window in windows
    }
    lines = _lines(prompts, model, count)
    use_compile_cache()
    with contextlib.ExitStack() as stack:
        engines = {}
        for name, config in configs.items():
            checkpoint = load_model(model, mtp=config.drafting)
            with steps() as progress:
                engines[name] = stack.enter_context(Engine(checkpoint, config, progress))
            del checkpoint
        requests = [
            GenerationRequest(
                token_ids=tuple(
                    engines[PLAIN]
                    .render(line["messages"], line.get("tools"), **line.get("options", {}))
                    .token_ids
                ),
                max_tokens=max_new,
                sampling=SamplingParams(temperature=temperature, seed=index),
            )
            for index, line in enumerate(lines)
        ]
        with steps() as progress:
            data = measure(engines, requests, widths, repeats, progress)
    print_report(
        "decoding with drafts",
        ["lanes", "drafts", "tokens/s of a lane", "against plain", "tokens a round", "accepted",
         "by position", "same answers"],
        [_row(entry) for entry in data],
        {"rows": data, "prompts": len(requests), "max_new": max_new, "temperature": temperature},
        json_path,
    )  # fmt: skip


def measure(
    engines: Mapping[str, Engine],
    requests: Sequence[GenerationRequest],
    widths: Sequence[int],
    repeats: int,
    progress: Progress,
) -> list[dict[str, Any]]:
    """One JSON-ready entry for each number of lanes and each engine; `PLAIN` must be one.

    Speed is that of one lane after its first token: new tokens over the seconds they took.
    """
    done, total = 0, len(widths) * (1 + repeats) * len(engines)
    found = []
    for width in widths:
        speeds: dict[str, list[float]] = {name: [] for name in engines}
        last: dict[str, _Pass] = {}
        for repeat in range(1 + repeats):  # the first warms up
            for name, engine in engines.items():  # in turn: a drifting clock hits all alike
                last[name] = _answer_all(engine, requests, width)
                if repeat:
                    speeds[name].append(last[name].speed)
                done += 1
                progress(f"{width} lanes, {name}", done, total)
        for name, run in last.items():
            ratios = [s / p for s, p in zip(speeds[name], speeds[PLAIN], strict=True)]
            drafted, accepted = run.drafts.drafted, run.drafts.accepted
            found.append(
                {
                    "lanes": width,
                    "name": name,
                    "tokens_per_s": speeds[name],
                    "ratio": spread(ratios),
                    "tokens": run.tokens,
                    "rounds": run.drafts.rounds,
                    "drafted": list(drafted),
                    "accepted": list(accepted),
                    "same_answers": run.answers == last[PLAIN].answers,
                }
            )
    return found


class _Pass:
    """What came of all requests once."""

    def __init__(self) -> None:
        from njax.engine.types import Drafts

        self.answers: list[list[int]] = []
        self.drafts = Drafts()
        self.seconds = 0.0

    @property
    def tokens(self) -> int:
        """New tokens after the first of each answer."""
        return sum(len(answer) - 1 for answer in self.answers)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


def _answer_all(engine: Engine, requests: Sequence[GenerationRequest], width: int) -> _Pass:
    """Answers all requests, `width` at a time."""
    from njax.engine.types import Delta, Failed, Finished

    result = _Pass()
    result.answers = [[] for _ in requests]
    events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    waiting = list(enumerate(requests))
    running = 0
    while waiting or running:
        while waiting and running < width:
            index, request = waiting.pop(0)
            engine.submit(request, lambda event, index=index: events.put((index, event)))  # type: ignore[misc]
            running += 1
        index, event = events.get()
        if isinstance(event, Delta):
            result.answers[index] += event.token_ids
        elif isinstance(event, Failed):
            raise event.error
        elif isinstance(event, Finished):
            running -= 1
            timings = event.usage.timings
            result.seconds += timings.total - timings.time_to_first_token
            result.drafts += event.usage.drafts
    return result


def _row(entry: dict[str, Any]) -> list[str]:
    drafted, accepted = entry["drafted"], entry["accepted"]
    drafts, rounds = sum(drafted), entry["rounds"] or entry["tokens"]
    by_position = " ".join(
        f"{a / d:.2f}" if d else "-" for a, d in zip(accepted, drafted, strict=True)
    )
    ratio = entry["ratio"]
    return [
        str(entry["lanes"]),
        entry["name"],
        f"{spread(entry['tokens_per_s'])['median']:.0f}",
        f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})",
        f"{entry['tokens'] / rounds:.2f}",
        f"{sum(accepted) / drafts:.3f}" if drafts else "",
        by_position,
        "yes" if entry["same_answers"] else "NO",
    ]


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise StartupError(f"{option} is {text!r}; give numbers with commas between") from None


def _lines(path: Path | None, model: str | None, count: int) -> list[dict[str, Any]]:
    """Conversations up to the answer that is to be given."""
    if path is None:
        from njax.demo.data.held_out import held_out_lines

        if model not in (None, "demo", "demo-bf16"):
            raise StartupError("give --prompts: only the bundled model has prompts of its own")
        found = [json.loads(line) for line in itertools.islice(held_out_lines(count), count)]
    else:
        try:
            found = [json.loads(line) for line in path.read_text().splitlines()[:count]]
        except (OSError, ValueError) as error:
            raise StartupError(f"{path}: {error}") from None
        if not found or not all(isinstance(one, dict) and "messages" in one for one in found):
            raise StartupError(f'{path}: expected lines of {{"messages": [...]}}')
    for one in found:
        while one["messages"] and one["messages"][-1].get("role") == "assistant":
            one["messages"].pop()
    return found
