"""Plain bf16 and float32 checkpoints: conversion, saving, loading."""

from __future__ import annotations

import json

import jax
import ml_dtypes
import numpy as np
import pytest

from njax.checkpoint import convert_checkpoint, load_checkpoint, save_checkpoint
from njax.checkpoint.hf import hf_name
from njax.checkpoint.layout import tensor_specs
from njax.errors import CheckpointError


def bits(array) -> np.ndarray:
    array = np.asarray(array)
    return array.reshape(-1).view(np.uint8)


@pytest.mark.parametrize("shards", [0, 3])
@pytest.mark.parametrize("source", [ml_dtypes.bfloat16, np.float32, np.float16])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_tensor_arrives_cast_and_named(new_model, tmp_path, shards, source, dtype):
    model = new_model(dtype=source)
    src = model.write(tmp_path / "src", shards=shards)
    convert_checkpoint(src, tmp_path / "dst", dtype=dtype)
    loaded = load_checkpoint(tmp_path / "dst")
    assert loaded.config == model.config
    assert loaded.dtype == dtype
    specs = tensor_specs(model.config)
    assert list(loaded.params) == list(specs)
    for name, weight in loaded.params.items():
        assert isinstance(weight, jax.Array)
        state = specs[name].role == "state"
        expected = model.tensors[hf_name(name)].reshape(specs[name].shape)
        expected = expected.astype(np.float32 if state else np.dtype(dtype))
        assert weight.dtype == expected.dtype
        np.testing.assert_array_equal(bits(weight), bits(expected), err_msg=name)


@pytest.mark.parametrize(
    "prefix", ["model.language_model.", "language_model.model.", "model.", "language_model.", ""]
)
def test_prefixes(model, tmp_path, prefix):
    head = model.tensors.pop("lm_head.weight")
    model.tensors = {prefix + n.removeprefix("model."): a for n, a in model.tensors.items()}
    model.tensors["lm_head.weight"] = head
    convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "dst")
    params = load_checkpoint(tmp_path / "dst").params
    np.testing.assert_array_equal(bits(params["head.weight"]), bits(head))
    np.testing.assert_array_equal(
        bits(params["final_norm.weight"]), bits(model.tensors[prefix + "norm.weight"])
    )


def test_multimodal_config_and_carried_tensors(model, tmp_path):
    """Vision and prediction tensors are kept bit for bit, but are no parameters."""
    rng = np.random.default_rng(1)
    extra = {
        "mtp.layers.0.mlp.gate_proj.weight": rng.standard_normal((4, 4)).astype(ml_dtypes.bfloat16),
        "mtp.fc.weight": rng.standard_normal((2, 3)).astype(np.float16),
        "model.visual.pos_embed.weight": np.full((3, 2), np.nan, np.float32),
        "visual.step": np.arange(3),
        "mtp.fp8": rng.standard_normal((5, 2)).astype(ml_dtypes.float8_e4m3fn),
    }
    model.tensors |= extra
    model.hf_config = {"model_type": "qwen3_5", "text_config": model.hf_config}
    convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "dst", quantize="nvfp4")
    loaded = load_checkpoint(tmp_path / "dst")
    assert not [name for name in loaded.params if name.startswith("extra")]
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:  # readable without njax
        tree = checkpointer.restore(tmp_path / "dst" / "params")
    for name, array in extra.items():
        stored = tree["extra." + name]
        assert stored.shape == array.shape
        np.testing.assert_array_equal(bits(stored), bits(array))
        entry = loaded.manifest["tensors"]["extra." + name]
        assert entry["kind"] == "raw" and entry["source"] == [name]
    assert loaded.manifest["tensors"]["extra.mtp.fp8"]["code"] == "F8_E4M3"


