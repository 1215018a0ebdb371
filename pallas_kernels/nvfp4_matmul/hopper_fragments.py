"""The arithmetic leaves of the Hopper kernels: packed words to tensor-core operands.

Each leaf exists twice, with one meaning: `*_mgpu` emits PTX, `*_jnp` is what the interpreter runs.
A packed tile arrives in registers as words of the first and of the second half of its depth
([rows, 16] each, a lane owning the 4 words of its 16-groups) and as scale bytes ([rows, 16], a lane
owning the 4 bytes that belong to those words).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import llvm, vector

from pallas_kernels import mosaic
from pallas_kernels.mosaic import QUAD_ROWS, WGMMA

X_ROWS = plgpu.Layout.TILED(
    plgpu.Tiling(((8, 64), (16,), (8,))),
    warp_dims=(plgpu.Replicated(4),),
    lane_dims=(-4, -3),
    vector_dim=-1,
)
"""x [8 m, 64 n] in every warp alike: lane (row, t) holds columns 16t to 16t + 15 of each 64."""

# One word -> four bfloat16x2 registers; $4 is the word, $5 the scale in both halves.
_DECODE = """{ .reg .b32 a, b, c, d;
  shf.l.wrap.b32 a, $4, $4, 6;
  shf.l.wrap.b32 b, $4, $4, 2;
  shf.l.wrap.b32 c, $4, $4, 28;
  shf.l.wrap.b32 d, $4, $4, 8;
  and.b32 a, a, 0x81C081C0;
  and.b32 b, b, 0x81C081C0;
  and.b32 c, c, 0x81C081C0;
  and.b32 d, d, 0x00400040;
  lop3.b32 d, $4, 0x81808180, d, 0xEA;
  mul.rn.bf16x2 $0, a, $5;
  mul.rn.bf16x2 $1, b, $5;
  mul.rn.bf16x2 $2, c, $5;
  mul.rn.bf16x2 $3, d, $5; }"""
_MMA = (
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
    "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
)


def _scale_pair(word: Any, byte: int) -> Any:
    """Scale byte `byte` of a register as bfloat16x2 {s, s} * 2**118."""
    text = (
        f"{{ .reg .b32 a; prmt.b32 a, $1, 0, 0x4{byte}4{byte}; mad.lo.u32 $0, a, 16, 0x75807580; }}"
    )
    return mosaic.asm(mosaic.i32(), [word], text, "=r,r")


def _decode_word(word: Any, scale: Any) -> list[Any]:
    return mosaic.asm_many(mosaic.i32(), 4, [word, scale], _DECODE, "=r,=r,=r,=r,r,r")


def multiply_mgpu(
    sums: tuple[jax.Array, ...],
    first: jax.Array,
    second: jax.Array,
    scales: jax.Array,
    xs: list[jax.Array],
) -> tuple[jax.Array, ...]:
    """sums[i] += part of (tile [64, 256] @ x.T), the parts dealt out in turn.

    Several sums are several independent chains for the tensor core's latency. No permutation of x
    is needed: a lane's B fragments are consecutive values of its row, as its A fragments are
    consecutive k of the weight, and a dot product does not mind the order of k.

    Args:
      sums: float32 [64, 8 * len(xs)] each, in WGMMA layout.
      first, second: uint32 [64, 16], scales: uint8 [64, 16], in QUAD_ROWS layout.
      xs: bfloat16 [8, 256] each, in X_ROWS layout.
    """
    chains, tiles = len(sums), len(xs)
    result = tuple(plgpu.ShapeDtypeStruct(s.shape, jnp.dtype(jnp.float32), WGMMA) for s in sums)

    @plgpu.inline_mgpu(
        arg_types=(WGMMA,) * chains + (QUAD_ROWS,) * 3 + (X_ROWS,) * tiles, return_type=result
    )
    def leaf(_: Any, *args: Any) -> Any:
        i32, f32 = mosaic.i32(), ir.F32Type.get()
        quad, pair = ir.VectorType.get((4,), i32), ir.VectorType.get((2,), f32)
        accs, (*halves, scale_regs), x_regs = (
            args[:chains],
            args[chains : chains + 3],
            args[-tiles:],
        )
        # c[chain][token tile]: the four scalars of an m16n8 accumulator
        c = [
            [
                [mosaic.extract(a.registers.flat[2 * m + h], e) for h in (0, 1) for e in (0, 1)]
                for m in range(tiles)
            ]
            for a in accs
        ]
        x = [[vector.bitcast(quad, r) for r in v.registers.flat] for v in x_regs]
        scale = [mgpu.utils.bitcast(r, i32) for r in scale_regs.registers.flat]  # rows g, g + 8
        words = [list(w.registers.flat) for w in halves]
        turn = 0
        for group in range(4):  # of 64 k
            half, in_half = divmod(group, 2)
            pairs = [_scale_pair(s, group) for s in scale]
            for w in range(2):  # 8 of the lane's 16 k: two k16 steps of the tensor core
                a = [
                    _decode_word(mosaic.extract(words[half][row], 2 * in_half + w), pairs[row])
                    for row in range(2)
                ]
                for step in range(2):
                    lo, hi = 2 * step, 2 * step + 1
                    for m in range(tiles):
                        b = x[m][2 * group + w]
                        operands = [a[0][lo], a[1][lo], a[0][hi], a[1][hi]]
                        operands += [mosaic.extract(b, lo), mosaic.extract(b, hi)]
                        operands += c[turn][m]
                        c[turn][m] = mosaic.asm_many(
                            f32, 4, operands, _MMA, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"
                        )
                    turn = (turn + 1) % chains
        out = []
        for i, a in enumerate(accs):
            regs = np.empty(a.registers.shape, object)
            for m in range(tiles):
                for h in range(2):
                    v = llvm.mlir_undef(pair)
                    for e in range(2):
                        v = llvm.insertelement(v, c[i][m][2 * h + e], mgpu.c(e, i32))
                    regs.flat[2 * m + h] = v
            out.append(mgpu.FragmentedArray(_registers=regs, _layout=a.layout, _is_signed=None))
        return tuple(out)

    return leaf(*sums, first, second, scales, *xs)


def multiply_jnp(
    sums: tuple[jax.Array, ...],
    first: jax.Array,
    second: jax.Array,
    scales: jax.Array,
    xs: list[jax.Array],
) -> tuple[jax.Array, ...]:
    """The interpreter's twin of `multiply_mgpu`: everything into the first sum."""
    x = jnp.concatenate(xs, axis=0).astype(jnp.float32)
    tile = decode_jnp(first, second, scales)
    return (sums[0] + jnp.dot(tile, x.T, precision=lax.Precision.HIGHEST), *sums[1:])


