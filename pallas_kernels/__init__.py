"""The numerical operations of hybrid language models, each with one meaning and many engines.

Every folder is one operation: its `__init__` is the public op with its contract, `reference.py`
states its meaning in NumPy float64, `xla.py` is the implementation for any device, `hopper.py`
(where present) is a Mosaic GPU kernel for compute capability 9.0. `dispatch.py` picks the first
implementation that accepts a call; `weights.py` holds the quantised weight types. This package
depends on JAX alone.
"""

from __future__ import annotations

from pallas_kernels.attention import append_kv, attention_decode, attention_prefill
from pallas_kernels.causal_conv import causal_conv
from pallas_kernels.dense_matmul import dense_matmul
from pallas_kernels.dispatch import NoImplementationError
from pallas_kernels.fp8_matmul import fp8_matmul
from pallas_kernels.gated_delta import gated_delta_rule, gated_delta_step, gated_delta_window
from pallas_kernels.nvfp4_matmul import PackedNVFP4Weight, nvfp4_matmul
from pallas_kernels.weights import FP8Weight, NVFP4Weight

__all__ = [
    "FP8Weight",
    "NVFP4Weight",
    "NoImplementationError",
    "PackedNVFP4Weight",
    "append_kv",
    "attention_decode",
    "attention_prefill",
    "causal_conv",
    "dense_matmul",
    "fp8_matmul",
    "gated_delta_rule",
    "gated_delta_step",
    "gated_delta_window",
    "nvfp4_matmul",
]
