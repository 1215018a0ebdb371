"""Files of texts and conversations."""

from __future__ import annotations

import json

import pytest

from njax.demo import load_demo
from njax.errors import NjaxError
from njax.evaluation import read_corpus
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer

CONVERSATION = [
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": "It is 5."},
]


@pytest.fixture(scope="module")
def parts():
    checkpoint = load_demo()
    template = ChatTemplate(checkpoint.chat_template, checkpoint.tokenizer_config)
    return Tokenizer.from_json(checkpoint.tokenizer_json), template


def test_texts_and_conversations(tmp_path, parts):
    tokenizer, template = parts
    plain = tmp_path / "a.txt"
    plain.write_text("Some text.\nAnother line.\n")
    (one,) = read_corpus(plain, tokenizer, template)
    assert one.scored is None and tokenizer.decode(list(one.tokens)) == plain.read_text()

    lines = tmp_path / "b.jsonl"
    options = {"enable_thinking": False}
    rows = [{"text": "Some text."}, {"messages": CONVERSATION, "options": options}]
    lines.write_text("\n\n".join(map(json.dumps, rows)))
    text, chat = read_corpus(lines, tokenizer, template)
    assert tokenizer.decode(list(text.tokens)) == "Some text."
    rendered = template.render(CONVERSATION, None, add_generation_prompt=False, **options)
    assert list(chat.tokens) == tokenizer.encode(rendered)


def test_answers_only(tmp_path, parts):
    tokenizer, template = parts
    lines = tmp_path / "b.jsonl"
    row = {"messages": CONVERSATION, "options": {"enable_thinking": False}}
    lines.write_text(json.dumps(row))
    (one,) = read_corpus(lines, tokenizer, template, answers_only=True)
    counted = [token for token, counts in zip(one.tokens, one.scored, strict=True) if counts]
    answer = tokenizer.decode(counted)
    assert answer.startswith("It is 5.") and "user" not in answer


@pytest.mark.parametrize(
    ("name", "content", "answers_only", "part"),
    [
        ("none.txt", None, False, "No such file"),
        ("a.txt", b"\xff\xfe", False, "not UTF-8 text (byte 0)"),
        ("a.txt", b"", False, "nothing to score"),
        ("a.txt", b"text", True, "needs a .jsonl file"),
        ("a.jsonl", b'{"text": "ab"}\n{', False, "a.jsonl:2: not JSON"),
        ("a.jsonl", b"[" * 100_000, False, "a.jsonl:1: not JSON"),
        ("a.jsonl", b"[1]", False, 'a.jsonl:1: expected an object with "text"'),
        ("a.jsonl", b'{"text": "ab"}', True, 'expected an object with "messages"'),
        ("a.jsonl", b'{"messages": [3]}', False, "a.jsonl:1: "),
        ("a.jsonl", b'{"messages": []}', True, "a.jsonl:1: "),
        ("a.jsonl", b'{"messages": [{"role": "user", "content": "x"}]}', True, "not the assist"),
        ("a.jsonl", b'{"messages": [{"role": "user", "content": "x"}], "options": 3}', False, ":1"),
    ],
)
def test_bad_files(tmp_path, parts, name, content, answers_only, part):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NjaxError) as caught:
        read_corpus(path, *parts, answers_only=answers_only)
    assert part in str(caught.value)
