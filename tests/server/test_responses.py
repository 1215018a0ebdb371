"""/v1/responses by the official client: items, events, and what is stored."""

from __future__ import annotations

import json

import openai
import pytest
from openai.types.responses import Response

from tests.server.conftest import MODEL, eventually
from tests.server.test_answers import ASK_WEATHER, WEATHER

TOOL = {"type": "function", **WEATHER["function"], "strict": True}
SUM = "What is 17 + 25?"
THOUGHT = "7 + 5 = 12, so 2 carry 1\n1 + 2 + 1 = 4, so 42"
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def ask(client, given=SUM, **fields):
    options = {"temperature": 0, "max_output_tokens": 200} | fields
    return client.responses.create(model=MODEL, input=given, **options)


def replay(events) -> dict:
    """Checks the order of a stream; returns its last object, as the client built it."""
    events = list(events)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]
    items: list = []
    open_item, text = None, ""
    for event in events[2:-1]:
        if event.type == "response.output_item.added":
            assert open_item is None and event.output_index == len(items)
            assert event.item.status == "in_progress"
            open_item, text = event.item, ""
        elif event.type == "response.output_item.done":
            assert event.item.id == open_item.id and event.output_index == len(items)
            items.append(event.item)
            open_item = None
        else:
            assert event.item_id == open_item.id and event.output_index == len(items)
            if event.type.endswith(".delta"):
                text += event.delta
            elif event.type.endswith(("text.done", "arguments.done", "input.done")):
                whole = next(
                    getattr(event, name)
                    for name in ("text", "arguments", "input")
                    if hasattr(event, name)
                )
                assert whole == text
    assert open_item is None
    response = events[-1].response
    assert response.status == events[-1].type.removeprefix("response.")
    assert response.output == items
    assert response.id == events[0].response.id
    return response


def told(response) -> list:
    """Output without what is made up anew each time."""
    made_up = {"id", "call_id"}
    return [
        {name: value for name, value in item.model_dump().items() if name not in made_up}
        for item in response.output
    ]


def test_whole_and_streamed(demo_client):
    whole = ask(demo_client)
    reasoning, message = whole.output
    assert (reasoning.type, reasoning.content[0].text) == ("reasoning", THOUGHT)
    assert whole.output_text == "17 + 25 = 42" and message.role == "assistant"
    assert whole.status == "completed" and whole.completed_at >= whole.created_at
    usage = whole.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 10 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    streamed = replay(ask(demo_client, stream=True))
    assert told(streamed) == told(whole) and streamed.usage.output_tokens == usage.output_tokens


def test_every_field_of_the_public_object(demo_server):
    body = {"model": MODEL, "input": SUM, "max_output_tokens": 2, "user": "u", "safety_identifier":
            "s", "prompt_cache_key": "k", "metadata": {"a": "b"}, "temperature": 0.5}  # fmt: skip
    found = demo_server.http.post("/v1/responses", json=body).json()
    assert set(Response.model_fields) <= set(found)
    for name in body.keys() - {"input"}:
        assert found[name] == body[name]
    assert found["incomplete_details"] == {"reason": "max_output_tokens"}
    assert found["parallel_tool_calls"] is True and found["tool_choice"] == "auto"


@pytest.mark.parametrize("stored", [True, False])
def test_a_tool_call_and_its_result(demo_client, stored):
    first = ask(demo_client, ASK_WEATHER, tools=[TOOL], store=stored)
    call = first.output[-1]
    assert (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments) == {"city": "Oslo", "days": 3}
    assert call.call_id.startswith("call_") and first.status == "completed"
    streamed = replay(ask(demo_client, ASK_WEATHER, tools=[TOOL], stream=True))
    assert told(streamed) == told(first)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "blue"}'}
    if stored:
        more = ask(demo_client, [result], tools=[TOOL], previous_response_id=first.id)
    else:
        history = [{"role": "user", "content": ASK_WEATHER}, *first.output, result]
        more = ask(demo_client, history, tools=[TOOL])
    assert more.output_text and more.status == "completed"
    # Both ways are the same prompt, the model's own words of it included.
    assert more.usage.input_tokens > first.usage.input_tokens + 10
    by_hand = [
        {"role": "user", "content": ASK_WEATHER},
        {"role": "assistant", "reasoning_content": first.output[0].content[0].text,
         "tool_calls": [{"id": call.call_id, "type": "function", "function": {
             "name": call.name, "arguments": call.arguments}}]},
        {"role": "tool", "tool_call_id": call.call_id, "content": '{"sky": "blue"}'},
    ]  # fmt: skip
    chat = demo_client.chat.completions.create(
        model=MODEL, messages=by_hand, tools=[WEATHER], temperature=0, max_tokens=200
    )
    assert chat.usage.prompt_tokens == more.usage.input_tokens
    assert chat.choices[0].message.content == more.output_text


