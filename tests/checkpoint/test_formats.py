"""Quantised sources: both NVFP4 dialects, FP8 rows, mixtures, and what other loaders got wrong."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from njax.checkpoint import convert_checkpoint, load_checkpoint
from njax.checkpoint.hf import hf_name
from njax.errors import CheckpointError
from njax.quantization import FP8Weight, NVFP4Weight, dequantize_nvfp4, quantize_nvfp4
from njax.quantization.nvfp4 import dequantize_rows

E4M3 = ml_dtypes.float8_e4m3fn
BF16 = ml_dtypes.bfloat16
GATE, UP, DOWN = (f"layers.1.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))


def bits(array) -> np.ndarray:
    return np.asarray(array).reshape(-1).view(np.uint8)


def nvfp4(shape, seed=0, scale=1.0):
    """codes, scales, multiplier, divisor; multiplier and divisor are float32 inverses."""
    w = np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)
    weight = quantize_nvfp4(w)
    divisor = np.float32(1) / np.asarray(weight.global_scale)
    return np.asarray(weight.codes), np.asarray(weight.scales), np.float32(1) / divisor, divisor


def put(model, canonical, dialect, seed=0, scale=1.0, shape=None):
    """Replaces a plain matrix of the model by an NVFP4 one; returns its parts."""
    base = hf_name(canonical).removesuffix(".weight")
    plain = model.tensors.pop(f"{base}.weight", None)
    codes, scales, multiplier, divisor = nvfp4(shape or plain.shape, seed, scale)
    model.tensors[f"{base}.weight_scale"] = scales.view(E4M3)
    if dialect == "modelopt":
        model.tensors[f"{base}.weight"] = codes
        model.tensors[f"{base}.weight_scale_2"] = np.asarray(multiplier)
        model.tensors[f"{base}.input_scale"] = np.asarray(0.25, np.float32)
    else:
        model.tensors[f"{base}.weight_packed"] = codes
        model.tensors[f"{base}.weight_global_scale"] = np.asarray([divisor])
        model.tensors[f"{base}.input_global_scale"] = np.asarray([4], np.float32)
    return codes, scales, multiplier


def put_fp8(model, canonical, scale_shape, scale_dtype, seed=0):
    name = hf_name(canonical)
    shape = model.tensors[name].shape
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape, np.float32).astype(E4M3)
    scale = rng.uniform(0.5, 2, scale_shape(shape[0])).astype(np.float32).astype(scale_dtype)
    model.tensors[name] = values
    model.tensors[name + "_scale"] = scale
    return values, scale


def check_nvfp4(weight, parts):
    assert isinstance(weight, NVFP4Weight)
    for got, expected in zip(
        (weight.codes, weight.scales, weight.global_scale), parts, strict=True
    ):
        np.testing.assert_array_equal(bits(got), bits(expected))


def converted(model, tmp_path, **options):
    convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "dst", **options)
    return load_checkpoint(tmp_path / "dst")


def test_both_dialects_give_the_same_bits(new_model, tmp_path):
    """compressed-tensors stores the inverse of ModelOpt's matrix scale (case 1)."""
    results = {}
    for dialect in ("modelopt", "compressed"):
        model = new_model()
        parts = {name: put(model, name, dialect, seed) for seed, name in enumerate((GATE, DOWN))}
        place = tmp_path / dialect
        place.mkdir()
        results[dialect] = converted(model, place).params
        for name, expected in parts.items():
            check_nvfp4(results[dialect][name], expected)
    for name, a in results["modelopt"].items():
        b = results["compressed"][name]
        if isinstance(a, NVFP4Weight):
            check_nvfp4(b, (a.codes, a.scales, a.global_scale))
        else:
            np.testing.assert_array_equal(bits(a), bits(b))
    w = np.random.default_rng(0).standard_normal((48, 32), np.float32)
    decoded = dequantize_nvfp4(results["compressed"][GATE])
    assert np.sqrt(np.mean((decoded - w) ** 2)) < 0.12  # the weight, not its ten-thousandth


def test_gate_and_up_keep_their_own_scales(model, tmp_path):
    """Case 2."""
    gate = put(model, GATE, "modelopt", 1, scale=1.0)
    up = put(model, UP, "modelopt", 2, scale=100.0)
    params = converted(model, tmp_path).params
    check_nvfp4(params[GATE], gate)
    check_nvfp4(params[UP], up)


