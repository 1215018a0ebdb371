"""Text transformations: letters of common words, and words of any sentence.

What is hard to do at sight (spelling backwards, counting one letter) is always thought about.
"""

from __future__ import annotations

from collections.abc import Callable

from njax.demo.data import names
from njax.demo.data.dice import Dice
from njax.demo.data.sample import Sample, question
from njax.demo.data.words import ADJECTIVES, ANIMALS, COLOURS, ORDINALS, THINGS, VERBS, WORDS

_BY_LETTER = {first: [w for w in WORDS if w[0] == first] for first in {w[0] for w in WORDS}}


def sample(dice: Dice) -> Sample:
    return dice.pick(_KINDS)(dice)


def _question(dice: Dice, kind: str, ask: str, answer: str, thought: str) -> Sample:
    return question("text", kind, ask, answer, thought, dice.thinking)


def _word(dice: Dice) -> str:
    return dice.pick(WORDS)


def _name_or_word(dice: Dice) -> str:
    return names.name(dice, dice.pick(("person", "place", "thing"))) if dice.chance(0.35) else (
        _word(dice)
    )  # fmt: skip


def phrase(dice: Dice, low: int, high: int) -> list[str]:
    """Different words and names."""
    return dice.several(lambda: _name_or_word(dice), dice.whole(low, high))


def sentence(dice: Dice) -> str:
    """A plain sentence without its full stop."""
    who = names.name(dice, "person") if dice.chance(0.6) else f"the {dice.pick(ANIMALS)}"
    what = f"the {dice.pick(ADJECTIVES)} {dice.pick((*THINGS, *ANIMALS))}"
    where = dice.pick(("", f" in {names.name(dice, 'place')}", f" near the {dice.pick(THINGS)}"))
    return f"{who} will {dice.pick(VERBS)} {what}{where}"


def _quoted(dice: Dice, text: str) -> str:
    return dice.pick(('"{}"', "{}", "'{}'")).format(text)


def _upper(dice: Dice) -> Sample:
    word = _word(dice)
    ask = dice.pick(
        ("Write {} in capital letters.", "Put {} in upper case.", "{} in capitals, please.")
    ).format(_quoted(dice, word))
    return _question(dice, "upper", ask, word.upper(), "-".join(word))


def _lower(dice: Dice) -> Sample:
    word = _word(dice)
    ask = dice.pick(("Write {} in small letters.", "Put {} in lower case.")).format(
        _quoted(dice, word.upper())
    )
    return _question(dice, "lower", ask, word, "-".join(word))


def _spell(dice: Dice) -> Sample:
    word = _word(dice)
    ask = dice.pick(("Spell {}.", "Spell the word {}.", "How do you spell {}?")).format(
        _quoted(dice, word)
    )
    return _question(dice, "spell", ask, "-".join(word), f"{len(word)} letters")


def _reverse_letters(dice: Dice) -> Sample:
    dice.thinking = True
    word = _word(dice)
    ask = dice.pick(("Spell {} backwards.", "Spell the word {} from back to front.")).format(
        _quoted(dice, word)
    )
    return _question(dice, "reverse_letters", ask, "-".join(reversed(word)), "-".join(word))


def _count_letters(dice: Dice) -> Sample:
    word = _word(dice)
    ask = dice.pick(
        ("How many letters does {} have?", "How many letters are in {}?", "How long is {}?")
    ).format(f'"{word}"')
    thought = " ".join(f"{i + 1}{letter}" for i, letter in enumerate(word))
    return _question(dice, "count_letters", ask, f'"{word}" has {len(word)} letters.', thought)


def _count_letter(dice: Dice) -> Sample:
    dice.thinking = True
    word = _word(dice)
    letter = dice.pick(word) if dice.chance(0.8) else dice.pick("aeiorstn")
    count, walk = 0, []
    for x in word:
        count += x == letter
        walk.append(f"{x}{count}" if x == letter else x)
    times = "time" if count == 1 else "times"
    ask = dice.pick(("How often is {} in {}?", "How many times does {} occur in {}?")).format(
        f'"{letter}"', f'"{word}"'
    )
    return _question(
        dice, "count_letter", ask, f'"{letter}" is in "{word}" {count} {times}.', " ".join(walk)
    )


def _letter_at(dice: Dice) -> Sample:
    word = _word(dice)
    at = dice.whole(0, min(len(word), len(ORDINALS)) - 1)
    which, at = dice.pick(((ORDINALS[at], at), ("last", len(word) - 1), ("first", 0)))
    ask = f'What is the {which} letter of "{word}"?'
    return _question(dice, "letter_at", ask, word[at], "-".join(word))


