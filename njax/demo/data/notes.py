"""Notes: records of people, wares or rooms, written in one of several ways into a system prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from njax.demo.data import names
from njax.demo.data.dice import Dice
from njax.demo.data.words import ANIMALS, COLOURS, JOBS, THINGS


@dataclasses.dataclass(frozen=True)
class Attribute:
    """One kind of fact.

    Attributes:
      label: its name in tables.
      tell: the fact as a sentence, of {n} (name) and {v} (value); also the answer.
      ask: ways to ask for the value.
      inverse: ways to ask for the name.
      draw: makes a value.
    """

    label: str
    tell: str
    ask: tuple[str, ...]
    inverse: tuple[str, ...]
    draw: Callable[[Dice], str]


def _code(dice: Dice) -> str:
    return f"{dice.pick('ABCDEFGHKLMNPRSTVWXZ')}-{dice.whole(100, 9999)}"


ATTRIBUTES = {
    "city": Attribute(
        "city", "{n} lives in {v}.",
        ("Where does {n} live?", "Which city does {n} live in?", "What is the city of {n}?"),
        ("Who lives in {v}?", "Which person lives in {v}?"),
        lambda dice: names.name(dice, "place"),
    ),
    "job": Attribute(
        "job", "{n} works as a {v}.",
        ("What does {n} do for work?", "What is the job of {n}?", "What does {n} work as?"),
        ("Who works as a {v}?", "Who is the {v}?"),
        lambda dice: dice.pick([job for job in JOBS if job[0] not in "aeiou"]),
    ),
    "room": Attribute(
        "room", "{n} is in room {v}.",
        ("Which room is {n} in?", "Where do I find {n}?", "What is the room of {n}?"),
        ("Who is in room {v}?", "Whose room is {v}?"),
        lambda dice: str(dice.whole(2, 999)),
    ),
    "phone": Attribute(
        "phone", "The number of {n} is {v}.",
        ("What is the number of {n}?", "How can I call {n}?", "What is the phone of {n}?"),
        ("Whose number is {v}?", "Who has the number {v}?"),
        lambda dice: f"{dice.whole(100, 999)}-{dice.whole(1000, 9999)}",
    ),
    "pet": Attribute(
        "pet", "{n} has a pet {v}.",
        ("What pet does {n} have?", "Which animal does {n} keep?", "What is the pet of {n}?"),
        ("Who has a pet {v}?", "Whose pet is the {v}?"),
        lambda dice: dice.pick(ANIMALS),
    ),
    "friend": Attribute(
        "friend", "The friend of {n} is {v}.",
        ("Who is the friend of {n}?", "Which friend does {n} have?"),
        ("Whose friend is {v}?", "Who has {v} as a friend?"),
        lambda dice: names.name(dice, "person"),
    ),
    "manager": Attribute(
        "manager", "The manager of {n} is {v}.",
        ("Who is the manager of {n}?", "Who manages {n}?"),
        ("Whose manager is {v}?", "Whom does {v} manage?"),
        lambda dice: names.name(dice, "person"),
    ),
    "price": Attribute(
        "price", "{n} costs {v} euros.",
        ("What does {n} cost?", "How much is {n}?", "What is the price of {n}?"),
        ("What costs {v} euros?", "Which article costs {v} euros?"),
        lambda dice: str(dice.whole(1, 999)),
    ),
    "stock": Attribute(
        "stock", "There are {v} pieces of {n}.",
        ("How many pieces of {n} are there?", "What is the stock of {n}?"),
        ("Of what are there {v} pieces?", "Which article has a stock of {v}?"),
        lambda dice: str(dice.whole(2, 500)),
    ),
    "colour": Attribute(
        "colour", "The colour of {n} is {v}.",
        ("Which colour does {n} have?", "What is the colour of {n}?"),
        ("What is {v}?", "Which one has the colour {v}?"),
        lambda dice: dice.pick(COLOURS),
    ),
    "code": Attribute(
        "code", "The code of {n} is {v}.",
        ("What is the code of {n}?", "Which code belongs to {n}?"),
        ("What has the code {v}?", "To whom or what does the code {v} belong?"),
        _code,
    ),
    "maker": Attribute(
        "maker", "{n} is made in {v}.",
        ("Where is {n} made?", "Where does {n} come from?"),
        ("What is made in {v}?", "What comes from {v}?"),
        lambda dice: names.name(dice, "place"),
    ),
    "seats": Attribute(
        "seats", "{n} has {v} seats.",
        ("How many seats does {n} have?", "What is the number of seats of {n}?"),
        ("What has {v} seats?", "Which room has {v} seats?"),
        lambda dice: str(dice.whole(2, 400)),
    ),
    "host": Attribute(
        "host", "The host of {n} is {v}.",
        ("Who is the host of {n}?", "Who hosts {n}?"),
        ("What does {v} host?", "Whom or what is {v} the host of?"),
        lambda dice: names.name(dice, "person"),
    ),
    "opens": Attribute(
        "opens", "{n} opens at {v}.",
        ("When does {n} open?", "At what time does {n} open?"),
        ("What opens at {v}?", "Which one opens at {v}?"),
        lambda dice: f"{dice.whole(5, 22):02d}:{dice.pick(('00', '15', '30', '45'))}",
    ),
}  # fmt: skip

_THEMES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("person", "the people of the house", ("city", "job", "room", "phone", "pet", "friend",
                                           "manager", "code")),
    ("thing", "the shop", ("price", "stock", "colour", "code", "maker")),
    ("place", "the halls", ("seats", "host", "opens", "code", "colour", "phone")),
)  # fmt: skip

_INTROS = (
    "Answer from these notes.",
    "You are the assistant of {p}. Use the notes below.",
    "These are the notes about {t}. Answer only from them.",
    "You answer questions about {t}. If the notes do not say it, say so.",
    "Notes of {p} about {t}:",
)

_FILLER = (
    "Be polite and brief.",
    "Answer in full sentences.",
    "The notes are checked every week.",
    "Nobody but the owner may change the notes.",
    "Old entries are kept at the end of the year.",
    "Questions come from guests and from the staff.",
    "Please do not guess when something is missing.",
    "Each entry stands for itself.",
    "The order of the entries has no meaning.",
    "New entries are added by the office.",
)


def tell(key: str, who: str, value: str) -> str:
    """The fact as a sentence."""
    text = ATTRIBUTES[key].tell.format(n=who, v=value)
    return text[0].upper() + text[1:]


@dataclasses.dataclass(frozen=True)
class Notes:
    """Records and their text.

    Attributes:
      kind: of the names: person, thing or place.
      keys: the attributes that occur.
      records: name -> attribute -> value.
      text: the system prompt.
    """

    kind: str
    keys: tuple[str, ...]
    records: dict[str, dict[str, str]]
    text: str

    def stranger(self, dice: Dice) -> str:
        """A name of the same kind, in all likelihood not in the notes."""
        return draw_name(dice, self.kind)


def draw_name(dice: Dice, kind: str) -> str:
    if kind == "thing" and dice.chance(0.4):
        return f"the {names.name(dice, 'thing')} {dice.pick(THINGS)}"
    return names.name(dice, kind)


def draw_notes(dice: Dice, size: int) -> Notes:
    """Notes of about `size` characters."""
    kind, theme, all_keys = dice.pick(_THEMES)
    count = dice.whole(1, min(5, len(all_keys)))
    keys = tuple(sorted(dice.sample(all_keys, count), key=all_keys.index))
    style = dice.pick((_sentences, _lines, _table, _pairs))
    head = dice.pick(_INTROS).format(p=names.name(dice, "person"), t=theme)
    if size > 800 and dice.chance(0.6):
        head += " " + " ".join(dice.sample(_FILLER, dice.whole(1, 6)))
    records: dict[str, dict[str, str]] = {}
    length = len(head)
    gap = 0.0 if style is _table else dice.pick((0.0, 0.0, 0.15))
    while length < size or not records:
        who = draw_name(dice, kind)
        if who in records:
            continue
        facts = {key: ATTRIBUTES[key].draw(dice) for key in keys if not dice.chance(gap)}
        if not facts:
            continue
        for key in ("friend", "manager"):
            if key in facts and records and dice.chance(0.6):
                facts[key] = dice.pick(list(records))
        records[who] = facts
        length += len(style(who, facts)) + 1
    names_in_order = list(records)
    dice.shuffle(names_in_order)
    body = [style(who, records[who]) for who in names_in_order]
    if style is _table:
        labels = " | ".join(ATTRIBUTES[key].label for key in keys)
        body.insert(0, f"| name | {labels} |\n|---|{'---|' * len(keys)}")
    return Notes(kind, keys, records, head + "\n\n" + "\n".join(body))


def _sentences(who: str, facts: dict[str, str]) -> str:
    return " ".join(tell(key, who, value) for key, value in facts.items())


def _lines(who: str, facts: dict[str, str]) -> str:
    return f"- {who}: " + ", ".join(f"{ATTRIBUTES[k].label} {v}" for k, v in facts.items())


def _table(who: str, facts: dict[str, str]) -> str:
    return f"| {who} | " + " | ".join(facts.values()) + " |"


def _pairs(who: str, facts: dict[str, str]) -> str:
    return "\n".join([f"[{who}]", *(f"{ATTRIBUTES[k].label}: {v}" for k, v in facts.items())])
