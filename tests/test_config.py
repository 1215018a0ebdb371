"""Reading `config.json`: what is taken, what is refused and how the refusal reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from njax.config import EngineConfig, ModelConfig
from njax.errors import CheckpointError, StartupError

GOLDENS = Path(__file__).parent / "goldens"


def flat(**changes) -> dict:
    config = json.loads((GOLDENS / "ratio1" / "config.json").read_text())
    return {key: value for key, value in (config | changes).items() if value is not ...}


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*/config.json")), ids=lambda p: p.parent.name)
def test_round_trip_through_json(path):
    config = ModelConfig.from_hf(json.loads(path.read_text()))
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_text_part_of_a_multimodal_config():
    config = json.loads((GOLDENS / "multimodal" / "config.json").read_text())
    assert "vision_config" in config
    assert ModelConfig.from_hf(config) == ModelConfig.from_hf(config["text_config"])


def test_the_default_pattern_is_three_to_one():
    config = ModelConfig.from_hf(flat(layer_types=..., num_hidden_layers=8))
    assert config.layer_kinds == ("delta", "delta", "delta", "attention") * 2


def test_defaults_are_those_of_transformers():
    config = ModelConfig.from_hf(flat(head_dim=..., num_key_value_heads=...))
    assert (config.head_dim, config.num_kv_heads) == (256, 4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "rope_scaling.*yarn"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.*linear"),
        ({"rope_parameters": "x"}, "rope_parameters"),
        ({"rope_parameters": [1]}, "rope_parameters"),
        ({"rope_parameters": {"rope_theta": 0}}, "rope_theta"),
        ({"rope_parameters": {"rope_theta": float("nan")}}, "rope_theta"),
        ({"rope_parameters": {"partial_rotary_factor": float("inf")}}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 1.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"mrope_section": [-1, 2, 3]}}, "mrope_section"),
        ({"rope_parameters": {"mrope_section": 5}}, "mrope_section"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps"),
        ({"num_hidden_layers": 1e400}, "num_hidden_layers"),
        ({"num_hidden_layers": 5.5}, "num_hidden_layers"),
        ({"num_hidden_layers": 5}, "layer_types"),
        ({"hidden_size": 2**40}, "hidden_size"),
        ({"hidden_size": ...}, "hidden_size"),
        ({"head_dim": 0}, "head_dim"),
        ({"head_dim": "16"}, "head_dim"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_kv_heads"),
        ({"full_attention_interval": 0, "layer_types": ...}, "full_attention_interval"),
        ({"layer_types": "x"}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 3 + ["sliding"]}, "sliding"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"model_type": "llama"}, "llama"),
        ({"text_config": "x"}, "expected an object"),
    ],
)
def test_a_refusal_names_what_is_wrong(change, named):
    with pytest.raises(CheckpointError, match=named):
        ModelConfig.from_hf(flat(**change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layer_kinds": None}, "layer_kinds"),
        ({"mrope_section": 5}, "mrope_section"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps"),
        ({"layer_kinds": ["mamba"]}, "layer kind"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_damaged_manifest_is_refused(change, named):
    data = ModelConfig.from_hf(flat()).to_dict() | change
    with pytest.raises(CheckpointError, match=named):
        ModelConfig.from_dict(data)


@pytest.mark.parametrize(
    "bad",
    [
        {"max_context": 0}, {"max_concurrency": 0}, {"max_concurrency": 10**7},
        {"prefill_chunk": 100}, {"max_pending": -1}, {"pending_timeout_s": 0},
        {"prefix_cache_bytes": -1}, {"kv_capacity": 100},
    ],
)  # fmt: skip
def test_engine_settings_that_cannot_work(bad):
    (name,) = bad
    with pytest.raises(StartupError, match=name):
        EngineConfig(**bad)