@pytest.mark.parametrize("matrix_scales", ["one", "each"])
def test_fused_gate_and_up(model, tmp_path, matrix_scales):
    """Case 3: one stored matrix, with one matrix scale for both halves or one each."""
    del model.tensors[hf_name(GATE)], model.tensors[hf_name(UP)]
    codes, scales, multiplier = put(
        model, "layers.1.mlp.gate_up_proj.weight".replace("gate_up", "gate"), "modelopt", 3,
        shape=(96, 32),
    )  # fmt: skip
    fused = {n: model.tensors.pop(n) for n in list(model.tensors) if "layers.1.mlp.gate_proj" in n}
    model.tensors |= {n.replace("gate_proj", "gate_up_proj"): a for n, a in fused.items()}
    expected = [multiplier, multiplier]
    if matrix_scales == "each":
        expected = [multiplier, np.float32(0.5)]
        name = "model.layers.1.mlp.gate_up_proj.weight_scale_2"
        model.tensors[name] = np.asarray(expected)
    model.tensors["model.layers.1.mlp.gate_up_proj.input_scale"] = np.array([0.1, 0], np.float32)
    loaded = converted(model, tmp_path)
    check_nvfp4(loaded.params[GATE], (codes[:48], scales[:48], expected[0]))
    check_nvfp4(loaded.params[UP], (codes[48:], scales[48:], expected[1]))
    # The unused activation scale has an uninitialised entry: dropped with a warning that names it.
    assert not any("input_scale" in name for name in loaded.manifest["tensors"])
    assert ["gate_up_proj.input_scale" in w for w in loaded.manifest["warnings"]] == [True]


@pytest.mark.parametrize("dtype", [BF16, E4M3])
def test_fused_query_key_value(model, tmp_path, dtype):
    names = [f"layers.3.attention.{p}_proj.weight" for p in "qkv"]
    parts = [model.tensors.pop(hf_name(name)) for name in names]
    fused = "model.layers.3.self_attn.qkv_proj.weight"
    model.tensors[fused] = np.concatenate(parts).astype(dtype)
    if dtype == E4M3:
        model.tensors[fused + "_scale"] = np.array([1, 2, 3], np.float32)
    params = converted(model, tmp_path).params
    for index, (name, part) in enumerate(zip(names, parts, strict=True)):
        got = params[name]
        if dtype == E4M3:
            np.testing.assert_array_equal(np.asarray(got.scale), index + 1)
            got = got.values
        np.testing.assert_array_equal(bits(got), bits(part.astype(dtype)))


@pytest.mark.parametrize(
    "scale_shape",
    [lambda n: (n,), lambda n: (n, 1), lambda n: (), lambda n: (1,), lambda n: (1, 1)],
)
@pytest.mark.parametrize("scale_dtype", [BF16, np.float32])
def test_fp8_rows(model, tmp_path, scale_shape, scale_dtype):
    values, scale = put_fp8(model, DOWN, scale_shape, scale_dtype)
    weight = converted(model, tmp_path, dtype="float32").params[DOWN]
    assert isinstance(weight, FP8Weight)
    np.testing.assert_array_equal(bits(weight.values), bits(values))
    expected = np.broadcast_to(scale.astype(np.float32).reshape(-1), (values.shape[0],))
    assert weight.scale.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(weight.scale), expected)


def test_every_matrix_decides_for_itself(model, tmp_path):
    """Cases 4 and 6: NVFP4, FP8 and plain layers side by side, embedding and head FP8."""
    fp4 = put(model, GATE, "modelopt", 1)
    fp4_other = put(model, UP, "compressed", 2)
    fp8 = put_fp8(model, DOWN, lambda n: (n,), np.float32)[0]
    head = put_fp8(model, "head.weight", lambda n: (n, 1), BF16)[0]
    table = put_fp8(model, "embedding.weight", lambda n: (n,), BF16)[0]
    beta = put_fp8(model, "layers.0.delta.b_proj.weight", lambda n: (), BF16)[0]
    loaded = converted(model, tmp_path)
    check_nvfp4(loaded.params[GATE], fp4)
    check_nvfp4(loaded.params[UP], fp4_other)
    for name, values in (
        (DOWN, fp8),
        ("head.weight", head),
        ("embedding.weight", table),
        ("layers.0.delta.b_proj.weight", beta),
    ):
        np.testing.assert_array_equal(bits(loaded.params[name].values), bits(values))
    assert loaded.params["layers.0.mlp.gate_proj.weight"].dtype == BF16
    weights = loaded.manifest["numeric_profile"]["weights"]
    assert (weights["nvfp4"], weights["fp8"]) == (2, 4)
    assert f"extra.{hf_name(GATE).removesuffix('weight')}input_scale" in loaded.manifest["tensors"]


