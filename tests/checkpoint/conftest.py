"""Hugging Face directories that tests write themselves, with the safetensors library alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from njax.checkpoint.hf import hf_name
from njax.checkpoint.layout import tensor_specs
from njax.config import ModelConfig

Tensors = dict[str, np.ndarray]

HF_CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 512,
    "eos_token_id": 7,
}

TOKENIZER = {
    "version": "1.0",
    "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
}


@dataclasses.dataclass
class Model:
    """A tiny model in Hugging Face form, to be changed by a test and written.

    Attributes:
      tensors: Hugging Face name -> array.
    """

    hf_config: dict[str, Any]
    tensors: Tensors

    @property
    def config(self) -> ModelConfig:
        return ModelConfig.from_hf(self.hf_config)

    def write(self, directory: Path, *, shards: int = 0) -> Path:
        directory.mkdir()
        _json(directory / "config.json", self.hf_config)
        _json(directory / "tokenizer.json", TOKENIZER)
        _json(directory / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
        if not shards:
            write_safetensors(directory / "model.safetensors", self.tensors)
            return directory
        names = list(self.tensors)
        where = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
            part = names[shard::shards]
            write_safetensors(directory / file, {name: self.tensors[name] for name in part})
            where |= dict.fromkeys(part, file)
        _json(directory / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})
        return directory


def write_safetensors(path: Path, tensors: Tensors) -> None:
    # The library wants contiguous arrays and does not check.
    save_file({n: np.ascontiguousarray(a) for n, a in tensors.items()}, path, {"format": "pt"})


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def make_model(seed: int = 0, dtype: Any = ml_dtypes.bfloat16, **changes: Any) -> Model:
    hf_config = HF_CONFIG | changes
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, spec in tensor_specs(ModelConfig.from_hf(hf_config)).items():
        shape = spec.shape
        if name.endswith("conv.weight"):
            shape = (shape[0], 1, shape[1])
        array = rng.standard_normal(shape, np.float32)
        tensors[hf_name(name)] = array if spec.role == "state" else array.astype(dtype)
    return Model(hf_config, tensors)


@pytest.fixture
def model() -> Model:
    return make_model()


@pytest.fixture
def new_model() -> Callable[..., Model]:
    return make_model


@pytest.fixture
def save_tensors() -> Callable[[Path, Tensors], None]:
    return write_safetensors
