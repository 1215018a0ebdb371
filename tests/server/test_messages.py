"""Anthropic Messages through the official client, against the bundled and the random model."""

from __future__ import annotations

import json
import secrets

import anthropic
import pytest

from tests.server.conftest import CONTEXT, MODEL, works

WEATHER = {
    "name": "get_weather",
    "description": "Gets the weather.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city"},
            "days": {"type": "integer", "description": "The days"},
        },
        "required": ["city"],
    },
}
ASK_WEATHER = "Get the weather with city Oslo and days 3, please."
SUM = "What is 17 + 25?"
STEPS = "7 + 5 = 12, so 2 carry 1\n1 + 2 + 1 = 4, so 42"
OFF = {"type": "disabled"}


@pytest.fixture(scope="module")
def client(demo_server):
    with anthropic.Anthropic(
        base_url=demo_server.url, api_key="none", max_retries=0, timeout=60
    ) as it:
        yield it


def ask(client, content, **fields):
    messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
    options = {"model": "any-name", "max_tokens": 200} | fields
    return client.messages.create(messages=messages, **options)


def kinds(message):
    return [block.type for block in message.content]


def prompt_tokens(usage):
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def test_a_whole_answer(client):
    message = ask(client, SUM)
    assert message.type == "message" and message.role == "assistant"
    assert message.model == "any-name" and message.id.startswith("msg_")
    thinking, text = message.content
    assert (thinking.type, thinking.thinking) == ("thinking", STEPS) and thinking.signature
    assert (text.type, text.text) == ("text", "17 + 25 = 42")
    assert message.stop_reason == "end_turn" and message.stop_sequence is None
    assert message.usage.output_tokens > 30
    plain = ask(client, SUM, thinking=OFF)
    assert kinds(plain) == ["text"] and plain.content[0].text == "17 + 25 = 42"
    assert kinds(ask(client, SUM, thinking={"type": "enabled", "budget_tokens": 1024})) == [
        "thinking", "text",
    ]  # fmt: skip


