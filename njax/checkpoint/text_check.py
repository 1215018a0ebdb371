"""Whether the text files of a source are of use: asked before hours of conversion, not after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from njax.checkpoint.text_files import GENERATION, TextFiles, template_file
from njax.errors import CheckpointError
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer

_SEARCHED = 1 << 20
"""Ids among which the first too large one is looked for."""


def check_text(directory: Path, text: TextFiles, vocab_size: int) -> None:
    """Builds what the engine will build of them, and looks at the sampling defaults.

    Args:
      directory: where they are, for messages.
      vocab_size: rows of the model's embedding. It may be larger than the tokenizer's vocabulary
        (rows are padded to round numbers), never smaller.

    Raises:
      CheckpointError: names the file and what is wrong with it.
    """

    def make_tokenizer() -> Tokenizer:
        tokenizer = Tokenizer.from_json(text.tokenizer_json, text.tokenizer_config)
        tokenizer.eos_ids(text.generation_config, text.tokenizer_config)
        return tokenizer

    tokenizer = _built(f"{directory}: ", "tokenizer.json or tokenizer_config.json", make_tokenizer)
    _check_ids(directory, tokenizer, vocab_size)
    template = text.chat_template
    if template is not None:
        path = directory / template_file(directory)
        _built(f"{path}: ", "the template", lambda: ChatTemplate(template, text.tokenizer_config))
    _check_sampling(directory / GENERATION, text.generation_config)


def _built[T](where: str, what: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except CheckpointError as error:
        raise CheckpointError(f"{where}{error}") from None
    except Exception as error:  # files from outside, read by libraries: anything may come
        raise CheckpointError(f"{where}{what} is damaged: {error!r}"[:1000]) from None


def _check_ids(directory: Path, tokenizer: Tokenizer, vocab_size: int) -> None:
    if tokenizer.vocab_size <= vocab_size:
        return
    last = tokenizer.vocab_size - 1
    found = range(vocab_size, min(last, vocab_size + _SEARCHED))
    first = next((i for i in found if tokenizer.id_to_token(i) is not None), last)
    raise CheckpointError(
        f"{directory}: tokenizer.json has ids up to {last}, but config.json says vocab_size "
        f"{vocab_size}; token {tokenizer.id_to_token(first)!r} with id {first} has no row in the "
        "embedding: the tokenizer belongs to another model"
    )


def _check_sampling(path: Path, config: dict[str, Any]) -> None:
    """The ranges are those of `njax.engine.SamplingParams`."""
    for name, low, high in (
        ("temperature", 0, 100),
        ("top_k", 0, 2**63),
        ("top_p", 0, 1),
        ("min_p", 0, 1),
    ):
        value = config.get(name)
        if value is None:
            continue
        good = type(value) in (int, float) and low <= value <= high
        if not good or (name == "top_p" and value == 0) or (name == "top_k" and value % 1):
            kind = (
                "a whole number of at least 0" if name == "top_k" else f"a number {low} to {high}"
            )
            above = " (not 0)" if name == "top_p" else ""
            raise CheckpointError(f"{path}: {name} is {value!r:.60}, expected {kind}{above}")
    if not isinstance(config.get("do_sample"), bool | None):
        raise CheckpointError(
            f"{path}: do_sample is {config['do_sample']!r:.60}, expected true or false"
        )
