"""Sources that must be refused, each with an error that names what and where, and no DST left."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from njax.checkpoint import convert_checkpoint
from njax.errors import CheckpointError

BF16 = ml_dtypes.bfloat16
DOWN = "model.layers.2.mlp.down_proj.weight"
NORM = "model.layers.2.input_layernorm.weight"


def refused(src, message, **options):
    with pytest.raises(CheckpointError, match=message):
        convert_checkpoint(src, src.parent / "dst", **options)
    assert [path.name for path in src.parent.iterdir()] == [src.name]


def change(name, index, value):
    def apply(model):
        array = model.tensors[name].copy()
        array[index] = value
        model.tensors[name] = array

    return apply


def replace(name, array):
    return lambda model: model.tensors.__setitem__(name, array)


def remove(*names):
    return lambda model: [model.tensors.pop(name) for name in names]


def configure(**fields):
    return lambda model: model.hf_config.update(fields)


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (remove(DOWN), r"lacks model\.layers\.2\.mlp\.down_proj\.weight"),
        (remove(DOWN, NORM), r"lacks .*input_layernorm\.weight, .*down_proj\.weight"),
        (remove("lm_head.weight"), r"lacks lm_head\.weight"),
        (remove("model.layers.0.linear_attn.A_log"), r"lacks .*layers\.0\.linear_attn\.A_log"),
        (configure(num_hidden_layers=6), r"lacks .*layers\.4\..* and \d+ more"),
        (configure(num_hidden_layers=3), r"has model\.layers\.3\..*, which the model .* not have"),
        (replace("model.layers.0.foo.weight", np.ones(2, BF16)), r"has model\.layers\.0\.foo"),
        (replace("classifier.weight", np.ones(2, BF16)), r"has classifier\.weight"),
        (replace(DOWN.replace("weight", "bias"), np.ones(2, BF16)), r"has .*down_proj\.bias"),
        (replace("layers.2.input_layernorm.weight", np.ones(32, BF16)), "under another name"),
        (replace(DOWN, np.ones((48, 32), BF16)), r"down_proj.* \[48, 32\], expected \[32, 48\]"),
        (replace(NORM, np.ones((32, 1), BF16)), r"input_layernorm.* \[32, 1\], expected \[32\]"),
        (replace("model.layers.0.linear_attn.conv1d.weight", np.ones((64, 4), BF16)),
         r"conv1d\.weight .* \[64, 4\], expected \[64, 1, 4\]"),
        (replace(NORM, np.ones(32, np.int32)), r"input_layernorm\.weight .*type I32, exp"),
        (change(DOWN, (3, 5), np.nan), r"down_proj\.weight: NaN at \[3, 5\]"),
        (change(DOWN, (31, 47), np.inf), r"down_proj\.weight: infinity at \[31, 47\]"),
        (change(NORM, 4, np.nan), r"input_layernorm\.weight: NaN at \[4\]"),
        (change("model.layers.0.linear_attn.A_log", 1, -np.inf), r"A_log: infinity at \[1\]"),
        (configure(model_type="llama"), r"model_type 'llama' is not supported"),
        (configure(model_type="qwen3_5_moe"), r"model_type 'qwen3_5_moe' is not supported"),
        (configure(hidden_size=None), r"config\.json"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quantize", ["none", "nvfp4"])
def test_bad_tensors(model, tmp_path, apply, message, quantize):
    apply(model)
    refused(model.write(tmp_path / "src"), message, quantize=quantize)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mtp./../../evil", r"the tensor name 'mtp\./\.\./\.\./evil' holds a '/'"),
        ("mtp.a/zarr.json", r"the tensor name 'mtp\.a/zarr\.json' holds a '/'"),
        ("mtp.\0", r"the tensor name 'mtp\.\\x00' holds a character that cannot be printed"),
        ("mtp.\n", r"the tensor name 'mtp\.\\n' holds a character that cannot be printed"),
        ("mtp." + "x" * 240, r"the tensor name 'mtp\.x+' is longer than 200 bytes"),
    ],
)
def test_names_that_cannot_be_file_names(model, tmp_path, name, message):
    model.tensors[name] = np.ones(2, BF16)
    refused(model.write(tmp_path / "src"), r"model\.safetensors: " + message)


def test_float32_beyond_bf16_is_refused(new_model, tmp_path):
    model = new_model(dtype=np.float32)
    change(DOWN, (1, 2), np.finfo(np.float32).max)(model)
    src = model.write(tmp_path / "src")
    refused(src, r"down_proj\.weight: 3\.4.* at \[1, 2\].*too large for bfloat16")
    convert_checkpoint(src, tmp_path / "dst", dtype="float32")


def test_the_row_of_a_late_block_is_named(new_model, tmp_path, monkeypatch):
    monkeypatch.setattr("njax.checkpoint.lazy.BLOCK_BYTES", 500)
    model = new_model()
    change(DOWN, (30, 0), np.nan)(model)
    refused(model.write(tmp_path / "src"), r"down_proj\.weight: NaN at \[30, 0\]")


def file_changes():
    def truncate(src):
        path = src / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])

    def header(src):
        path = src / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[8:12] = b"\xff\xfe{{"
        path.write_bytes(bytes(data))

    def huge_header(src):
        path = src / "model.safetensors"
        path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])

    def write(name, text):
        return lambda src: (src / name).write_text(text)

    def unlink(name):
        return lambda src: (src / name).unlink()

    def two(src):
        (src / "model.safetensors").rename(src / "a.safetensors")
        (src / "b.safetensors").write_bytes((src / "a.safetensors").read_bytes())

    def torch_only(src):
        (src / "model.safetensors").rename(src / "pytorch_model.bin")

    return [
        (truncate, r"model\.safetensors: not a whole safetensors file"),
        (header, r"model\.safetensors: not a whole safetensors file"),
        (huge_header, r"model\.safetensors: not a whole safetensors file"),
        (write("model.safetensors", ""), r"model\.safetensors: not a whole safetensors file"),
        (unlink("model.safetensors"), r"src: holds no safetensors file"),
        (torch_only, r"found pytorch_model\.bin; only safetensors"),
        (two, r"holds 2 safetensors files but no model\.safetensors\.index\.json"),
        (unlink("config.json"), r"src: config\.json is missing"),
        (write("config.json", "{"), r"config\.json: not valid JSON"),
        (write("config.json", "[]"), r"config\.json: holds a list"),
        (unlink("tokenizer.json"), r"src: tokenizer\.json is missing"),
        (write("tokenizer.json", "{"), r"tokenizer\.json: not valid JSON"),
        (write("generation_config.json", "nope"), r"generation_config\.json: not valid JSON"),
        (write("tokenizer_config.json", '{"chat_template": 3}'), r"chat_template is not a text"),
        (write("model.safetensors.index.json", "{}"), r"index\.json: not a safetensors index"),
    ]


@pytest.mark.parametrize(("apply", "message"), file_changes())
def test_bad_files(model, tmp_path, apply, message):
    src = model.write(tmp_path / "src")
    apply(src)
    refused(src, message)


def shard_changes():
    def index(edit):
        def apply(src):
            path = src / "model.safetensors.index.json"
            data = json.loads(path.read_text())
            edit(data["weight_map"])
            path.write_text(json.dumps(data))

        return apply

    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    name = "model.embed_tokens.weight"

    def doubled(src):
        """The first shard's tensors are in the second as well."""
        (src / second).write_bytes((src / first).read_bytes())

    return [
        (index(lambda m: m.update({name: "model-3.safetensors"})), r"shard model-3\.safe.*not ex"),
        (lambda src: (src / second).unlink(), r"index\.json: shard model-00002.* does not exist"),
        (doubled, r": is in two shards, model-00001.* and model-00002"),
        (index(lambda m: m.update({name: second})), r"embed_tokens\.weight: .* it is in .*2-of"),
        (index(lambda m: m.pop(name)), r"embed_tokens\.weight: .* not in model\.safe.*index"),
        (index(lambda m: m.update({"ghost": first})), r"ghost: .* says it is in"),
        (index(lambda m: m.update({name: "../x.safetensors"})), r"'\.\./x\.safe.*' leaves"),
        (index(lambda m: m.clear()), r"weight_map is empty"),
    ]  # fmt: skip


@pytest.mark.parametrize(("apply", "message"), shard_changes())
def test_bad_shards(model, tmp_path, apply, message):
    src = model.write(tmp_path / "src", shards=2)
    apply(src)
    refused(src, message)


def test_no_source(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing: no such directory"):
        convert_checkpoint(tmp_path / "nothing", tmp_path / "dst")


def test_a_file_that_shrinks_after_its_header_was_read(model, tmp_path, monkeypatch):
    src = model.write(tmp_path / "src")
    import njax.checkpoint.convert as module

    real = module.make_plan

    def plan_then_truncate(*args, **options):
        plan = real(*args, **options)
        (src / "model.safetensors").write_bytes(b"\0" * 2000)
        return plan

    monkeypatch.setattr(module, "make_plan", plan_then_truncate)
    refused(src, r"\w: .*model\.safetensors is truncated: \d+ bytes are missing")
