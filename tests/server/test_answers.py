"""Thinking, tool calls and several answers, by the bundled model through the official client."""

from __future__ import annotations

import json
import time

import pytest

from njax.demo.data.check import judge
from njax.demo.data.mixture import sample
from tests.server.conftest import MODEL, chat, eventually

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Gets the weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city"},
                "days": {"type": "integer", "description": "The days"},
            },
            "required": ["city"],
        },
    },
}
ASK_WEATHER = "Get the weather with city Oslo and days 3, please."


def ask(client, text="", messages=None, **fields):
    messages = messages or [{"role": "user", "content": text}]
    options = {"temperature": 0, "max_tokens": 200} | fields
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


class Streamed:
    """What a client puts together from chunks."""

    def __init__(self, chunks, index=0):
        self.content = self.reasoning = ""
        self.calls: dict[int, dict] = {}
        self.finish = None
        self.order: list[str] = []
        for chunk in chunks:
            for choice in chunk.choices:
                if choice.index == index:
                    self._add(choice)

    def _add(self, choice):
        assert self.finish is None, "a chunk after the finish reason"
        delta = choice.delta
        if thought := getattr(delta, "reasoning_content", None):
            self.reasoning += thought
            self._say("reasoning")
        if delta.content:
            self.content += delta.content
            self._say("content")
        for part in delta.tool_calls or []:
            self._say("calls")
            call = self.calls.setdefault(part.index, {"arguments": ""})
            if part.id:
                call |= {"id": part.id, "name": part.function.name}
                assert part.type == "function" and part.id.startswith("call_")
            call["arguments"] += part.function.arguments or ""
        self.finish = choice.finish_reason

    def _say(self, what):
        if self.order[-1:] != [what]:
            self.order.append(what)


def test_thinking_has_a_channel_of_its_own(demo_client):
    answer = ask(demo_client, "What is 17 + 25?")
    message = answer.choices[0].message
    assert message.content == "17 + 25 = 42"
    assert message.reasoning_content == "7 + 5 = 12, so 2 carry 1\n1 + 2 + 1 = 4, so 42"
    details = answer.usage.completion_tokens_details
    assert 10 < details.reasoning_tokens < answer.usage.completion_tokens
    streamed = Streamed(ask(demo_client, "What is 17 + 25?", stream=True))
    assert streamed.content == message.content and streamed.finish == "stop"
    assert streamed.reasoning == message.reasoning_content
    assert streamed.order == ["reasoning", "content"]
    off = ask(demo_client, "What is 17 + 25?", reasoning_effort="none")
    assert off.choices[0].message.content == "17 + 25 = 42"
    assert not hasattr(off.choices[0].message, "reasoning_content")
    assert off.usage.completion_tokens_details.reasoning_tokens == 0


def test_cut_thinking_is_no_content(demo_client):
    choice = ask(demo_client, "What is 17 + 25?", max_tokens=6).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("", "length")
    assert choice.message.reasoning_content


def test_a_tool_call_and_its_result(demo_client):
    messages = [{"role": "user", "content": ASK_WEATHER}]
    answer = ask(demo_client, messages=messages, tools=[WEATHER])
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Oslo", "days": 3}
    streamed = Streamed(ask(demo_client, messages=messages, tools=[WEATHER], stream=True))
    assert streamed.finish == "tool_calls" and streamed.content == ""
    assert streamed.order == ["reasoning", "calls"]
    assert streamed.calls[0]["arguments"] == call.function.arguments
    messages += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'},
    ]
    after = ask(demo_client, messages=messages, tools=[WEATHER])
    assert after.choices[0].finish_reason == "stop" and after.choices[0].message.content
    assert after.usage.prompt_tokens > answer.usage.prompt_tokens


def test_no_tools_no_calls(demo_client):
    """Without declarations, and with tool_choice "none", the model is told of none."""
    for fields in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        choice = ask(demo_client, ASK_WEATHER, **fields).choices[0]
        assert choice.finish_reason == "stop" and choice.message.tool_calls is None


def test_prompts_of_the_held_out_split(demo_client):
    """Names and tools that training never saw: every call is valid, nearly all are right."""
    turns = right = 0
    for index in range(12):
        one = sample(1, "test", index, "short", "tools")
        target = one.targets[0]
        wanted = [
            (call["function"]["name"], call["function"]["arguments"])
            for call in one.messages[target].get("tool_calls", [])
        ]
        answer = ask(
            demo_client,
            messages=_for_clients(one.messages[:target]),
            tools=list(one.tools) or None,
            extra_body={"enable_thinking": one.thinking},
        )
        message = answer.choices[0].message
        found = [
            (call.function.name, json.loads(call.function.arguments))
            for call in message.tool_calls or []
        ]
        assert "<" not in (message.content or "")
        turns += 1
        right += found == wanted
    assert right >= 0.75 * turns


