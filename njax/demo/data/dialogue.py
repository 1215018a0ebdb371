"""Questions that only the turns before can answer."""

from __future__ import annotations

from collections.abc import Callable

from njax.demo.data import names, transform
from njax.demo.data.dice import Dice
from njax.demo.data.sample import Message, Sample, assistant, user
from njax.demo.data.words import ANIMALS, COLOURS, FRUITS, JOBS, ORDINALS, THINGS, article, listed

Turn = tuple[str, str]
"""What the user says and what the assistant answers."""


def sample(dice: Dice) -> Sample:
    return dice.pick(_KINDS)(dice)


def _conversation(dice: Dice, kind: str, turns: list[Turn], last: Turn, thought: str) -> Sample:
    messages: list[Message] = []
    for ask, answer in turns:
        messages += [user(ask), assistant(answer)]
    messages += [user(last[0]), assistant(last[1], thought if dice.thinking else "")]
    return Sample("dialogue", kind, tuple(messages), (), dice.thinking)


def small_question(dice: Dice) -> Turn:
    """Something easy in between."""
    a, b = dice.whole(1, 9), dice.whole(1, 9)
    word = dice.pick(THINGS)
    return dice.pick(
        (
            (f"What is {a} + {b}?", f"{a} + {b} = {a + b}"),
            (f"Spell {word}.", "-".join(word)),
            ("Thank you.", "You are welcome."),
            ("Good.", "Is there anything else?"),
            (f"Copy this text: {(text := transform.sentence(dice))}", text),
        )
    )


def _told(dice: Dice) -> list[tuple[str, str, str]]:
    """Facts about the user: (what they say, what they ask, the answer)."""
    me, city = names.name(dice, "person"), names.name(dice, "place")
    colour, job = dice.pick(COLOURS), dice.pick(JOBS)
    animal, pet, friend = dice.pick(ANIMALS), names.name(dice, "person"), names.name(dice, "person")
    number = dice.whole(2, 99)
    facts = [
        (dice.pick(("My name is {}.", "I am {}.", "I am called {}.", "Hi, I am {}.")).format(me),
         dice.pick(("What is my name?", "Who am I?", "Do you know my name?")),
         f"Your name is {me}."),
        (dice.pick(("I live in {}.", "My home is in {}.", "I come from {}.")).format(city),
         dice.pick(("Where do I live?", "Which city do I live in?", "Where is my home?")),
         f"You live in {city}."),
        (dice.pick(("My favourite colour is {}.", "I like {} best of all colours.")).format(colour),
         dice.pick(("What is my favourite colour?", "Which colour do I like best?")),
         f"Your favourite colour is {colour}."),
        (dice.pick(("I work as {}.", "I am {} by trade.")).format(article(job)),
         dice.pick(("What is my job?", "What do I work as?")),
         f"You work as {article(job)}."),
        (dice.pick(("My {} is called {}.", "I have a pet {} called {}.")).format(animal, pet),
         dice.pick(("What is my pet called?", "What is the name of my pet?")),
         f"Your {animal} is called {pet}."),
        (dice.pick(("My friend is {}.", "My best friend is called {}.")).format(friend),
         dice.pick(("Who is my friend?", "What is my friend called?")),
         f"Your friend is {friend}."),
        (dice.pick(("I am {} years old.", "My age is {}.")).format(number),
         dice.pick(("How old am I?", "What is my age?")),
         f"You are {number} years old."),
    ]  # fmt: skip
    return dice.sample(facts, dice.whole(1, 4))


def _about_me(dice: Dice) -> Sample:
    facts = _told(dice)
    turns: list[Turn] = []
    for said, _, _ in facts:
        turns.append((said, "I will remember that."))
        if dice.chance(0.3):
            turns.append(small_question(dice))
    asked = dice.pick(facts)
    return _conversation(
        dice, "about_me", turns, (asked[1], asked[2]), f"The user said: {asked[0]}"
    )


def _running_number(dice: Dice) -> Sample:
    value = dice.whole(1, 50)
    turns = [(dice.pick(("Start with {}.", "Take the number {}.")).format(value), str(value))]
    steps = dice.whole(1, 4)
    thought = ""
    last = turns[0]
    for step in range(steps):
        operator, n = dice.pick("+-*"), dice.whole(2, 9)
        if operator == "*" and (value > 20 or not dice.thinking):
            operator = "+"
        words = {"+": ("Add {}.", "Plus {}."), "-": ("Subtract {}.", "Take away {}."),
                 "*": ("Multiply by {}.", "Times {}.")}[operator]  # fmt: skip
        result = {"+": value + n, "-": value - n, "*": value * n}[operator]
        thought = f"The number is {value}. {value} {operator} {n} = {result}"
        last = (dice.pick(words).format(n), str(result))
        value = result
        if step < steps - 1:
            turns.append(last)
    return _conversation(dice, "running_number", turns, last, thought)


