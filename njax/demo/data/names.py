"""Names of people, places and things: some real, most invented from syllables.

There are so many that a model cannot know them: it must learn to copy.
"""

from __future__ import annotations

from njax.demo.data.dice import Dice, belongs

_ONSETS = (
    "b d f g h j k l m n p r s t v w z br ch dr fl fr gl gr kl kr pl pr sk sl sn st th tr"
).split()
_NUCLEI = "a e i o u a e i o ai ea ei ia io ou".split()
_CODAS = ["", "", "", *"b d g k l m n n nd r r rk s sk st t x".split()]
_PERSON = "a a an as el en ia ik in is o on or us".split()
_PLACE = "berg by dal den fell ford ham haven holm ley mar mont port stad ton vik ville".split()
_THING = "ax ex ia ic ium on or ite ol us".split()

PEOPLE = (
    "Ada Adam Alice Amir Anna Anton Ben Bruno Carla Carlos Chen Clara Dana Daniel David Diego "
    "Elena Eli Emil Emma Erik Eva Fatima Felix Finn Frida George Grace Hana Hannah Hugo Ida "
    "Ines Ivan Jack Jan Jonas Julia Kai Karim Laura Lea Leo Lily Lina Linda Lucas Lucy Maria "
    "Mark Marta Max Maya Mia Mila Mina Nadia Nina Noah Nora Olga Oliver Omar Oscar Paul Pedro "
    "Peter Rosa Ruth Sam Sara Simon Sofia Tara Tom Uma Vera Victor Yara Yusuf Zoe"
).split()
PLACES = (
    "Accra Athens Bergen Berlin Bern Bogota Boston Brno Cairo Chicago Cork Delhi Dublin Geneva "
    "Ghent Graz Hamburg Hanoi Helsinki Kyoto Lagos Leeds Lima Lisbon London Lyon Madrid Malmo "
    "Milan Munich Nairobi Naples Osaka Oslo Paris Perth Porto Prague Quito Riga Rome Seoul "
    "Seville Sofia Tallinn Tokyo Toronto Tunis Turin Utrecht Vienna Vilnius Warsaw Zagreb "
    "Zurich"
).split()
_REAL = {"person": PEOPLE, "place": PLACES, "thing": []}
_ENDINGS = {"person": _PERSON, "place": _PLACE, "thing": _THING}


def name(dice: Dice, kind: str) -> str:
    """A capitalised name of the dice's split; kind is "person", "place" or "thing"."""
    while True:
        real = _REAL[kind]
        text = dice.pick(real) if real and dice.chance(0.3) else _invent(dice, _ENDINGS[kind])
        if belongs(text, dice.split):
            return text


def names(dice: Dice, kind: str, count: int) -> list[str]:
    """Different names."""
    return dice.several(lambda: name(dice, kind), count)


def full_name(dice: Dice) -> str:
    return f"{name(dice, 'person')} {name(dice, 'person')}"


def _invent(dice: Dice, endings: list[str]) -> str:
    middle = _syllable(dice) if dice.chance(0.35) else ""
    word = dice.pick(_ONSETS) + dice.pick(_NUCLEI) + dice.pick(_CODAS) + middle
    if word[-1] in "aeiou":
        word += dice.pick("lmnrsv")
    return (word + dice.pick(endings)).capitalize()


def _syllable(dice: Dice) -> str:
    return dice.pick(_ONSETS) + dice.pick(_NUCLEI)