def _reverse_words(dice: Dice) -> Sample:
    words = phrase(dice, 3, 7)
    ask = dice.pick(
        (
            "Reverse the order of the words: {}",
            "Say these words from last to first: {}",
            "Write the words in reverse order: {}",
        )
    ).format(" ".join(words))
    return _question(
        dice, "reverse_words", ask, " ".join(reversed(words)), f"The last word is {words[-1]}."
    )


def _count_words(dice: Dice) -> Sample:
    words = phrase(dice, 2, 9 if dice.thinking else 5)
    ask = dice.pick(("How many words are here: {}", "Count the words: {}")).format(" ".join(words))
    thought = ", ".join(f"{i + 1} {word}" for i, word in enumerate(words))
    return _question(dice, "count_words", ask, f"{len(words)} words", thought)


def _word_at(dice: Dice) -> Sample:
    words = phrase(dice, 3, 8)
    at = dice.whole(0, len(words) - 1)
    which, at = dice.pick(((ORDINALS[at], at), (ORDINALS[at], at), ("last", len(words) - 1)))
    ask = dice.pick(("What is the {} word of: {}", "Give me the {} word: {}")).format(
        which, " ".join(words)
    )
    thought = ", ".join(f"{i + 1} {word}" for i, word in enumerate(words))
    return _question(dice, "word_at", ask, words[at], thought)


def _join(dice: Dice) -> Sample:
    words = phrase(dice, 2, 6)
    name, mark = dice.pick(
        (("hyphens", "-"), ("commas", ", "), ("plus signs", " + "), ("slashes", "/"))
    )
    ask = dice.pick(("Join these words with {}: {}", "Put {} between the words: {}")).format(
        name, " ".join(words)
    )
    return _question(dice, "join", ask, mark.join(words), f"{len(words)} words with {name}")


def _repeat(dice: Dice) -> Sample:
    word, count = _name_or_word(dice), dice.whole(2, 6)
    ask = dice.pick(("Write {} {} times.", "Repeat {} {} times.")).format(
        _quoted(dice, word), count
    )
    thought = ", ".join(f"{i + 1} {word}" for i in range(count))
    return _question(dice, "repeat", ask, " ".join([word] * count), thought)


def _copy(dice: Dice) -> Sample:
    text = sentence(dice)
    ask = dice.pick(("Repeat after me: {}", "Say this again: {}", "Copy this text: {}")).format(
        text
    )
    return _question(dice, "copy", ask, text, "Word by word.")


def _replace(dice: Dice) -> Sample:
    words = phrase(dice, 3, 7)
    old, new = dice.pick(words), _name_or_word(dice)
    ask = dice.pick(("Replace {} by {} in: {}", "Write {1} instead of {0} in: {2}")).format(
        old, new, " ".join(words)
    )
    answer = " ".join(new if word == old else word for word in words)
    return _question(dice, "replace", ask, answer, f"{old} becomes {new}.")


def _remove(dice: Dice) -> Sample:
    words = phrase(dice, 3, 7)
    old = dice.pick(words)
    ask = dice.pick(("Leave out {} in: {}", "Remove {} from: {}")).format(old, " ".join(words))
    return _question(
        dice, "remove", ask, " ".join(w for w in words if w != old), f"{old} goes away."
    )


def _alphabet(dice: Dice) -> Sample:
    firsts = dice.several(lambda: dice.pick(sorted(_BY_LETTER)), dice.whole(3, 5))
    words = [dice.pick(_BY_LETTER[first]) for first in firsts]
    ask = dice.pick(("Sort by the alphabet: {}", "Put in alphabetical order: {}")).format(
        " ".join(words)
    )
    order = sorted(words)
    return _question(dice, "alphabet", ask, " ".join(order), ", ".join(w[0] for w in order))


def _extract(dice: Dice) -> Sample:
    """Find the colour, the animal or the number in a sentence."""
    count, colour, animal = dice.whole(2, 99), dice.pick(COLOURS), dice.pick(ANIMALS)
    who, where = names.name(dice, "person"), names.name(dice, "place")
    thing = dice.pick(THINGS)
    text = f"{who} saw a {colour} {animal} and {count} old {thing} in {where}"
    what, answer = dice.pick(
        (("colour", colour), ("number", str(count)), ("person", who), ("place", where))
    )
    ask = dice.pick(("Which {} is in this text: {}", "Find the {} in: {}")).format(what, text)
    return _question(dice, f"extract_{what}", ask, answer, f"The {what} is {answer}.")


_KINDS: tuple[Callable[[Dice], Sample], ...] = (
    _upper, _lower, _spell, _reverse_letters, _count_letters, _count_letter, _letter_at,
    _reverse_words, _count_words, _word_at, _join, _repeat, _copy, _replace, _remove, _alphabet,
    _extract,
)  # fmt: skip
