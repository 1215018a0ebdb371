"""The packed layout is a bijection, and its words decode to the codes by the hardware's steps."""

from __future__ import annotations

import dataclasses

import hypothesis
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from pallas_kernels.nvfp4_matmul import for_device, nvfp4_matmul, pack, reference, unpack
from pallas_kernels.nvfp4_matmul.hopper_fragments import decode_jnp
from pallas_kernels.nvfp4_matmul.packing import DEPTH, ROWS, VALUE_SCALE
from pallas_kernels.weights import NVFP4Weight
from tests.pallas_kernels.hopper.support import random_nvfp4
from tests.pallas_kernels.support import assert_same_bits


@hypothesis.given(n=st.integers(1, 300), groups=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=10)
def test_unpack_inverts_pack(n, groups, seed):
    weight = random_nvfp4(np.random.default_rng(seed), n, 16 * groups)
    # Codes under a zero scale are the one thing that packing does not keep.
    kept = jnp.where(jnp.repeat(weight.scales, 8, axis=1) == 0, jnp.uint8(0), weight.codes)
    back = unpack(pack(weight))
    assert_same_bits(back.codes, kept)
    assert_same_bits(back.scales, weight.scales)
    assert_same_bits(back.global_scale, weight.global_scale)


def test_every_code_with_every_scale():
    """All 16 codes x all 127 scales: the words decode exactly, in both ways of decoding."""
    scales = np.tile(np.arange(127, dtype=np.uint8)[:, None], (1, 16))
    codes = np.tile(np.arange(16, dtype=np.uint8) * 0x11, (127, 8))[:, :128]
    weight = NVFP4Weight(jnp.asarray(codes), jnp.asarray(scales), jnp.float32(1))
    packed = pack(weight)
    expected = reference.decode(weight.codes, weight.scales, 1.0)
    words, bytes_ = packed.words[0, 0], packed.scales[0, 0]
    by_arithmetic = decode_jnp(words[0], words[1], bytes_)
    np.testing.assert_array_equal(np.asarray(by_arithmetic[:127] * VALUE_SCALE), expected)
    by_bits = _decode_like_the_card(np.asarray(words), np.asarray(bytes_))
    np.testing.assert_array_equal(by_bits[:127] * VALUE_SCALE, expected)


def _decode_like_the_card(words: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[2, 128, 16], [128, 16] -> float64 [128, 256], by the kernel's integer and bf16 steps."""
    word = words.transpose(1, 0, 2).reshape(ROWS, 2, 4, 2, 2)  # half, 16, 64, word

    def rotl(x: np.ndarray, by: int) -> np.ndarray:
        return (x << np.uint32(by)) | (x >> np.uint32(32 - by))

    parts = [rotl(word, by) & np.uint32(0x81C081C0) for by in (6, 2, 28)]
    parts.append((word & np.uint32(0x81808180)) | (rotl(word, 8) & np.uint32(0x00400040)))
    pairs = np.stack(parts, axis=-1)
    bits = np.stack([pairs & 0xFFFF, pairs >> 16], axis=-1).astype(np.uint16)
    value = bits.view(ml_dtypes.bfloat16).astype(np.float64)  # subnormals included
    scale = ((scales.astype(np.uint16) << 4) + 0x7580).view(ml_dtypes.bfloat16).astype(np.float64)
    scale = scale.reshape(ROWS, 4, 2, 2).transpose(0, 2, 1, 3)[..., None, None, None]
    product = value * scale
    assert (product == product.astype(ml_dtypes.bfloat16)).all(), "not exact in bfloat16"
    return product.transpose(0, 1, 3, 2, 4, 5, 6).reshape(ROWS, DEPTH)


def test_a_packed_weight_gives_the_bits_of_its_canonical_form():
    rng = np.random.default_rng(0)
    weight = random_nvfp4(rng, 70, 112)
    x = jnp.asarray(rng.standard_normal((3, 112)), jnp.bfloat16)
    assert_same_bits(
        nvfp4_matmul(x, pack(weight), implementation="xla"),
        nvfp4_matmul(x, weight, implementation="xla"),
    )
    assert for_device(weight) is weight  # the tests' device is no Hopper


def test_k_must_be_whole_groups():
    weight = random_nvfp4(np.random.default_rng(0), 4, 32)
    odd = dataclasses.replace(weight, codes=weight.codes[:, :12])
    with pytest.raises(ValueError, match="multiple of 16"):
        pack(odd)
