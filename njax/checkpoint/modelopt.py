"""NVIDIA ModelOpt's NVFP4: the matrix scale `weight_scale_2` is a multiplier.

    NAME.weight          uint8 [N, K/2]
    NAME.weight_scale    float8_e4m3fn [N, K/16]
    NAME.weight_scale_2  float32, amax / (6 * 448)
    NAME.input_scale     float32, optional

The same exporter writes FP8 matrices as `weight` float8_e4m3fn and `weight_scale` without a
`weight_scale_2`, so names alone do not tell the formats apart: see `formats.py`.
"""

from __future__ import annotations

from njax.checkpoint.dialect import Dialect

MODELOPT = Dialect(
    title="ModelOpt",
    packed="weight",
    global_scale="weight_scale_2",
    input_scale="input_scale",
    multiplier=lambda stored: stored,
)
