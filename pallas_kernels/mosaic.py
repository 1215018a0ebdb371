"""What the Mosaic GPU kernels share: the device test, register layouts, inline PTX.

Kernels are one skeleton (barriers, copies, slots) with small leaves that hold the arithmetic. On
the card a leaf emits PTX; under the interpreter, which cannot run PTX, a `jax.numpy` twin of the
same meaning takes its place, so that the skeleton is tested for races without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import llvm

WGMMA = plgpu.Layout.WGMMA
"""A warpgroup's [64 m, 8 n] array: row lane//4 (+8), columns 2 * (lane % 4) + {0, 1}."""

QUAD_ROWS = plgpu.Layout.WGMMA_8BIT
"""[64 m, 16 n]: a lane holds 4 consecutive elements of rows lane//4 and lane//4 + 8."""

H200_SMS = 132
SMEM_BYTES = 227 * 1024
"""Shared memory that the blocks of one SM can have together."""
REGISTERS = 65536
"""32-bit registers of one SM."""


def swizzled(bits: int) -> tuple[Any, ...]:
    """Transforms of a shared-memory tile whose rows are multiples of 128 bytes.

    Tensor cores and 16-byte loads of a row fragment then meet no bank twice.
    """
    tiling: Any = plgpu.TilingTransform
    swizzle: Any = plgpu.SwizzleTransform
    return tiling((8, 128 * 8 // bits)), swizzle(128)


def require_hopper() -> jax.Device:
    """The default device, when it is a CUDA device of compute capability 9.0.

    Raises:
      NotImplementedError: it is something else; the reason says what.
    """
    device = jax.devices()[0]
    if device.platform != "gpu":
        raise NotImplementedError(f"needs a CUDA device, this is {device.platform}")
    capability = str(getattr(device, "compute_capability", "unknown"))
    if capability != "9.0":
        raise NotImplementedError(f"needs compute capability 9.0, this is {capability}")
    return device


def asm(result: Any, operands: Sequence[Any], text: str, constraints: str) -> Any:
    """Side-effect free inline PTX."""
    return llvm.inline_asm(result, list(operands), text, constraints)


def i32() -> ir.Type:
    """The MLIR type of a register word."""
    return ir.IntegerType.get_signless(32)


def extract(vector: Any, index: int) -> Any:
    """One scalar of a register vector."""
    return llvm.extractelement(vector, mgpu.c(index, i32()))


def asm_many(result: Any, count: int, operands: Sequence[Any], text: str, constraints: str) -> list:
    """Inline PTX with `count` results of one type."""
    packed = llvm.inline_asm(
        llvm.StructType.get_literal([result] * count), list(operands), text, constraints
    )
    return [llvm.extractvalue(result, packed, [j]) for j in range(count)]