def decode_group_mgpu(words: jax.Array, scales: jax.Array, half: int, group: int) -> jax.Array:
    """64 k of a tile as a left operand of `wgmma`, in the order of k of `wgmma_order`.

    Args:
      words: uint32 [64, 16], the words of half `half` of the depth, QUAD_ROWS layout.
      scales: uint8 [64, 16], QUAD_ROWS layout.
      half, group: which 64 k: 128 * half + 64 * group and on.

    Returns: bfloat16 [64, 64] in WGMMA layout.
    """

    @plgpu.inline_mgpu(
        arg_types=(QUAD_ROWS, QUAD_ROWS),
        return_type=plgpu.ShapeDtypeStruct((64, 64), jnp.dtype(jnp.bfloat16), WGMMA),
    )
    def leaf(_: Any, word_regs: Any, scale_regs: Any) -> Any:
        i32, pair = mosaic.i32(), ir.VectorType.get((2,), ir.BF16Type.get())
        layout = WGMMA.to_mgpu()
        out = np.empty(layout.registers_shape((64, 64)), dtype=object)  # [1, 8, 1, 1, 2, 1...]
        flat = out.reshape(8, 2)  # columns of 8 x rows g, g + 8
        for row in range(2):
            scale = mgpu.utils.bitcast(scale_regs.registers.flat[row], i32)
            scale = _scale_pair(scale, 2 * half + group)
            for w in range(2):
                word = mosaic.extract(word_regs.registers.flat[row], 2 * group + w)
                for q, register in enumerate(_decode_word(word, scale)):
                    step, upper = 2 * w + q // 2, q % 2
                    flat[2 * step + upper, row] = mgpu.utils.bitcast(register, pair)
        out = flat.reshape(out.shape)
        return mgpu.FragmentedArray(_registers=out, _layout=layout, _is_signed=None)

    return leaf(words, scales)


