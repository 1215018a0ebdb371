"""Input that cannot be served: the right status and body, and the next request works."""

from __future__ import annotations

import json
import socket
import time

import openai
import pytest

from tests.server.conftest import CONTEXT, LANES, LIMIT_MIB, MODEL, PENDING, chat, eventually, works


def check(response, status: int, code: str, param: str | None = None, kind: str | None = None):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param), error
    assert error["type"] == kind or kind is None
    assert error["message"] and "Traceback" not in error["message"]
    return error["message"]


NESTED = 100_000
NOT_JSON = {
    "empty": b"",
    "word": b"hello",
    "cut": json.dumps(chat()).encode()[:-1],
    "nan": json.dumps(chat(temperature=float("nan"))).encode(),
    "infinity": json.dumps(chat(temperature=float("inf"))).encode(),
    "minus-infinity": json.dumps(chat(top_p=float("-inf"))).encode(),
    "latin-1": json.dumps(chat("caf\xe9"), ensure_ascii=False).encode("latin-1"),
    "lone-surrogate": b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
    "nul-bytes": b"\x00" * 100,
    "deep-cut": b'{"model": "njax-demo", "tools": [{"a": ' + b"[" * NESTED,
    "deep-tools": b'{"model": "njax-demo", "messages": [], "tools": [{"a": '
    + b"[" * NESTED + b"]" * NESTED + b"}]}",
    "deep-ignored": b'{"x": ' + b'{"a": ' * NESTED + b"1" + b"}" * NESTED + b"}",
    "deep-content": b'{"model": "njax-demo", "messages": [{"role": "user", "content": '
    + b"[" * NESTED + b"]" * NESTED + b"}]}",
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_JSON)
def test_not_json(server, name):
    check(server.post(NOT_JSON[name]), 400, "invalid_json")
    works(server)


@pytest.mark.parametrize("depth", [50, 200, 400, 600, 800, 950])
def test_nesting_of_any_depth_is_no_fault_of_the_server(server, depth):
    """Decoded, but perhaps too deep for what comes after."""
    deep: dict = {}
    for _ in range(depth):
        deep = {"type": "object", "properties": deep}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    call = {"id": "x", "function": {"name": "f", "arguments": json.dumps(deep)}}
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    for fields in ({"tools": [tool]}, {"messages": [*history, *history[:1]]}):
        assert server.post(chat(**fields)).status_code in (200, 400)
    works(server)


USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
BAD = [
    # Types.
    ([1], "invalid_request", None),
    ("text", "invalid_request", None),
    ({"messages": [USER]}, "invalid_request", None),
    ({"model": MODEL}, "invalid_request", None),
    ({"model": 7, "messages": [USER]}, "invalid_request", "model"),
    ({"model": None, "messages": [USER]}, "invalid_request", "model"),
    (chat(messages="hi"), "invalid_request", "messages"),
    (chat(messages={"role": "user"}), "invalid_request", "messages"),
    (chat(messages=["hi"]), "invalid_request", "messages[0]"),
    (chat(stream="yes"), "invalid_request", "stream"),
    (chat(stream_options=[]), "invalid_request", "stream_options"),
    (chat(max_tokens="8"), "invalid_request", "max_tokens"),
    (chat(max_tokens=1.5), "invalid_request", "max_tokens"),
    (chat(temperature="hot"), "invalid_request", "temperature"),
    (chat(temperature=True), "invalid_request", "temperature"),
    (chat(stop=[1]), "invalid_request", "stop[0]"),
    (chat(stop=3), "invalid_request", "stop"),
    (chat(tools={}), "invalid_request", "tools"),
    (chat(seed="x"), "invalid_request", "seed"),
    # Messages.
    (chat(messages=[]), "invalid_request", "messages"),
    (chat(messages=[{}]), "unsupported_role", "messages[0].role"),
    (chat(messages=[{"role": "usr", "content": "x"}]), "unsupported_role", "messages[0].role"),
    (chat(messages=[USER, {"role": "function", "content": "x"}]), "unsupported_role",
     "messages[1].role"),
    (chat(messages=[{"role": ["user"], "content": "x"}]), "unsupported_role", "messages[0].role"),
    (chat(messages=[{"role": "user"}]), "invalid_request", "messages"),
    (chat(messages=[{"role": "user", "content": None}]), "invalid_request", "messages"),
    (chat(messages=[{"role": "user", "content": 5}]), "invalid_request", "messages"),
    (chat(messages=[{"role": "user", "content": [{"type": "noise"}]}]), "invalid_request",
     "messages"),
    (chat(messages=[{"role": "user", "content": [{"type": "text", "text": 1}]}]),
     "invalid_request", "messages"),
    (chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]),
     "vision_disabled", "messages"),
    (chat(messages=[{"role": "system", "content": "only"}]), "invalid_request", "messages"),
    (chat(messages=[USER, {"role": "assistant"}]), "invalid_request", "messages[1].content"),
    (chat(messages=[USER, {"role": "tool", "content": "x"}]), "invalid_request",
     "messages[1].tool_call_id"),
    (chat(messages=[USER, {"role": "assistant", "tool_calls": [
        {"id": "x", "function": {"name": "f", "arguments": '{"a": 1'}}]}]),
     "invalid_request", "messages"),
    # Values.
    (chat(max_tokens=0), "invalid_request", "max_tokens"),
    (chat(max_tokens=-1), "invalid_request", "max_tokens"),
    (chat(max_completion_tokens=0), "invalid_request", "max_completion_tokens"),
    (chat(temperature=-0.1), "invalid_request", "temperature"),
    (chat(temperature=1e300), "invalid_request", "temperature"),
    (chat(top_p=0), "invalid_request", "top_p"),
    (chat(top_p=1.01), "invalid_request", "top_p"),
    (chat(top_k=-2), "invalid_request", "top_k"),
    (chat(min_p=2), "invalid_request", "min_p"),
    (chat(seed=-1), "invalid_request", "seed"),
    (chat(seed=2**64), "invalid_request", "seed"),
    (chat(stop=["x"] * 100), "invalid_request", "stop"),
    (chat(stop="x" * 100_000), "invalid_request", "stop"),
    # The template's switches.
    (chat(chat_template_kwargs={"enable_thinkin": False}), "chat_template_option_not_supported",
     "chat_template_kwargs"),
    (chat(chat_template_kwargs={"enable_thinking": "no"}), "invalid_request",
     "chat_template_kwargs"),
    (chat(enable_thinking=True, chat_template_kwargs={"enable_thinking": False}),
     "conflicting_template_option", "enable_thinking"),
    (chat(enable_thinking=True, reasoning_effort="none"), "conflicting_template_option",
     "enable_thinking"),
    (chat(reasoning_effort="extreme"), "invalid_request", "reasoning_effort"),
    (chat(reasoning_effort="high"), "reasoning_effort_not_supported", "reasoning_effort"),
    # Tools.
    (chat(tools=[{"type": "web_search"}]), "tool_type_not_supported", "tools[0].type"),
    (chat(tools=[{"type": "function"}]), "invalid_request", "tools[0].function"),
    (chat(tools=[{"type": "function", "function": {"name": "a b"}}]), "invalid_request",
     "tools[0].function.name"),
    (chat(tools=[{"type": "function", "function": {"name": "f", "parameters": 3}}]),
     "invalid_request", "tools[0].function.parameters"),
    (chat(tools=[TOOL], tool_choice="required"), "tool_choice_not_supported", "tool_choice"),
    (chat(tools=[TOOL], tool_choice=TOOL), "tool_choice_not_supported", "tool_choice"),
    (chat(tools=[TOOL], tool_choice="sometimes"), "invalid_request", "tool_choice"),
    (chat(tool_choice="auto"), "invalid_request", "tool_choice"),
    # What is not supported.
    (chat(n=17), "invalid_request", "n"),
    (chat(n=0), "invalid_request", "n"),
    (chat(logprobs=True, top_logprobs=21), "invalid_request", "logprobs"),
    (chat(top_logprobs=3), "invalid_request", "top_logprobs"),
    (chat(presence_penalty=2.5), "invalid_request", "presence_penalty"),
    (chat(frequency_penalty=-3), "invalid_request", "frequency_penalty"),
    (chat(logit_bias={"5": 101}), "invalid_request", "logit_bias"),
    (chat(logit_bias={"x": 1}), "invalid_request", "logit_bias"),
    (chat(logit_bias={"99999999": 1}), "invalid_request", "logit_bias"),
    (chat(response_format={"type": "json_object"}), "response_format_not_supported",
     "response_format"),
    (chat(functions=[]), "tools_not_supported", "functions"),
    (chat(function_call="auto"), "tools_not_supported", "function_call"),
    (chat(guided_json={}), "constrained_decoding_not_supported", "guided_json"),
    (chat(modalities=["text", "audio"]), "modality_not_supported", "modalities"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code", "param"), BAD)
def test_refused(server, body, code, param):
    for stream in (False, True) if isinstance(body, dict) and "stream" not in body else (False,):
        sent = {"stream": stream} | body if isinstance(body, dict) else body
        check(server.post(sent), 400, code, param, "invalid_request_error")
    works(server)


def test_prompt_longer_than_the_context(server):
    for stream in (False, True):
        response = server.post(chat("word " * CONTEXT, stream=stream))
        message = check(response, 400, "context_length_exceeded", "messages")
        assert str(CONTEXT) in message
    works(server)


def test_ten_megabytes_are_a_long_prompt(server):
    began = time.monotonic()
    for text in ("x" * 10_000_000, "xy " * 3_300_000):
        check(server.post(chat(text)), 400, "context_length_exceeded", "messages")
    assert time.monotonic() - began < 10
    works(server)


@pytest.mark.parametrize("chunked", [False, True])
def test_body_over_the_limit(server, chunked):
    body = json.dumps(chat("x" * ((LIMIT_MIB + 1) << 20))).encode()
    parts = (body[at : at + 65536] for at in range(0, len(body), 65536))
    response = server.http.post("/v1/chat/completions", content=parts if chunked else body)
    check(response, 413, "request_too_large", kind="invalid_request_error")
    works(server)


def test_unknown_model(server):
    check(server.post(chat(model="gpt-4o")), 404, "model_not_found", "model")
    check(server.http.get("/v1/models/gpt-4o"), 404, "model_not_found", "model")
    works(server)


def test_unknown_routes_and_methods(server):
    for path in ("/", "/v1", "/v1/nothing", "/v1/chat/completions/x", "/%ff%00", "/health/x"):
        check(server.http.get(path), 404, "not_found")
    for method, path in (
        ("GET", "/v1/chat/completions"),
        ("PUT", "/v1/chat/completions"),
        ("POST", "/health"),
        ("DELETE", "/v1/models"),
    ):
        check(server.http.request(method, path), 405, "method_not_allowed")
    works(server)


def test_the_official_client_understands(server):
    client = server.client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**chat(max_tokens=0))
    assert caught.value.code == "invalid_request" and caught.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**chat(model="x"))
    assert caught.value.code == "model_not_found"


