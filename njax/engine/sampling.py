"""The choice of the next token, inside the jitted step, with per-lane parameters as arrays.

The random number of a draw depends on (seed, index of the token in its sequence) alone, so a
seeded request gives the same tokens in any lane, in any company, from any prefix source and with
drafts or without: there is one purpose only, as `speculative.py` explains.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from njax.engine.types import MAX_BIASES, SamplingParams


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LaneSampling:
    """Sampling parameters of B lanes, arrays of the host or the device.

    Attributes:
      temperature: float32 [B]; 0 is greedy.
      top_k: int32 [B]; 0 keeps all.
      top_p, min_p: float32 [B].
      seed: uint32 [B, 2], the two halves of a 64-bit seed.
      repetition, presence, frequency: float32 [B], penalties; 1, 0 and 0 change nothing.
      bias_ids, bias: int32 and float32 [B, MAX_BIASES]; unused entries have an id beyond any
        vocabulary and the bias 0.
      logprobs: bool [B], whether the lane wants log probabilities.
    """

    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    seed: Any
    repetition: Any
    presence: Any
    frequency: Any
    bias_ids: Any
    bias: Any
    logprobs: Any

    @classmethod
    def greedy(cls, lanes: int) -> LaneSampling:
        """Host arrays for `lanes` greedy lanes."""
        return cls(
            temperature=np.zeros(lanes, np.float32),
            top_k=np.zeros(lanes, np.int32),
            top_p=np.ones(lanes, np.float32),
            min_p=np.zeros(lanes, np.float32),
            seed=np.zeros((lanes, 2), np.uint32),
            repetition=np.ones(lanes, np.float32),
            presence=np.zeros(lanes, np.float32),
            frequency=np.zeros(lanes, np.float32),
            bias_ids=np.full((lanes, MAX_BIASES), np.iinfo(np.int32).max, np.int32),
            bias=np.zeros((lanes, MAX_BIASES), np.float32),
            logprobs=np.zeros(lanes, np.bool_),
        )

    def with_lane(self, lane: int, params: SamplingParams) -> LaneSampling:
        """A copy (host arrays) in which one lane has these parameters."""
        copy = LaneSampling(*(np.array(leaf) for leaf in jax.tree.leaves(self)))
        seed = secrets.randbits(64) if params.seed is None else params.seed
        copy.temperature[lane] = params.temperature
        copy.top_k[lane] = min(params.top_k, np.iinfo(np.int32).max)
        copy.top_p[lane] = params.top_p
        copy.min_p[lane] = params.min_p
        copy.seed[lane] = (seed >> 32, seed & 0xFFFFFFFF)
        copy.repetition[lane] = params.repetition_penalty
        copy.presence[lane] = params.presence_penalty
        copy.frequency[lane] = params.frequency_penalty
        copy.bias_ids[lane] = np.iinfo(np.int32).max
        copy.bias[lane] = 0.0
        for index, (token, bias) in enumerate(params.logit_bias):
            copy.bias_ids[lane, index] = token
            copy.bias[lane, index] = bias
        copy.logprobs[lane] = params.logprobs is not None
        return copy


def sample(logits: jax.Array, lanes: LaneSampling, index: jax.Array) -> jax.Array:
    """Chooses one token for each row.

    Args:
      logits: float32 [B, V].
      lanes: parameters of the B rows.
      index: int32 [B], the position that the chosen token will have in its sequence.

    Returns:
      int32 [B]. Greedy rows: the lowest id among the largest logits. Others: order by logit, the
      lower id first; keep top_k; drop what is below min_p times the likeliest; keep the shortest
      head that reaches top_p of the mass before that drop; renormalise and draw.
    """
    greedy = jnp.argmax(logits, axis=-1).astype(jnp.int32)

    def draw() -> jax.Array:
        return jnp.where(lanes.temperature > 0, jax.vmap(_draw_one)(logits, lanes, index), greedy)

    return jax.lax.cond(jnp.any(lanes.temperature > 0), draw, lambda: greedy)


def _draw_one(logits: jax.Array, lane: LaneSampling, index: jax.Array) -> jax.Array:
    """One row of `sample`; the fields of `lane` are scalars, its seed has two words."""
    vocab = logits.shape[-1]
    ids = jnp.arange(vocab, dtype=jnp.int32)
    # A stable sort of the negated logits puts the lower id first among equals.
    negated, order = jax.lax.sort((-logits, ids), num_keys=1, is_stable=True)
    scaled = -negated / jnp.where(lane.temperature > 0, lane.temperature, 1.0)
    kept = jnp.where(lane.top_k > 0, ids < lane.top_k, True)
    weight = jnp.where(kept, jnp.exp(scaled - scaled[0]), 0.0)  # 1 for the likeliest
    total = jnp.sum(weight)
    mass_before = jnp.cumsum(weight) - weight
    kept &= (weight >= lane.min_p) & (mass_before < lane.top_p * total)
    kept |= ids == 0
    mass = jnp.cumsum(jnp.where(kept, weight, 0.0))
    key = jax.random.fold_in(jax.random.wrap_key_data(lane.seed, impl="threefry2x32"), index)
    target = jax.random.uniform(key, dtype=jnp.float32) * mass[-1]
    # The first kept entry whose cumulative mass exceeds the target. Kept entries form a head of
    # the order, so rounding at the far end is caught by the last of them.
    chosen = jnp.minimum(jnp.sum(mass <= target), jnp.sum(kept) - 1)
    return order[chosen]
