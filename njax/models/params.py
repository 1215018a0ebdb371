"""Parameters by name, and the model built from them.

A name is the dotted path in the module tree ("layers.0.delta.qkv_proj.weight"); checkpoints use
the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from njax.config import ModelConfig
from njax.errors import CheckpointError
from njax.models.hybrid import HybridModel
from pallas_kernels.nvfp4_matmul import for_device
from pallas_kernels.weights import NVFP4Weight


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in path)


def _abstract(config: ModelConfig, dtype: Any) -> HybridModel:
    return nnx.eval_shape(lambda: HybridModel(config, dtype=dtype, rngs=nnx.Rngs(0)))


def params_of(model: nnx.Module) -> dict[str, Any]:
    """Every parameter of a model, or of a part of one, by name."""
    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {_name(path): param.get_value() for path, param in flat}


def abstract_params(config: ModelConfig, dtype: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Names, shapes and unquantised dtypes of all parameters; nothing is allocated."""
    return params_of(_abstract(config, dtype))


def place(params: Mapping[str, Any]) -> dict[str, Any]:
    """The weights on the default device, each in the layout that multiplies fastest there.

    One at a time, so that no more than one weight is ever there twice.
    """
    placed = {}
    for name, weight in params.items():
        weight = jax.device_put(weight)
        placed[name] = for_device(weight) if isinstance(weight, NVFP4Weight) else weight
    return placed


def bind(
    config: ModelConfig, dtype: Any, params: Mapping[str, Any]
) -> tuple[nnx.GraphDef, nnx.State]:
    """The model with these parameters, split for jitted steps.

    Args:
      params: a weight (array, NVFP4Weight, FP8Weight) for every name of `abstract_params`.

    Raises:
      CheckpointError: a name is missing or unknown, or a shape is wrong.
    """
    return bind_module(_abstract(config, dtype), params)


def bind_module(module: nnx.Module, params: Mapping[str, Any]) -> tuple[nnx.GraphDef, nnx.State]:
    """An abstract module with these parameters; as `bind`."""
    graphdef, state = nnx.split(module)
    expected = {_name(path): (path, param) for path, param in nnx.to_flat_state(state)}
    missing = sorted(expected.keys() - params.keys())
    extra = sorted(params.keys() - expected.keys())
    if missing or extra:
        what = [f"missing: {', '.join(missing)}"] * bool(missing)
        what += [f"unknown: {', '.join(extra)}"] * bool(extra)
        raise CheckpointError(f"parameters do not fit the config; {'; '.join(what)}")
    flat = {}
    for name, (path, param) in expected.items():
        weight, shape = params[name], param.get_value().shape
        if tuple(weight.shape) != tuple(shape):
            raise CheckpointError(
                f"{name} has shape {tuple(weight.shape)}, the config asks for {tuple(shape)}"
            )
        flat[path] = param.replace(weight)
    return graphdef, nnx.from_flat_state(flat)
