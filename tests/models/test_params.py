"""Parameters by name, and weights of every kind in one model."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from njax.errors import CheckpointError
from njax.models.hybrid import HybridModel
from njax.models.linear import Embedding, linear
from njax.models.params import abstract_params, bind, params_of
from njax.quantization import FP8Weight, dequantize_nvfp4, quantize_nvfp4
from tests.models.conftest import Runner, distance
from tests.models.test_one_answer import config

CONFIG = config(64, intermediate_size=96, delta_value_dim=16)


@pytest.fixture(scope="module")
def params() -> dict:
    return params_of(HybridModel(CONFIG, dtype=jnp.float32, rngs=nnx.Rngs(0)))


def test_names_and_shapes():
    names = abstract_params(CONFIG, jnp.bfloat16)
    assert names["layers.0.delta.conv.weight"].shape == (CONFIG.conv_channels, 4)
    assert names["layers.0.delta.A_log"].dtype == jnp.float32
    assert names["layers.1.attention.q_proj.weight"].shape == (2 * 4 * 16, 64)
    assert names["layers.1.attention.q_proj.weight"].dtype == jnp.bfloat16
    assert "head.weight" in names
    tied = abstract_params(dataclasses.replace(CONFIG, tied_head=True), jnp.bfloat16)
    assert names.keys() - tied.keys() == {"head.weight"}


def test_bind_gives_back_what_it_was_given(params):
    graphdef, state = bind(CONFIG, jnp.float32, params)
    back = params_of(nnx.merge(graphdef, state))
    assert back.keys() == params.keys()
    for name, value in params.items():
        assert back[name] is value, name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("head.weight"), "missing: head.weight"),
        (lambda p: p.update(extra=jnp.zeros(1)), "unknown: extra"),
        (
            lambda p: p.update({"final_norm.weight": jnp.zeros(63)}),
            r"final_norm.weight has shape \(63,\), the config asks for \(64,\)",
        ),
    ],
)
def test_parameters_that_do_not_fit(params, change, message):
    params = dict(params)
    change(params)
    with pytest.raises(CheckpointError, match=message):
        bind(CONFIG, jnp.float32, params)


def as_fp8(weight: jax.Array) -> FP8Weight:
    scale = jnp.max(jnp.abs(weight), axis=1) / 448
    return FP8Weight(values=(weight / scale[:, None]).astype(jnp.float8_e4m3fn), scale=scale)


def test_quantised_weights_compute_what_they_stand_for(params):
    """A model of NVFP4 and FP8 weights is the model of the values that they decode to."""
    stored, plain = dict(params), dict(params)
    for name, weight in params.items():
        if ".mlp." in name or name.endswith("out_proj.weight"):
            stored[name] = quantize_nvfp4(weight)
            plain[name] = jnp.asarray(dequantize_nvfp4(stored[name]), jnp.float32)
        elif name.endswith(("_proj.weight", "head.weight", "embedding.weight")):
            stored[name] = as_fp8(weight)
            plain[name] = stored[name].values.astype(jnp.float32) * stored[name].scale[:, None]
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (1, 64))
    outcomes = []
    for weights in (stored, plain):
        runner = Runner(CONFIG, jnp.float32, weights)
        outcomes.append(runner.step(runner.lanes(1), tokens, [64])[1])
    assert distance(*outcomes) < 1e-5


def test_tied_head_is_the_embedding():
    tied = dataclasses.replace(CONFIG, tied_head=True)
    model = HybridModel(tied, dtype=jnp.float32, rngs=nnx.Rngs(1))
    hidden = jnp.asarray(np.random.default_rng(0).normal(size=(3, 64)), jnp.float32)
    expected = linear(hidden, model.embedding.weight.get_value())
    np.testing.assert_array_equal(model.logits(hidden), expected)


def test_logits_are_float32_whatever_the_activations():
    model = HybridModel(CONFIG, dtype=jnp.bfloat16, rngs=nnx.Rngs(1))
    assert model.logits(jnp.ones((2, 64), jnp.bfloat16)).dtype == jnp.float32


def test_an_id_beyond_the_table_reads_its_last_row():
    table = Embedding(5, 4, dtype=jnp.float32, rngs=nnx.Rngs(0))
    weight = np.asarray(table.weight.get_value())
    rows = table.lookup(jnp.asarray([0, 4, 5, 99]), jnp.float32)
    np.testing.assert_array_equal(rows, weight[[0, 4, 4, 4]])
