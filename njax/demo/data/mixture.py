"""The mix of ideas for each length of text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from njax.demo.data import arithmetic, chat, dates, dialogue, lookup, transform, units, unknown
from njax.demo.data.dice import Dice, Split
from njax.demo.data.dress import dress
from njax.demo.data.sample import CATEGORIES, Sample
from njax.demo.data.tools import scenes


@dataclasses.dataclass(frozen=True)
class Mix:
    """Samples of one length.

    Attributes:
      head: fewest and most characters of notes or declarations (about 2.7 make a token).
      weights: category -> share.
    """

    head: tuple[int, int]
    weights: Mapping[str, float]


MIXES: dict[str, Mix] = {
    "short": Mix(
        (60, 900),
        {
            "arithmetic": 0.20, "calendar": 0.18, "lookup": 0.13, "text": 0.18, "dialogue": 0.12,
            "unknown": 0.06, "tools": 0.11, "chat": 0.02,
        },
    ),
    "medium": Mix(
        (900, 3200),
        {
            "arithmetic": 0.02, "calendar": 0.02, "lookup": 0.22, "text": 0.02, "dialogue": 0.06,
            "unknown": 0.05, "tools": 0.60, "chat": 0.01,
        },
    ),
    "long": Mix((3200, 9500), {"lookup": 0.66, "unknown": 0.12, "tools": 0.22}),
}  # fmt: skip


def sample(seed: int, split: Split, index: int, mix: str, category: str | None = None) -> Sample:
    """The sample of these coordinates, the same on every machine.

    Args:
      seed: of the whole data set.
      index: which sample of the (seed, split, mix, category) stream.
      mix: a name from `MIXES`.
      category: one of `CATEGORIES`, or None to draw it by the mix's weights.
    """
    dice = Dice(seed, split, f"{mix}/{category or 'any'}/{index}")
    if category is None:
        weights = MIXES[mix].weights
        category = dice.choices(list(weights), list(weights.values()))[0]
    elif category not in CATEGORIES:
        raise ValueError(f"category {category!r} is none of {', '.join(CATEGORIES)}")
    low, high = MIXES[mix].head
    size = dice.whole(low, high)
    if category == "lookup":
        return lookup.sample(dice, size)
    if category == "tools":
        return scenes.sample(dice, size)
    if category == "unknown" and (mix != "short" or dice.chance(0.5)):
        return lookup.conversation(dice, size, unknown=True)
    return dress(dice, _PLAIN[category](dice), size)


def _calendar(dice: Dice) -> Sample:
    return units.sample(dice) if dice.chance(0.25) else dates.sample(dice)


_PLAIN: dict[str, Callable[[Dice], Sample]] = {
    "arithmetic": arithmetic.sample,
    "calendar": _calendar,
    "text": transform.sample,
    "dialogue": dialogue.sample,
    "unknown": unknown.sample,
    "chat": chat.sample,
}
