"""The tree of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from njax import __version__
from njax.cli.bench.convert import convert_memory
from njax.cli.bench.kernels import kernels
from njax.cli.bench.model import model
from njax.cli.bench.seed import seed
from njax.cli.bench.spec import spec
from njax.cli.bench.sse import sse
from njax.cli.chat import chat
from njax.cli.convert import convert
from njax.cli.generate import generate
from njax.cli.inspect import inspect
from njax.cli.perplexity import perplexity
from njax.cli.serve import serve

app = typer.Typer(
    name="njax",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve hybrid language models (gated DeltaNet + gated attention) with shared-prefix "
    "seeding. Without a model, commands use a tiny bundled one.",
)
bench = typer.Typer(no_args_is_help=True, help="Measurements; each prints where it ran.")

_COMMANDS: tuple[Callable[..., None], ...] = (serve, generate, chat, convert, inspect, perplexity)
_BENCHES: tuple[Callable[..., None], ...] = (seed, spec, sse, model, kernels, convert_memory)

for _command in _COMMANDS:
    app.command()(_command)
for _command in _BENCHES:
    bench.command()(_command)
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"njax {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
