"""Model shapes with random weights, for measurements that need a size and not a meaning."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from njax.config import ModelConfig
from njax.models.params import abstract_params
from pallas_kernels.nvfp4_matmul import for_device
from pallas_kernels.weights import NVFP4Weight


def dense_27b(layers: int = 64) -> ModelConfig:
    """The dense 27B hybrid; fewer layers keep every width."""
    return ModelConfig(
        vocab_size=248_320,
        hidden_size=5120,
        intermediate_size=17_408,
        layer_kinds=tuple("attention" if (i + 1) % 4 == 0 else "delta" for i in range(layers)),
        num_heads=24,
        num_kv_heads=4,
        head_dim=256,
        rotary_dim=64,
        rope_theta=1e7,
        mrope_section=(11, 11, 10),
        delta_key_heads=16,
        delta_value_heads=48,
        delta_key_dim=128,
        delta_value_dim=128,
        conv_width=4,
        rms_norm_eps=1e-6,
        max_position=262_144,
        tied_head=False,
    )


_PLAIN = ("embedding", "a_proj", "b_proj", "conv", "norm", "A_log", "dt_bias")


def random_nvfp4_params(config: ModelConfig, dtype: Any) -> dict[str, Any]:
    """Random weights made on the device: projections and head in NVFP4, the rest plain.

    Magnitudes keep activations finite: values of a projection have about 1/sqrt(inputs).
    """

    @jax.jit(static_argnames="shape")
    def quantised(key: jax.Array, shape: tuple[int, int]) -> NVFP4Weight:
        n, k = shape
        codes = jax.random.bits(key, (n, k // 2), jnp.uint8)
        scales = jnp.full((n, k // 16), 0x38, jnp.uint8)  # 1.0 in e4m3
        # The 16 codes, taken evenly, have a root mean square of 2.92.
        return NVFP4Weight(codes, scales, jnp.float32(1 / (2.92 * k**0.5)))

    @jax.jit(static_argnames=("shape", "dtype"))
    def plain(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return (0.02 * jax.random.normal(key, shape, jnp.float32)).astype(dtype)

    params = {}
    for index, (name, spec) in enumerate(abstract_params(config, dtype).items()):
        key = jax.random.key(index)
        if len(spec.shape) == 2 and not any(part in name for part in _PLAIN):
            params[name] = for_device(quantised(key, spec.shape))
        else:
            params[name] = plain(key, spec.shape, spec.dtype)
    return params