def _list(dice: Dice) -> Sample:
    """A shopping list that grows and shrinks."""
    pool = dice.sample((*FRUITS, *THINGS), 7)
    items = pool[: dice.whole(1, 3)]
    rest = pool[len(items) :]
    turns = [
        (dice.pick(("My list has {}.", "Make a list with {}.")).format(listed(items)),
         f"List: {', '.join(items)}")
    ]  # fmt: skip
    for _ in range(dice.whole(1, 3)):
        if len(items) > 1 and dice.chance(0.35):
            gone = dice.pick(items)
            items = [item for item in items if item != gone]
            ask = dice.pick(("Remove {}.", "Take {} off the list.")).format(gone)
        else:
            new = rest.pop()
            items = [*items, new]
            ask = dice.pick(("Add {}.", "Put {} on the list.")).format(new)
        turns.append((ask, f"List: {', '.join(items)}"))
    at = dice.whole(0, len(items) - 1)
    last = dice.pick(
        (
            ("What is on the list?", f"List: {', '.join(items)}"),
            ("How many things are on the list?", f"{len(items)}"),
            (f"What is the {ORDINALS[at]} thing on the list?", items[at]),
            ("What is the last thing on the list?", items[-1]),
        )
    )
    return _conversation(dice, "list", turns, last, f"The list is {', '.join(items)}.")


def _before(dice: Dice) -> Sample:
    """Repeat something that was said."""
    turns = dice.several(lambda: small_question(dice), dice.whole(2, 4))
    at = dice.whole(0, len(turns) - 1)
    which = dice.pick((f"my {ORDINALS[at]} message", "my last message", "my first message"))
    at = {"my last message": len(turns) - 1, "my first message": 0}.get(which, at)
    ask = dice.pick(("Repeat {}.", "What was {}?", "Say {} again.")).format(which)
    return _conversation(
        dice, "said_before", turns, (ask, turns[at][0]), f"Message {at + 1} of {len(turns)}."
    )


def _choice(dice: Dice) -> Sample:
    """The second one, the former, the last."""
    what = dice.pick(("people", "cities"))
    items = names.names(dice, "person" if what == "people" else "place", dice.whole(2, 5))
    items_with = [f"{i + 1}. {item}" for i, item in enumerate(items)]
    turns = [(f"Number these {what}: {listed(items)}", "\n".join(items_with))]
    if dice.chance(0.3):
        turns.append(small_question(dice))
    at = dice.whole(0, len(items) - 1)
    ask, at = dice.pick(
        ((f"Who or what is the {ORDINALS[at]} one?", at), (f"Name number {at + 1}.", at),
         ("Name the last one.", len(items) - 1), ("And the first one?", 0))
    )  # fmt: skip
    return _conversation(dice, "choice", turns, (ask, items[at]), f"{at + 1}. {items[at]}")


def _again(dice: Dice) -> Sample:
    """Do something with the last answer."""
    words = dice.several(lambda: dice.pick(THINGS), dice.whole(2, 5))
    text = " ".join(words)
    turns = [(f"Copy this text: {text}", text)]
    last = dice.pick(
        (
            ("Now in reverse order.", " ".join(reversed(words))),
            ("Now with commas.", ", ".join(words)),
            ("Now without the first word.", " ".join(words[1:])),
            ("Now only the last word.", words[-1]),
            ("Say that twice.", f"{text} {text}"),
        )
    )
    return _conversation(dice, "again", turns, last, f"The text is: {text}")


def _two_owners(dice: Dice) -> Sample:
    """Who has what, told over several turns."""
    people = names.names(dice, "person", dice.whole(2, 4))
    owned = {who: f"{dice.pick(COLOURS)} {dice.pick(THINGS)}" for who in people}
    turns = [(f"{who} has a {thing}.", "I see.") for who, thing in owned.items()]
    if dice.chance(0.4):
        turns = [(" ".join(ask for ask, _ in turns), "I see.")]
    who = dice.pick(people)
    ask = dice.pick((f"What does {who} have?", f"And what has {who}?"))
    answer = f"{who} has a {owned[who]}."
    if dice.chance(0.3) and list(owned.values()).count(owned[who]) == 1:
        ask = f"Who has the {owned[who]}?"
    return _conversation(dice, "owners", turns, (ask, answer), f"The user said: {answer}")


_KINDS: tuple[Callable[[Dice], Sample], ...] = (
    _about_me, _about_me, _running_number, _list, _before, _choice, _again, _two_owners,
)  # fmt: skip
