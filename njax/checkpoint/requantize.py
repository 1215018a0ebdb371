"""`--quantize nvfp4`: a plain matrix becomes NVFP4 while it is written.

Two passes over the source rows: the largest magnitude, then codes. The block scales come out of the
second pass together with the codes but are written after them, so they are kept (1/32 of a bf16
matrix).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from njax.checkpoint.lazy import LazyArray
from njax.checkpoint.planned import PlannedTensor
from njax.quantization import nvfp4

_PIECE_BYTES = 1 << 20
_U8, _F32 = np.dtype(np.uint8), np.dtype(np.float32)


def quantized(plan: PlannedTensor, source: LazyArray) -> PlannedTensor:
    """The NVFP4 version of a planned plain matrix.

    Args:
      source: the matrix [N, K] as float32 rows, checked; K % 16 == 0.
    """
    rows = _Quantizer(source)
    n, k = source.shape
    arrays = {
        "codes": LazyArray((n, k // 2), _U8, rows.codes),
        "scales": LazyArray((n, k // 16), _U8, rows.scales),
        "global_scale": LazyArray((), _F32, lambda low, high: np.asarray(rows.global_scale)),
    }
    return PlannedTensor(plan.name, "nvfp4", plan.shape, arrays, plan.sources)


class _Quantizer:
    def __init__(self, source: LazyArray):
        self._source = source
        self._scales: np.ndarray[Any, Any] | None = None

    @functools.cached_property
    def global_scale(self) -> np.float32:
        amax = max((np.abs(block).max(initial=0) for _, _, block in self._source.blocks()))
        return nvfp4.global_scale(amax)

    def codes(self, low: int, high: int) -> np.ndarray[Any, Any]:
        n, k = self._source.shape
        if self._scales is None:
            self._scales = np.empty((n, k // 16), np.uint8)
        out = np.empty((high - low, k // 2), np.uint8)
        # Pieces that fit the cache, temporaries included, are twice as fast as whole blocks.
        step = max(1, _PIECE_BYTES // (4 * k))
        for start in range(low, high, step):
            stop = min(start + step, high)
            rows = self._source.rows(start, stop)
            codes, self._scales[start:stop] = nvfp4.quantize_rows(rows, self.global_scale)
            out[start - low : stop - low] = codes
        return out

    def scales(self, low: int, high: int) -> np.ndarray[Any, Any]:
        assert self._scales is not None, "orbax writes in order of names: codes before scales"
        scales = self._scales[low:high]
        if high == self._source.shape[0]:
            self._scales = None
        return scales
