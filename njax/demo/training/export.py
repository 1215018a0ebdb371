"""The result of a run as an njax checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from njax.checkpoint import Checkpoint
from njax.checkpoint.checkpoint import write_checkpoint
from njax.checkpoint.layout import tensor_specs
from njax.checkpoint.lazy import in_memory
from njax.checkpoint.manifest import make_manifest
from njax.checkpoint.mtp import mtp_hf_name
from njax.checkpoint.plan import EXTRA
from njax.checkpoint.planned import from_weight, plain_tensor
from njax.checkpoint.text_files import TextFiles
from njax.config import ModelConfig
from njax.demo.training.vocabulary import TEMPLATE
from njax.models.mtp import PREFIX
from njax.quantization import quantize_nvfp4
from njax.text.tokenizer import Tokenizer

Numbers = Literal["bfloat16", "nvfp4"]
"""What the linear weights of an export are stored in; everything else is bfloat16."""


def to_checkpoint(
    params: dict[str, jax.Array], config: ModelConfig, tokenizer_json: str, numbers: Numbers
) -> Checkpoint:
    """The decoder, without the multi-token layer, as the engine takes it."""
    ids = Tokenizer.from_json(tokenizer_json).token_to_id
    weights: dict[str, Any] = {}
    for name, spec in tensor_specs(config).items():
        value = np.asarray(params[name], np.float32)
        if spec.role == "linear" and numbers == "nvfp4":
            weights[name] = quantize_nvfp4(value)
        else:
            dtype = jnp.float32 if spec.role == "state" else jnp.bfloat16
            weights[name] = jnp.asarray(value, dtype)
    end = ids("<|endoftext|>")
    return Checkpoint(
        config=config,
        params=weights,
        dtype="bfloat16",
        tokenizer_json=tokenizer_json,
        chat_template=TEMPLATE.read_text(encoding="utf-8"),
        generation_config={
            "eos_token_id": [ids("<|im_end|>"), end],
            "pad_token_id": end,
            "do_sample": False,
        },
        tokenizer_config={
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": config.max_position,
        },
    )


def export(
    path: Path,
    params: dict[str, jax.Array],
    config: ModelConfig,
    tokenizer_json: str,
    numbers: Numbers,
    facts: dict[str, Any] | None = None,
) -> None:
    """Writes an njax checkpoint at `path`, which must not exist.

    The multi-token layer travels as carried-along bfloat16 tensors under its Hugging Face names, as
    in a converted checkpoint of the family.

    Args:
      facts: what the manifest is to say about the training, under `options`.
    """
    checkpoint = to_checkpoint(params, config, tokenizer_json, numbers)
    tensors = [from_weight(name, checkpoint.params[name]) for name in tensor_specs(config)]
    tensors += [
        plain_tensor(
            EXTRA + mtp_hf_name(name), in_memory(np.asarray(jnp.asarray(value, jnp.bfloat16)))
        )
        for name, value in params.items()
        if name.startswith(PREFIX)
    ]
    text = TextFiles(
        checkpoint.tokenizer_json,
        checkpoint.tokenizer_config,
        checkpoint.chat_template,
        checkpoint.generation_config,
    )
    manifest = make_manifest(config, "bfloat16", tensors, options=facts or {})
    write_checkpoint(path, tensors, text, lambda: manifest)
