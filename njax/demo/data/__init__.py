"""The demo model's closed world: a seeded generator of its training and test conversations.

`mixture.sample(seed, split, index, kind)` gives one `Sample`: messages and tools as a client would
send them, and the answers that the model should give. It is a function of its arguments alone, so
any number of processes make the same bytes in any order.

    dice.py sample.py      randomness with a split, what a sample is
    names.py words.py      invented and real names (split by their hash), common words
    arithmetic.py dates.py units.py lookup.py transform.py dialogue.py unknown.py chat.py
    tools/                 one idea of the world each: questions and their exact answers
    dress.py mixture.py    system prompts around questions, the mix of ideas for each length
    render.py pack.py      tokens with a loss mask, rows of a batch
    check.py               whether an answer is exactly right, and a tool call valid

Every answer and every thinking trace is a function of its prompt (no free choice of words), so
that "exactly right" has a meaning and greedy decoding can reach it.

Splits: a name of a person, place or thing, and the name of a tool, belongs to the test split if
its hash says so (`names.belongs`), else to training; a sample holds names of its own split only.
So no name or tool of a test conversation is ever seen in training. Sums are split in the same way
by their operands.
"""

from njax.demo.data.sample import CATEGORIES, Sample

__all__ = ["CATEGORIES", "Sample"]
