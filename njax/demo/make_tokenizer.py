"""Makes `tokenizer.json` of the demo model: `python -m njax.demo.make_tokenizer`.

Byte-level BPE in the family's style (same word pattern, same added tokens in the same order), with
512 ids: 256 bytes, merges learned from the few lines below, the added tokens last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from njax.demo.tokens import ADDED_TOKENS, PLAIN_TOKENS, VOCAB_SIZE

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEXT = """
You are a helpful assistant. Answer the question of the user in a few clear words, and say so when
you do not know the answer. The model reads the whole conversation before it writes the next word,
one token after the other, until it comes to the end of its turn. When several people share the same
system message, the work that was done for it the first time can be used again for all the others.
There is nothing random about this text: it was written by hand, so that the most common words and
endings of the English language, such as the, and, ing, tion, with, have, that, this, from, they,
were, which, there, their, would, about, could, other, into, than, then, these, some, what, when,
where, will, more, only, over, also, because, between, through, after, first, before and every, are
found more than once. What is the weather like in the city? It is warm and sunny in the morning, and
it will rain in the evening. How many letters are in this word? Please read the file and tell me
what the function does. The function returns the number of items in the list, or zero if the list is
empty. If there is an error, the program prints a message and returns. Let me think about that.
First we need to find the name of the file, then we can write the content to it, line by line.
def count(items: list[int]) -> int:
    total = 0
    for item in items:
        if item > 0:
            total += item
    return total
import json
with open("data.json") as file:
    data = json.load(file)
{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city",
"parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "name"}},
"required": ["city"]}}}
<function=get_weather>
<parameter=city>
Berlin
</parameter>
</function>
system
user
assistant
"""


def make() -> str:
    """The text of the tokenizer."""
    return train([TEXT], VOCAB_SIZE)


def train(texts: Iterable[str], size: int, words: str = WORDS) -> str:
    """The text of a byte-level BPE tokenizer with `size` ids, the added tokens last.

    Args:
      texts: what the merges are learned from.
      words: pattern of the pieces that merges stay within.

    Raises:
      ValueError: the texts are too few for so many merges.
    """
    rust = Tokenizer(BPE())
    rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    rust.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=size - len(ADDED_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rust.train_from_iterator(texts, trainer)
    rust.add_tokens(
        [
            AddedToken(token, normalized=False, special=token not in PLAIN_TOKENS)
            for token in ADDED_TOKENS
        ]
    )
    if rust.get_vocab_size() != size:
        raise ValueError(f"the texts give {rust.get_vocab_size()} tokens only, not {size}")
    return json.dumps(json.loads(rust.to_str()), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("tokenizer.json").write_text(make(), encoding="utf-8")