def test_sealed_reasoning_comes_back(demo_client):
    include = ["reasoning.encrypted_content"]
    first = ask(demo_client, ASK_WEATHER, tools=[TOOL], store=False, include=include)
    thought, call = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
    head = {"role": "user", "content": ASK_WEATHER}
    sealed = {"type": "reasoning", "id": thought.id, "summary": [],
              "encrypted_content": thought.encrypted_content}  # fmt: skip

    def tokens(*items):
        count = demo_client.responses.input_tokens.count
        return count(model=MODEL, input=[head, *items, call, result], tools=[TOOL]).input_tokens

    plain = thought.model_dump(exclude={"encrypted_content"}, exclude_none=True)
    assert tokens(sealed) == tokens(plain) > tokens()
    assert tokens(sealed | {"encrypted_content": "another server's"}) == tokens()


def test_a_conversation_that_is_stored(demo_client):
    first = ask(demo_client, "Hello", instructions="Answer briefly.", max_output_tokens=5)
    again = demo_client.responses.retrieve(first.id)
    assert again == first
    second = ask(demo_client, SUM, previous_response_id=first.id, max_output_tokens=5)
    # Instructions do not carry over; items do.
    alone = ask(demo_client, SUM, max_output_tokens=5)
    assert second.usage.input_tokens > alone.usage.input_tokens
    items = [{"role": "user", "content": "Hello"}, *first.output, {"role": "user", "content": SUM}]
    count = demo_client.responses.input_tokens.count(model=MODEL, input=items).input_tokens
    assert second.usage.input_tokens == count
    demo_client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError) as caught:
        demo_client.responses.retrieve(first.id)
    assert caught.value.code == "response_not_found"
    # A child does not need its parent any more.
    ask(demo_client, "More", previous_response_id=second.id, max_output_tokens=2)
    not_kept = ask(demo_client, store=False, max_output_tokens=2)
    with pytest.raises(openai.NotFoundError):
        ask(demo_client, previous_response_id=not_kept.id)


def test_input_items_in_pages(demo_client):
    given = [{"role": "user", "content": f"Message {number}"} for number in range(5)]
    made = ask(demo_client, given, max_output_tokens=2)
    items = demo_client.responses.input_items
    newest = items.list(made.id, limit=2)
    assert [item.content[0].text for item in newest.data] == ["Message 4", "Message 3"]
    assert newest.has_more
    texts = [item.content[0].text for item in items.list(made.id, limit=2, order="asc")]
    assert texts == [f"Message {number}" for number in range(5)]
    reference = {"type": "item_reference", "id": newest.data[0].id}
    assert ask(demo_client, [reference], max_output_tokens=2).usage.input_tokens < (
        made.usage.input_tokens
    )
    for query in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "nobody"}):
        with pytest.raises(openai.BadRequestError) as caught:
            items.list(made.id, **query)
        assert caught.value.param in query


def test_a_custom_tool_takes_free_text(demo_client):
    """The model knows it as a function of one text; what it writes is the input."""
    tool = {"type": "custom", "name": "get_city", "description": "Gets the city."}
    request = "Get the city with input Oslo, please."
    made = ask(demo_client, request, tools=[tool])
    (call,) = [item for item in made.output if item.type != "reasoning"]
    assert (call.type, call.name, call.input) == ("custom_tool_call", "get_city", "Oslo")
    streamed = replay(ask(demo_client, request, tools=[tool], stream=True))
    assert told(streamed) == told(made)
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "A city."}
    more = ask(demo_client, [result], tools=[tool], previous_response_id=made.id)
    assert more.status == "completed"


def test_every_length_of_a_call(demo_client):
    fields = {"tools": [TOOL], "reasoning": {"effort": "none"}}
    total = ask(demo_client, ASK_WEATHER, **fields).usage.output_tokens
    for limit in range(1, total + 4, 3):
        cut = limit < total
        whole = ask(demo_client, ASK_WEATHER, max_output_tokens=limit, **fields)
        streamed = replay(
            ask(demo_client, ASK_WEATHER, max_output_tokens=limit, stream=True, **fields)
        )
        assert told(whole) == told(streamed)
        assert whole.status == ("incomplete" if cut else "completed")
        assert "<" not in whole.output_text
        for item in whole.output:
            if item.type == "function_call":
                assert isinstance(json.loads(item.arguments or "{}"), dict)
        # Whatever was cut, the conversation goes on.
        if limit % 2:
            ask(demo_client, SUM, previous_response_id=whole.id, max_output_tokens=1, **fields)


def test_logprobs_of_the_text(demo_client):
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = ask(demo_client, **fields)
    entries = whole.output[-1].content[0].logprobs
    assert "".join(entry.token for entry in entries).strip() == whole.output_text
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    deltas = [
        event for event in ask(demo_client, stream=True, **fields)
        if event.type == "response.output_text.delta"
    ]  # fmt: skip
    assert [entry.token for event in deltas for entry in event.logprobs] == [
        entry.token for entry in entries
    ]


