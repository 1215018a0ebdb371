"""`njax generate`: one answer, on stdout; everything else goes to stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from njax.cli.progress import say
from njax.cli.session import (
    Greedy,
    MaxContext,
    MaxNew,
    MinP,
    Model,
    SamplingOptions,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    session,
)
from njax.errors import NjaxError


def generate(
    model: Model = None,
    prompt: Annotated[str | None, typer.Option(help="What the user says; -: read stdin.")] = None,
    messages: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='JSON: a list of messages, or {"messages": [...], "tools": [...]}; -: stdin.',
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it is, without chat template.")
    ] = False,
    greedy: Greedy = False,
    max_new: MaxNew = 256,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    max_context: MaxContext = 8192,
    print_token_ids: Annotated[
        bool, typer.Option("--print-token-ids", help="The answer's tokens, on stderr.")
    ] = False,
) -> None:
    """Answer one prompt or conversation."""
    if (prompt is None) == (messages is None):
        raise typer.BadParameter("give either --prompt or --messages", param_hint="--prompt")
    if raw and prompt is None:
        raise typer.BadParameter("--raw needs --prompt", param_hint="--raw")
    if prompt == "-":
        prompt = sys.stdin.read()
    conversation, tools = _read(messages) if messages is not None else (None, None)

    from njax.engine.types import Delta, Failed, Finished, GenerationRequest

    options = SamplingOptions(
        greedy=greedy, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed
    )
    with session(model, max_context, options) as running:
        engine = running.engine
        if raw:
            assert prompt is not None
            token_ids = tuple(engine.tokenizer.encode(prompt))
        else:
            turns = [{"role": "user", "content": prompt}] if conversation is None else conversation
            token_ids = engine.render(turns, tools).token_ids
        request = GenerationRequest(
            token_ids=token_ids,
            max_tokens=max_new,
            sampling=running.sampling,
            stop=tuple(text for text in stop or () if text),
        )
        answer: list[int] = []
        for event in engine.generate(request):
            if isinstance(event, Delta):
                answer += event.token_ids
                sys.stdout.write(event.text)
                sys.stdout.flush()
            elif isinstance(event, Failed):
                raise event.error
            elif isinstance(event, Finished):
                sys.stdout.write("\n")
                sys.stdout.flush()
                usage, seconds = event.usage, event.usage.timings.total
                if print_token_ids:
                    say(f"token ids: {' '.join(map(str, answer))}")
                say(
                    f"{usage.prompt_tokens} prompt tokens, {usage.completion_tokens} generated in "
                    f"{seconds:.2f} s ({event.reason.replace('_', ' ')})"
                )


def _read(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Messages and tools of a file."""
    from njax.text.messages import has_media, normalize_messages

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as error:
        raise NjaxError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise NjaxError(f"{path}: not JSON: {error}") from None
    if not isinstance(data, dict):
        data = {"messages": data}
    messages, tools = data.get("messages"), data.get("tools")
    if not isinstance(messages, list) or not messages:
        raise NjaxError(f"{path}: expected a list of messages, or an object that holds one")
    if has_media(normalize_messages(messages)):
        raise NjaxError(f"{path}: this version takes text only, no images and no video")
    return messages, tools
