"""Conversations with tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from njax.demo.data import names
from njax.demo.data.dice import Dice
from njax.demo.data.sample import Message, Sample, assistant, tool_result, user
from njax.demo.data.tools.declare import Tool, draw_action, draw_tools
from njax.demo.data.tools.requests import Request, action, ask, request
from njax.demo.data.words import COLOURS, THINGS

NONE_FITS = "None of the functions can do that."
DONE = "Done."


def sample(dice: Dice, size: int) -> Sample:
    """A conversation with declarations of about `size` characters."""
    tools = draw_tools(dice, 1)
    while sum(len(json.dumps(t.declaration)) for t in tools) < size:
        extra = draw_tools(dice, 1)[0]
        if any(extra.name == t.name or (extra.verb, extra.noun) == (t.verb, t.noun) for t in tools):
            continue
        tools.append(extra)
    dice.shuffle(tools)
    return dice.pick(_SCENES)(dice, tools)


def _sample(dice: Dice, kind: str, messages: list[Message], tools: list[Tool]) -> Sample:
    if dice.chance(0.2) and kind in ("one_call", "none_fits", "two_calls"):
        messages = [*_earlier(dice, tools), *messages]
    if not dice.thinking:
        messages = [{k: v for k, v in m.items() if k != "reasoning_content"} for m in messages]
    declared = tuple(tool.declaration for tool in tools)
    return Sample("tools", kind, tuple(messages), declared, dice.thinking)


def _earlier(dice: Dice, tools: list[Tool]) -> list[Message]:
    """A finished exchange before the one that counts."""
    made = request(dice, dice.pick(tools))
    result, answer = _result(dice)
    return [
        user(ask(dice, made.words)),
        assistant("", "", [made.call]),
        tool_result(result),
        assistant(answer),
    ]


def _one_call(dice: Dice, tools: list[Tool]) -> Sample:
    made = request(dice, dice.pick(tools), alone=True)
    return _sample(
        dice,
        "one_call",
        [user(ask(dice, made.words)), assistant("", made.thought, [made.call])],
        tools,
    )


def _two_calls(dice: Dice, tools: list[Tool]) -> Sample:
    """Two requests in one turn, for one tool twice or for two."""
    first = request(dice, dice.pick(tools))
    second = request(dice, dice.pick(tools))
    if first.call == second.call:
        return _one_call(dice, tools)
    words = dice.pick(("{}, and then {}", "{}. Also {}", "{}. After that, {}", "{} and also {}"))
    text = ask(dice, words.format(first.words, second.words))
    answer = assistant("", f"{first.thought}\n{second.thought}", [first.call, second.call])
    return _sample(dice, "two_calls", [user(text), answer], tools)


def _with_result(dice: Dice, tools: list[Tool]) -> Sample:
    """The call, its result, and what the assistant makes of it."""
    made = request(dice, dice.pick(tools), alone=True)
    result, answer = _result(dice)
    return _sample(
        dice,
        "result",
        [
            user(ask(dice, made.words)),
            assistant("", made.thought, [made.call]),
            tool_result(result),
            assistant(answer, f"The result is {result}"),
        ],
        tools,
    )


def _two_results(dice: Dice, tools: list[Tool]) -> Sample:
    first, second = (request(dice, dice.pick(tools)) for _ in range(2))
    results = [_result(dice) for _ in range(2)]
    text = ask(dice, f"{first.words}, and then {second.words}")
    return _sample(
        dice,
        "two_results",
        [
            user(text),
            assistant("", f"{first.thought}\n{second.thought}", [first.call, second.call]),
            *(tool_result(result) for result, _ in results),
            assistant("\n".join(answer for _, answer in results), "There are two results."),
        ],
        tools,
    )


def _result(dice: Dice) -> tuple[str, str]:
    """What a tool returns, and the answer that tells it."""
    if dice.chance(0.15):
        why = dice.pick(("not found", "no connection", "not allowed", "timeout", "out of stock"))
        return json.dumps({"error": why}), f"The call failed: {why}."
    if dice.chance(0.15):
        return dice.pick(('{"ok": true}', '{"status": "done"}', "ok")), DONE
    values: dict[str, Any] = {
        "temperature": dice.whole(-20, 40), "price": dice.whole(1, 9999) / 100,
        "count": dice.digits(3), "name": names.name(dice, "person"),
        "city": names.name(dice, "place"), "colour": dice.pick(COLOURS),
        "time": f"{dice.whole(0, 23):02d}:{dice.whole(0, 59):02d}", "id": dice.digits(4),
        "item": dice.pick(THINGS), "open": dice.chance(0.5), "total": dice.digits(4),
        "distance": dice.whole(1, 999) / 10, "sky": dice.pick(("clear", "cloudy", "grey")),
        "code": f"{dice.pick('ABCDEFGHKL')}{dice.whole(10, 9999)}",
    }  # fmt: skip
    keys = dice.sample(list(values), dice.whole(1, 3))
    chosen = {key: values[key] for key in keys}
    told = [f"{key}: {_told(value)}" for key, value in chosen.items()]
    return json.dumps(chosen), f"The result is {', '.join(told)}."


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _none_fits(dice: Dice, tools: list[Tool]) -> Sample:
    """Something that no tool does; often near to one of them."""
    while True:
        verb, noun = draw_action(dice)
        near = dice.pick(tools)
        if dice.chance(0.5):
            verb, noun = (near.verb, noun) if dice.chance(0.5) else (verb, near.noun)
        if all((t.verb, t.noun) != (verb, noun) for t in tools):
            break
    words = action(dice, verb, noun)
    if dice.chance(0.6):
        borrowed: Request = request(dice, near)
        extra = borrowed.words.partition(near.noun.replace("_", " "))[2]
        words += extra
    about = noun.replace("_", " ")
    thought = f"No function {verb}s the {about}."
    return _sample(
        dice, "none_fits", [user(ask(dice, words)), assistant(NONE_FITS, thought)], tools
    )


_SCENES: tuple[Callable[[Dice, list[Tool]], Sample], ...] = (
    _one_call, _one_call, _one_call, _two_calls, _with_result, _two_results, _none_fits, _none_fits,
)  # fmt: skip