def test_in_the_background(client):
    long = {"extra_body": {"ignore_eos": True}, "background": True}
    made = ask(client, max_output_tokens=40, **long)
    assert made.status in ("queued", "in_progress") and made.background

    def done():
        assert client.responses.retrieve(made.id).status == "incomplete"

    eventually(done)
    assert client.responses.retrieve(made.id).usage.output_tokens == 40
    endless = ask(client, max_output_tokens=1900, **long)
    with pytest.raises(openai.BadRequestError, match="still being made"):
        ask(client, previous_response_id=endless.id)
    cancelled = client.responses.cancel(endless.id)
    assert cancelled.status == "cancelled"
    assert client.responses.cancel(endless.id) == cancelled
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.cancel(ask(client, max_output_tokens=1).id)
    assert caught.value.code == "background_not_supported"


USER = {"role": "user", "content": "hi"}
BAD = [
    ({"input": None}, "invalid_request", "input"),
    ({"model": None}, "invalid_request", "model"),
    ({"model": "other"}, "model_not_found", "model"),
    ({"input": []}, "invalid_request", "input"),
    ({"input": 5}, "invalid_request", "input"),
    ({"inptu": "x"}, "unknown_parameter", "inptu"),
    ({"input": [5]}, "invalid_request", "input[0]"),
    ({"input": [{"role": "function", "content": "x"}]}, "unsupported_role", "input[0].role"),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "item_type_not_supported",
     "input[0].type"),
    ({"input": [USER | {"id": "a"}, USER | {"id": "a"}]}, "invalid_request", "input[1].id"),
    ({"input": [{"type": "item_reference", "id": "a"}]}, "invalid_request", "input[0].id"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
     "vision_disabled", "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
     "file_inputs_not_supported", "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
     "audio_inputs_not_supported", "input[0].content[0].type"),
    ({"input": [USER, {"type": "function_call", "call_id": "c", "name": "f",
                       "arguments": '{"a": 1'}]}, "invalid_request", "input"),
    ({"input": [USER, {"type": "function_call_output", "output": "x"}]}, "invalid_request",
     "input[1].call_id"),
    ({"previous_response_id": "resp_x"}, "response_not_found", "previous_response_id"),
    ({"max_output_tokens": 0}, "invalid_request", "max_output_tokens"),
    ({"temperature": 101}, "invalid_request", "temperature"),
    ({"top_logprobs": 21}, "invalid_request", "top_logprobs"),
    ({"metadata": {"k": "v" * 513}}, "invalid_request", "metadata"),
    ({"truncation": "auto"}, "truncation_not_supported", "truncation"),
    ({"conversation": "c"}, "parameter_not_supported", "conversation"),
    ({"prompt": {"id": "p"}}, "parameter_not_supported", "prompt"),
    ({"include": ["file_search_call.results"]}, "include_not_supported", "include"),
    ({"background": True, "store": False}, "invalid_request", "background"),
    ({"background": True, "stream": True}, "background_stream_not_supported", "stream"),
    ({"reasoning": {"effort": "high"}}, "reasoning_effort_not_supported", "reasoning.effort"),
    ({"reasoning": {"effort": "huge"}}, "invalid_request", "reasoning.effort"),
    ({"text": {"format": {"type": "json_object"}}}, "structured_outputs_not_supported",
     "text.format"),
    ({"tools": [{"type": "web_search"}]}, "tool_type_not_supported", "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "invalid_request", "tools[0].name"),
    ({"tools": [TOOL, TOOL]}, "invalid_request", "tools[1].name"),
    ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice_not_supported", "tool_choice"),
    ({"tools": [{"type": "custom", "name": "c", "format": {
        "type": "grammar", "syntax": "lark", "definition": "start: /a/"}}]},
     "tool_format_not_supported", "tools[0].format"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "param"), BAD)
def test_refused(server, fields, code, param):
    body = {"model": MODEL, "input": "hi"} | fields
    response = server.http.post("/v1/responses", json=body)
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (code, param), error
    assert response.status_code == (404 if code.endswith("not_found") else 400)


def test_what_is_not_there(server):
    for method, path in (
        ("GET", "/v1/responses/nobody"),
        ("DELETE", "/v1/responses/nobody"),
        ("POST", "/v1/responses/nobody/cancel"),
        ("GET", "/v1/responses/nobody/input_items"),
    ):
        response = server.http.request(method, path)
        assert response.status_code == 404, (method, path)
        assert response.json()["error"]["code"] == "response_not_found"
    response = server.http.post("/v1/responses/compact", json={})
    assert response.json()["error"]["code"] == "compaction_not_supported"
