"""Look-ups in the notes of the system prompt, from a few lines to a head of 4,000 tokens."""

from __future__ import annotations

import dataclasses

from njax.demo.data.dice import Dice
from njax.demo.data.notes import ATTRIBUTES, Attribute, Notes, draw_notes, tell
from njax.demo.data.sample import Message, Sample, assistant, system, user

NOT_THERE = "The notes do not say."


@dataclasses.dataclass(frozen=True)
class Asked:
    """A question about notes."""

    kind: str
    ask: str
    answer: str
    thought: str


def sample(dice: Dice, size: int) -> Sample:
    """A conversation about notes of about `size` characters.

    Long notes get more questions, so that reading them teaches more than one answer.
    """
    return conversation(dice, size, unknown=False)


def conversation(dice: Dice, size: int, *, unknown: bool) -> Sample:
    """Questions about notes; the last is one that they answer, or (`unknown`) do not."""
    notes = draw_notes(dice, size)
    turns = dice.whole(1, 3) if size < 1500 else dice.whole(2, 7)
    messages: list[Message] = [system(notes.text)]
    for _ in range(turns - 1):
        asked = missing(dice, notes) if dice.chance(0.15) else known(dice, notes)
        messages += [user(asked.ask), assistant(asked.answer)]
    asked = missing(dice, notes) if unknown else known(dice, notes)
    messages += [user(asked.ask), assistant(asked.answer, asked.thought if dice.thinking else "")]
    category = "unknown" if unknown else "lookup"
    return Sample(category, asked.kind, tuple(messages), (), dice.thinking)


def known(dice: Dice, notes: Notes) -> Asked:
    """A question that the notes answer."""
    roll = dice.random()
    if roll < 0.2 and (found := _inverse(dice, notes)):
        return found
    if roll < 0.35 and (found := _two_steps(dice, notes)):
        return found
    who, key = _fact(dice, notes)
    attribute = ATTRIBUTES[key]
    value = notes.records[who][key]
    answer = tell(key, who, value)
    return Asked("direct", dice.pick(attribute.ask).format(n=who), answer, answer)


def missing(dice: Dice, notes: Notes) -> Asked:
    """A question that sounds alike, about somebody or something that the notes do not have."""
    key = dice.pick(notes.keys)
    if dice.chance(0.35):
        lacking = [w for w, facts in notes.records.items() if len(facts) < len(notes.keys)]
        if lacking:
            who = dice.pick(lacking)
            key = dice.pick([k for k in notes.keys if k not in notes.records[who]])
            thought = f"No {ATTRIBUTES[key].label} of {who} in the notes."
            return Asked(
                "no_fact", dice.pick(ATTRIBUTES[key].ask).format(n=who), NOT_THERE, thought
            )
    while (who := notes.stranger(dice)) in notes.records:
        pass
    ask = dice.pick(ATTRIBUTES[key].ask).format(n=who)
    return Asked("nobody", ask, NOT_THERE, f"{who} is not in the notes.")


def _fact(dice: Dice, notes: Notes) -> tuple[str, str]:
    who = dice.pick(list(notes.records))
    return who, dice.pick(list(notes.records[who]))


def _inverse(dice: Dice, notes: Notes) -> Asked | None:
    """Who has this value? Only where one record has it."""
    who, key = _fact(dice, notes)
    attribute: Attribute = ATTRIBUTES[key]
    value = notes.records[who][key]
    if sum(facts.get(key) == value for facts in notes.records.values()) != 1:
        return None
    answer = tell(key, who, value)
    return Asked("inverse", dice.pick(attribute.inverse).format(v=value), answer, answer)


def _two_steps(dice: Dice, notes: Notes) -> Asked | None:
    """An attribute of somebody's friend or manager, who is in the notes too."""
    links = [
        (who, key)
        for who, facts in notes.records.items()
        for key in ("manager", "friend")
        if facts.get(key) in notes.records
    ]
    if not links:
        return None
    who, link = dice.pick(links)
    other = notes.records[who][link]
    keys = [key for key in notes.records[other] if key not in ("manager", "friend")]
    if not keys:
        return None
    key = dice.pick(keys)
    attribute = ATTRIBUTES[key]
    answer = tell(key, other, notes.records[other][key])
    ask = dice.pick(attribute.ask).format(n=f"the {link} of {who}")
    return Asked("two_steps", ask, answer, f"{tell(link, who, other)}\n{answer}")
