"""The bundled model's files: shapes, numbers, tokenizer, the family's dialect."""

from __future__ import annotations

import importlib.resources
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

from njax.checkpoint.layout import tensor_specs
from njax.demo import ARCHIVES, load_demo
from njax.demo.tokens import ADDED_TOKENS, PLAIN_TOKENS
from njax.demo.weights import pack, unpacked
from njax.errors import InvalidRequest
from njax.quantization import NVFP4Weight, dequantize_nvfp4
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def demo():
    return load_demo()


@pytest.fixture(scope="module")
def template(demo):
    return ChatTemplate(demo.chat_template, demo.tokenizer_config)


@pytest.mark.parametrize("numbers", ["nvfp4", "bfloat16"])
def test_weights_fit_the_config(numbers):
    demo = load_demo(numbers)
    specs = tensor_specs(demo.config)
    assert set(demo.params) == set(specs)
    for name, value in demo.params.items():
        role = specs[name].role
        assert tuple(value.shape) == specs[name].shape
        if role == "linear" and numbers == "nvfp4":
            assert isinstance(value, NVFP4Weight)
            value = dequantize_nvfp4(value)
        else:
            assert str(value.dtype) == ("float32" if role == "state" else demo.dtype), name
        assert np.isfinite(np.asarray(value, np.float32)).all(), name


def test_the_family_s_architecture(demo):
    config = demo.config
    assert config.layer_kinds[:4] == ("delta", "delta", "delta", "attention")
    assert config.layer_kinds == config.layer_kinds[:4] * (config.num_layers // 4)
    assert config.rotary_dim < config.head_dim and config.mtp_layers == 1
    count = sum(math.prod(spec.shape) for spec in tensor_specs(config).values())
    assert 5e6 < count < 20e6


def test_both_archives_fit_into_16_mib(tmp_path):
    folder = importlib.resources.files("njax.demo")
    archives = [Path(str(folder / name)) for name in ARCHIVES.values()]
    assert sum(path.stat().st_size for path in archives) < 16 * 2**20
    with unpacked(archives[0]) as directory:
        again = tmp_path / "again.zip"
        pack(directory, again)
        assert (directory / "manifest.json").is_file()
    assert not directory.exists()
    with zipfile.ZipFile(again) as ours, zipfile.ZipFile(archives[0]) as theirs:
        assert ours.namelist() == theirs.namelist()
        assert all(ours.read(name) == theirs.read(name) for name in ours.namelist())


def test_tokenizer(demo):
    tokenizer = Tokenizer.from_json(demo.tokenizer_json, demo.tokenizer_config)
    assert tokenizer.vocab_size == demo.config.vocab_size == 4096
    for token in ADDED_TOKENS:
        assert tokenizer.encode(token) == [tokenizer.token_to_id(token)]
        assert (tokenizer.token_to_id(token) in tokenizer.special_ids) == (
            token not in PLAIN_TOKENS
        )
    for text in ("Hello, wörld! 你好 👩‍👩‍👧", "def f(x):\n\treturn x\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    eos = tokenizer.eos_ids(demo.generation_config, demo.tokenizer_config)
    assert eos == (tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>"))


WEATHER = {"type": "function", "function": {"name": "weather", "description": "<é>"}}
CALL = {"id": "1", "function": {"name": "weather", "arguments": {"city": "Oslo", "days": [1, 2]}}}
CALL_TEXT = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n[1, 2]\n</parameter>\n</function>\n</tool_call>"
)
LOOP = [
    {"role": "user", "content": " Weather? "},
    {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "warm"},
    {"role": "tool", "content": [{"type": "text", "text": "cold"}, {"type": "image_url"}]},
]


def test_thinking_switch(template):
    head = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    messages = [{"role": "user", "content": "hi"}]
    assert template.render(messages) == head + "<think>\n"
    assert template.render(messages, enable_thinking=True) == head + "<think>\n"
    assert template.render(messages, enable_thinking=False) == head + "<think>\n\n</think>\n\n"
    assert not template.render(messages, add_generation_prompt=False).endswith("assistant\n")
    assert {"enable_thinking", "preserve_thinking"} <= template.options


def test_tools_come_before_the_system_text(template):
    messages = [{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "hi"}]
    text = template.render(messages, [WEATHER, WEATHER])
    block = text[: text.index("<|im_end|>")]
    line = '{"type": "function", "function": {"name": "weather", "description": "<é>"}}'
    assert block.startswith("<|im_start|>system\n# Tools\n\n")
    assert f"<tools>\n{line}\n{line}\n</tools>" in block
    assert block.endswith("\n\nBe kind.")
    assert template.render(messages).startswith(
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start"
    )


def test_tool_loop(template):
    assert template.render(LOOP) == (
        "<|im_start|>user\nWeather?<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\nLook.\n</think>\n\n{CALL_TEXT}\n{CALL_TEXT}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nwarm\n</tool_response>\n<tool_response>\n"
        "cold<|vision_start|><|image_pad|><|vision_end|>\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


def test_reasoning_is_dropped_after_a_new_user_turn(template):
    done = [
        *LOOP,
        {"role": "assistant", "content": "<think>\nSum up.\n</think>\n\nMild."},
        {"role": "user", "content": "Thanks"},
    ]
    text = template.render(done)
    assert "Look." not in text and "Sum up." not in text
    assert "<|im_start|>assistant\nMild.<|im_end|>" in text
    kept = template.render(done, preserve_thinking=True)
    assert "<think>\nLook.\n</think>" in kept
    assert "<think>\nSum up.\n</think>\n\nMild.<|im_end|>" in kept


def test_a_tool_response_sent_as_user_text_is_no_new_turn(template):
    answer = {"role": "user", "content": "<tool_response>\nwarm\n</tool_response>"}
    assert "<think>\nLook.\n</think>" in template.render([*LOOP[:2], answer])


def test_content_before_a_call(template):
    turn = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}
    assert f"Let me see.\n\n{CALL_TEXT}<|im_end|>" in template.render([LOOP[0], turn])


@pytest.mark.parametrize("messages", [[{"role": "system", "content": "x"}], [LOOP[1]]])
def test_a_conversation_without_a_user_is_refused(template, messages):
    with pytest.raises(InvalidRequest, match="no user message"):
        template.render(messages)
