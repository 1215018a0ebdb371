"""The compiled programs of a run: a step and a prediction for each shape of batch.

All are compiled at the same time, in threads, before the first step: on one accelerator that is
minutes of a short run saved.
"""

from __future__ import annotations

import concurrent.futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from njax.demo.data.pack import Batch
from njax.demo.training.loss import losses, predictions
from njax.demo.training.recipe import Recipe

Params = dict[str, jax.Array]


class Programs:
    """Steps and predictions; compiling starts at once, and is waited for when it is needed."""

    def __init__(
        self,
        recipe: Recipe,
        optimizer: optax.GradientTransformation,
        params: Params,
        state: optax.OptState,
    ):
        self._recipe, self._optimizer = recipe, optimizer
        shapes = {(p.bucket.rows, p.bucket.length) for p in recipe.phases}
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        pool = concurrent.futures.ThreadPoolExecutor(2 * len(shapes))
        weights, moments = jax.tree.map(_abstract, (params, state))
        step = jax.jit(self._step, donate_argnums=(0, 1))
        predict = jax.jit(self._predict)
        self._steps, self._predictions = {}, {}
        for shape in sorted(shapes):
            tokens, segments, mask = (
                jax.ShapeDtypeStruct(shape, dtype) for dtype in (jnp.uint16, jnp.uint8, jnp.bool_)
            )
            self._steps[shape] = pool.submit(
                _compile, step, weights, moments, tokens, segments, mask, scalar, scalar
            )
            self._predictions[shape] = pool.submit(
                _compile, predict, weights, tokens, segments, scalar
            )
        pool.shutdown(wait=False)

    def step(
        self, params: Params, state: optax.OptState, batch: Batch, rate: float, rounded: bool
    ) -> tuple[Params, optax.OptState, dict[str, jax.Array]]:
        """One step; `params` and `state` are used up. Returns their successors and a report."""
        run = self._steps[batch.tokens.shape].result()
        return run(
            params, state, batch.tokens, batch.segments, batch.mask,
            np.float32(rate), np.float32(rounded),
        )  # fmt: skip

    def predict(self, params: Params, batch: Batch, rounded: bool) -> tuple[np.ndarray, np.ndarray]:
        """See `loss.predictions`."""
        run = self._predictions[batch.tokens.shape].result()
        best, drafts = run(params, batch.tokens, batch.segments, np.float32(rounded))
        return np.asarray(best), np.asarray(drafts)

    def _step(
        self,
        params: Params,
        state: optax.OptState,
        tokens: jax.Array,
        segments: jax.Array,
        mask: jax.Array,
        rate: jax.Array,
        rounding: jax.Array,
    ) -> tuple[Params, optax.OptState, dict[str, jax.Array]]:
        gradients, report = jax.grad(losses, has_aux=True)(
            params, self._recipe, tokens, segments, mask, rounding
        )
        updates, state = self._optimizer.update(gradients, state, params)
        params = {name: value + rate * updates[name] for name, value in params.items()}
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(value)) for value in gradients.values()))
        return params, state, report | {"gradient_norm": norm}

    def _predict(
        self, params: Params, tokens: jax.Array, segments: jax.Array, rounding: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return predictions(params, self._recipe, tokens, segments, rounding)


def _abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _compile(function: Any, *arguments: Any) -> Any:
    return function.lower(*arguments).compile()
