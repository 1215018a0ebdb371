"""Parameters of tools: name, JSON schema, values, and how people say them.

A value is said in a way that its schema decides: an enum by one of its members, a boolean by a
phrase, an array by "a, b and c", an object by its fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from njax.demo.data import names
from njax.demo.data.dates import draw_date
from njax.demo.data.dice import Dice
from njax.demo.data.transform import sentence
from njax.demo.data.words import ADJECTIVES, COLOURS, FRUITS, JOBS, THINGS, listed

_ENUMS: dict[str, tuple[str, ...]] = {
    "unit": ("celsius", "fahrenheit", "kelvin"),
    "size": ("small", "medium", "large"),
    "priority": ("low", "normal", "high", "urgent"),
    "format": ("text", "table", "json", "pdf"),
    "language": ("english", "german", "french", "spanish", "italian"),
    "direction": ("north", "east", "south", "west"),
    "mode": ("fast", "slow", "quiet", "automatic"),
    "status": ("open", "closed", "waiting", "done"),
    "level": ("beginner", "middle", "expert"),
    "category": ("food", "sport", "music", "travel", "books"),
    "frequency": ("daily", "weekly", "monthly", "yearly"),
    "order": ("ascending", "descending"),
    "currency": ("euro", "dollar", "pound", "yen", "franc"),
    "colour": tuple(COLOURS[:6]),
    "payment": ("card", "cash", "invoice"),
    "transport": ("train", "bus", "car", "bicycle", "ship"),
}
_INTEGERS = (
    "count days hours minutes limit year age quantity pages guests nights floor seats copies "
    "max_results week room_number level_number position weight_in_grams retries step"
).split()
_NUMBERS = (
    "amount price temperature distance weight height speed budget rating width factor percent "
    "discount latitude volume"
).split()
_BOOLEANS = (
    "notify repeat private express insurance breakfast reminder draft archived recursive "
    "verbose public gift_wrap subtitles shuffle"
).split()
_PEOPLE = "name person guest_name recipient owner author customer assignee sender player".split()
_PLACES = "city place location target_city start_city destination station region town".split()
_TITLES = "title subject topic label product item file_name song query keyword".split()
_TEXTS = "message text note comment description content body".split()
_STRING_LISTS = "tags items guests cities names keywords members colours recipients".split()
_NUMBER_LISTS = "numbers scores values temperatures amounts ids".split()
_OBJECTS = "address contact range options location_details filter period details".split()


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a tool.

    Attributes:
      schema: its JSON schema, `description` included.
      draw: (value, the words that say it).
    """

    name: str
    schema: dict[str, Any]
    draw: Callable[[Dice], tuple[Any, str]]

    @property
    def spoken(self) -> str:
        return self.name.replace("_", " ")


def draw_parameter(dice: Dice, *, depth: int = 0) -> Parameter:
    """Any parameter; objects do not hold objects."""
    makers: list[Callable[[Dice], Parameter]] = [
        _person, _place, _title, _text, _integer, _integer, _number, _boolean, _boolean, _enum,
        _enum, _date, _time, _code,
    ]  # fmt: skip
    if depth == 0:
        makers += [_string_list, _string_list, _number_list, _object, _object]
    return dice.pick(makers)(dice)


