"""Chat completions through the official client, against a real server process."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.conftest import CONTEXT, MODEL, chat


def ask(client, text: str = "hi", *, stream: bool = False, extra: dict | None = None, **fields):
    body = chat(text, **fields)
    return client.chat.completions.create(**body, stream=stream, extra_body=extra)


def text_of(chunks) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_whole_answer(client):
    answer = ask(client)
    assert answer.object == "chat.completion" and answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length"
    usage = answer.usage
    assert usage.completion_tokens == 8
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert usage.prefix_cache_hit_tokens == 0 and usage.prefix_reuse_path == "full_reset"


def test_stream_has_the_order_of_the_protocol(client):
    whole = ask(client, max_tokens=24)
    chunks = list(ask(client, max_tokens=24, stream=True, stream_options={"include_usage": True}))
    first, *middle, finish, usage = chunks
    assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
    assert all(chunk.choices[0].delta.content for chunk in middle)
    assert all(chunk.choices[0].finish_reason is None for chunk in [first, *middle])
    assert finish.choices[0].finish_reason == "length" and not finish.choices[0].delta.content
    assert usage.choices == [] and usage.usage.completion_tokens == 24
    assert usage.usage.prompt_tokens == whole.usage.prompt_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    assert text_of(chunks) == whole.choices[0].message.content


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_usage_comes_only_if_asked_for(server, options):
    response = server.post(chat(stream=True, stream_options=options))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    events = response.text.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    assert all("usage" not in json.loads(event[6:]) for event in events[:-1])


def test_six_streams_at_once(client):
    texts = [f"question {number}" for number in range(6)]
    alone = [ask(client, text, max_tokens=32).choices[0].message.content for text in texts]

    def run(text):
        return text_of(ask(client, text, max_tokens=32, stream=True))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run, texts)) == alone


def test_a_long_system_block_is_shared(client):
    system = f"{secrets.token_hex(8)} You answer briefly and keep to the facts. " * 20

    def run(number):
        return client.chat.completions.create(
            model=MODEL, max_tokens=8, temperature=0, reasoning_effort="none",
            messages=[{"role": "system", "content": system},
                      {"role": "user", "content": f"Question {number}?"}],
        ).usage  # fmt: skip

    first = run(0)
    assert first.prefix_reuse_path == "full_reset"
    with ThreadPoolExecutor(6) as pool:
        usages = list(pool.map(run, range(1, 7)))
    for usage in usages:
        assert usage.prefix_reuse_path == "seed_prefix"
        cached = usage.prompt_tokens_details.cached_tokens
        assert cached == usage.prefix_cache_hit_tokens
        assert 256 <= cached < usage.prompt_tokens and cached % 64 == 0


def test_seeds_do_not_change_the_answer(client):
    """The same request cold (it captures) and seeded."""
    messages = [{"role": "system", "content": secrets.token_hex(8) + " Be kind. " * 100},
                {"role": "user", "content": "Hello!"}]  # fmt: skip
    cold, seeded = (
        client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=48, temperature=0, reasoning_effort="none"
        )
        for _ in range(2)
    )
    assert cold.usage.prefix_reuse_path == "full_reset"
    assert seeded.usage.prefix_reuse_path == "seed_prefix"
    assert seeded.choices[0].message.content == cold.choices[0].message.content


def test_seed_makes_sampling_repeatable(client):
    def run(seed):
        answer = ask(client, seed=seed, temperature=1.0, max_tokens=24)
        return answer.choices[0].message.content

    assert run(7) == run(7)
    assert run(7) != run(8)
    assert len({run(None) for _ in range(3)}) > 1


def test_sampling_parameters_reach_the_engine(client):
    greedy = ask(client, max_tokens=16).choices[0].message.content
    for extra in ({"top_k": 1}, {"min_p": 1.0}, {"top_k": 1, "min_p": 0.5}):
        answer = ask(client, max_tokens=16, temperature=1.0, extra=extra)
        assert answer.choices[0].message.content == greedy
    answer = ask(client, max_tokens=16, temperature=1.0, top_p=1e-6)
    assert answer.choices[0].message.content == greedy


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(client, stream):
    free = ask(client, max_tokens=40).choices[0].message.content
    stop = free[9:13]
    kept = free[: free.index(stop)]
    for spelling in (stop, [stop], ["", "never there", stop]):
        answer = ask(client, max_tokens=40, stop=spelling, stream=stream)
        if stream:
            chunks = list(answer)
            text, reason = text_of(chunks), chunks[-1].choices[0].finish_reason
        else:
            text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert (text, reason) == (kept, "stop")


def test_no_stop(client):
    free = ask(client).choices[0].message.content
    for stop in ("", [], ["", ""]):
        assert ask(client, stop=stop).choices[0].message.content == free


def test_max_tokens_beyond_the_room_is_capped(client):
    answer = ask(client, "x " * 960, max_tokens=10**9, extra={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == CONTEXT + 1


def test_both_names_of_the_limit(client):
    body = chat()
    del body["max_tokens"]
    answer = client.chat.completions.create(**body, max_completion_tokens=3)
    assert answer.usage.completion_tokens == 3
    answer = client.chat.completions.create(**body, max_completion_tokens=3, max_tokens=5)
    assert answer.usage.completion_tokens == 3


def test_content_parts_are_text(client):
    whole = ask(client, "one two")
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    answer = client.chat.completions.create(**chat(messages=[{"role": "user", "content": parts}]))
    assert answer.choices == whole.choices
    assert answer.usage.prompt_tokens == whole.usage.prompt_tokens


def test_a_conversation_with_tools(client):
    tools = [{"type": "function",
              "function": {"name": "get_time", "parameters": {"type": "object"}}}]  # fmt: skip
    messages = [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function",
             "function": {"name": "get_time", "arguments": '{"zone": "UTC"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "noon"}]},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Thanks"},
    ]  # fmt: skip

    def prompt_tokens(**fields):
        return client.chat.completions.create(
            **chat(messages=messages, **fields)
        ).usage.prompt_tokens

    plain = prompt_tokens()
    assert prompt_tokens(tools=tools) > plain
    assert prompt_tokens(tools=tools, tool_choice="auto") > plain
    assert prompt_tokens(tools=tools, tool_choice="none") == plain
    assert prompt_tokens(tools=[]) == plain


def test_three_spellings_of_no_thinking(client):
    spellings = [
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "none", "enable_thinking": False,
         "chat_template_kwargs": {"enable_thinking": False, "other": None}},
    ]  # fmt: skip
    off = [ask(client, extra={"reasoning_effort": None} | extra) for extra in spellings]
    assert len({answer.choices[0].message.content for answer in off}) == 1
    assert len({answer.usage.prompt_tokens for answer in off}) == 1
    on = [
        ask(client, extra={"reasoning_effort": None} | extra)
        for extra in ({}, {"enable_thinking": True})
    ]
    assert on[0].usage.prompt_tokens == on[1].usage.prompt_tokens != off[0].usage.prompt_tokens


def test_fields_that_change_nothing_are_ignored(client):
    plain = ask(client)
    extra = {
        "user": "u", "metadata": {"a": "b"}, "store": False, "parallel_tool_calls": True,
        "service_tier": "auto", "n": 1, "logprobs": False, "presence_penalty": 0,
        "frequency_penalty": 0.0, "repetition_penalty": 1, "response_format": {"type": "text"},
        "modalities": ["text"], "functions": None, "stop": None, "tools": None,
        "tool_choice": "none", "top_k": -1, "some_future_field": {"deep": [1, 2]},
    }  # fmt: skip
    assert ask(client, extra=extra).choices == plain.choices


def test_models(client):
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert model == models[0]
    assert model.object == "model" and model.owned_by == "njax" and model.max_model_len == CONTEXT


def test_health(server):
    response = server.http.get("/health")
    assert response.status_code == 200 and response.json() == {"status": "ok"}


def test_keep_alive_connection_serves_many(server):
    """httpx keeps one connection; answers and refusals must leave it usable."""
    for body in (chat(), b"{", chat(stream=True), chat(n=2), chat()):
        assert server.post(body).status_code in (200, 400)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities(client, stream):
    answer = ask(client, max_tokens=6, logprobs=True, top_logprobs=3, stream=stream)
    choices = [c for chunk in answer for c in chunk.choices] if stream else answer.choices
    content = [entry for c in choices if c.logprobs for entry in c.logprobs.content]
    assert len(content) == 6
    for entry in content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token, "greedy takes the likeliest"
        assert bytes(entry.bytes).decode(errors="replace") == entry.token
    text = ask(client, max_tokens=6).choices[0].message.content
    spelled = b"".join(bytes(entry.bytes) for entry in content)
    assert spelled.decode(errors="replace") == text


def test_no_log_probabilities_unless_asked_for(client):
    assert ask(client).choices[0].logprobs is None


def test_bias_and_penalties_reach_the_engine(client):
    free = ask(client, max_tokens=12, logprobs=True)
    forced = ask(client, max_tokens=12, logit_bias={"9": 100})
    assert len(set(forced.choices[0].message.content)) <= 2, "one token, again and again"
    tamed = ask(client, max_tokens=12, logit_bias={"9": 12}, frequency_penalty=2.0)
    assert tamed.choices[0].message.content != forced.choices[0].message.content
    assert free.choices[0].message.content != forced.choices[0].message.content