@pytest.mark.parametrize("with_head", [False, True])
def test_tied_head(new_model, tmp_path, with_head):
    model = new_model(tie_word_embeddings=True)
    assert "lm_head.weight" not in model.tensors
    if with_head:
        model.tensors["lm_head.weight"] = model.tensors["model.embed_tokens.weight"]
    convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "dst")
    assert "head.weight" not in load_checkpoint(tmp_path / "dst").params


def test_tied_head_that_differs_is_refused(new_model, tmp_path):
    model = new_model(tie_word_embeddings=True)
    model.tensors["lm_head.weight"] = -model.tensors["model.embed_tokens.weight"]
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: differs.*tie_word_embeddings"):
        convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "dst")


def test_text_files_and_manifest(model, tmp_path):
    src = model.write(tmp_path / "src", shards=2)
    manifest = convert_checkpoint(src, tmp_path / "dst")
    loaded = load_checkpoint(tmp_path / "dst")
    assert loaded.manifest == manifest == json.loads((tmp_path / "dst/manifest.json").read_text())
    assert loaded.tokenizer_json == (src / "tokenizer.json").read_text()
    assert loaded.chat_template == "{{ messages }}"
    assert loaded.generation_config == {"eos_token_id": 7}
    assert manifest["numeric_profile"]["activations"] == "bfloat16"
    import hashlib

    for name in ("config.json", "model-00002-of-00002.safetensors", "tokenizer.json"):
        digest = hashlib.sha256((src / name).read_bytes()).hexdigest()
        assert manifest["source"][name]["sha256"] == digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dst", "src"]


@pytest.mark.parametrize(
    ("files", "config", "expected"),
    [
        ({"chat_template.jinja": "FILE"}, {"chat_template": "CONFIG"}, "FILE"),
        ({"chat_template.json": '{"chat_template": "OLD"}'}, {}, "OLD"),
        ({}, {"chat_template": [{"name": "default", "template": "LIST"}]}, "LIST"),
        ({}, {}, None),
    ],
)
def test_where_the_chat_template_is_found(model, tmp_path, files, config, expected):
    src = model.write(tmp_path / "src")
    (src / "tokenizer_config.json").write_text(json.dumps(config))
    for name, text in files.items():
        (src / name).write_text(text)
    convert_checkpoint(src, tmp_path / "dst")
    assert load_checkpoint(tmp_path / "dst").chat_template == expected


def test_save_then_load_is_identity(model, tmp_path):
    convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "a", quantize="nvfp4")
    first = load_checkpoint(tmp_path / "a")
    save_checkpoint(tmp_path / "b", first)
    second = load_checkpoint(tmp_path / "b")
    assert jax.tree.structure(first.params) == jax.tree.structure(second.params)
    for a, b in zip(jax.tree.leaves(first.params), jax.tree.leaves(second.params), strict=True):
        np.testing.assert_array_equal(bits(a), bits(b))
    assert (first.config, first.dtype) == (second.config, second.dtype)
    with pytest.raises(CheckpointError, match="exists already"):
        save_checkpoint(tmp_path / "b", first)
    del first.params["final_norm.weight"]
    with pytest.raises(CheckpointError, match=r"final_norm\.weight"):
        save_checkpoint(tmp_path / "c", first)
    assert not (tmp_path / "c").exists()


def test_arrays_go_where_they_are_told(model, tmp_path):
    """The sharding callback sees every array with its shape."""
    convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "dst", quantize="nvfp4")
    seen = {}
    mesh = jax.make_mesh((1,), ("x",))

    def place(name, shape):
        seen[name] = shape
        spec = jax.sharding.PartitionSpec("x") if shape else jax.sharding.PartitionSpec()
        return jax.sharding.NamedSharding(mesh, spec)

    params = load_checkpoint(tmp_path / "dst", sharding=place).params
    weight = params["layers.0.mlp.gate_proj.weight"]
    assert isinstance(weight.codes.sharding, jax.sharding.NamedSharding)
    assert seen["layers.0.mlp.gate_proj.weight.scales"] == (48, 2)
