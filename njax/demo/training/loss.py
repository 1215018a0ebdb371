"""Losses of a packed batch: the next token, and the drafts of the multi-token layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from njax.checkpoint.layout import tensor_specs
from njax.config import ModelConfig
from njax.demo.training import forward
from njax.demo.training.fake_quant import straight_through
from njax.demo.training.recipe import Recipe

Array = jax.Array


def linear_names(config: ModelConfig) -> frozenset[str]:
    """Parameters that are stored in NVFP4: the linear weights, those of the drafting layer too."""
    names = {name for name, spec in tensor_specs(config).items() if spec.role == "linear"}
    kind = config.layer_kinds.index("attention") if "attention" in config.layer_kinds else -1
    like = f"layers.{kind}."
    return frozenset(
        names | {f"mtp.layers.0.{n[len(like) :]}" for n in names if n.startswith(like)}
    )


def activations_of(
    params: dict[str, Array], config: ModelConfig, dtype: Any, rounding: Array
) -> dict[str, Array]:
    """Parameters as the forward pass takes them, from the float32 ones.

    Args:
      rounding: float32 scalar, 1 to round linear weights to NVFP4, 0 to leave them.
    """
    quantized = linear_names(config)

    def one(name: str, value: Array) -> Array:
        if name.endswith(("A_log", "dt_bias")):
            return value
        if name in quantized:
            value = straight_through(value, rounding)
        return value.astype(dtype)

    return {name: one(name, value) for name, value in params.items()}


def shifted(x: Array, by: int) -> Array:
    """x[:, t + by], zeros beyond the end."""
    return jnp.pad(x[:, by:], ((0, 0), (0, by)))


def losses(
    params: dict[str, Array],
    recipe: Recipe,
    tokens: Array,
    segments: Array,
    mask: Array,
    rounding: Array,
) -> tuple[Array, dict[str, Array]]:
    """The loss to minimise, and what to report.

    Args:
      tokens: uint16 [B, T]; segments: uint8 [B, T]; mask: bool [B, T], as in `data.pack.Batch`.

    Returns: the weighted sum of losses, and scalars by name: `loss` and `accuracy` of the tokens
    that the model writes, `prompt_loss` of the others, `mtp_loss_i`, `mtp_accuracy_i` of draft i.
    """
    config = recipe.model
    tokens, segments = tokens.astype(jnp.int32), segments.astype(jnp.int32)
    weights = activations_of(params, config, jnp.dtype(recipe.dtype), rounding)
    hidden = forward.decode(weights, config, tokens, segments)
    written, prompt = _targets(segments, mask, 1)
    losses, right = _cross_entropy(weights, config, hidden, shifted(tokens, 1))
    report = {
        "loss": _mean(losses, written),
        "accuracy": _mean(right, written),
        "prompt_loss": _mean(losses, prompt),
    }
    total = _weighted(losses, written, prompt, recipe.prompt_weight)
    all_rows = tokens.shape[0]
    drafted = jnp.zeros((), jnp.float32)
    for depth in range(1, recipe.mtp_depth + 1):
        share = recipe.mtp_share if depth == 1 else recipe.mtp_chain_share
        rows = max(1, round(all_rows * share))
        tokens, segments, mask, hidden = (x[:rows] for x in (tokens, segments, mask, hidden))
        hidden = forward.draft(weights, config, hidden, shifted(tokens, depth), segments)
        written, prompt = _targets(segments, mask, depth + 1)
        losses, right = _cross_entropy(weights, config, hidden, shifted(tokens, depth + 1))
        report[f"mtp_loss_{depth}"] = _mean(losses, written)
        report[f"mtp_accuracy_{depth}"] = _mean(right, written)
        drafted = drafted + _weighted(losses, written, prompt, recipe.prompt_weight)
    if recipe.mtp_depth:
        total = total + np.float32(recipe.mtp_weight / recipe.mtp_depth) * drafted
    return total, report


def predictions(
    params: dict[str, Array], recipe: Recipe, tokens: Array, segments: Array, rounding: Array
) -> tuple[Array, Array]:
    """Likeliest next tokens int32 [B, T], and drafts of the tokens after them [depth, B, T].

    Entry t of draft i is the guess of token t + 1 + i, all tokens up to t + i being right.
    """
    config = recipe.model
    tokens, segments = tokens.astype(jnp.int32), segments.astype(jnp.int32)
    weights = activations_of(params, config, jnp.dtype(recipe.dtype), rounding)
    hidden = forward.decode(weights, config, tokens, segments)
    best = _best(weights, config, hidden)
    drafts = []
    for depth in range(1, recipe.mtp_depth + 1):
        hidden = forward.draft(weights, config, hidden, shifted(tokens, depth), segments)
        drafts.append(_best(weights, config, hidden))
    none = jnp.zeros((0, *best.shape), jnp.int32)
    return best, jnp.stack(drafts) if drafts else none


def _best(weights: dict[str, Array], config: ModelConfig, hidden: Array) -> Array:
    return jnp.argmax(forward.logits(weights, config, hidden), axis=-1).astype(jnp.int32)


def _targets(segments: Array, mask: Array, ahead: int) -> tuple[Array, Array]:
    """Where the token `ahead` is one that the model writes, and where it is one of the prompt."""
    inside = (shifted(segments, ahead) == segments) & (segments > 0)
    inside = inside & (jnp.arange(segments.shape[1]) < segments.shape[1] - ahead)
    wanted = shifted(mask, ahead)
    return inside & wanted, inside & ~wanted


def _cross_entropy(
    weights: dict[str, Array], config: ModelConfig, hidden: Array, targets: Array
) -> tuple[Array, Array]:
    """(loss, hit) float32 [B, T]; logits are made again in the backward pass."""

    @jax.checkpoint
    def run(hidden: Array, weights: dict[str, Array]) -> tuple[Array, Array]:
        logits = forward.logits(weights, config, hidden)
        top = jax.nn.logsumexp(logits, axis=-1)
        # A sum rather than a gather: its gradient needs no scatter.
        chosen = jnp.arange(logits.shape[-1]) == targets[..., None]
        target = jnp.sum(jnp.where(chosen, logits, np.float32(0)), axis=-1)
        hit = (jnp.max(logits, axis=-1) == target).astype(jnp.float32)
        return top - target, jax.lax.stop_gradient(hit)

    name = "embedding.weight" if config.tied_head else "head.weight"
    return run(hidden, {name: weights[name]})


def _mean(values: Array, where: Array) -> Array:
    weights = where.astype(jnp.float32)
    return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), np.float32(1))


def _weighted(losses: Array, written: Array, prompt: Array, prompt_weight: float) -> Array:
    """Mean over written tokens plus the weighted mean over the others.

    Two means, not one: in long rows only one token in twenty is written.
    """
    return _mean(losses, written) + np.float32(prompt_weight) * _mean(losses, prompt)
