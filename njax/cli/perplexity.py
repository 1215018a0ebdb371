"""`njax perplexity`: how well a model predicts a text, and how far from another it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from njax.cli.models import load_model, model_name
from njax.cli.progress import Progress, say, stage, steps
from njax.errors import NjaxError, StartupError

_DTYPES = ("bf16", "int8")


def perplexity(
    model: Annotated[
        str,
        typer.Argument(
            help="Converted model directory; `demo`, the bundled model, or `demo-bf16`."
        ),
    ],
    file: Annotated[
        Path, typer.Argument(help="A text, or .jsonl with text or messages in each line.")
    ],
    against: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Reference model to compare with, or `demo`."),
    ] = None,
    kv_dtype: Annotated[
        str | None, typer.Option(help="KV cache: bf16 or int8.", show_default="the activations'")
    ] = None,
    against_kv_dtype: Annotated[
        str | None,
        typer.Option(help="KV cache of the reference; alone: the same model is the reference."),
    ] = None,
    window: Annotated[int, typer.Option(min=2, help="Most tokens seen at once.")] = 2048,
    stride: Annotated[
        int | None, typer.Option(min=1, help="From window to window.", show_default="half of it")
    ] = None,
    answers_only: Annotated[
        bool, typer.Option("--answers-only", help="Of conversations: only the last answers.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure windowed perplexity; against a reference also KL divergence and agreement."""
    stride = window // 2 if stride is None else stride
    if stride >= window:
        raise typer.BadParameter(
            f"{stride} is not smaller than the window of {window}", param_hint="--stride"
        )
    for option, value in (("--kv-dtype", kv_dtype), ("--against-kv-dtype", against_kv_dtype)):
        if value is not None and value not in _DTYPES:
            raise StartupError(f"{option} is {value!r}; expected one of {', '.join(_DTYPES)}")

    from njax.cli.compile_cache import use_compile_cache
    from njax.evaluation import Scorer, read_corpus, score_sequences, summarize
    from njax.text.chat_template import ChatTemplate
    from njax.text.tokenizer import Tokenizer

    use_compile_cache()
    with stage(f"loading {model_name(model)}"):
        checkpoint = load_model(model)
    tokenizer = Tokenizer.from_json(checkpoint.tokenizer_json)
    template = None
    if checkpoint.chat_template is not None:
        template = ChatTemplate(checkpoint.chat_template, checkpoint.tokenizer_config)
    sequences = read_corpus(file, tokenizer, template, answers_only=answers_only)
    scorer = Scorer(checkpoint, window, kv_dtype=kv_dtype)
    reference, reference_name = None, None
    if against is not None or against_kv_dtype is not None:
        other = checkpoint
        if against is not None:
            with stage(f"loading {model_name(against)}"):
                other = load_model(against)
            if other.tokenizer_json != checkpoint.tokenizer_json:
                say("note: the tokenizers of the two models differ; this model's is used for both")
        reference_name = _profile(against or model, against_kv_dtype)
        reference = Scorer(other, window, kv_dtype=against_kv_dtype)
    with steps() as progress:
        heard = _thinned(progress)
        try:
            figures = score_sequences(
                sequences, scorer, reference, size=window, stride=stride, progress=heard
            )
        except ValueError as error:
            raise NjaxError(f"{file}: {error}") from None
    result = {
        "model": _profile(model, kv_dtype),
        "reference": reference_name,
        "file": str(file),
        "window": window,
        "stride": stride,
        **summarize(figures),
    }
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        _print(result)


def _thinned(progress: Progress) -> Callable[[int, int], None]:
    """At most twenty reports, so that a log stays readable."""
    said = 0

    def heard(done: int, total: int) -> None:
        nonlocal said
        if done * 20 // total > said:
            said = done * 20 // total
            progress("tokens run", done, total)

    return heard


def _profile(model: str, kv_dtype: str | None) -> str:
    return model_name(model) + (f" (KV {kv_dtype})" if kv_dtype else "")


_LABELS = {
    "tokens": ("scored tokens", "{:,}"),
    "perplexity": ("perplexity", "{:.4f}"),
    "perplexity_error": ("  standard error", "{:.4f}"),
    "top_1": ("likeliest token right", "{:.3%}"),
    "reference_perplexity": ("reference perplexity", "{:.4f}"),
    "perplexity_ratio": ("perplexity / reference", "{:.5f}"),
    "divergence_mean": ("KL divergence, mean", "{:.6f} nats"),
    "divergence_median": ("  median", "{:.6f}"),
    "divergence_p99": ("  99th percentile", "{:.6f}"),
    "divergence_max": ("  largest", "{:.6f}"),
    "agreement": ("same likeliest token", "{:.3%}"),
}


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    title = result["model"] + (f" against {result['reference']}" if result["reference"] else "")
    table = Table(title=title, show_header=False)
    for key, (label, form) in _LABELS.items():
        if result.get(key) is not None:
            table.add_row(label, form.format(result[key]))
    Console(width=None).print(table)