def test_any_content_type(server):
    """Some clients send none, or form; the body is JSON all the same."""
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "x; charset=nonsense"}):
        body = json.dumps(chat()).encode()
        response = server.http.post("/v1/chat/completions", content=body, headers=headers)
        assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_broken_http(server, sent):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        answer = raw.recv(65536)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
    works(server)


def test_too_many_requests(server):
    """Lanes and queue full: 429 at once, for stream and not; all others are served."""
    long = chat(max_tokens=1500, ignore_eos=True, stream=True)
    held = [server.connect(long) for _ in range(LANES)]
    for raw in held:
        assert b"200 OK" in raw.recv(65536)
    held += [server.connect(long) for _ in range(PENDING)]
    time.sleep(0.2)
    try:

        def refused():
            for stream in (False, True):
                response = server.post(chat(stream=stream))
                check(response, 429, "server_overloaded", kind="rate_limit_error")
                assert response.headers["retry-after"]

        eventually(refused)
    finally:
        for raw in held:
            raw.close()
    eventually(lambda: works(server))


def test_more_messages_than_the_context_holds_are_refused_at_once(server):
    """Rendering them would take the time of everyone else."""
    body = chat() | {"messages": [{"role": "user", "content": ""}] * 150_000}
    response = server.post(body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded" and "150000 entries" in error["message"]
    assert server.post(chat()).status_code == 200


def test_head_of_health(server):
    assert server.http.head("/health").status_code == 200
