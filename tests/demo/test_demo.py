"""The bundled model: same bits everywhere, sane numbers, the family's dialect."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from njax.checkpoint.layout import tensor_specs
from njax.demo import load_demo
from njax.demo.make_tokenizer import make
from njax.demo.tokens import ADDED_TOKENS, PLAIN_TOKENS, VOCAB_SIZE
from njax.errors import InvalidRequest
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def demo():
    return load_demo()


@pytest.fixture(scope="module")
def template(demo):
    return ChatTemplate(demo.chat_template, demo.tokenizer_config)


def test_weights_are_the_same_everywhere(demo):
    digest = hashlib.sha256()
    for name, value in sorted(demo.params.items()):
        digest.update(name.encode() + np.asarray(value).tobytes())
    assert digest.hexdigest()[:16] == "e8033e2b84494e95"
    assert demo.manifest["weights_are_random"] is True


def test_weights_fit_the_config(demo):
    specs = tensor_specs(demo.config)
    assert {name: tuple(value.shape) for name, value in demo.params.items()} == {
        name: spec.shape for name, spec in specs.items()
    }
    for name, value in demo.params.items():
        kind = "float32" if specs[name].role == "state" else demo.dtype
        assert str(value.dtype) == kind, name
        assert np.isfinite(np.asarray(value, np.float32)).all(), name
    assert sum(value.size for value in demo.params.values()) < 2_000_000


def test_tokenizer(demo):
    tokenizer = Tokenizer.from_json(demo.tokenizer_json, demo.tokenizer_config)
    assert tokenizer.vocab_size == VOCAB_SIZE == demo.config.vocab_size
    for token in ADDED_TOKENS:
        assert tokenizer.encode(token) == [tokenizer.token_to_id(token)]
        assert (tokenizer.token_to_id(token) in tokenizer.special_ids) == (
            token not in PLAIN_TOKENS
        )
    for text in ("Hello, wörld! 你好 👩‍👩‍👧", "def f(x):\n\treturn x\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    eos = tokenizer.eos_ids(demo.generation_config, demo.tokenizer_config)
    assert eos == (tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>"))


def test_tokenizer_is_what_its_maker_makes(demo):
    assert make() == demo.tokenizer_json


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
