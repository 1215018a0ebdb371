"""Parts of the command line that need no process."""

from __future__ import annotations

import dataclasses

import pytest

from njax.cli.models import DEMO_NAME, default_sampling, load_model, model_name
from njax.cli.progress import stage, steps
from njax.cli.session import SamplingOptions
from njax.engine.types import SamplingParams
from njax.errors import CheckpointError, InvalidRequest, NjaxError


def test_models(tmp_path):
    demo = load_model(None)
    assert model_name(None) == DEMO_NAME
    assert model_name(str(tmp_path / "x" / "..")) == tmp_path.name
    assert model_name("demo-bf16") == DEMO_NAME + "-bf16"
    original = load_model("demo-bf16")
    assert demo.config == original.config
    assert "nvfp4" in demo.manifest["numeric_profile"]["weights"]
    assert "nvfp4" not in original.manifest["numeric_profile"]["weights"]
    with pytest.raises(CheckpointError, match="no such directory"):
        load_model(str(tmp_path / "none"))


def test_sampling_of_the_model():
    demo = load_model(None)

    def of(**config) -> SamplingParams:
        return default_sampling(dataclasses.replace(demo, generation_config=config))

    assert of() == SamplingParams()
    assert of(top_k=20, top_p=0.95, temperature=0.7, eos_token_id=3) == SamplingParams(
        0.7, 20, 0.95
    )
    assert of(do_sample=False, temperature=0.7).temperature == 0
    for bad in ({"top_p": 7}, {"temperature": "hot"}, {"top_k": [1]}):
        with pytest.raises(CheckpointError, match=r"generation_config\.json"):
            of(**bad)


def test_sampling_options():
    base = SamplingParams(0.6, 20, 0.9)
    assert SamplingOptions().over(base) == base
    assert SamplingOptions(greedy=True).over(base) == SamplingParams(0.0, 20, 0.9)
    assert SamplingOptions(seed=1, top_k=0).over(base) == SamplingParams(0.6, 0, 0.9, seed=1)
    with pytest.raises(NjaxError):
        SamplingOptions(greedy=True, temperature=1.0).over(base)
    with pytest.raises(InvalidRequest):
        SamplingOptions(top_p=2.0).over(base)


def test_progress_without_a_terminal_is_lines(capsys):
    with stage("loading x"), steps() as progress:
        progress("compiling y", 0, 2)
        progress("compiling [z]", 1, 2)
    out, err = capsys.readouterr()
    assert not out
    lines = err.splitlines()
    assert lines[:3] == ["loading x ...", "[0/2] compiling y", "[1/2] compiling [z]"]
    assert lines[3].startswith("loading x: ") and lines[3].endswith(" s")


def test_progress_on_a_terminal_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with stage("loading x"), steps() as progress:
        progress("compiling [y]", 1, 2)
    out, err = capsys.readouterr()
    assert not out and "[1/2]" not in err and "loading x: " in err
