"""Arithmetic and comparisons, worked out in the thinking trace digit by digit.

Without thinking only what can be known by heart is asked: sums below 100, the times table,
comparisons.
"""

from __future__ import annotations

from njax.demo.data import names
from njax.demo.data.dice import Dice
from njax.demo.data.sample import Sample, question
from njax.demo.data.words import ANIMALS, FRUITS, THINGS

_ASK = (
    "What is {}?", "{} = ?", "Compute {}.", "How much is {}?", "Calculate {}", "{}",
    "Please work out {}.", "What does {} make?", "Solve {}.", "Tell me what {} is.",
)  # fmt: skip


def sample(dice: Dice) -> Sample:
    kind = dice.pick(
        ("add", "add", "subtract", "multiply", "divide", "chain", "compare", "sort", "story")
    )
    return {
        "add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide,
        "chain": _chain, "compare": _compare, "sort": _sort, "story": _story,
    }[kind](dice)  # fmt: skip


def _ask(dice: Dice, expression: str) -> str:
    return dice.pick(_ASK).format(expression)


def _sum(dice: Dice, kind: str, expression: str, answer: str, thought: str) -> Sample:
    return question(
        "arithmetic", kind, _ask(dice, expression), f"{expression} = {answer}", thought,
        dice.thinking,
    )  # fmt: skip


def _operands(dice: Dice, operator: str, longest: int) -> tuple[int, int]:
    text = dice.held(lambda: f"{dice.digits(longest)} {operator} {dice.digits(longest)}")
    left, _, right = text.split()
    return int(left), int(right)


def _add(dice: Dice) -> Sample:
    a, b = _operands(dice, "+", 4 if dice.thinking else 2)
    return _sum(dice, "add", f"{a} + {b}", str(a + b), add_trace(a, b))


def add_trace(a: int, b: int) -> str:
    """Column by column from the right, each with its carry."""
    lines, carry, result = [], 0, ""
    for place in range(max(len(str(a)), len(str(b)))):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        terms = f"{x} + {y}" + (" + 1" if carry else "")
        carry = total // 10
        result = f"{total % 10}{result}"
        lines.append(f"{terms} = {total}, so {result}" + (" carry 1" if carry else ""))
    if carry:
        lines.append(f"1{result}")
    return "\n".join(lines)


def _subtract(dice: Dice) -> Sample:
    a, b = _operands(dice, "-", 4 if dice.thinking else 2)
    if b > a and dice.chance(0.7):
        a, b = b, a
    return _sum(dice, "subtract", f"{a} - {b}", str(a - b), subtract_trace(a, b))


def subtract_trace(a: int, b: int) -> str:
    """Column by column from the right, each with its borrow; the larger number first."""
    lines = []
    if a < b:
        lines.append(f"{b} is larger, so the result is negative: {b} - {a}")
        a, b = b, a
    borrow, result = 0, ""
    for place in range(len(str(a))):
        x, y = a // 10**place % 10, b // 10**place % 10
        terms = f"{y}" + (" - 1" if borrow else "")
        short = x - y - borrow < 0
        digit = (x - y - borrow) % 10
        result = f"{digit}{result}"
        top = x + 10 if short else x
        lines.append(f"{top} - {terms} = {digit}, so {result}" + (" borrow 1" if short else ""))
        borrow = int(short)
    return "\n".join(lines)


def _multiply(dice: Dice) -> Sample:
    if dice.thinking:
        text = dice.held(lambda: f"{dice.digits(2)} * {dice.digits(dice.whole(1, 3))}")
    else:
        # The times table is small and to be known: it is not split.
        text = f"{dice.whole(0, 10)} * {dice.whole(0, 10)}"
    a, b = (int(part) for part in text.split(" * "))
    return _sum(dice, "multiply", text, str(a * b), multiply_trace(a, b))


def _parts(number: int) -> list[int]:
    """345 -> 300, 40, 5; without zeros."""
    text = str(number)
    parts = [int(d) * 10 ** (len(text) - 1 - i) for i, d in enumerate(text) if d != "0"]
    return parts or [0]


def multiply_trace(a: int, b: int) -> str:
    """Part by part of both numbers, then the running sum."""
    lines, products = [], []
    for y in _parts(b):
        for x in _parts(a):
            lines.append(f"{x} * {y} = {x * y}")
            products.append(x * y)
    total = products[0]
    for product in products[1:]:
        lines.append(f"{total} + {product} = {total + product}")
        total += product
    return "\n".join(lines)


def _divide(dice: Dice) -> Sample:
    if dice.thinking:
        text = dice.held(lambda: f"{dice.digits(3)} / {dice.whole(2, 12)}")
        a, b = (int(part) for part in text.split(" / "))
        if dice.chance(0.5):
            a -= a % b
    else:
        b = dice.whole(1, 10)
        a = b * dice.whole(0, 10)
    quotient, rest = divmod(a, b)
    answer = str(quotient) + (f" remainder {rest}" if rest else "")
    return _sum(dice, "divide", f"{a} / {b}", answer, divide_trace(a, b))


