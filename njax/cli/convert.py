"""`njax convert`: a Hugging Face checkpoint becomes an njax checkpoint."""

from __future__ import annotations

import contextlib
import enum
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer


class Quantize(enum.StrEnum):
    none = "none"
    nvfp4 = "nvfp4"


class Dtype(enum.StrEnum):
    bf16 = "bf16"
    float32 = "float32"


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="Hugging Face directory: config.json, safetensors, tokenizer.json.",
        ),
    ],
    destination: Annotated[
        Path, typer.Argument(metavar="DST", help="New directory for the njax checkpoint.")
    ],
    quantize: Annotated[
        Quantize,
        typer.Option(
            help="nvfp4: 4-bit linear projections. Embedding, head, norms, convolutions, the small "
            "gate projections and what is quantised already stay as they are."
        ),
    ] = Quantize.none,
    dtype: Annotated[
        Dtype,
        typer.Option(
            help="Of activations, KV cache and unquantised weights; float32 computes in float32 "
            "throughout."
        ),
    ] = Dtype.bf16,
) -> None:
    """Convert a Hugging Face checkpoint; DST appears whole or not at all.

    Reads plain, NVFP4 (ModelOpt and compressed-tensors) and FP8 weights, tensor by tensor.
    """
    import jax

    # Conversion is work for the host: leave accelerators, and their memory, to others.
    jax.config.update("jax_platforms", "cpu")
    from njax.checkpoint import convert_checkpoint
    from njax.errors import NjaxError

    start = time.monotonic()
    try:
        with _terminable(), _progress() as progress:
            manifest = convert_checkpoint(
                source,
                destination,
                quantize=quantize.value,
                dtype="bfloat16" if dtype is Dtype.bf16 else "float32",
                progress=progress,
            )
    except NjaxError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    for name, reason in manifest["not_quantized"].items():
        typer.echo(f"not quantised: {name}: {reason}", err=True)
    for warning in manifest["warnings"]:
        typer.echo(f"warning: {warning}", err=True)
    profile = manifest["numeric_profile"]
    size = sum(entry["bytes"] for entry in manifest["tensors"].values())
    weights = ", ".join(f"{count} {kind}" for kind, count in profile["weights"].items())
    typer.echo(
        f"{destination}: {size:,} bytes, weights {weights}, activations "
        f"{profile['activations']}, in {time.monotonic() - start:.1f} s"
    )


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the command like Ctrl-C does: what was written so far is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; elsewhere a line at each tenth."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        with Progress(
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        ) as bar:
            task = bar.add_task("", total=None)
            yield lambda name, done, total: bar.update(
                task, description=name, completed=done, total=total
            )
        return
    tenth = 0

    def line(name: str, done: int, total: int) -> None:
        nonlocal tenth
        if total and done * 10 // total > tenth:
            tenth = done * 10 // total
            typer.echo(f"{tenth * 10}% ({done / 1e9:.2f} of {total / 1e9:.2f} GB)", err=True)

    yield line