def test_quantize_takes_linear_projections_only(new_model, tmp_path):
    """K that is no multiple of 16 is left, and said so."""
    model = new_model(intermediate_size=56)
    loaded = converted(model, tmp_path, quantize="nvfp4")
    names = {n for n, w in loaded.params.items() if isinstance(w, NVFP4Weight)}
    per_delta = {"delta.qkv_proj", "delta.z_proj", "delta.out_proj", "mlp.gate_proj", "mlp.up_proj"}
    assert {n for n in names if n.startswith("layers.0.")} == {
        f"layers.0.{n}.weight" for n in per_delta
    }
    assert "layers.3.attention.q_proj.weight" in names
    assert not names & {"embedding.weight", "head.weight"}
    assert list(loaded.manifest["not_quantized"]) == [
        f"layers.{i}.mlp.down_proj.weight" for i in range(4)
    ]
    for name in names:
        w = np.asarray(model.tensors[hf_name(name)], np.float32)
        expected = quantize_nvfp4(w)
        check_nvfp4(loaded.params[name], (expected.codes, expected.scales, expected.global_scale))


def test_quantize_leaves_what_is_quantised(model, tmp_path):
    fp4 = put(model, GATE, "modelopt", 1)
    fp8 = put_fp8(model, DOWN, lambda n: (n,), np.float32)[0]
    params = converted(model, tmp_path, quantize="nvfp4").params
    check_nvfp4(params[GATE], fp4)
    np.testing.assert_array_equal(bits(params[DOWN].values), bits(fp8))


def test_blocks_do_not_change_the_result(model, tmp_path, monkeypatch):
    """Tensors that span many blocks of rows: same bits as in one block."""
    put(model, GATE, "modelopt", 1)
    put_fp8(model, DOWN, lambda n: (n,), np.float32)
    src = model.write(tmp_path / "src")
    convert_checkpoint(src, tmp_path / "one", quantize="nvfp4")
    monkeypatch.setattr("njax.checkpoint.lazy.BLOCK_BYTES", 700)
    convert_checkpoint(src, tmp_path / "many", quantize="nvfp4")
    one, many = (load_checkpoint(tmp_path / name).params for name in ("one", "many"))
    import jax

    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_array_equal(bits(a), bits(b))
    assert len(list((tmp_path / "many/params/embedding.weight/c").iterdir())) > 5


def scales_of(model):
    return model.tensors[hf_name(GATE) + "_scale"].view(np.uint8)


def spoil(part, value):
    def change(model):
        model.tensors[hf_name(GATE) + part] = value

    return change


def spoil_block(value):
    def change(model):
        scales = scales_of(model).copy()
        scales[5, 1] = value
        model.tensors[hf_name(GATE) + "_scale"] = scales.view(E4M3)

    return change


def drop(part):
    return lambda model: model.tensors.pop(hf_name(GATE) + part)


NAME = r"model\.layers\.1\.mlp\.gate_proj\.weight"
F32 = np.float32


