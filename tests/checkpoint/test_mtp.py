"""The multi-token layer: carried along by a conversion, loaded when it is asked for."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from njax.checkpoint import convert_checkpoint, load_checkpoint
from njax.checkpoint.layout import mtp_specs
from njax.checkpoint.mtp import mtp_hf_name
from njax.errors import CheckpointError
from njax.models.mtp import abstract_mtp_params


@pytest.fixture
def drafting(new_model):
    model = new_model(mtp_num_hidden_layers=1)
    rng = np.random.default_rng(3)
    for name, spec in mtp_specs(model.config).items():
        model.tensors[mtp_hf_name(name)] = rng.standard_normal(spec.shape).astype(np.float16)
    return model


@pytest.mark.parametrize("prefix", ["", "model.language_model."])
def test_loaded_on_request_in_the_dtype_of_activations(drafting, tmp_path, prefix):
    layer = {name: drafting.tensors.pop(name) for name in list(drafting.tensors) if "mtp." in name}
    drafting.tensors |= {prefix + name: array for name, array in layer.items()}
    convert_checkpoint(drafting.write(tmp_path / "src"), tmp_path / "dst")
    assert load_checkpoint(tmp_path / "dst").mtp == {}
    loaded = load_checkpoint(tmp_path / "dst", mtp=True).mtp
    specs = abstract_mtp_params(drafting.config, ml_dtypes.bfloat16)
    assert {n: (v.shape, v.dtype) for n, v in loaded.items()} == {
        n: (v.shape, v.dtype) for n, v in specs.items()
    }
    for name, value in loaded.items():
        expected = layer[mtp_hf_name(name)].astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(np.asarray(value), expected)


def test_what_it_cannot_draft_from_is_named(new_model, drafting, tmp_path):
    def refusal(model, name: str) -> str:
        convert_checkpoint(model.write(tmp_path / f"{name}-src"), tmp_path / name)
        load_checkpoint(tmp_path / name)
        with pytest.raises(CheckpointError) as error:
            load_checkpoint(tmp_path / name, mtp=True)
        return str(error.value)

    assert "the model has no multi-token layers" in refusal(new_model(), "none")
    good = drafting.tensors["mtp.fc.weight"]
    drafting.tensors["mtp.fc.weight"] = np.zeros(good.shape, ml_dtypes.float8_e4m3fn)
    assert "extra.mtp.fc.weight: is F8_E4M3" in refusal(drafting, "fp8")
    drafting.tensors["mtp.fc.weight"] = np.full_like(good, np.nan)
    assert "extra.mtp.fc.weight: holds values that are not finite" in refusal(drafting, "nan")
    del drafting.tensors["mtp.fc.weight"]
    assert "extra.mtp.fc.weight: is missing" in refusal(drafting, "missing")