def _described(dice: Dice, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {**schema, "description": text} if dice.chance(0.6) else schema


def say(dice: Dice, name: str, words: str) -> str:
    """A value with its parameter's name."""
    return dice.pick(("{n} {v}", "{n} {v}", "{n}: {v}", "{n} = {v}", "the {n} {v}")).format(
        n=name.replace("_", " "), v=words
    )


def _string(
    dice: Dice, pool: list[str], what: str, value: Callable[[Dice], str], quoted: bool = False
) -> Parameter:
    name = dice.pick(pool)
    schema = _described(dice, {"type": "string"}, what.format(name.replace("_", " ")))

    def draw(dice: Dice) -> tuple[Any, str]:
        text = value(dice)
        said = dice.pick(('"{}"', "'{}'")).format(text) if quoted else text
        if name == "city" and dice.chance(0.5):
            return text, f"in {said}"
        return text, say(dice, name, said)

    return Parameter(name, schema, draw)


def _person(dice: Dice) -> Parameter:
    return _string(dice, _PEOPLE, "Name of the {}", lambda d: names.name(d, "person"))


def _place(dice: Dice) -> Parameter:
    return _string(dice, _PLACES, "The {}", lambda d: names.name(d, "place"))


def _title(dice: Dice) -> Parameter:
    return _string(dice, _TITLES, "The {}", _short_title, quoted=True)


def _short_title(dice: Dice) -> str:
    kind = dice.whole(0, 3)
    if kind == 0:
        return names.name(dice, "thing")
    if kind == 1:
        return f"{dice.pick(ADJECTIVES)} {dice.pick(THINGS)}"
    if kind == 2:
        return f"{names.name(dice, 'thing')} {dice.whole(1, 99)}"
    return f"{names.name(dice, 'person')} and the {dice.pick(THINGS)}"


def _text(dice: Dice) -> Parameter:
    return _string(dice, _TEXTS, "The {} to use", sentence, quoted=True)


def _date(dice: Dice) -> Parameter:
    pool = ["date", "day", "start_date", "due_date", "birthday"]
    return _string(dice, pool, "The {} as YYYY-MM-DD", lambda d: draw_date(d).isoformat())


def _time(dice: Dice) -> Parameter:
    pool = ["time", "start_time", "alarm", "departure"]
    return _string(
        dice, pool, "The {} as HH:MM", lambda d: f"{d.whole(0, 23):02d}:{d.whole(0, 59):02d}"
    )


def _code(dice: Dice) -> Parameter:
    pool = ["code", "order_id", "ticket", "reference", "serial"]
    return _string(
        dice, pool, "The {}", lambda d: f"{d.pick('ABCDEFGHKLMNPRSTVWXZ')}{d.whole(10, 99999)}"
    )


def _integer(dice: Dice) -> Parameter:
    name = dice.pick(_INTEGERS)
    schema = _described(dice, {"type": "integer"}, f"Number of {name}".replace("_", " "))

    def draw(dice: Dice) -> tuple[Any, str]:
        value = dice.digits(3)
        if name in ("days", "hours", "minutes", "nights", "guests", "pages") and dice.chance(0.5):
            value = max(value, 2)
            return value, f"for {value} {name}"
        return value, say(dice, name, str(value))

    return Parameter(name, schema, draw)


def _number(dice: Dice) -> Parameter:
    name = dice.pick(_NUMBERS)
    schema = _described(dice, {"type": "number"}, f"The {name}")

    def draw(dice: Dice) -> tuple[Any, str]:
        value = dice.whole(1, 999) / 10 if dice.chance(0.6) else dice.digits(3)
        value = int(value) if value == int(value) else value
        return value, say(dice, name, str(value))

    return Parameter(name, schema, draw)


def _boolean(dice: Dice) -> Parameter:
    name = dice.pick(_BOOLEANS)
    schema = _described(dice, {"type": "boolean"}, f"Whether {name}".replace("_", " "))
    spoken = name.replace("_", " ")

    def draw(dice: Dice) -> tuple[Any, str]:
        if dice.chance(0.5):
            return True, dice.pick(("with {}", "{} on", "{}: yes", "{} true")).format(spoken)
        return False, dice.pick(("without {}", "{} off", "{}: no", "{} false")).format(spoken)

    return Parameter(name, schema, draw)


def _enum(dice: Dice) -> Parameter:
    name = dice.pick(list(_ENUMS))
    members = list(_ENUMS[name])
    dice.shuffle(members)
    members = members[: max(2, dice.whole(2, len(members)))]
    schema = _described(dice, {"type": "string", "enum": members}, f"The {name}")

    def draw(dice: Dice) -> tuple[Any, str]:
        value = dice.pick(members)
        return value, say(dice, name, value)

    return Parameter(name, schema, draw)


def _string_list(dice: Dice) -> Parameter:
    name = dice.pick(_STRING_LISTS)
    schema = _described(
        dice, {"type": "array", "items": {"type": "string"}}, f"The {name}, in order"
    )

    def one(dice: Dice) -> str:
        if name in ("guests", "names", "members", "recipients"):
            return names.name(dice, "person")
        if name == "cities":
            return names.name(dice, "place")
        return dice.pick(COLOURS if name == "colours" else (*FRUITS, *THINGS, *JOBS))

    def draw(dice: Dice) -> tuple[Any, str]:
        values = dice.several(lambda: one(dice), dice.whole(1, 4))
        return values, say(dice, name, listed(values))

    return Parameter(name, schema, draw)


def _number_list(dice: Dice) -> Parameter:
    name = dice.pick(_NUMBER_LISTS)
    schema = _described(dice, {"type": "array", "items": {"type": "integer"}}, f"List of {name}")

    def draw(dice: Dice) -> tuple[Any, str]:
        values = [dice.digits(3) for _ in range(dice.whole(1, 4))]
        return values, say(dice, name, listed([str(v) for v in values]))

    return Parameter(name, schema, draw)


def _object(dice: Dice) -> Parameter:
    """Two or three plain fields; all of them required."""
    name = dice.pick(_OBJECTS)
    fields: dict[str, Parameter] = {}
    while len(fields) < dice.whole(2, 3):
        field = draw_parameter(dice, depth=1)
        fields[field.name] = field
    schema = {
        "type": "object",
        "properties": {key: field.schema for key, field in fields.items()},
        "required": list(fields),
    }

    def draw(dice: Dice) -> tuple[Any, str]:
        drawn = {key: field.draw(dice) for key, field in fields.items()}
        values = {key: value for key, (value, _) in drawn.items()}
        return values, f"{name.replace('_', ' ')} ({listed([said for _, said in drawn.values()])})"

    return Parameter(name, _described(dice, schema, f"The {name}".replace("_", " ")), draw)
