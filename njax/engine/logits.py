"""What happens to logits besides the draw: penalties and biases before it, log probabilities after.

All of it runs inside the jitted step and costs nothing when no lane asks for it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from njax.engine.sampling import LaneSampling
from njax.engine.types import MAX_LOGPROBS


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TokenCounts:
    """Which tokens each of B lanes has seen.

    Attributes:
      generated: int32 [B, V], how often each token was generated in this answer.
      prompt: bool [B, V], whether it stands in the prompt; kept only for lanes with a repetition
        penalty, stale elsewhere.
    """

    generated: jax.Array
    prompt: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of the model's own probabilities, before penalties and temperature.

    Attributes:
      chosen: float32 [B].
      top: float32 [B, MAX_LOGPROBS], descending; `top_ids`: int32, the lower id first among equals.
    All zero in a step in which no lane asks.
    """

    chosen: jax.Array
    top: jax.Array
    top_ids: jax.Array


def init_counts(lanes: int, vocab: int) -> TokenCounts:
    return TokenCounts(
        generated=jnp.zeros((lanes, vocab), jnp.int32), prompt=jnp.zeros((lanes, vocab), bool)
    )


def count_token(counts: TokenCounts, token: jax.Array, active: jax.Array) -> TokenCounts:
    """Counts token[b] int32 [B] for the active lanes, bool [B]."""
    rows = jnp.arange(token.shape[0])
    added = counts.generated.at[rows, token].add(active.astype(jnp.int32))
    return TokenCounts(generated=added, prompt=counts.prompt)


def adjust(logits: jax.Array, lanes: LaneSampling, counts: TokenCounts) -> jax.Array:
    """Applies penalties and biases to float32 logits [B, V], greedy lanes included.

    Repetition: a logit of a token that was seen in prompt or answer is divided by the penalty if
    positive, multiplied if not (Keskar et al., arXiv 1909.05858). Presence and frequency: minus
    presence once and frequency times the count, for generated tokens. Bias: added at the end.
    """

    def apply() -> jax.Array:
        generated = counts.generated
        seen = (generated > 0) | counts.prompt
        repetition = lanes.repetition[:, None]
        punished = jnp.where(logits > 0, logits / repetition, logits * repetition)
        out = jnp.where(seen & (repetition != 1.0), punished, logits)
        out -= lanes.presence[:, None] * (generated > 0).astype(jnp.float32)
        out -= lanes.frequency[:, None] * generated.astype(jnp.float32)
        rows = jnp.arange(out.shape[0])[:, None]
        return out.at[rows, lanes.bias_ids].add(lanes.bias, mode="drop")

    wanted = (
        jnp.any(lanes.repetition != 1.0)
        | jnp.any(lanes.presence != 0.0)
        | jnp.any(lanes.frequency != 0.0)
        | jnp.any(lanes.bias != 0.0)
    )
    return jax.lax.cond(wanted, apply, lambda: logits)


def log_probabilities(logits: jax.Array, token: jax.Array, lanes: LaneSampling) -> Logprobs:
    """Of the chosen tokens int32 [B] and of the likeliest, from raw logits float32 [B, V]."""
    batch, vocab = logits.shape
    count = min(MAX_LOGPROBS, vocab)

    def compute() -> Logprobs:
        normed = jax.nn.log_softmax(logits, axis=-1)
        top, ids = jax.lax.top_k(normed, count)
        pad = ((0, 0), (0, MAX_LOGPROBS - count))
        return Logprobs(
            chosen=jnp.take_along_axis(normed, token[:, None], axis=-1)[:, 0],
            top=jnp.pad(top, pad),
            top_ids=jnp.pad(ids.astype(jnp.int32), pad),
        )

    def skip() -> Logprobs:
        return Logprobs(
            chosen=jnp.zeros(batch, jnp.float32),
            top=jnp.zeros((batch, MAX_LOGPROBS), jnp.float32),
            top_ids=jnp.zeros((batch, MAX_LOGPROBS), jnp.int32),
        )

    return jax.lax.cond(jnp.any(lanes.logprobs), compute, skip)
