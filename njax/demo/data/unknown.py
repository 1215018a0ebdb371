"""Questions that the model cannot answer and says so.

With notes in the system prompt: `lookup.conversation(unknown=True)`. Here: without any.
"""

from __future__ import annotations

from njax.demo.data import names
from njax.demo.data.dice import Dice
from njax.demo.data.notes import ATTRIBUTES, draw_name
from njax.demo.data.sample import Sample, question

DO_NOT_KNOW = "I do not know."

_ABOUT = (
    "Who is {p}?", "Where is {c}?", "What is the weather in {c}?", "How old is {p}?",
    "What did {p} say yesterday?", "Who is the mayor of {c}?", "How many people live in {c}?",
    "Who won the match in {c}?", "What is {t}?", "Who invented {t}?", "What does {p} look like?",
    "When was {p} born?", "What is the capital of {c}?", "How far is it from {c} to {d}?",
    "What is in the news?", "What will happen tomorrow?", "What is {p} doing now?",
    "Is {p} at home?", "Which books did {p} write?", "What is the time in {c}?",
    "Who founded {c}?", "What is the history of {c}?", "Why did {p} leave {c}?",
    "What time is it now?", "What is today's date?", "Who is the president?",
    "What is the best film?", "How do I get to {c}?", "What is the price of {t}?",
)  # fmt: skip


def sample(dice: Dice) -> Sample:
    person, other = names.name(dice, "person"), names.name(dice, "person")
    city, second = names.names(dice, "place", 2)
    thing = draw_name(dice, "thing")
    if dice.chance(0.5):
        ask = dice.pick(_ABOUT).format(p=person, c=city, d=second, t=thing)
        subject = next((s for s in (person, city, thing) if s in ask), "that")
    else:
        key = dice.pick(list(ATTRIBUTES))
        subject = dice.pick((person, city, thing, f"the friend of {other}"))
        ask = dice.pick(ATTRIBUTES[key].ask).format(n=subject)
    thought = f"Nobody told me about {subject}."
    return question("unknown", "no_notes", ask, DO_NOT_KNOW, thought, dice.thinking)
