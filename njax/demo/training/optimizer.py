"""The optimizer and the learning rate of each step.

Muon (Jordan et al. 2024) orthogonalises the momentum of matrices; its updates are scaled to the
size of AdamW's (Liu et al., arXiv 2502.16982), so that one learning rate serves both kinds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers, muon

from njax.demo.training.loss import linear_names
from njax.demo.training.recipe import Recipe


def make_optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Updates for a learning rate of 1; the step multiplies them by its own."""
    matrices = linear_names(recipe.model) | {"mtp.fc.weight"}

    def is_matrix(params: optax.Params) -> dict[str, bool]:
        return {name: name in matrices or name.startswith(_STACK) for name in params}

    if recipe.optimizer == "muon":
        rule = muon(
            learning_rate=1.0,
            beta=0.95,
            weight_decay=recipe.weight_decay,
            weight_decay_mask=is_matrix,
            adam_b1=0.9,
            adam_b2=0.95,
            adam_learning_rate=_PLAIN_RATE,
            consistent_rms=0.2,
            # Weights are [outputs, inputs], in a stack [matrices, outputs, inputs].
            muon_weight_dimension_numbers=lambda params: {
                name: MuonDimensionNumbers(reduction_axis=2, output_axis=1) if matrix else None
                for name, matrix in is_matrix(params).items()
            },
        )
    elif recipe.optimizer == "adamw":
        rule = optax.adamw(1.0, b1=0.9, b2=0.95, weight_decay=recipe.weight_decay, mask=is_matrix)
    else:
        raise ValueError(f"optimizer {recipe.optimizer!r} is neither 'muon' nor 'adamw'")
    return _stacking(_lenient(optax.chain(optax.clip_by_global_norm(recipe.clip), rule)), matrices)


_STACK = "stack."
_PLAIN_RATE = 0.5
"""Learning rate of everything that is no matrix, in parts of that of the matrices."""


def _stacking(
    rule: optax.GradientTransformation, matrices: frozenset[str]
) -> optax.GradientTransformation:
    """The rule over stacks of the matrices of one shape: few large operations, not many small."""

    def stack(tree: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: value for name, value in tree.items() if name not in matrices} | {
            _STACK + str(shape): jnp.stack([tree[name] for name in names])
            for shape, names in _by_shape(tree, matrices).items()
        }

    def unstack(tree: dict[str, jax.Array], like: dict[str, jax.Array]) -> dict[str, jax.Array]:
        out = {name: value for name, value in tree.items() if not name.startswith(_STACK)}
        for shape, names in _by_shape(like, matrices).items():
            out |= dict(zip(names, tree[_STACK + str(shape)], strict=True))
        return out

    def update(
        updates: dict[str, jax.Array], state: optax.OptState, params: dict[str, jax.Array]
    ) -> tuple[dict[str, jax.Array], optax.OptState]:
        changes, state = rule.update(stack(updates), state, stack(params))
        return unstack(changes, params), state

    return optax.GradientTransformation(lambda params: rule.init(stack(params)), update)


def _by_shape(
    tree: dict[str, jax.Array], matrices: frozenset[str]
) -> dict[tuple[int, ...], list[str]]:
    found: dict[tuple[int, ...], list[str]] = {}
    for name in sorted(matrices & tree.keys()):
        found.setdefault(tree[name].shape, []).append(name)
    return found


def _lenient(rule: optax.GradientTransformation) -> optax.GradientTransformation:
    """Optax relies on JAX's usual type promotion, also where a program has set a strict one."""

    def init(params: optax.Params) -> optax.OptState:
        with jax.numpy_dtype_promotion("standard"):
            return rule.init(params)

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        with jax.numpy_dtype_promotion("standard"):
            return rule.update(updates, state, params)

    return optax.GradientTransformation(init, update)


def learning_rate(recipe: Recipe, step: int, total: int) -> float:
    """Of step 0 to total - 1: warm-up, constant, then linear towards zero."""
    rising = min(1.0, (step + 1) / recipe.warmup)
    falling = (total - step) / max(1.0, recipe.decay * total)
    return recipe.learning_rate * max(0.0, min(rising, falling, 1.0))
