"""Units: how many of one are another."""

from __future__ import annotations

from njax.demo.data.arithmetic import divide_trace, multiply_trace
from njax.demo.data.dice import Dice
from njax.demo.data.sample import Sample, question

_FACTORS = (
    ("kilometre", "metre", 1000), ("metre", "centimetre", 100), ("centimetre", "millimetre", 10),
    ("metre", "millimetre", 1000), ("kilogram", "gram", 1000), ("tonne", "kilogram", 1000),
    ("litre", "millilitre", 1000), ("hour", "minute", 60), ("minute", "second", 60),
    ("day", "hour", 24), ("week", "day", 7), ("year", "month", 12), ("euro", "cent", 100),
    ("century", "year", 100), ("decade", "year", 10), ("gram", "milligram", 1000),
)  # fmt: skip


def _count(number: int, unit: str) -> str:
    plural = {"century": "centuries"}.get(unit, f"{unit}s")
    return f"{number} {unit if number == 1 else plural}"


def _many(unit: str) -> str:
    return _count(2, unit).partition(" ")[2]


def sample(dice: Dice) -> Sample:
    large, small, factor = dice.pick(_FACTORS)
    round_factor = factor in (10, 100, 1000)
    most = 99 if dice.thinking or round_factor else 3
    number = dice.whole(1, most)
    fact = f"1 {large} is {_count(factor, small)}"
    if dice.chance(0.6):
        result = number * factor
        work = f"{number} * {factor} = {result}"
        if not round_factor:
            work = multiply_trace(number, factor)
        ask = dice.pick(
            (
                "How many {s} are {n}?",
                "How many {s} are there in {n}?",
                "Convert {n} to {s}.",
                "What is {n} in {s}?",
            )
        ).format(s=_many(small), n=_count(number, large))
        answer = _count(result, small)
    else:
        result = number
        work = f"{number * factor} / {factor} = {number}"
        if not round_factor:
            work = divide_trace(number * factor, factor)
        ask = dice.pick(
            (
                "How many {s} are {n}?",
                "How many {s} make {n}?",
                "Convert {n} to {s}.",
                "What is {n} in {s}?",
            )
        ).format(s=_many(large), n=_count(number * factor, small))
        answer = _count(result, large)
    return question("calendar", "units", ask, answer, f"{fact}\n{work}", dice.thinking)