def divide_trace(a: int, b: int) -> str:
    """Long division: digit by digit from the left."""
    lines, rest, result = [], 0, ""
    for digit in str(a):
        part = rest * 10 + int(digit)
        times = part // b
        rest = part - times * b
        result += str(times)
        lines.append(f"{part} = {b} * {times} + {rest}")
    lines.append(f"so {int(result)}" + (f" remainder {rest}" if rest else ""))
    return "\n".join(lines)


def _chain(dice: Dice) -> Sample:
    """Two operations with brackets."""
    longest = 2 if dice.thinking else 1
    outer = dice.pick("+-*") if dice.thinking else dice.pick("+-")
    inner = dice.pick("+-")
    text = dice.held(
        lambda: (
            f"({dice.digits(longest)} {inner} {dice.digits(longest)}) {outer} {dice.whole(2, 9)}"
        )
    )
    x, y, z = (int("".join(c for c in part if c.isdigit())) for part in _numbers(text))
    first = x + y if inner == "+" else x - y
    result = {"+": first + z, "-": first - z, "*": first * z}[outer]
    thought = f"{x} {inner} {y} = {first}\n{first} {outer} {z} = {result}"
    return _sum(dice, "chain", text, str(result), thought)


def _numbers(text: str) -> list[str]:
    return [part for part in text.replace("(", "").replace(")", "").split() if part.isdigit()]


def _compare(dice: Dice) -> Sample:
    larger = dice.chance(0.5)
    word = dice.pick(("larger", "bigger", "greater") if larger else ("smaller", "less"))
    if dice.chance(0.4):
        whole = dice.whole(0, 99)
        pair = dice.several(lambda: f"{whole}.{dice.digits(2)}", 2)
    else:
        pair = [str(n) for n in dice.several(lambda: dice.digits(4), 2)]
    if float(pair[0]) == float(pair[1]):
        pair[1] = str(int(float(pair[0])) + 1)
    best = (max if larger else min)(pair, key=float)
    ask = dice.pick(
        (
            "Which is {w}, {a} or {b}?",
            "Which number is {w}: {a} or {b}?",
            "What is {w}, {a} or {b}?",
        )
    )
    if "." in "".join(pair):
        width = max(len(p.partition(".")[2]) for p in pair)
        even = [f"{p.partition('.')[0]}.{p.partition('.')[2].ljust(width, '0')}" for p in pair]
        thought = f"{even[0]} against {even[1]}: {best}"
    elif len(pair[0]) != len(pair[1]):
        thought = f"{pair[0]} has {len(pair[0])} digits, {pair[1]} has {len(pair[1])}: {best}"
    else:
        thought = f"{' '.join(pair[0])} against {' '.join(pair[1])}: {best}"
    text = ask.format(w=word, a=pair[0], b=pair[1])
    return question("arithmetic", "compare", text, f"{best} is {word}.", thought, dice.thinking)


def _sort(dice: Dice) -> Sample:
    numbers = dice.several(lambda: dice.digits(3), dice.whole(3, 5 if dice.thinking else 3))
    down = dice.chance(0.5)
    order = sorted(numbers, reverse=down)
    listed = ", ".join(map(str, numbers))
    goal = dice.pick(
        ("from large to small", "in descending order")
        if down
        else ("from small to large", "in ascending order")
    )
    lines, left = [], list(numbers)
    for number in order[:-1]:
        left.remove(number)
        lines.append(f"{number}, left {', '.join(map(str, left))}")
    ask = dice.pick(("Sort {} {}.", "Put {} {}.", "Order {} {}.")).format(listed, goal)
    answer = ", ".join(map(str, order))
    return question("arithmetic", "sort", ask, answer, "\n".join(lines), dice.thinking)


def _story(dice: Dice) -> Sample:
    who, thing = names.name(dice, "person"), dice.pick((*FRUITS, *THINGS, *ANIMALS))
    a, b = dice.whole(2, 99), dice.whole(2, 99)
    a, b = max(a, b), min(a, b)
    things = plural(thing)
    gain = dice.chance(0.5)
    verb = dice.pick(("buys", "finds", "gets") if gain else ("sells", "loses", "gives away"))
    result = a + b if gain else a - b
    ask = f"{who} has {a} {things} and {verb} {b}{' more' if gain else ''}. " + dice.pick(
        ("How many {t} does {w} have now?", "How many {t} are there now?")
    ).format(t=things, w=who)
    thought = f"{a} {'+' if gain else '-'} {b} = {result}"
    thought += "\n" + (add_trace(a, b) if gain else subtract_trace(a, b))
    answer = f"{who} has {result} {plural(thing) if result != 1 else thing}."
    return question("arithmetic", "story", ask, answer, thought, dice.thinking)


_IRREGULAR = {
    "mouse": "mice", "goose": "geese", "ox": "oxen", "wolf": "wolves", "knife": "knives",
    "shelf": "shelves", "scarf": "scarves", "sheep": "sheep", "fish": "fish", "deer": "deer",
}  # fmt: skip


def plural(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"
