"""`njax bench convert-memory`: peak host memory of a conversion, and of loading its result.

The conversion runs in a process of its own. Linux counts a process's resident pages as anonymous
(its own data) and file-backed (programs, and page cache that it maps); both are reported. Files are
read and written with ordinary calls, so the page cache that they fill belongs to the kernel and is
not the process's.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from njax.cli.bench.report import print_report
from njax.cli.convert import Dtype, Quantize

_MIB = 1 << 20


def convert_memory(
    size_gb: Annotated[float, typer.Option(help="Bytes of the made checkpoint, in GB.")] = 4.0,
    quantize: Annotated[Quantize, typer.Option()] = Quantize.none,
    dtype: Annotated[Dtype, typer.Option()] = Dtype.bf16,
    directory: Annotated[
        Path | None, typer.Option(help="Where to work (needs three times the size); none: /tmp.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
) -> None:
    """Measure the peak host memory of converting a made checkpoint."""
    profile = "bfloat16" if dtype is Dtype.bf16 else "float32"
    with tempfile.TemporaryDirectory(dir=directory, prefix="njax-bench-") as work:
        source, result = Path(work) / "src", Path(work) / "dst"
        made = make_checkpoint(source, int(size_gb * 1e9))
        converted = _in_process(_convert, source, result, quantize.value, profile)
        loaded = _in_process(_load, result)
        shutil.rmtree(result)
    limit = (1 << 30) + 3 * made["largest"]
    rows = [
        [
            name,
            f"{figures['seconds']:.1f} s",
            f"{figures['start'] / _MIB:.0f} MiB",
            f"{figures['anonymous'] / _MIB:.0f} MiB",
            f"{figures['resident'] / _MIB:.0f} MiB",
        ]
        for name, figures in (("convert", converted), ("load", loaded))
    ]
    verdict = "within" if converted["resident"] <= limit else "OVER"
    title = (
        f"{made['bytes'] / 1e9:.2f} GB, largest tensor {made['largest'] / _MIB:.0f} MiB, "
        f"quantize {quantize.value}, dtype {dtype.value}: {verdict} the limit of "
        f"{limit / _MIB:.0f} MiB (1 GiB + 3 x the largest tensor)"
    )
    columns = ["", "time", "after imports", "peak anonymous", "peak resident"]
    data = {"source": made, "convert": converted, "load": loaded, "limit": limit}
    print_report(title, columns, rows, data, json_path)
    if converted["resident"] > limit:
        raise typer.Exit(1)


def make_checkpoint(directory: Path, size: int) -> dict[str, int]:
    """Writes a Hugging Face directory of about `size` bytes in bf16 shards of one layer each.

    Returns:
      bytes: of all tensors; largest: of the largest one.
    """
    import ml_dtypes
    import numpy as np
    from safetensors.numpy import save_file

    from njax.checkpoint.hf import hf_name
    from njax.checkpoint.layout import tensor_specs
    from njax.config import ModelConfig

    def hf_config(layers: int) -> dict[str, Any]:
        # A quarter of the bytes each in embedding and head, the rest in layers of four kinds.
        return {
            "model_type": "qwen3_5_text",
            "vocab_size": max(64, size // 8 // hidden // 64 * 64),
            "hidden_size": hidden,
            "intermediate_size": 3 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 128,
            "num_key_value_heads": hidden // 512,
            "head_dim": 128,
            "linear_num_key_heads": hidden // 256,
            "linear_num_value_heads": hidden // 128,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
        }

    def nbytes(layers: int) -> int:
        specs = tensor_specs(ModelConfig.from_hf(hf_config(layers)))
        return sum(2 * int(np.prod(spec.shape)) for spec in specs.values())

    hidden = 4096 if size >= 2e9 else 512
    layers = 4
    while nbytes(layers + 1) <= size:
        layers += 1
    directory.mkdir()
    config = hf_config(layers)
    (directory / "config.json").write_text(json.dumps(config))
    tokenizer = {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}
    (directory / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": tokenizer}))
    rng = np.random.default_rng(0)
    noise = (rng.standard_normal(8 * _MIB) * 0.02).astype(ml_dtypes.bfloat16)
    specs = tensor_specs(ModelConfig.from_hf(config)).values()
    where: dict[str, str] = {}
    sizes: list[int] = []
    for group, members in itertools.groupby(specs, lambda spec: spec.name.split(".")[:2]):
        shard: dict[str, Any] = {}
        for spec in members:
            conv = spec.name.endswith("conv.weight")
            shape = (spec.shape[0], 1, spec.shape[1]) if conv else spec.shape
            shard[hf_name(spec.name)] = np.resize(noise, shape)
        file = f"model-{'.'.join(group)}.safetensors"
        save_file(shard, directory / file)
        where |= dict.fromkeys(shard, file)
        sizes += [array.nbytes for array in shard.values()]
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return {"bytes": sum(sizes), "largest": max(sizes), "tensors": len(sizes)}


def _convert(source: Path, result: Path, quantize: Any, dtype: Any) -> None:
    from njax.checkpoint import convert_checkpoint

    convert_checkpoint(source, result, quantize=quantize, dtype=dtype)


def _load(result: Path) -> None:
    from njax.checkpoint import load_checkpoint

    load_checkpoint(result)


def _in_process(function: Callable[..., None], *args: Any) -> dict[str, float]:
    """Runs `function` in a fresh process and gives its time and memory, in seconds and bytes."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_measured, args=(sender, function, *args))
    child.start()
    sender.close()
    try:
        figures = receiver.recv()
    except EOFError:
        child.join()
        raise RuntimeError(f"the measured process ended with code {child.exitcode}") from None
    child.join()
    return figures


def _measured(sender: Any, function: Callable[..., None], *args: Any) -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.devices()
    import njax.checkpoint  # noqa: F401  # what every run imports is part of the start, not the peak

    start = _memory()
    peak = {"RssAnon": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak["RssAnon"] = max(peak["RssAnon"], _memory()["RssAnon"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    function(*args)
    seconds = time.monotonic() - began
    done.set()
    watcher.join()
    # The kernel keeps the peak of the whole resident size itself; that of a part must be sampled.
    sender.send(
        {
            "seconds": seconds,
            "start": start["VmRSS"],
            "anonymous": peak["RssAnon"],
            "resident": _memory()["VmHWM"],
        }
    )


def _memory() -> dict[str, int]:
    """Bytes by name of this process, from Linux's /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.endswith(" kB"))
    return {name: int(value.split()[0]) << 10 for name, value in pairs}