def decode_group_jnp(words: jax.Array, scales: jax.Array, half: int, group: int) -> jax.Array:
    """The interpreter's twin of `decode_group_mgpu`, float32 instead of (exact) bfloat16."""
    tile = decode_jnp(words, words, scales)  # the half not asked for is nonsense
    begin = 128 * half + 64 * group
    return wgmma_order(tile[:, begin : begin + 64])


def wgmma_order(x: jax.Array) -> jax.Array:
    """Permutes the last axis (a multiple of 64) into the order in which `wgmma` meets packed k.

    In a k16 step of `wgmma` lane t holds columns 2t, 2t + 1, 2t + 8, 2t + 9. A lane's words hold 16
    consecutive k, so step i of 64 gets k 16t + 4i + (0, 1, 2, 3) at those columns.
    """
    *outer, k = x.shape
    if x.dtype == jnp.bfloat16:  # pairs stay together: half as many elements to move
        pairs = lax.bitcast_convert_type(x.reshape(*outer, k // 64, 4, 8, 2), jnp.uint32)
        return lax.bitcast_convert_type(pairs.swapaxes(-1, -2), x.dtype).reshape(*outer, k)
    return x.reshape(*outer, k // 64, 4, 8, 2).swapaxes(-2, -3).reshape(*outer, k)


def decode_jnp(first: jax.Array, second: jax.Array, scales: jax.Array) -> jax.Array:
    """A packed tile in natural k order, float32 [rows, 256], without the factor VALUE_SCALE.

    Arithmetic instead of the hardware's subnormal trick: XLA on CPUs flushes subnormals.
    """
    rows = scales.shape[0]
    word = jnp.stack([first, second], axis=1).reshape(rows, 2, 4, 2, 2)  # half, 16, 64, word

    def rotl(x: jax.Array, by: int) -> jax.Array:
        return (x << by) | (x >> (32 - by))

    mask = jnp.uint32(0x81C081C0)
    last = (word & jnp.uint32(0x81808180)) | (rotl(word, 8) & jnp.uint32(0x00400040))
    pairs = jnp.stack([*(rotl(word, by) & mask for by in (6, 2, 28)), last], axis=-1)
    bits = jnp.stack([pairs & 0xFFFF, pairs >> 16], axis=-1)
    exponent, mantissa = (bits >> 7) & 3, (bits >> 6) & 1
    twice = jnp.where(exponent == 0, mantissa, (2 + mantissa) << (jnp.maximum(exponent, 1) - 1))
    value = twice.astype(jnp.float32) * jnp.where(bits >> 15 == 1, -0.5, 0.5).astype(jnp.float32)
    scale_bits = (scales.astype(jnp.uint32) << 4) + jnp.uint32(0x7580 - (126 << 7))
    scale = lax.bitcast_convert_type(scale_bits << 16, jnp.float32)
    scale = scale.reshape(rows, 4, 2, 2).transpose(0, 2, 1, 3)  # 16, half, 64 -> half, 16, 64
    value = value * scale[..., None, None, None]  # half, 16, 64, word, pair, element
    return value.transpose(0, 1, 3, 2, 4, 5, 6).reshape(rows, 256)
