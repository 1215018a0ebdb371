"""Text files that must be refused before any tensor is read, by file name and without DST."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from njax.checkpoint import convert_checkpoint
from njax.checkpoint.describe import describe
from njax.errors import CheckpointError

DEEP = '{"a":' * 100_000
INDEX = "model.safetensors.index.json"


def tokenizer(**vocab: int) -> dict[str, Any]:
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "a"}
    return {"version": "1.0", "model": model}


def added(token_id: Any) -> dict[str, Any]:
    return {"added_tokens_decoder": {token_id: {"content": "<x>", "special": True}}}


CASES: list[tuple[str, Any, str]] = [
    ("config.json", DEEP, r"config\.json: not valid JSON: nested too deep"),
    ("config.json", b"\xff\xfe\0", r"config\.json: not UTF-8 text"),
    ("config.json", '{"model_type": "\\uD800"}', r"config\.json: .*half a surrogate pair"),
    (INDEX, DEEP, r"index\.json: not valid JSON: nested too deep"),
    (INDEX, b"\xff\xfe", r"index\.json: not UTF-8 text"),
    (INDEX, {"weight_map": 5}, r"index\.json: not a safetensors index"),
    (INDEX, {"weight_map": {"a": 5}}, r"index\.json: weight_map does not map"),
    (INDEX, "[]", r"index\.json: holds a list"),
    ("tokenizer.json", DEEP, r"tokenizer\.json: not valid JSON: nested too deep"),
    ("tokenizer.json", b"\xff", r"tokenizer\.json: not UTF-8 text"),
    ("tokenizer.json", {}, r"src: tokenizer\.json cannot be read"),
    ("tokenizer.json", {"model": 5}, r"src: tokenizer\.json cannot be read"),
    ("tokenizer.json", tokenizer(), r"src: tokenizer\.json: the vocabulary is empty"),
    ("tokenizer.json", tokenizer(a=0, b=95, c=96, d=200), r"200.* 96; token 'c' with id 96 has no"),
    ("tokenizer.json", tokenizer(a=0, b=2**32 - 1), r"4294967295.* 96; token 'b' with id 42949672"),
    ("tokenizer.json", tokenizer(a=0) | {"added_tokens": [5]}, r"src: tokenizer\.json"),
    ("tokenizer_config.json", DEEP, r"tokenizer_config\.json: not valid JSON: nested too deep"),
    ("tokenizer_config.json", {"chat_template": [5]}, r"_config\.json: chat_template is a list"),
    ("tokenizer_config.json", {"chat_template": 5}, r"_config\.json: chat_template is not a text"),
    ("tokenizer_config.json", '{"chat_template": "\\ud800"}', r"_config\.json: .*half a surrogate"),
    ("tokenizer_config.json", {"chat_template": "{% for %}"}, r"_config\.json: .*valid Jinja"),
    ("tokenizer_config.json", added("200"), r"src: tokenizer\.json: added token '<x>' has id 200"),
    ("tokenizer_config.json", added("-1"), r"src: tokenizer"),
    ("tokenizer_config.json", added("x"), r"src: tokenizer_config\.json: the keys of added_tokens"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"5": 6}}, r"src: tokenizer_config\.json: "),
    ("chat_template.json", "[]", r"chat_template\.json: holds a list"),
    ("chat_template.json", {"chat_template": [5]}, r"chat_template\.json: chat_template is a list"),
    ("chat_template.jinja", b"\xff\xfe", r"chat_template\.jinja: not UTF-8 text"),
    ("chat_template.jinja", "{% for %}", r"chat_template\.jinja: .*not valid Jinja: line 1"),
    ("generation_config.json", "[]", r"generation_config\.json: holds a list"),
    ("generation_config.json", {"eos_token_id": "x"}, r"src: generation_config\.json: eos_to"),
    *(
        ("generation_config.json", {name: value}, rf"generation_config\.json: {name} is .*, exp")
        for name, value in [
            ("temperature", "hot"), ("temperature", -1), ("temperature", float("nan")),
            ("temperature", True), ("temperature", 10**400), ("top_k", -1), ("top_k", 1.5),
            ("top_k", []), ("top_p", 0), ("top_p", 1.5), ("min_p", 2), ("do_sample", "no"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), CASES)
def test_bad_text(model, tmp_path, name, content, message):
    src = model.write(tmp_path / "src")
    if isinstance(content, dict):
        content = json.dumps(content)
    (src / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=message):
        convert_checkpoint(src, tmp_path / "dst")
    with pytest.raises(CheckpointError, match=message):
        describe(src)
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


@pytest.mark.parametrize("value", ["x", 5, []])
def test_text_config_that_is_no_object(model, tmp_path, value):
    model.hf_config["text_config"] = value
    with pytest.raises(CheckpointError, match=r"config\.json: expected an object"):
        convert_checkpoint(model.write(tmp_path / "src"), tmp_path / "dst")


def test_text_is_looked_at_before_tensors(model, tmp_path):
    src = model.write(tmp_path / "src")
    (src / "tokenizer.json").write_text("{}")
    (src / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        convert_checkpoint(src, tmp_path / "dst")


def test_good_text(model, tmp_path):
    """A vocabulary that fills the embedding to the last row, named templates, sampling defaults."""
    src = model.write(tmp_path / "src")

    def write(name: str, value: Any) -> None:
        Path(src / name).write_text(json.dumps(value))

    write("tokenizer.json", tokenizer(a=0, b=95))
    templates = [{"name": "default", "template": "\ud83d\ude00"}, {"name": "x", "template": ""}]
    write("tokenizer_config.json", {"chat_template": templates})
    sampling = {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0.0, "do_sample": False}
    write("generation_config.json", sampling | {"eos_token_id": [7, 95], "bos_token_id": None})
    convert_checkpoint(src, tmp_path / "dst")
    assert (tmp_path / "dst/chat_template.jinja").read_text() == "😀"