def _for_clients(messages):
    """Calls with ids and arguments as text, as the protocol has them."""
    out, ids = [], []
    for message in messages:
        message = dict(message)
        if calls := message.get("tool_calls"):
            ids = [f"call_{len(out)}_{at}" for at in range(len(calls))]
            message["tool_calls"] = [
                {
                    "id": name,
                    "type": "function",
                    "function": call["function"]
                    | {"arguments": json.dumps(call["function"]["arguments"])},
                }
                for name, call in zip(ids, calls, strict=True)
            ]
        elif message["role"] == "tool":
            message["tool_call_id"] = ids.pop(0)
        out.append(message)
    return out


TWO_CALLS = sample(1, "test", 3, "short", "tools")


def test_two_calls_and_one(demo_client):
    target = TWO_CALLS.targets[0]
    messages, tools = list(TWO_CALLS.messages[:target]), list(TWO_CALLS.tools)
    both = ask(demo_client, messages=messages, tools=tools).choices[0]
    assert len(both.message.tool_calls) == 2
    text = "".join(
        f"{call.function.name}{call.function.arguments}" for call in both.message.tool_calls
    )
    assert judge(TWO_CALLS, target, _as_written(both.message)).right, text
    one = ask(demo_client, messages=messages, tools=tools, parallel_tool_calls=False).choices[0]
    assert len(one.message.tool_calls) == 1 and one.finish_reason == "tool_calls"
    streamed = Streamed(ask(demo_client, messages=messages, tools=tools, stream=True))
    assert [call["arguments"] for call in streamed.calls.values()] == [
        call.function.arguments for call in both.message.tool_calls
    ]


def _as_written(message) -> str:
    """The text that such a message was read from."""
    text = f"{message.reasoning_content}\n</think>\n\n"
    for call in message.tool_calls:
        text += f"<tool_call>\n<function={call.function.name}>\n"
        for name, value in json.loads(call.function.arguments).items():
            shown = value if isinstance(value, str) else json.dumps(value)
            text += f"<parameter={name}>\n{shown}\n</parameter>\n"
        text += "</function>\n</tool_call>\n"
    return text.rstrip("\n")


def test_every_length_of_a_call(demo_client):
    """Cut anywhere: the reason is the length, nothing of the markup is content, and what a stream
    has sent of a call is JSON."""
    fields = {"tools": [WEATHER], "reasoning_effort": "none"}
    whole = ask(demo_client, ASK_WEATHER, **fields)
    total = whole.usage.completion_tokens
    assert whole.choices[0].finish_reason == "tool_calls"
    for limit in range(1, total + 1):
        choice = ask(demo_client, ASK_WEATHER, max_tokens=limit, **fields).choices[0]
        streamed = Streamed(ask(demo_client, ASK_WEATHER, max_tokens=limit, stream=True, **fields))
        complete = limit >= total - 1  # the last token is the end of the turn
        reason = "tool_calls" if limit == total else "length"
        assert choice.finish_reason == streamed.finish == reason, limit
        assert (choice.message.content or "") == streamed.content
        assert "<" not in streamed.content
        assert bool(choice.message.tool_calls) <= bool(streamed.calls)
        if complete:
            assert choice.message.tool_calls
        for call in streamed.calls.values():
            assert isinstance(json.loads(call["arguments"] or "{}"), dict)


def test_several_answers(demo_server, demo_client):
    answer = ask(demo_client, "What is 17 + 25?", n=3)
    contents = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert contents == ["17 + 25 = 42"] * 3
    single = ask(demo_client, "What is 17 + 25?")
    assert answer.usage.prompt_tokens == single.usage.prompt_tokens
    assert answer.usage.completion_tokens == 3 * single.usage.completion_tokens
    chunks = list(ask(demo_client, "What is 17 + 25?", n=3, stream=True, temperature=1.5, seed=7))
    streams = [Streamed(chunks, index) for index in range(3)]
    assert all(stream.finish for stream in streams)
    again = ask(demo_client, "What is 17 + 25?", n=3, temperature=1.5, seed=7)
    for stream, choice in zip(streams, again.choices, strict=True):
        assert stream.content == choice.message.content
        assert stream.reasoning == getattr(choice.message, "reasoning_content", "")


def test_hanging_up_frees_all_of_several_answers(server):
    raw = server.connect(chat(n=4, max_tokens=1500, stream=True, ignore_eos=True))
    received = b""
    while received.count(b"data:") < 12:
        received += raw.recv(65536)
    raw.close()

    def free():
        response = server.post(chat(n=4, max_tokens=2))
        assert response.status_code == 200, response.text

    began = time.monotonic()
    eventually(free, timeout=5)
    # Four answers of 1500 tokens would take much longer.
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_every_token(demo_client, stream):
    fields = {"reasoning_effort": "none", "logprobs": True, "top_logprobs": 2}
    answer = ask(demo_client, "What is 17 + 25?", stream=stream, **fields)
    if stream:
        entries = [
            entry
            for chunk in answer
            for choice in chunk.choices
            for entry in (choice.logprobs.content if choice.logprobs else [])
        ]
    else:
        entries = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == "17 + 25 = 42"
    assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in entries)
