"""The checkpoint layout and the Flax module tree are two statements of one thing."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from njax.checkpoint.hf import hf_name, locate
from njax.checkpoint.layout import tensor_specs
from njax.models.params import abstract_params


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("tied", [False, True])
def test_layout_is_the_module_tree(new_model, dtype, tied):
    config = new_model(tie_word_embeddings=tied).config
    expected = {
        name: (spec.shape, jnp.float32 if spec.role == "state" else dtype)
        for name, spec in tensor_specs(config).items()
    }
    model = {
        name: (leaf.shape, leaf.dtype) for name, leaf in abstract_params(config, dtype).items()
    }
    assert model == expected


def test_names_map_both_ways(model):
    for name in tensor_specs(model.config):
        found = locate(hf_name(name).removeprefix("model."))
        assert found is not None and ".".join(found) == name
