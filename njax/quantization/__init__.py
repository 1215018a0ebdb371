"""Number formats of weights: the value types, and the NVFP4 codec and quantizer.

`NVFP4Weight` and `FP8Weight` live in `pallas_kernels` because its ops take them; they are
re-exported here. `nvfp4` holds the format's arithmetic on the host.
"""

from njax.quantization.nvfp4 import dequantize_nvfp4, quantize_nvfp4
from pallas_kernels.weights import NVFP4_GROUP, FP8Weight, NVFP4Weight

__all__ = ["NVFP4_GROUP", "FP8Weight", "NVFP4Weight", "dequantize_nvfp4", "quantize_nvfp4"]
