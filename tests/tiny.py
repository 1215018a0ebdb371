"""A tiny hybrid with random weights, for tests of the engine.

It is quicker than the bundled model, and its answers wander: a wrong bit anywhere shows soon.
Tokenizer and chat template are the bundled model's.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
import math
import re
import zipfile
import zlib

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from njax.checkpoint import Checkpoint
from njax.checkpoint.layout import mtp_specs, tensor_specs
from njax.config import LayerKind, ModelConfig
from njax.demo import ARCHIVES
from njax.demo.tokens import ADDED_TOKENS
from njax.text.tokenizer import Tokenizer

VOCAB_SIZE = 4096
"""That of the tokenizer."""

TINY_CONFIG = ModelConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=128,
    intermediate_size=256,
    layer_kinds=("delta", "attention") * 2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rotary_dim=8,
    rope_theta=1e7,
    mrope_section=(2, 1, 1),
    delta_key_heads=2,
    delta_value_heads=4,
    delta_key_dim=32,
    delta_value_dim=32,
    conv_width=4,
    rms_norm_eps=1e-6,
    max_position=32_768,
    tied_head=False,
)

_SEED = 20_260_401
_ID = {token: VOCAB_SIZE - len(ADDED_TOKENS) + i for i, token in enumerate(ADDED_TOKENS)}


def load_tiny(*, mtp: bool = False, layer_kinds: tuple[LayerKind, ...] | None = None) -> Checkpoint:
    """The tiny model: bfloat16, the same bits on every machine.

    Args:
      mtp: with a multi-token layer, which is random too: hardly a draft is right.
      layer_kinds: other layers, where fewer will do: they compile sooner.
    """
    config = dataclasses.replace(
        TINY_CONFIG, layer_kinds=layer_kinds or TINY_CONFIG.layer_kinds, mtp_layers=int(mtp)
    )
    text = _text_files()
    weights = _weights(config)
    return Checkpoint(
        config=config,
        params={name: jnp.asarray(value) for name, value in weights.items()},
        dtype="bfloat16",
        tokenizer_json=text["tokenizer.json"],
        chat_template=text["chat_template.jinja"],
        generation_config=json.loads(text["generation_config.json"]) | {"do_sample": True},
        tokenizer_config=json.loads(text["tokenizer_config.json"]),
        mtp={n: jnp.asarray(v) for n, v in _mtp_weights(config).items()} if mtp else {},
    )


@functools.cache
def _text_files() -> dict[str, str]:
    names = ("tokenizer.json", "chat_template.jinja", "generation_config.json")
    resource = importlib.resources.files("njax.demo") / ARCHIVES["nvfp4"]
    with resource.open("rb") as file, zipfile.ZipFile(file) as archive:
        return {name: archive.read(name).decode() for name in (*names, "tokenizer_config.json")}


@functools.cache
def _weights(config: ModelConfig) -> dict[str, np.ndarray]:
    weights = {name: _tensor(name, spec.shape) for name, spec in tensor_specs(config).items()}
    weights["head.weight"][_unspoken(_text_files()["tokenizer.json"])] = 0
    return weights


@functools.cache
def _mtp_weights(config: ModelConfig) -> dict[str, np.ndarray]:
    return {name: _tensor(name, spec.shape) for name, spec in mtp_specs(config).items()}


def _tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """One parameter.

    Matrices are uniform with standard deviation gain / sqrt(inputs), which keeps activations of
    unit size. The gains of the head and of the layers' outputs are chosen by trying: logits with a
    spread of a few units, and answers that do not settle on one token at once.
    """
    kind = name.split(".", 2)[-1] if name.startswith("layers.") else name
    if kind == "delta.A_log":
        # Decays from slow to fast across the heads, as in trained models.
        return np.linspace(0.0, 2.5, shape[0], dtype=np.float32)
    if kind == "delta.dt_bias":
        return np.linspace(-5.0, -2.0, shape[0], dtype=np.float32)
    if kind == "delta.norm.weight":
        return _bfloat16(np.ones(shape, np.float32))
    if len(shape) == 1:  # zero-centred norms
        return _bfloat16(0.1 * _uniform(name, shape))
    gain = {"embedding.weight": math.sqrt(shape[1]), "head.weight": 3.0}.get(name, 1.0)
    return _bfloat16(np.float32(gain / math.sqrt(shape[1])) * _uniform(name, shape))


def _unspoken(tokenizer_json: str) -> list[int]:
    """Ids that the model all but never says, for the sake of the reader's terminal.

    Control characters, bytes that are no text by themselves, and added tokens other than the ends
    of an answer and of thinking.
    """
    tokenizer = Tokenizer.from_json(tokenizer_json)
    spoken = {"<|im_end|>", "<|endoftext|>", "</think>"}
    return [
        token_id
        for token_id in range(VOCAB_SIZE)
        if not (
            tokenizer.id_to_token(token_id) in spoken
            if token_id in _ID.values()
            else re.fullmatch(rb"[\n\x20-\x7e]+", tokenizer.token_bytes(token_id))
        )
    ]


def _uniform(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform float32 of mean 0 and variance 1.

    From the raw bits of PCG64, whose stream NumPy guarantees across versions, by exact operations
    only: no library function whose last bit differs between machines.
    """
    bits = np.random.PCG64([_SEED, zlib.crc32(name.encode())]).random_raw(math.prod(shape))
    centred = (np.asarray(bits) >> np.uint64(41)).astype(np.float32) - np.float32(2**22)
    return (centred * np.float32(math.sqrt(3.0) / 2**22)).reshape(shape)


def _bfloat16(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16)
