"""What a user says to make the assistant call a tool."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from njax.demo.data.dice import Dice
from njax.demo.data.tools.declare import Tool, spoken

QUESTION = "what is the"


@dataclasses.dataclass(frozen=True)
class Request:
    """A request in words, without its full stop, and the call that it asks for.

    Attributes:
      arguments: in the order of the declaration.
    """

    tool: Tool
    words: str
    arguments: dict[str, Any]

    @property
    def call(self) -> tuple[str, dict[str, Any]]:
        return self.tool.name, self.arguments

    @property
    def thought(self) -> str:
        """What the model thinks before the call: the tool, then each argument as it will stand."""
        told = [
            f"{key} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for key, value in self.arguments.items()
        ]
        about = self.tool.noun.replace("_", " ")
        return "\n".join([f"{self.tool.name} {self.tool.verb}s the {about}.", *told])


def request(dice: Dice, tool: Tool, *, alone: bool = False) -> Request:
    """Gives every required parameter and some of the others, in any order.

    Args:
      alone: it will be the whole message, so it may be a question ("What is the weather").
    """
    given = [p for p in tool.parameters if p.name in tool.required or dice.chance(0.4)]
    drawn = {p.name: p.draw(dice) for p in given}
    said = [words for _, words in drawn.values()]
    dice.shuffle(said)
    words = action(dice, tool.verb, tool.noun)
    if alone and tool.verb == "get" and dice.chance(0.4):
        words = f"{QUESTION} {tool.noun.replace('_', ' ')}"
    glue = dice.pick((" with ", ", ", " with ", ": ", "; "))
    for index, part in enumerate(said):
        if index == 0:
            words += " " if part.startswith(("in ", "for ", "with ", "without ")) else glue
        else:
            words += " and " if index == len(said) - 1 and dice.chance(0.5) else ", "
        words += part
    return Request(tool, words, {key: value for key, (value, _) in drawn.items()})


def action(dice: Dice, verb: str, noun: str) -> str:
    about = noun.replace("_", " ")
    return f"{dice.pick(spoken(verb))} {dice.pick(('the ', 'the ', 'my ', 'a ', ''))}{about}"


_ASK = (
    "Please {}.", "{}.", "Can you {}?", "I want you to {}.", "{}, please.", "Could you {}?",
    "Now {}.", "I need you to {}.", "{}",
)  # fmt: skip


def ask(dice: Dice, words: str) -> str:
    """A whole sentence."""
    form = "{}?" if words.startswith(QUESTION) else dice.pick(_ASK)
    text = form.format(words)
    return text[0].upper() + text[1:]
