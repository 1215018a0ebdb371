"""Destinations: occupied, inside the source, full disks, killed processes, damage afterwards."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from njax.checkpoint import convert_checkpoint, load_checkpoint
from njax.checkpoint.describe import describe
from njax.errors import CheckpointError


@pytest.fixture
def src(model, tmp_path) -> Path:
    return model.write(tmp_path / "src")


@pytest.fixture
def dst(src, tmp_path) -> Path:
    convert_checkpoint(src, tmp_path / "dst", quantize="nvfp4")
    return tmp_path / "dst"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("kind", ["directory", "full directory", "file", "dangling link"])
def test_an_occupied_destination_is_left_alone(src, tmp_path, kind):
    dst = tmp_path / "dst"
    if kind == "file":
        dst.write_text("mine")
    elif kind == "dangling link":
        dst.symlink_to("nowhere")
    else:
        dst.mkdir()
        if kind == "full directory":
            (dst / "mine").write_text("mine")
    with pytest.raises(CheckpointError, match=r"dst: exists already; remove it or choose"):
        convert_checkpoint(src, dst)
    assert names(tmp_path) == ["dst", "src"]
    if kind == "full directory":
        assert names(dst) == ["mine"]


@pytest.mark.parametrize("where", ["src/dst", "src/sub/dst", "link/dst"])
def test_a_destination_inside_the_source_is_refused(src, tmp_path, where):
    (src / "sub").mkdir()
    (tmp_path / "link").symlink_to(src)
    before = names(src)
    with pytest.raises(CheckpointError, match="lies inside the source"):
        convert_checkpoint(src, tmp_path / where)
    assert names(src) == before


def test_a_destination_without_parent_is_refused(src, tmp_path):
    with pytest.raises(CheckpointError, match=r"the directory .*/no does not exist"):
        convert_checkpoint(src, tmp_path / "no" / "dst")


def test_a_destination_taken_meanwhile_is_not_overwritten(src, tmp_path):
    dst = tmp_path / "dst"

    def take(name: str, done: int, total: int) -> None:
        if done == total:
            dst.mkdir()

    with pytest.raises(CheckpointError, match="exists already"):
        convert_checkpoint(src, dst, progress=take)
    assert names(tmp_path) == ["dst", "src"] and names(dst) == []


def test_too_little_space_is_said_before_anything_is_written(src, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CheckpointError, match=r"dst: needs 0\.01 GB of disk, only 0\.00 GB"):
        convert_checkpoint(src, tmp_path / "dst")
    assert names(tmp_path) == ["src"]


def test_a_disk_that_fills_up_half_way(new_model, tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        src = new_model(vocab_size=9600).write(tmp_path / "src")
        monkeypatch.setattr("njax.checkpoint.convert.check_space", lambda *args: None)
        with pytest.raises(CheckpointError, match=r"cannot write: .*(space|RESOURCE|full)"):
            convert_checkpoint(src, small / "dst")
        assert names(small) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def in_child(code: str, *args: Path) -> subprocess.CompletedProcess[str]:
    """Runs code that finds its paths in `args`, in another process."""
    code = "import sys; from pathlib import Path; args = sys.argv[1:]\n" + code
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path.cwd())},
    )


def test_a_write_that_fails_half_way(src, tmp_path):
    """A limit on file size stands for any refusal of the operating system."""
    assert resource.RLIMIT_FSIZE >= 0
    code = """
import resource
from njax.checkpoint import convert_checkpoint
from njax.errors import CheckpointError
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    convert_checkpoint(*args)
except CheckpointError as error:
    print("refused:", error)
"""
    child = in_child(code, src, tmp_path / "dst")
    assert "refused:" in child.stdout and "cannot write" in child.stdout, child.stderr
    assert names(tmp_path) == ["src"]


def test_killed_half_way(src, tmp_path):
    """What is left has another name, and a second run does not mind it."""
    code = """
import os, signal
from njax.checkpoint import convert_checkpoint
def progress(name, done, total):
    if done > total // 2:
        os.kill(os.getpid(), signal.SIGKILL)
