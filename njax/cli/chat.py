"""`njax chat`: a conversation in the terminal, or from piped lines."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

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
    Session,
    Temperature,
    TopK,
    TopP,
    session,
)
from njax.engine.types import Delta, Failed, Finished, GenerationRequest
from njax.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELP = "/reset forgets the conversation, /quit (or end of input) leaves"


def chat(
    model: Model = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    greedy: Greedy = False,
    max_new: MaxNew = 512,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    max_context: MaxContext = 8192,
) -> None:
    """Talk with a model. Ctrl-C stops an answer; /reset starts anew, /quit leaves."""
    options = SamplingOptions(
        greedy=greedy, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed
    )
    with session(model, max_context, options) as running:
        start = [{"role": "system", "content": system}] if system else []
        turns: list[dict[str, Any]] = list(start)
        say(_HELP)
        for line in _lines():
            if line in ("/quit", "/exit"):
                break
            if line == "/reset":
                turns = list(start)
                say("the conversation is empty again")
            elif line.startswith("/"):
                say(f"unknown command {line.split()[0]}; {_HELP}")
            elif line:
                turns.append({"role": "user", "content": line})
                try:
                    text = _answer(running, turns, max_new)
                except RequestError as error:
                    turns.pop()
                    say(f"error: {error}")
                else:
                    turns.append({"role": "assistant", "content": text})


def _lines() -> Iterator[str]:
    """What the user types, line by line; a prompt is shown on a terminal only."""
    interactive = sys.stdin.isatty()
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # editing and history for `input`
    while True:
        try:
            if interactive:
                line = input("> ")
            elif not (line := sys.stdin.readline()):
                return
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say(f"\n{_HELP}")
            continue
        yield line.strip()


def _answer(running: Session, turns: list[dict[str, Any]], max_new: int) -> str:
    """Streams one answer to stdout and returns it."""
    request = GenerationRequest(
        token_ids=running.engine.render(turns).token_ids,
        max_tokens=max_new,
        sampling=running.sampling,
    )
    pieces: list[str] = []
    try:
        for event in running.engine.generate(request):
            if isinstance(event, Delta):
                pieces.append(event.text)
                sys.stdout.write(event.text)
                sys.stdout.flush()
            elif isinstance(event, Failed):
                raise event.error
            elif isinstance(event, Finished):
                break
    except KeyboardInterrupt:
        say("\n(stopped)")
    sys.stdout.write("\n")
    sys.stdout.flush()
    return "".join(pieces)
