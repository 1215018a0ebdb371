"""The trained demo's tokenizer: byte-level BPE over text of its own world.

The family's word pattern lets a word swallow the character before it (`"Mira`, `_Mira`, ` Mira`),
which gives one name several spellings in tokens. This model is too small to learn that they are
one name, and copying names is most of what it does. So here words begin at their first letter;
only small letters may take a space along, which keeps ordinary text short. Digits stand alone, as
in the family.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from njax.demo.data.mixture import sample
from njax.demo.data.render import Renderer
from njax.demo.make_tokenizer import train
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer

WORDS = (
    r" ?[\p{Ll}][\p{Ll}\p{M}]*|\p{Lu}[\p{Ll}\p{M}]*|[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEMPLATE = Path(__file__).parent.parent / "chat_template.jinja"


def chat_template() -> ChatTemplate:
    """The demo's own template."""
    return ChatTemplate(TEMPLATE.read_text(encoding="utf-8"))


def make_vocabulary(size: int, seed: int, samples: int = 16_000) -> str:
    """The text of a `tokenizer.json` with `size` ids, learned from training conversations."""
    return train(_texts(seed, samples), size, WORDS)


def make_renderer(tokenizer_json: str) -> Renderer:
    return Renderer(Tokenizer.from_json(tokenizer_json), chat_template())


def _texts(seed: int, samples: int) -> Iterator[str]:
    template = chat_template()
    for index in range(samples):
        # Long texts repeat what the shorter ones have.
        one = sample(seed, "train", index, "medium" if index % 8 == 0 else "short")
        yield template.render(one.messages, one.tools, add_generation_prompt=False, **one.options())
