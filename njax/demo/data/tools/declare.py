"""Tools: a verb and a noun make the name, the description and the way to ask for it."""

from __future__ import annotations

import dataclasses
from typing import Any

from njax.demo.data.dice import Dice, belongs
from njax.demo.data.tools.parameters import Parameter, draw_parameter

_VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "get": ("Gets", ("get", "show me", "give me", "tell me")),
    "find": ("Finds", ("find", "look for", "look up")),
    "search": ("Searches", ("search", "search for")),
    "create": ("Creates", ("create", "make")),
    "add": ("Adds", ("add", "put in")),
    "delete": ("Deletes", ("delete", "remove")),
    "update": ("Updates", ("update", "change")),
    "send": ("Sends", ("send",)),
    "book": ("Books", ("book", "reserve")),
    "cancel": ("Cancels", ("cancel", "call off")),
    "start": ("Starts", ("start", "begin")),
    "stop": ("Stops", ("stop", "end")),
    "set": ("Sets", ("set",)),
    "list": ("Lists", ("list", "show all of")),
    "check": ("Checks", ("check",)),
    "buy": ("Buys", ("buy", "order")),
    "play": ("Plays", ("play",)),
    "open": ("Opens", ("open",)),
    "close": ("Closes", ("close", "shut")),
    "count": ("Counts", ("count",)),
    "convert": ("Converts", ("convert",)),
    "print": ("Prints", ("print",)),
    "move": ("Moves", ("move",)),
    "rate": ("Rates", ("rate",)),
}
_NOUNS = (
    "weather forecast news email message letter timer alarm reminder meeting event appointment "
    "calendar task project report invoice payment order package delivery flight train hotel "
    "room table ticket seat taxi route map traffic light lamp heating door window camera music "
    "song playlist film show book recipe meal shopping_list cart product price stock customer "
    "account password profile photo video file folder document backup server database log job "
    "printer page user group team contact phone_call game score match player workout "
    "step_counter heart_rate sleep_plan garden plant pump valve sensor robot drone battery "
    "engine tank parcel translation currency exchange_rate interest loan budget salary holiday "
    "visa passport licence permit survey vote poll comment review article blog_post "
    "dictionary_entry quote poem"
).split()


@dataclasses.dataclass(frozen=True)
class Tool:
    """A declared function.

    Attributes:
      verb, noun: what it does; nobody else in the same list does the same.
      required: names of the parameters that must be given.
    """

    name: str
    verb: str
    noun: str
    description: str
    parameters: tuple[Parameter, ...]
    required: tuple[str, ...]

    @property
    def declaration(self) -> dict[str, Any]:
        """In the form of the chat protocols."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {p.name: p.schema for p in self.parameters},
        }
        if self.required:
            schema["required"] = list(self.required)
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": schema,
            },
        }


def draw_tools(dice: Dice, count: int) -> list[Tool]:
    """Tools that differ in what they do; some share the verb or the noun."""
    tools: list[Tool] = []
    while len(tools) < count:
        verb, noun = draw_action(dice)
        if tools and dice.chance(0.4):
            near = dice.pick(tools)
            verb, noun = (near.verb, noun) if dice.chance(0.5) else (verb, near.noun)
        if any((t.verb, t.noun) == (verb, noun) for t in tools):
            continue
        name = tool_name(dice, verb, noun)
        if belongs(name, dice.split):
            tools.append(_tool(dice, name, verb, noun))
    return tools


def draw_action(dice: Dice) -> tuple[str, str]:
    return dice.pick(list(_VERBS)), dice.pick(_NOUNS)


def tool_name(dice: Dice, verb: str, noun: str) -> str:
    compact = noun.replace("_", "")
    form = dice.pick(("{v}_{n}", "{v}_{n}", "{v}_{n}", "{n}_{v}", "{v}{c}"))
    return form.format(v=verb, n=noun, c=compact.capitalize())


def spoken(verb: str) -> tuple[str, ...]:
    """Ways to ask for a verb."""
    return _VERBS[verb][1]


def _tool(dice: Dice, name: str, verb: str, noun: str) -> Tool:
    parameters: dict[str, Parameter] = {}
    wanted = dice.pick((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))
    while len(parameters) < wanted:
        parameter = draw_parameter(dice)
        parameters.setdefault(parameter.name, parameter)
    required = tuple(p for p in parameters if dice.chance(0.6))
    about = noun.replace("_", " ")
    tail = dice.pick(("", "", " of the user", " in the system", " for someone"))
    description = f"{_VERBS[verb][0]} the {about}{tail}."
    return Tool(name, verb, noun, description, tuple(parameters.values()), required)
