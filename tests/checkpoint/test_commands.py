"""`njax convert`, `njax inspect` and the memory benchmark, as commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from njax.checkpoint import load_checkpoint
from njax.cli.bench.convert import convert_memory
from njax.cli.convert import convert
from njax.cli.inspect import inspect

app = typer.Typer()
app.command()(convert)
app.command()(inspect)
app.command()(convert_memory)


def run(*args: object, code: int = 0):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def src(model, tmp_path) -> Path:
    model.tensors["mtp.fc.weight"] = np.ones((3, 5), ml_dtypes.bfloat16)
    return model.write(tmp_path / "src")


def test_convert_with_options(src, tmp_path):
    result = run("convert", src, tmp_path / "dst", "--quantize", "nvfp4", "--dtype", "float32")
    assert "25 nvfp4, activations float32" in result.stdout
    assert "100%" in result.stderr
    loaded = load_checkpoint(tmp_path / "dst")
    assert loaded.dtype == "float32"
    assert loaded.manifest["numeric_profile"]["weights"]["nvfp4"] == 25


def test_convert_says_what_is_wrong(src, tmp_path):
    result = run("convert", src, src / "dst", code=1)
    assert result.stderr.startswith("error: ") and "inside the source" in result.stderr
    run("convert", src, tmp_path / "dst", "--quantize", "int3", code=2)
    assert not (tmp_path / "dst").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_conversion_leaves_nothing(model, tmp_path, number):
    """Blocks are on their way to disk when the signal comes."""
    for index in range(8):
        model.tensors[f"mtp.big{index}"] = np.ones((400, 100_000), np.uint8)
    command = [sys.executable, "-m", "njax", "convert", model.write(tmp_path / "src")]
    with subprocess.Popen([*command, tmp_path / "dst"], stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline().startswith("10%")
        assert len(list(tmp_path.iterdir())) == 2
        child.send_signal(number)
        output = child.communicate(timeout=60)[1]
    assert child.returncode not in (0, -number), output
    assert "Traceback" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


def test_inspect(src, tmp_path):
    run("convert", src, tmp_path / "dst", "--quantize", "nvfp4")
    text = run("inspect", tmp_path / "dst").stdout
    for part in ("njax checkpoint, format 1", "quantize nvfp4", "3 delta, 1 attention",
                 "layers.3.attention.q_proj.weight", "e2m1, e4m3 a 16, float32", "128 x 32",
                 "extra.mtp.fc.weight", "sha256"):  # fmt: skip
        assert part in text, part
    data = json.loads(run("inspect", tmp_path / "dst", "--json").stdout)
    assert data["format"] == "njax" and data["config"]["vocab_size"] == 96
    assert data["numeric_profile"]["activations"] == "bfloat16"
    tensors = {tensor["name"]: tensor for tensor in data["tensors"]}
    assert tensors["extra.mtp.fc.weight"] == {
        "name": "extra.mtp.fc.weight", "kind": "raw", "dtype": "BF16", "shape": [3, 5], "bytes": 30,
    }  # fmt: skip
    assert list(data["kv_token_bytes"]) == ["bfloat16", "int8"]
    gate = tensors["layers.0.mlp.gate_proj.weight"]
    assert gate["bytes"] == 48 * 16 + 48 * 2 + 4
    assert sum(kind["bytes"] for kind in data["kinds"].values()) == data["bytes"]
    # Bytes are those on disk, up to the checksum of each chunk.
    arrays = [tmp_path / "dst/params" / f"{gate['name']}.{part}" for part in
              ("codes", "scales", "global_scale")]  # fmt: skip
    chunks = [p for a in arrays for p in (a / "c").glob("**/*") if p.is_file()]
    chunks += [a / "c" for a in arrays if (a / "c").is_file()]
    assert sum(chunk.stat().st_size - 4 for chunk in chunks) == gate["bytes"]


def test_inspect_before_conversion(src):
    text = run("inspect", src).stdout
    assert "Hugging Face checkpoint, not converted" in text
    assert "layers.0.delta.A_log" in text
    data = json.loads(run("inspect", src, "--json").stdout)
    assert data["format"] == "huggingface" and data["numeric_profile"]["weights"]["float32"] == 6


def test_inspect_of_something_else(tmp_path):
    assert "not an njax checkpoint" in run("inspect", tmp_path, code=1).stderr
    assert "no such directory" in run("inspect", tmp_path / "x", code=1).stderr


def test_memory_benchmark(tmp_path):
    """The figures of a small run are there and plausible."""
    run("convert-memory", "--size-gb", "0.05", "--directory", tmp_path, "--json", tmp_path / "out")
    data = json.loads((tmp_path / "out").read_text())
    assert 0.02e9 < data["source"]["bytes"] < 0.1e9
    assert 0 < data["convert"]["anonymous"] <= data["convert"]["resident"] < data["limit"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
