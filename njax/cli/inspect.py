"""`njax inspect`: what is in a checkpoint, without loading it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def inspect(
    path: Annotated[
        str,
        typer.Argument(
            help="An njax checkpoint, a Hugging Face directory (not converted yet), or `demo`."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON object.")] = False,
) -> None:
    """Print config, numeric profile, tensors and bytes of a checkpoint.

    For a Hugging Face directory it says what `njax convert` with default options would make of it.
    """
    from njax.checkpoint.describe import describe
    from njax.cli.models import model_directory
    from njax.errors import NjaxError

    try:
        with model_directory(path) as directory:
            found = describe(directory)
    except NjaxError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    manifest, profile = found["manifest"], found["numeric_profile"]
    if found["format"] == "njax":
        options = ", ".join(f"{k} {v}" for k, v in manifest["options"].items()) or "made by njax"
        typer.echo(
            f"{found['path']}: njax checkpoint, format {manifest['format_version']}, "
            f"njax {manifest['njax_version']} ({options})"
        )
    else:
        typer.echo(
            f"{found['path']}: Hugging Face checkpoint, not converted; below is what "
            "`njax convert` would write"
        )
    typer.echo("\nconfig")
    for key, value in found["config"].items():
        typer.echo(f"  {key:<20} {_layers(value) if key == 'layer_kinds' else value}")
    typer.echo("\nnumeric profile")
    typer.echo(f"  {'activations':<20} {profile['activations']}")
    typer.echo(f"  {'kv':<20} {profile['kv']}")
    weights = ", ".join(f"{count} {kind}" for kind, count in profile["weights"].items())
    typer.echo(f"  {'weights':<20} {weights} tensors")
    typer.echo("\ntensors")
    width = max((len(tensor["name"]) for tensor in found["tensors"]), default=0)
    for tensor in found["tensors"]:
        shape = " x ".join(map(str, tensor["shape"])) or "scalar"
        typer.echo(
            f"  {tensor['name']:<{width}}  {tensor['kind']:<8}  {tensor['dtype']:<24}  "
            f"{shape:<16}  {tensor['bytes']:>14,}"
        )
    typer.echo("\nbytes of a token in the KV cache")
    for dtype, count in found["kv_token_bytes"].items():
        flag = " (njax serve --kv-dtype int8)" if dtype == "int8" else ""
        typer.echo(f"  {dtype:<20} {count:,}{flag}")
    typer.echo("\nbytes")
    for kind, sums in found["kinds"].items():
        typer.echo(f"  {kind:<8} {sums['tensors']:>6} tensors {sums['bytes']:>16,}")
    typer.echo(f"  {'all':<8} {len(found['tensors']):>6} tensors {found['bytes']:>16,}")
    if manifest["source"]:
        typer.echo("\nsource files")
        for name, file in manifest["source"].items():
            digest = f"  sha256 {file['sha256']}" if "sha256" in file else ""
            typer.echo(f"  {name}  {file['bytes']:,} bytes{digest}")
    for name, reason in manifest["not_quantized"].items():
        typer.echo(f"not quantised: {name}: {reason}")
    for warning in manifest["warnings"]:
        typer.echo(f"warning: {warning}")


def _layers(kinds: list[str]) -> str:
    """Layer kinds as runs: "3 delta, 1 attention, ..."."""
    runs: list[tuple[str, int]] = []
    for kind in kinds:
        if runs and runs[-1][0] == kind:
            runs[-1] = kind, runs[-1][1] + 1
        else:
            runs.append((kind, 1))
    return ", ".join(f"{count} {kind}" for kind, count in runs)
