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


def test_the_large_dense_model():
    """The published geometry of the 27B model."""
    config = ModelConfig.from_hf(
        {
            "model_type": "qwen3_5",
            "vision_config": {"depth": 27},
            "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 5120,
                "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
                "num_key_value_heads": 4, "head_dim": 256, "attn_output_gate": True,
                "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
                "linear_key_head_dim": 128, "linear_num_key_heads": 16,
                "linear_num_value_heads": 48, "linear_value_head_dim": 128,
                "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1,
                "rms_norm_eps": 1e-06,
                "rope_parameters": {
                    "rope_type": "default", "rope_theta": 10000000, "mrope_interleaved": True,
                    "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
                },
            },
        }
    )  # fmt: skip
    assert (config.num_layers, config.attention_layers, config.delta_layers) == (64, 16, 48)
    assert [i for i, kind in enumerate(config.layer_kinds) if kind == "attention"][:2] == [3, 7]
    assert (config.rotary_dim, config.mrope_section) == (64, (11, 11, 10))
    assert (config.conv_channels, config.mtp_layers, config.tied_head) == (10240, 1, False)


@pytest.mark.parametrize(
    ("outer", "text", "tied"),
    [(True, False, True), (False, True, False), (..., True, False), (True, ..., True)],
)
def test_the_outer_key_ties_a_multimodal_head(outer, text, tied):
    """As transformers does: measured with Qwen3_5ForConditionalGeneration."""
    config = {
        "model_type": "qwen3_5",
        "text_config": flat(tie_word_embeddings=text),
        "tie_word_embeddings": outer,
    }
    config = {key: value for key, value in config.items() if value is not ...}
    assert ModelConfig.from_hf(config).tied_head is tied


@pytest.mark.parametrize(
    ("rope", "theta", "factor"),
    [
        ({}, 1e4, 0.25),
        ({"rope_theta": 5e6, "partial_rotary_factor": 0.5}, 5e6, 0.5),
        ({"rope_parameters": {"rope_theta": 2.0}, "rope_theta": 3.0}, 2.0, 0.25),
        (
            {"rope_parameters": {"partial_rotary_factor": 1.0}, "partial_rotary_factor": 0.5},
            1e4,
            1.0,
        ),
        ({"rope_scaling": {"type": "mrope"}, "rope_theta": 9}, 9.0, 0.25),
        ({"rope_scaling": {"rope_theta": 3.0}, "rope_parameters": {"rope_theta": 4.0}}, 3.0, 0.25),
    ],
)
def test_where_the_rotary_numbers_come_from(rope, theta, factor):
    """Older and newer spellings with the precedence that transformers gives them (measured)."""
    config = ModelConfig.from_hf(flat(rope_parameters=...) | rope)
    assert (config.rope_theta, config.rotary_dim) == (theta, int(factor * config.head_dim))


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
        ({"attn_output_gate": False}, "attn_output_gate"),
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
