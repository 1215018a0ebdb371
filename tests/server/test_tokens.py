"""/tokenize and /detokenize, in the spellings of vLLM's and of llama.cpp's clients."""

from __future__ import annotations

import pytest

from tests.server.conftest import CONTEXT, MODEL, chat, works

TEXT = "Grüße, 世界! <think> <|im_start|>user"


def ask(server, path, **body):
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_both_spellings_there_and_back(server):
    vllm = ask(server, "/tokenize", model=MODEL, prompt=TEXT, add_special_tokens=True)
    llama = ask(server, "/tokenize", content=TEXT, add_special=True)
    assert vllm == llama
    assert vllm["count"] == len(vllm["tokens"]) and vllm["max_model_len"] == CONTEXT
    assert vllm["token_strs"] is None
    back = ask(server, "/detokenize", tokens=vllm["tokens"])
    assert back == {"prompt": TEXT, "content": TEXT}
    assert ask(server, "/detokenize", model=MODEL, tokens=[]) == {"prompt": "", "content": ""}


def test_special_tokens_as_characters(server):
    whole = ask(server, "/tokenize", content="<|im_start|>")
    plain = ask(server, "/tokenize", content="<|im_start|>", parse_special=False)
    assert whole["count"] == 1 < plain["count"]
    assert ask(server, "/detokenize", tokens=plain["tokens"])["content"] == "<|im_start|>"


def test_pieces_and_spellings(server):
    ids = ask(server, "/tokenize", content=TEXT)["tokens"]
    pieces = ask(server, "/tokenize", content=TEXT, with_pieces=True)["tokens"]
    assert [piece["id"] for piece in pieces] == ids
    spelled = [piece["piece"] for piece in pieces]
    data = b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in spelled)
    assert data.decode() == TEXT
    assert any(isinstance(p, list) for p in spelled), "a character in several tokens"
    strings = ask(server, "/tokenize", prompt="a b", return_token_strs=True)["token_strs"]
    assert "".join(strings).replace("Ġ", " ") == "a b"


def test_messages_count_what_chat_reports(server):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    for extra in ({}, {"tools": tools}, {"chat_template_kwargs": {"enable_thinking": False}}):
        answer = server.post(chat(reasoning_effort=None, **extra)).json()
        messages = chat()["messages"]
        counted = ask(server, "/tokenize", model=MODEL, messages=messages, **extra)
        assert counted["count"] == answer["usage"]["prompt_tokens"]
    closed = ask(server, "/tokenize", messages=messages, add_generation_prompt=False)
    opened = ask(server, "/tokenize", messages=messages)
    assert opened["tokens"][: closed["count"]] == closed["tokens"] != opened["tokens"]


BAD = [
    ("/tokenize", {}, 400, "invalid_request", None),
    ("/tokenize", {"prompt": "a", "content": "a"}, 400, "invalid_request", None),
    ("/tokenize", {"prompt": 1}, 400, "invalid_request", "prompt"),
    ("/tokenize", {"prompt": "a", "model": "x"}, 404, "model_not_found", "model"),
    ("/tokenize", {"prompt": "x" * (5 << 20)}, 400, "invalid_request", "prompt"),
    ("/tokenize", {"messages": []}, 400, "invalid_request", "messages"),
    ("/tokenize", {"messages": [{}] * (CONTEXT + 1)}, 400, "context_length_exceeded", "messages"),
    ("/detokenize", {}, 400, "invalid_request", None),
    ("/detokenize", {"tokens": "a"}, 400, "invalid_request", "tokens"),
    ("/detokenize", {"tokens": [0, -1]}, 400, "invalid_request", "tokens[1]"),
    ("/detokenize", {"tokens": [10**9]}, 400, "invalid_request", "tokens[0]"),
    ("/detokenize", {"tokens": [10**30]}, 400, "invalid_request", "tokens[0]"),
]


@pytest.mark.parametrize(("path", "body", "status", "code", "param"), BAD)
def test_refused(server, path, body, status, code, param):
    response = server.http.post(path, json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (code, param), error


def test_not_json(server):
    for path in ("/tokenize", "/detokenize"):
        response = server.http.post(path, content=b"{")
        assert response.status_code == 400 and response.json()["error"]["code"] == "invalid_json"
    works(server)
