"""The models' shapes and everything that a training run can be told."""

from __future__ import annotations

import dataclasses

from njax.config import ModelConfig
from njax.demo.data.pack import Bucket

VOCABULARY = 4096

SMALL = ModelConfig(
    vocab_size=VOCABULARY,
    hidden_size=224,
    intermediate_size=448,
    layer_kinds=("delta", "delta", "delta", "attention") * 2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    rotary_dim=16,
    rope_theta=1e6,
    mrope_section=(3, 3, 2),
    delta_key_heads=2,
    delta_value_heads=4,
    delta_key_dim=64,
    delta_value_dim=64,
    conv_width=4,
    rms_norm_eps=1e-6,
    max_position=32_768,
    tied_head=True,
    mtp_layers=1,
)
"""5.8 million parameters: NVFP4 (4.6 MB) and bfloat16 (11.6 MB) fit into 16 MiB together."""

LARGE = dataclasses.replace(
    SMALL,
    hidden_size=256,
    intermediate_size=768,
    layer_kinds=("delta", "delta", "delta", "attention") * 3,
)
"""12.2 million parameters: NVFP4 alone (8.4 MB) fits into 16 MiB."""

MODELS = {"small": SMALL, "large": LARGE}


@dataclasses.dataclass(frozen=True)
class Phase:
    """A bucket and its share of the steps."""

    bucket: Bucket
    share: float


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One training run.

    Attributes:
      model: its shape.
      phases: buckets; each step draws one by its share. Buckets of one shape share a program.
      dtype: of activations; parameters and optimizer state are float32.
      seed: of data, initial weights and the order of buckets.
      learning_rate: of matrices, the peak; half of it for the rest (with Muon). Warm-up over
        `warmup` steps, then constant, then linear to zero over the last `decay` (a fraction).
      optimizer: "muon" (matrices by Muon, the rest by AdamW) or "adamw".
      weight_decay: times the learning rate; matrices only.
      clip: largest norm of the whole gradient.
      prompt_weight: weight of the mean loss of tokens that the model does not write.
      mtp_weight: loss weight of the multi-token layer.
      mtp_depth: how many tokens it drafts in training, one from the other.
      mtp_share, mtp_chain_share: shares of the rows that it drafts for, and that go beyond its
        first draft.
      fake_quant_from: fraction of the steps after which linear weights are rounded to NVFP4 in the
        forward pass; 1 for never.
      vocabulary_samples: conversations that the tokenizer is learned from.
    """

    model: ModelConfig = SMALL
    phases: tuple[Phase, ...] = (
        Phase(Bucket("short", 64, 1024), 0.55),
        Phase(Bucket("medium", 32, 2048), 0.30),
        Phase(Bucket("long", 13, 5120), 0.15),
    )
    dtype: str = "bfloat16"
    seed: int = 1
    learning_rate: float = 3e-3
    warmup: int = 300
    decay: float = 0.3
    optimizer: str = "muon"
    weight_decay: float = 0.05
    clip: float = 1.0
    prompt_weight: float = 0.1
    mtp_weight: float = 0.3
    mtp_depth: int = 3
    mtp_share: float = 0.5
    mtp_chain_share: float = 0.25
    fake_quant_from: float = 0.8
    vocabulary_samples: int = 16_000
