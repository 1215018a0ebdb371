"""Files to token sequences: plain text, or JSON lines with texts or conversations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from njax.errors import NjaxError
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class TokenSequence:
    """One text.

    Attributes:
      tokens: its ids.
      scored: for each token, whether it counts; None when all do.
    """

    tokens: tuple[int, ...]
    scored: tuple[bool, ...] | None = None


def read_corpus(
    path: Path, tokenizer: Tokenizer, template: ChatTemplate | None, *, answers_only: bool = False
) -> list[TokenSequence]:
    """The sequences of a file.

    A name that ends in `.jsonl` holds one JSON object a line: `{"text": ...}`, or
    `{"messages": [...], "tools": [...], "options": {...}}`, which the chat template renders (with
    `options` as its arguments). Any other file is one text.

    Args:
      answers_only: of conversations, count only what follows the prompt of the last message, which
        must be the assistant's.

    Raises:
      NjaxError: an unreadable file or line; says where and what would be right.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise NjaxError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise NjaxError(f"{path}: not UTF-8 text (byte {error.start})") from None
    if path.suffix == ".jsonl":
        found = list(_lines(path, text, tokenizer, template, answers_only))
    elif answers_only:
        raise NjaxError(f"{path}: plain text has no answers; --answers-only needs a .jsonl file")
    else:
        found = [TokenSequence(tuple(tokenizer.encode(text)))]
    if not any(len(one.tokens) > 1 for one in found):
        raise NjaxError(f"{path}: nothing to score; a text needs at least two tokens")
    return found


def _lines(
    path: Path,
    text: str,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    answers_only: bool,
) -> Iterator[TokenSequence]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise NjaxError(f"{where}: not JSON: {error}") from None
        if isinstance(data, dict) and isinstance(data.get("text"), str) and not answers_only:
            yield TokenSequence(tuple(tokenizer.encode(data["text"])))
        elif isinstance(data, dict) and isinstance(data.get("messages"), list):
            if template is None:
                raise NjaxError(f"{where}: the model has no chat template for messages")
            yield _conversation(where, data, tokenizer, template, answers_only)
        else:
            wanted = '"messages": [...]' if answers_only else '"text": "..." or "messages": [...]'
            raise NjaxError(f"{where}: expected an object with {wanted}")


def _conversation(
    where: str,
    data: dict[str, Any],
    tokenizer: Tokenizer,
    template: ChatTemplate,
    answers_only: bool,
) -> TokenSequence:
    messages, tools = data["messages"], data.get("tools") or None
    options = data.get("options") or {}
    try:
        text = template.render(messages, tools, add_generation_prompt=False, **options)
        tokens = tuple(tokenizer.encode(text))
        if not answers_only:
            return TokenSequence(tokens)
        if not messages or messages[-1].get("role") != "assistant":
            raise NjaxError("the last message is not the assistant's")
        prompt = template.render(messages[:-1], tools, add_generation_prompt=True, **options)
    except (NjaxError, TypeError, AttributeError) as error:
        raise NjaxError(f"{where}: {error}") from None
    head = tokenizer.encode(prompt)
    if list(tokens[: len(head)]) != head:
        raise NjaxError(f"{where}: the prompt of the last answer is no beginning of the whole text")
    return TokenSequence(tokens, tuple(at >= len(head) for at in range(len(tokens))))
