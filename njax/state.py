"""Sequence state as values: what a lane carries between steps, as pytrees of arrays.

All device state is passed into a step and returned from it. The working copy (`ModelState`) is
donated to each step; a `Snapshot` never is, is never written to and may be restored any number of
times (restoring is a copy).

Shapes use: B lanes, P pages of the pool, W conv width, C conv channels, Hv value heads,
Dk/Dv delta key and value head dims, Hkv KV heads, D attention head dim.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from njax.config import BLOCK, ModelConfig
from pallas_kernels.attention import Pages, zero_pages


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeltaState:
    """One gated-DeltaNet layer.

    Attributes:
      conv: [B, W-1, C] the last W-1 inputs of the convolution, oldest first, activation dtype.
      recurrent: [B, Hv, Dk, Dv] float32, the associative memory.
    """

    conv: jax.Array
    recurrent: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVPages:
    """One attention layer's share of the page pool; a page holds `BLOCK` tokens.

    Attributes:
      k: [P, Hkv, BLOCK, D] normed and rotated keys.
      v: [P, Hkv, BLOCK, D] values.
    Each is an array or, in an int8 cache, codes and scales; all leaves have P in front.
    Page 0 is scratch: padding rows are written there and nobody reads it.
    """

    k: Pages
    v: Pages


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ModelState:
    """State of all layers; `delta[i]` belongs to the i-th delta layer, `kv[i]` likewise."""

    delta: tuple[DeltaState, ...]
    kv: tuple[KVPages, ...]


def state_after(
    count: jax.Array, before: tuple[DeltaState, ...], window: tuple[DeltaState, ...]
) -> tuple[DeltaState, ...]:
    """The delta states of each lane after the first count[b] tokens of a window.

    Args:
      count: int32 [B], 0 to T.
      before: leaves [B, ...]; window: leaves [T, B, ...].
    """

    def pick(old: jax.Array, stacked: jax.Array) -> jax.Array:
        taken = stacked[jnp.maximum(count - 1, 0), jnp.arange(count.shape[0])]
        return jnp.where((count > 0).reshape(-1, *[1] * (old.ndim - 1)), taken, old)

    return jax.tree.map(pick, before, window)


def kv_storage(name: str | None, activations: jnp.dtype) -> jnp.dtype:
    """The dtype of the elements of KV pages for an `EngineConfig.kv_dtype`."""
    stored = {"bf16": jnp.bfloat16, "int8": jnp.int8}
    return jnp.dtype(activations if name is None else stored[name])


def init_state(
    config: ModelConfig,
    *,
    batch: int,
    pages: int,
    dtype: jnp.dtype,
    kv_dtype: jnp.dtype | None = None,
    more_attention: int = 0,
) -> ModelState:
    """Zeroed state for `batch` sequences over a pool of `pages` pages (page 0 included).

    KV pages are of `kv_dtype`, by default of `dtype`; int8 means codes with scales.
    `more_attention` layers of the decoder's shape follow its own in the pool.
    Under `jax.eval_shape` it gives the abstract state, so byte counts need no allocation.
    """
    delta = tuple(
        DeltaState(
            conv=jnp.zeros((batch, config.conv_width - 1, config.conv_channels), dtype),
            recurrent=jnp.zeros(
                (batch, config.delta_value_heads, config.delta_key_dim, config.delta_value_dim),
                jnp.float32,
            ),
        )
        for _ in range(config.delta_layers)
    )
    stored = jnp.dtype(dtype if kv_dtype is None else kv_dtype)
    shape = (pages, config.num_kv_heads, BLOCK, config.head_dim)
    kv = tuple(
        KVPages(k=zero_pages(shape, stored), v=zero_pages(shape, stored))
        for _ in range(config.attention_layers + more_attention)
    )
    return ModelState(delta=delta, kv=kv)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The complete state of one sequence after its first `length` tokens; never written to.

    Attributes:
      length: tokens that the state has absorbed, a multiple of `BLOCK`.
      delta: one `DeltaState` of batch 1 for each delta layer.
      segments: the KV pages in order, in runs of fixed sizes; a run holds one `KVPages` for each
        attention layer.
      tail: [1, hidden], the hidden state of the last token, which the next entry of the multi-token
        layer is made of; None where nothing is drafted.
    """

    length: int = dataclasses.field(metadata={"static": True})
    delta: tuple[DeltaState, ...]
    segments: tuple[tuple[KVPages, ...], ...]
    tail: jax.Array | None = None


def tree_bytes(tree: object) -> int:
    """Bytes of all arrays (or abstract arrays) in a pytree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def kv_token_bytes(config: ModelConfig, kv_dtype: jnp.dtype, more_attention: int = 0) -> int:
    """Bytes of one token's keys and values in all attention layers."""
    shape = {"batch": 1, "pages": 1, "more_attention": more_attention}
    state = jax.eval_shape(lambda: init_state(config, dtype=kv_dtype, kv_dtype=kv_dtype, **shape))
    return tree_bytes(state.kv) // BLOCK
