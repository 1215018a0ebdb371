"""What stands around a question: no system prompt, a general one, notes or tools it does not need.

A question that has nothing to do with its head must be answered all the same.
"""

from __future__ import annotations

import dataclasses

from njax.demo.data import names
from njax.demo.data.dice import Dice
from njax.demo.data.notes import draw_notes
from njax.demo.data.sample import Sample, system
from njax.demo.data.tools.declare import draw_tools

_GENERAL = (
    "You are a helpful assistant.",
    "You are njax-demo, a helpful assistant.",
    "You are a helpful and honest assistant. Say so when you do not know something.",
    "Answer briefly.",
    "Be polite.",
    "You are the assistant of {}.",
    "You help the people of {}.",
    "Answer the question of the user.",
    "You are a careful assistant. Think before you answer.",
)


def dress(dice: Dice, sample: Sample, size: int) -> Sample:
    """Puts a head before a conversation that has none.

    Args:
      size: most characters of notes or declarations.
    """
    if sample.messages[0]["role"] == "system" or sample.tools:
        return sample
    roll = dice.random()
    if roll < 0.45:
        return sample
    if roll < 0.75:
        text = dice.pick(_GENERAL).format(names.name(dice, "person"))
        return dataclasses.replace(sample, messages=(system(text), *sample.messages))
    if roll < 0.87 and sample.category != "unknown":
        notes = draw_notes(dice, dice.whole(50, size))
        return dataclasses.replace(sample, messages=(system(notes.text), *sample.messages))
    tools = draw_tools(dice, dice.whole(1, 2))
    return dataclasses.replace(sample, tools=tuple(tool.declaration for tool in tools))