convert_checkpoint(*args, progress=progress)
"""
    child = in_child(code, src, tmp_path / "dst")
    assert child.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2 and names(tmp_path)[0].startswith("dst.partial-")
    partial = tmp_path / names(tmp_path)[0]
    with pytest.raises(CheckpointError, match=r"not an njax checkpoint \(no manifest\.json\)"):
        load_checkpoint(partial)
    convert_checkpoint(src, tmp_path / "dst")
    load_checkpoint(tmp_path / "dst")


def test_interrupted(src, tmp_path):
    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(src, tmp_path / "dst", progress=interrupt)
    assert names(tmp_path) == ["src"]


def chunk(dst: Path, array: str) -> Path:
    return next(path for path in (dst / "params" / array / "c").rglob("*") if path.is_file())


DEEP = b'{"a":' * 100_000


def damages():
    norm, codes = "final_norm.weight", "layers.0.mlp.gate_proj.weight.codes"

    def flip(array):
        def apply(dst):
            path = chunk(dst, array)
            data = bytearray(path.read_bytes())
            data[5] ^= 1
            path.write_bytes(bytes(data))

        return apply

    def manifest(edit):
        def apply(dst):
            data = json.loads((dst / "manifest.json").read_text())
            edit(data)
            (dst / "manifest.json").write_text(json.dumps(data))

        return apply

    def entry(name, **fields):
        return manifest(lambda m: m["tensors"][name].update(fields))

    def truncate(path):
        return lambda dst: (dst / path).write_bytes((dst / path).read_bytes()[:40])

    def write(path, data):
        return lambda dst: (dst / path).write_bytes(data)

    return [
        (flip(norm), r"final_norm\.weight: cannot be read: .*final_norm.weight/c/0.*mismatch"),
        (flip(codes), r"gate_proj\.weight\.codes: cannot be read"),
        (lambda dst: chunk(dst, norm).unlink(), r"final_norm\.weight: cannot be read: .*missing"),
        (lambda dst: shutil.rmtree(dst / "params" / norm), r"final_norm\.weight: is missing"),
        (lambda dst: shutil.rmtree(dst / "params"), r"weight: is missing from .*params"),
        (truncate(f"params/{norm}/zarr.json"), r"final_norm\.weight: .*zarr\.json is damaged"),
        (truncate("manifest.json"), r"manifest\.json: not valid JSON"),
        (manifest(lambda m: m.update(format="x")), r"manifest\.json: not an njax checkpoint"),
        (manifest(lambda m: m.update(format_version=99)), r"format version 99, this njax .* reads"),
        (manifest(lambda m: m.pop("config")), r"manifest\.json: config is damaged"),
        (manifest(lambda m: m.pop("tensors")), r"list of tensors is damaged"),
        (manifest(lambda m: m.pop("numeric_profile")), r"numeric_profile is damaged"),
        (manifest(lambda m: m["config"].update(oops=1)), r"unknown fields oops"),
        (manifest(lambda m: m["tensors"].pop(norm)), r"final_norm\.weight: is missing from"),
        (manifest(lambda m: m["config"].update(num_heads=8)), r"q_proj\.weight: .*needs \[256, 3"),
        (entry(norm, kind="float32"), r"final_norm\.weight: .*holds bfloat16 .*expected float32"),
        (entry(norm, kind="int4"), r"final_norm\.weight: .*says int4"),
        (entry(norm, shape=[31]), r"final_norm\.weight: .*says bfloat16 \[31\]"),
        (entry(norm, kind="nvfp4"), r"final_norm\.weight: .*says nvfp4"),
        (entry(norm, kind="fp8"), r"final_norm\.weight: .*says fp8"),
        (entry(norm, shape=[[32]]), r"manifest\.json: the list of tensors is damaged"),
        (manifest(lambda m: m["config"].update(layer_kinds=None)), r"manifest\.json: .*layer_"),
        (manifest(lambda m: m["config"].update(layer_kinds=[[]])), r"manifest\.json: "),
        (manifest(lambda m: m["config"].update(mrope_section=5)), r"manifest\.json: .*mrope_sec"),
        (manifest(lambda m: m["config"].update(vocab_size="x")), r"manifest\.json: .*vocab_size"),
        (write("manifest.json", DEEP), r"manifest\.json: not valid JSON: nested too deep"),
        (write(f"params/{norm}/zarr.json", DEEP), r"final_norm\.weight: .*zarr\.json is damaged"),
        (write("chat_template.jinja", b"\xff\xfe"), r"chat_template\.jinja: not UTF-8 text"),
        (write("tokenizer.json", b"\xff"), r"tokenizer\.json: not UTF-8 text"),
        (lambda dst: (dst / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
    ]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), damages())
def test_damage_is_found_and_named(dst, damage, message):
    damage(dst)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(dst)


@pytest.mark.parametrize(
    ("part", "value"),
    [("options", 5), ("source", {"a": 1}), ("not_quantized", []), ("warnings", None),
     ("numeric_profile", {"activations": "bfloat16"}), ("njax_version", None),
     ("config", {"layer_kinds": None})],
)  # fmt: skip
def test_inspection_of_a_damaged_manifest(dst, part, value):
    data = json.loads((dst / "manifest.json").read_text()) | {part: value}
    (dst / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match=r"manifest\.json: .*(is damaged|layer_kinds)"):
        describe(dst)


def test_what_is_no_checkpoint(src, tmp_path):
    with pytest.raises(CheckpointError, match=r"no such directory"):
        load_checkpoint(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"convert it first with `njax convert`"):
        load_checkpoint(src)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"empty: not an njax checkpoint"):
        load_checkpoint(tmp_path / "empty")
