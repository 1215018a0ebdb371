"""Frontiers: the tokens of the system block, whatever the template looks like."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Rust

from njax.demo import load_demo
from njax.errors import InvalidRequest
from njax.text.chat_template import ChatTemplate
from njax.text.prompt import PromptRenderer, render_prompt
from njax.text.tokenizer import Tokenizer

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SYSTEM = {"role": "system", "content": "You are terse.\nVery."}
USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def demo():
    checkpoint = load_demo()
    return (
        Tokenizer.from_json(checkpoint.tokenizer_json),
        ChatTemplate(checkpoint.chat_template, checkpoint.tokenizer_config),
    )


@pytest.fixture(scope="module")
def renderer(demo):
    return PromptRenderer(*demo)


def head_text(tokenizer, prompt):
    (frontier,) = prompt.frontiers
    return tokenizer.decode(prompt.token_ids[:frontier], skip_special=False)


def test_the_frontier_is_the_system_block(demo, renderer):
    tokenizer, _ = demo
    prompt = renderer.render([SYSTEM, USER])
    block = "<|im_start|>system\nYou are terse.\nVery.<|im_end|>\n"
    assert prompt.frontiers == (len(tokenizer.encode(block)),)
    assert head_text(tokenizer, prompt) == block
    assert list(prompt.token_ids) == tokenizer.encode(prompt.text)
    with_tools = renderer.render([SYSTEM, USER], TOOLS)
    head = head_text(tokenizer, with_tools)
    assert json.dumps(TOOLS[0]) in head and head.endswith("Very.<|im_end|>\n")
    only_tools = renderer.render([USER], TOOLS)
    assert head_text(tokenizer, only_tools).endswith("<|im_end|>\n")


def test_no_system_block_no_frontier(renderer):
    assert renderer.render([USER]).frontiers == ()


texts = st.text(max_size=30) | st.sampled_from(
    ["\n", " ", "<|im_start|>", "<|im_end|>\n", "<|im_start|>user\n", "</think>", "<", "\n\nx"]
)


@settings(max_examples=200, deadline=None)
@given(
    system=texts,
    turns=st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool", "system"]), texts)),
    tools=st.sampled_from([None, TOOLS]),
    thinking=st.sampled_from([None, True, False]),
)
def test_any_conversation(demo, renderer, system, turns, tools, thinking):
    """The cached head changes nothing, and every frontier is proven by tokenising."""
    tokenizer, template = demo
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "go"}]
    messages += [{"role": role, "content": text} for role, text in turns]
    prompt = renderer.render(messages, tools, enable_thinking=thinking)
    assert prompt.text == template.render(messages, tools, enable_thinking=thinking)
    assert list(prompt.token_ids) == tokenizer.encode(prompt.text)
    fresh = render_prompt(tokenizer, template, messages, tools, enable_thinking=thinking)
    assert prompt == fresh
    (frontier,) = prompt.frontiers
    head = head_text(tokenizer, prompt)
    assert tokenizer.encode(head) == list(prompt.token_ids[:frontier])
    other = renderer.render([messages[0], {"role": "user", "content": "else"}], tools)
    assert other.token_ids[:frontier] == prompt.token_ids[:frontier]
    assert other.frontiers == prompt.frontiers


def test_a_system_message_in_the_middle_leaves_the_head_alone(demo, renderer):
    tokenizer, _ = demo
    turns = [SYSTEM, USER, {"role": "assistant", "content": "ho"}]
    late = {"role": "system", "content": "Now in French."}
    plain = renderer.render([*turns, USER], TOOLS)
    mixed = renderer.render([*turns, late, USER], TOOLS)
    assert mixed.frontiers == plain.frontiers
    assert head_text(tokenizer, mixed) == head_text(tokenizer, plain)
    assert mixed.text.index("Now in French.") > mixed.text.index("ho<|im_end|>")
    ends = renderer.render([*turns, late], TOOLS)
    assert ends.text.index("Now in French.") < ends.text.rindex("<|im_start|>assistant")


def test_heads_that_differ_differ(renderer):
    prompts = [
        renderer.render([{**SYSTEM, "content": f"You are terse {n}."}, USER]) for n in (1, 2)
    ]
    heads = [p.token_ids[: p.frontiers[0]] for p in prompts]
    assert heads[0] != heads[1]


def test_the_head_is_rendered_once(demo, monkeypatch):
    tokenizer, template = demo
    renderer = PromptRenderer(tokenizer, template, cached_heads=2)
    seen = []
    real = renderer._find_head
    monkeypatch.setattr(renderer, "_find_head", lambda *a: seen.append(a[0]) or real(*a))
    for name in ("a", "a", "b", "a", "c", "b", "c"):
        renderer.render([{"role": "system", "content": name}, USER])
    assert seen == ["a", "b", "c", "b"]


def test_errors_pass_through(renderer):
    for messages in ([], [SYSTEM], [{"role": "assistant", "content": "x"}]):
        with pytest.raises(InvalidRequest):
            renderer.render(messages)


def with_tokens(demo, *tokens):
    rust = Rust.from_str(demo[0].to_json())
    rust.add_special_tokens(list(tokens))
    return Tokenizer.from_json(rust.to_str())


DIALECTS = {
    "header": (
        ["<|begin|>", "<|head|>", "<|/head|>", "<|eot|>"],
        "<|begin|>{% for m in messages %}<|head|>{{ m.role }}<|/head|>\n\n{{ m.content }}<|eot|>"
        "{% endfor %}<|head|>assistant<|/head|>\n\n",
        "<|begin|><|head|>system<|/head|>\n\nYou are terse.\nVery.<|eot|>",
    ),
    "role tokens": (
        ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "<|assistant|>\n",
        "<|system|>\nYou are terse.\nVery.<|end|>\n",
    ),
    "system inside the user's turn": (
        ["<bos>", "<turn>", "</turn>"],
        "<bos>{% if messages[0].role == 'system' %}{% set sys = messages[0].content ~ '\\n\\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set sys = '' %}{% set rest = messages %}"
        "{% endif %}{% if rest[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}"
        "{% for m in rest %}<turn>{{ m.role }}\n{{ sys if loop.first }}{{ m.content }}</turn>\n"
        "{% endfor %}<turn>model\n",
        "<bos><turn>user\nYou are terse.\nVery.\n\n",
    ),
    "no special tokens": (
        [],
        "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n\n{% endfor %}",
        None,
    ),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_other_dialects(demo, name):
    tokens, source, block = DIALECTS[name]
    tokenizer = with_tokens(demo, *tokens)
    renderer = PromptRenderer(tokenizer, ChatTemplate(source))
    prompt = renderer.render([SYSTEM, USER])
    assert list(prompt.token_ids) == tokenizer.encode(prompt.text)
    if block is not None:
        assert head_text(tokenizer, prompt) == block
    for frontier in prompt.frontiers:
        head = tokenizer.decode(prompt.token_ids[:frontier], skip_special=False)
        assert tokenizer.encode(head) == list(prompt.token_ids[:frontier])
    assert renderer.render([USER]).frontiers == ()


def test_an_unproven_head_gives_no_frontier(demo):
    """The system text runs on into the user's: a merge across the cut must not go unnoticed."""
    tokenizer = Tokenizer.from_json(demo[0].to_json())
    renderer = PromptRenderer(
        tokenizer, ChatTemplate("{{ messages[0].content }}{{ messages[-1].content }}")
    )
    system = {"role": "system", "content": "th"}
    assert tokenizer.encode("the") != [*tokenizer.encode("th"), *tokenizer.encode("e")]
    assert renderer.render([system, {"role": "user", "content": "e"}]).frontiers == ()
    assert renderer.render([system, {"role": "user", "content": "!"}]).frontiers != ()


def test_a_template_that_looks_at_the_clock(demo, monkeypatch):
    tokenizer, _ = demo
    now = iter(range(100, 200))
    template = ChatTemplate(
        "<|im_start|>system\n{{ strftime_now('%c') }}{{ messages[0].content }}<|im_end|>\n"
        "{% for m in messages[1:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}"
    )
    template._environment.globals["strftime_now"] = lambda _: "day" + str(next(now))[0]
    renderer = PromptRenderer(tokenizer, template)
    assert renderer.render([SYSTEM, USER]).frontiers != ()
    now = iter(range(200, 300))
    later = renderer.render([SYSTEM, USER])
    assert "day2" in head_text(tokenizer, later)


def test_many_threads(demo):
    tokenizer, template = demo
    renderer = PromptRenderer(tokenizer, template, cached_heads=2)
    wrong = []

    def work(number):
        for turn in range(20):
            messages = [{"role": "system", "content": f"s{(number + turn) % 4}"}, USER]
            prompt = renderer.render(messages)
            if list(prompt.token_ids) != tokenizer.encode(template.render(messages)):
                wrong.append(messages)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
