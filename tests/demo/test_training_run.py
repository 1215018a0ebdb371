"""A whole run at toy size: the loss falls, resuming changes nothing, the result can be served."""

from __future__ import annotations

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from njax.checkpoint import load_checkpoint, save_checkpoint
from njax.config import EngineConfig
from njax.demo.data.pack import Bucket
from njax.demo.training.export import export, to_checkpoint
from njax.demo.training.fake_quant import round_nvfp4
from njax.demo.training.loop import RunOptions, train
from njax.demo.training.optimizer import learning_rate
from njax.demo.training.recipe import SMALL, Phase, Recipe
from njax.demo.training.score import score
from njax.demo.training.vocabulary import make_vocabulary
from njax.quantization import dequantize_nvfp4, quantize_nvfp4

TOY = Recipe(
    model=dataclasses.replace(
        SMALL,
        vocab_size=400,
        hidden_size=32,
        intermediate_size=32,
        layer_kinds=("delta", "attention"),
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        rotary_dim=8,
        mrope_section=(2, 1, 1),
        delta_key_heads=1,
        delta_value_heads=2,
        delta_key_dim=16,
        delta_value_dim=16,
    ),
    phases=(Phase(Bucket("short", 2, 512), 1.0),),
    dtype="float32",
    warmup=3,
    learning_rate=2e-2,
    vocabulary_samples=40,
    mtp_depth=2,
    fake_quant_from=0.8,
)
OPTIONS = RunOptions(steps=12, log_every=4, evaluate_every=12, save_every=100, evaluation_samples=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, train(TOY, folder, OPTIONS, lambda line: None)


def curve(state):
    return [row["loss"] for row in state.progress.losses]


def test_the_loss_falls(run):
    folder, state = run
    losses = curve(state)
    assert len(losses) == 12 and np.isfinite(losses).all()
    assert losses[-1] < losses[0] - 0.3
    written = json.loads((folder / "curves.json").read_text())
    assert written["step"] == written["total"] == 12
    assert {"arithmetic", "tools", "acceptance"} <= set(written["scores"][-1])
    assert (folder / "curves.png").stat().st_size > 1000


def test_resuming_gives_the_same_curve(run, tmp_path):
    folder, state = run
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    train(TOY, tmp_path, dataclasses.replace(OPTIONS, stop_at=5), lambda line: None)
    said: list[str] = []
    resumed = train(TOY, tmp_path, OPTIONS, said.append)
    assert said[0] == "resuming at step 5"
    assert curve(resumed) == curve(state)
    for name, value in state.params.items():
        assert np.array_equal(value, resumed.params[name]), name


def test_another_recipe_is_refused(run):
    folder, _ = run
    with pytest.raises(ValueError, match="another recipe"):
        train(dataclasses.replace(TOY, seed=2), folder, OPTIONS, lambda line: None)


def test_the_result_is_served(run, tmp_path):
    folder, state = run
    tokenizer_json = (folder / "tokenizer.json").read_text()
    export(tmp_path / "nvfp4", state.params, TOY.model, tokenizer_json, "nvfp4", {"steps": 12})
    checkpoint = load_checkpoint(tmp_path / "nvfp4")
    tensors = checkpoint.manifest["tensors"]
    assert tensors["layers.0.mlp.up_proj.weight"]["kind"] == "nvfp4"
    assert tensors["extra.mtp.layers.0.self_attn.q_proj.weight"]["kind"] == "bfloat16"
    assert {"extra.mtp.fc.weight", "extra.mtp.norm.weight"} <= set(tensors)
    report = score(
        checkpoint, samples=1, names=("arithmetic", "tools"), max_tokens=8,
        engine=EngineConfig(max_context=2048, max_concurrency=2, prefill_chunk=64),
    )  # fmt: skip
    assert set(report["exact"]) == {"arithmetic", "tools"}
    plain = to_checkpoint(state.params, TOY.model, tokenizer_json, "bfloat16")
    save_checkpoint(tmp_path / "plain", plain)
    assert load_checkpoint(tmp_path / "plain").config == TOY.model


def test_rounding_is_that_of_the_quantizer():
    rng = np.random.default_rng(0)
    for weight in (
        rng.standard_normal((8, 64)),
        rng.standard_normal((4, 32)) * np.geomspace(1e-6, 1, 32),
        np.zeros((2, 16)),
    ):
        weight = weight.astype(np.float32)
        want = dequantize_nvfp4(quantize_nvfp4(weight))
        np.testing.assert_allclose(round_nvfp4(jnp.asarray(weight)), want, rtol=1e-6, atol=0)


def test_learning_rate():
    recipe = Recipe(learning_rate=1.0, warmup=10, decay=0.25)
    rates = [learning_rate(recipe, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[9:76] == [1.0] * 67
    assert rates[99] == pytest.approx(0.04) and rates[76:] == sorted(rates[76:], reverse=True)


def test_the_vocabulary_is_the_same_every_time():
    assert make_vocabulary(300, 1, 4) == make_vocabulary(300, 1, 4)