@pytest.mark.parametrize(
    ("dialect", "change", "message"),
    [
        ("modelopt", spoil_block(0x80 | 0x38), NAME + r"_scale: negative .*\[5, 1\]"),
        ("modelopt", spoil_block(0x80), NAME + r"_scale: negative"),
        ("modelopt", spoil_block(0x7F), NAME + r"_scale: .*NaN block scale at \[5, 1\]"),
        ("modelopt", spoil_block(0), NAME + r"_scale: zero scale of a block of nonzero"),
        ("modelopt", spoil("_scale_2", F32(0)), NAME + r"_scale_2: matrix scale 0"),
        ("modelopt", spoil("_scale_2", F32(-1)), NAME + r"_scale_2: matrix scale -1"),
        ("modelopt", spoil("_scale_2", F32(1e-45)), NAME + r"_scale_2: .*normal float32"),
        ("compressed", spoil("_global_scale", F32(3e38)), NAME + r"_global_scale: the inverse"),
        ("modelopt", spoil("_scale_2", F32(np.inf)), NAME + r"_scale_2: matrix scale inf"),
        ("modelopt", spoil("_scale_2", F32(np.nan)), NAME + r"_scale_2: matrix scale nan"),
        ("modelopt", spoil("_scale_2", np.ones(2, F32)), NAME + r"_scale_2.*shape \[2\]"),
        ("modelopt", drop("_scale_2"), NAME + r": NVFP4 with neither of"),
        ("modelopt", drop("_scale"), NAME + r": is U8 \[48, 16\].*weight_scale is missing"),
        ("modelopt", spoil("_global_scale", F32(1)), NAME + r": NVFP4 with both"),
        ("modelopt", spoil("_scale", np.ones((48, 2), F32)), NAME + r"_scale: F32.*F8_E4M3"),
        ("modelopt", spoil("_scale", np.ones((48, 2), np.uint8)), NAME + r"_scale: U8"),
        ("modelopt", spoil("_scale", np.ones((48, 1), E4M3)), NAME + r"_scale.*48, 1\].*48, 2\]"),
        ("modelopt", spoil("", np.ones((48, 32), np.uint8)), NAME + r" .*\[48, 32\].*\[48, 16\]"),
        ("modelopt", spoil("_packed", np.ones((48, 16), np.uint8)), r"stored twice"),
        ("modelopt", spoil("", np.ones((48, 32), np.int32)), NAME + r": a weight of type I32"),
        ("compressed", spoil("_global_scale", F32(0)), NAME + r"_global_scale: matrix scale 0"),
        ("compressed", spoil("_global_scale", F32(-3)), NAME + r"_global_scale: matrix scale -3"),
        ("compressed", spoil("_global_scale", F32(1e-40)), NAME + r"_global_scale: matrix scale"),
        ("compressed", drop("_packed"), r"belongs to layers\.1\.mlp\.gate_proj\.weight, whose"),
        ("compressed", spoil("_zero_point", F32(0)), r"gate_proj\.weight_zero_point, which"),
    ],
)  # fmt: skip
def test_bad_nvfp4_is_refused_by_name(model, tmp_path, dialect, change, message):
    """Case 5."""
    put(model, GATE, dialect, 1)
    change(model)
    with pytest.raises(CheckpointError, match=message):
        converted(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil("", np.full((48, 32), np.nan, E4M3)), NAME + r": NaN at \[0, 0\]"),
        (spoil("_scale", np.full(48, -1, F32)), NAME + r"_scale: negative row scale"),
        (spoil("_scale", np.full(48, np.nan, F32)), NAME + r"_scale: NaN"),
        (spoil("_scale", np.full(48, np.inf, F32)), NAME + r"_scale: infinity"),
        (spoil("_scale", np.zeros(48, F32)), NAME + r"_scale: zero scale of a nonzero row"),
        (spoil("_scale", np.ones(47, F32)), NAME + r"_scale.*\[47\], expected"),
        (spoil("_scale", np.ones(48, np.int32)), NAME + r"_scale: I32"),
        (spoil("_scale_inv", np.ones((1, 1), F32)), NAME + r"_scale_inv: .*square blocks"),
        (spoil("_scale_2", F32(1)), NAME + r"_scale_2: has no meaning"),
        (drop("_scale"), NAME + r": .*FP8, but its weight_scale is missing"),
        (spoil("", np.ones((48, 32), BF16)), NAME + r"_scale: has no meaning beside"),
    ],
)
def test_bad_fp8_is_refused_by_name(model, tmp_path, change, message):
    put_fp8(model, GATE, lambda n: (n,), np.float32)
    change(model)
    with pytest.raises(CheckpointError, match=message):
        converted(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


def test_zero_scale_of_a_zero_block_is_legal(model, tmp_path):
    """Negative zeros count as zeros."""
    codes, scales, multiplier = put(model, GATE, "modelopt", 1)
    codes, scales = codes.copy(), scales.copy()
    codes[7, 8:16], scales[7, 1] = 0x88, 0
    model.tensors[hf_name(GATE)] = codes
    model.tensors[hf_name(GATE) + "_scale"] = scales.view(E4M3)
    weight = converted(model, tmp_path).params[GATE]
    check_nvfp4(weight, (codes, scales, multiplier))
    assert (dequantize_rows(codes, scales, multiplier)[7, 16:] == 0).all()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("model.layers.0.mlp.experts.gate_up_proj", np.ones((4, 2, 2), BF16)),
        ("model.layers.0.mlp.experts.3.gate_proj.weight", np.ones((2, 2), BF16)),
        ("model.layers.0.mlp.shared_expert.up_proj.weight", np.ones((2, 2), BF16)),
        ("model.layers.0.mlp.gate.weight", np.ones((4, 32), BF16)),
    ],
)
def test_experts_are_refused(model, tmp_path, name, array):
    """Case 7, until mixtures of experts are supported."""
    model.tensors[name] = array
    with pytest.raises(CheckpointError, match="experts are not supported yet"):
        converted(model, tmp_path)