def test_the_order_of_a_stream(client):
    events = list(ask(client, SUM, stream=True))
    order = [event.type for event in events]
    inner = [kind for kind in order if kind != "content_block_delta"]
    # The client hides pings; the raw text has one.
    assert inner == [
        "message_start", "content_block_start", "content_block_stop", "content_block_start",
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    starts = [event for event in events if event.type == "content_block_start"]
    assert [(event.index, event.content_block.type) for event in starts] == [
        (0, "thinking"), (1, "text"),
    ]  # fmt: skip
    deltas = [event for event in events if event.type == "content_block_delta"]
    assert [event.index for event in deltas] == sorted(event.index for event in deltas)
    assert [d.delta.type for d in deltas if d.index == 0][-1] == "signature_delta"
    assert events[-2].delta.stop_reason == "end_turn"


def test_ping_follows_the_first_block(demo_server):
    body = {"model": "x", "max_tokens": 20, "stream": True,
            "messages": [{"role": "user", "content": SUM}]}  # fmt: skip
    response = demo_server.http.post("/v1/messages", json=body)
    names = [line[7:] for line in response.text.splitlines() if line.startswith("event: ")]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names.count("ping") == 1 and names[-1] == "message_stop"
    for block in response.text.strip().split("\n\n"):
        event, data = block.split("\n")
        assert json.loads(data.removeprefix("data: "))["type"] == event.removeprefix("event: ")


@pytest.mark.parametrize("fields", [{}, {"thinking": OFF}, {"tools": [WEATHER]}])
def test_stream_helper_gives_the_whole_answer(client, fields):
    content = ASK_WEATHER if "tools" in fields else SUM
    whole = ask(client, content, **fields)
    with client.messages.stream(
        model="any-name", max_tokens=200,
        messages=[{"role": "user", "content": content}], **fields,
    ) as stream:  # fmt: skip
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    ids = {block.id for block in whole.content + streamed.content if block.type == "tool_use"}

    def shape(message):
        blocks = [block.model_dump(exclude={"id", "parsed_output"}) for block in message.content]
        return blocks, message.stop_reason, message.usage.output_tokens

    assert shape(streamed) == shape(whole)
    assert text == "".join(block.text for block in whole.content if block.type == "text")
    assert prompt_tokens(streamed.usage) == prompt_tokens(whole.usage)
    assert len(ids) == (2 if "tools" in fields else 0)


def test_a_tool_conversation(client):
    """Blocks are sent back as they came; the result is an error once and parts once."""
    messages = [{"role": "user", "content": ASK_WEATHER}]
    answer = ask(client, messages, tools=[WEATHER])
    assert answer.stop_reason == "tool_use" and kinds(answer) == ["thinking", "tool_use"]
    call = answer.content[1]
    assert (call.name, call.input) == ("get_weather", {"city": "Oslo", "days": 3})
    messages.append({"role": "assistant", "content": [b.model_dump() for b in answer.content]})
    sizes = []
    for result in (
        {"content": "sunny"},
        {"content": [{"type": "text", "text": "sun"}, {"type": "text", "text": "ny"}]},
        {"content": "sunny", "is_error": True},
        {},
    ):
        block = {"type": "tool_result", "tool_use_id": call.id} | result
        turn = {"role": "user", "content": [block, {"type": "text", "text": "Thank you."}]}
        after = ask(client, [*messages, turn], tools=[WEATHER])
        assert after.content[-1].type == "text" and after.stop_reason == "end_turn"
        sizes.append(prompt_tokens(after.usage))
    plain, parts, error, nothing = sizes
    assert nothing < plain < parts and plain < error


def test_parallel_calls_can_be_turned_off(client):
    ask_two = "Get the weather with city Oslo. After that, get the weather with city Rome."
    both = ask(client, ask_two, tools=[WEATHER], thinking=OFF)
    assert kinds(both) == ["tool_use", "tool_use"]
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    one = ask(client, ask_two, tools=[WEATHER], thinking=OFF, tool_choice=choice)
    assert kinds(one) == ["tool_use"] and one.content[0].input == both.content[0].input
    events = list(ask(client, ask_two, tools=[WEATHER], thinking=OFF, stream=True))
    blocks = [(e.type, e.index) for e in events if e.type.startswith("content_block_s")]
    assert blocks == [
        ("content_block_start", 0), ("content_block_stop", 0),
        ("content_block_start", 1), ("content_block_stop", 1),
    ]  # fmt: skip
    none = ask(client, ask_two, tools=[WEATHER], thinking=OFF, tool_choice={"type": "none"})
    assert kinds(none) == ["text"]


def test_thinking_that_is_not_ours_is_left_out(client):
    """A block with its signature counts; of another server, or altered, it does not."""
    ours = ask(client, SUM).content[0].model_dump()
    call = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Oslo"}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}

    def size(*thinking):
        turn = {"role": "assistant", "content": [*thinking, call]}
        messages = [{"role": "user", "content": SUM}, turn, result]
        return client.messages.count_tokens(
            model="x", messages=messages, tools=[WEATHER]
        ).input_tokens

    without = size()
    assert size(ours) > without
    assert size(ours | {"signature": "EqQBCkYIBxgCKkB"}) == without
    assert size(ours | {"thinking": "Something else."}) == without
    assert size({"type": "redacted_thinking", "data": "x"}) == without


def test_stop_reasons(client):
    cut = ask(client, SUM, max_tokens=5)
    assert cut.stop_reason == "max_tokens" and kinds(cut) == ["thinking"]
    stopped = ask(client, SUM, thinking=OFF, stop_sequences=["never", "= 4"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "= 4")
    assert stopped.content[0].text == "17 + 25 "
    inside = ask(client, SUM, stop_sequences=["carry"])
    assert inside.stop_reason == "stop_sequence" and kinds(inside) == ["thinking"]
    nothing = ask(client, SUM, thinking=OFF, stop_sequences=["17"])
    assert [block.text for block in nothing.content] == [""]
    huge = ask(client, SUM, max_tokens=10**9)
    assert huge.stop_reason == "end_turn"


def test_counts_and_caches(client):
    """What count_tokens says is what generation reports; a head is written once, then read."""
    system = [
        {"type": "text", "text": f"{secrets.token_hex(8)} Be kind. " * 40,
         "cache_control": {"type": "ephemeral"}},
    ]  # fmt: skip
    fields = {"system": system, "tools": [WEATHER | {"cache_control": {"type": "ephemeral"}}]}
    text = {"type": "text", "text": SUM, "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [text]}]
    counted = client.messages.count_tokens(model="x", messages=messages, **fields).input_tokens
    first = ask(client, messages, **fields).usage
    again = ask(client, messages, **fields).usage
    assert prompt_tokens(first) == prompt_tokens(again) == counted
    assert first.cache_read_input_tokens == 0 < first.cache_creation_input_tokens
    assert again.cache_creation_input_tokens == 0
    assert again.cache_read_input_tokens == first.cache_creation_input_tokens


def test_the_billing_line_is_not_rendered(client, demo_client, demo_server):
    line = "x-anthropic-billing-header: cc_version=2.1.0; cch={};"

    def count(*blocks):
        system = [{"type": "text", "text": block} for block in blocks]
        messages = [{"role": "user", "content": SUM}]
        return client.messages.count_tokens(model="x", messages=messages, system=system)

    plain = count("Be kind.")
    assert count(line.format("1a2b3"), "Be kind.") == plain
    assert count(line.format("ffffffffff") + "\nBe kind.") == plain
    assert count("Be kind. " + line.format("0")) != plain, "only a whole line"
    # So do the other protocols, and what counts for them.
    turn = {"role": "user", "content": SUM}
    sizes = set()
    for system in ("Be kind.", line.format("1a") + "\nBe kind."):
        messages = [{"role": "system", "content": system}, turn]
        answer = demo_client.chat.completions.create(model=MODEL, max_tokens=1, messages=messages)
        response = demo_client.responses.create(
            model=MODEL, max_output_tokens=1, instructions=system, input=SUM
        )
        counted = demo_server.http.post("/tokenize", json={"messages": messages}).json()
        sizes |= {answer.usage.prompt_tokens, response.usage.input_tokens, counted["count"]}
    assert len(sizes) == 1


def test_a_system_message_in_the_middle(client):
    messages = [
        {"role": "user", "content": SUM},
        {"role": "assistant", "content": "42"},
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Thank you."},
    ]
    assert ask(client, messages).stop_reason == "end_turn"


BAD = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}, "name"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"system": [{"type": "image"}]}, "system[0]"),
    ({"temperature": -1}, "temperature"),
    ({"thinking": {"type": "maybe"}}, "thinking.type"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
    ({"stop_sequences": ["x"] * 65}, "stop_sequences"),
    ({"stream": "yes"}, "stream"),
    ({"messages": [{"role": "user", "content": "x " * 4 * CONTEXT}]}, "tokens"),
]


@pytest.mark.parametrize(("fields", "part"), BAD)
def test_refused_in_the_protocol_s_form(demo_server, fields, part):
    body = {"model": "x", "max_tokens": 8, "messages": [{"role": "user", "content": "x"}]} | fields
    response = demo_server.http.post("/v1/messages", json=body)
    assert response.status_code == 400, response.text
    answer = response.json()
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "invalid_request_error" and part in answer["error"]["message"]


def test_errors_of_other_kinds(demo_server):
    http = demo_server.http
    for response, status, kind in (
        (http.post("/v1/messages", content=b"{"), 400, "invalid_request_error"),
        (http.get("/v1/messages"), 405, "invalid_request_error"),
        (http.post("/v1/messages/nothing", json={}), 404, "not_found_error"),
    ):
        assert response.status_code == status
        assert response.json()["type"] == "error" and response.json()["error"]["type"] == kind
    works(demo_server)
