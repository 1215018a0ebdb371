"""compressed-tensors' NVFP4: the matrix scale `weight_global_scale` is a divisor.

    NAME.weight_packed        uint8 [N, K/2]
    NAME.weight_scale         float8_e4m3fn [N, K/16]
    NAME.weight_global_scale  float32, (6 * 448) / amax: the inverse of ModelOpt's `weight_scale_2`
    NAME.input_global_scale   float32, optional, a divisor too

The multiplier is the correctly rounded float32 quotient 1 / stored.
"""

from __future__ import annotations

import numpy as np

from njax.checkpoint.dialect import Dialect

COMPRESSED_TENSORS = Dialect(
    title="compressed-tensors",
    packed="weight_packed",
    global_scale="weight_global_scale",
    input_scale="input_global_scale",
    multiplier=lambda stored: np.float32(1) / stored,
)
