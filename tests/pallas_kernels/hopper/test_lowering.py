"""Every kernel with every committed configuration lowers for CUDA, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import pallas_kernels
from pallas_kernels import mosaic, tuning
from pallas_kernels.nvfp4_matmul import hopper_skinny, hopper_wide
from tests.pallas_kernels.hopper.support import packed_shape

TABLES = sorted((Path(pallas_kernels.__file__).parent / "tables").glob("*.json"))
SKINNY = {
    (*map(int, shape.split("x")), json.dumps(fields))
    for table in TABLES
    for shape, fields in json.loads(table.read_text())["nvfp4_matmul"]["skinny"].items()
} | {(34816, 5120, "{}"), (1000, 5008, "{}")}


def test_tables_are_named_after_their_device():
    assert tuning.load_table("NVIDIA H200") == json.loads(
        next(t for t in TABLES if t.name == "nvidia_h200.json").read_text()
    )
    assert tuning.lookup("a device without a table", "nvfp4_matmul", "skinny", 1, 1) == {}


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("n,k,fields", sorted(SKINNY))
def test_nvfp4_skinny(n, k, fields, rows):
    lowered = hopper_skinny.matmul.trace(
        jax.ShapeDtypeStruct((rows, k), jnp.bfloat16),
        packed_shape(n, k),
        config=hopper_skinny.Config(**json.loads(fields)),
        sms=mosaic.H200_SMS,
    ).lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("mosaic_gpu_v2") == 1


@pytest.mark.parametrize("out_dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("m,n,k", [(64, 1000, 5008), (8192, 34816, 5120), (1024, 5120, 17408)])
def test_nvfp4_wide(m, n, k, out_dtype):
    lowered = hopper_wide.matmul.trace(
        jax.ShapeDtypeStruct((m, k), jnp.bfloat16),
        packed_shape(n, k),
        out_dtype=out_dtype,
        config=hopper_wide.choose(m, n, sms=mosaic.H200_SMS),
        sms=mosaic.H200_SMS,
    ).lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("mosaic_gpu_v2") == 1


def test_equal_layers_share_one_kernel():
    """Compiled once for a model, not once for each layer."""

    def layers(x, a, b):
        for w in (a, b):
            config = hopper_skinny.Config()
            x = hopper_skinny.matmul(x, w, config=config, sms=mosaic.H200_SMS).astype(x.dtype)
        return x

    x = jax.ShapeDtypeStruct((1, 256), jnp.bfloat16)
    w = packed_shape(256, 256)
    text = jax.jit(layers).trace(x, w, w).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("mosaic_gpu_v2") == 1
