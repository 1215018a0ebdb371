"""The text side of a checkpoint: tokenizer, chat template, generation defaults."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from njax.checkpoint.json_files import read_json, read_text
from njax.errors import CheckpointError

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
OLD_TEMPLATE = "chat_template.json"
GENERATION = "generation_config.json"
NAMES = (TOKENIZER, TOKENIZER_CONFIG, TEMPLATE, OLD_TEMPLATE, GENERATION)


@dataclasses.dataclass(frozen=True)
class TextFiles:
    """Contents of the text files; `chat_template` is None for a model without one."""

    tokenizer_json: str
    tokenizer_config: dict[str, Any]
    chat_template: str | None
    generation_config: dict[str, Any]

    def write(self, directory: Path) -> None:
        (directory / TOKENIZER).write_text(self.tokenizer_json, encoding="utf-8")
        _write_json(directory / TOKENIZER_CONFIG, self.tokenizer_config)
        _write_json(directory / GENERATION, self.generation_config)
        if self.chat_template is not None:
            (directory / TEMPLATE).write_text(self.chat_template, encoding="utf-8")


def read_text_files(directory: Path, hf_config: dict[str, Any] | None = None) -> TextFiles:
    """Reads the text files of a Hugging Face directory or of an njax checkpoint.

    `tokenizer_config.json` and `generation_config.json` may be absent. Stop and pad ids that
    they do not give come from `hf_config` (the parsed config.json).

    Raises:
      CheckpointError: no tokenizer.json, or a damaged file.
    """
    tokenizer = directory / TOKENIZER
    if not tokenizer.is_file():
        raise CheckpointError(
            f"{directory}: {TOKENIZER} is missing; save the tokenizer beside the weights"
        )
    read_json(tokenizer)
    config = _optional(directory / TOKENIZER_CONFIG)
    generation = _optional(directory / GENERATION)
    if hf_config is not None:
        text = hf_config.get("text_config")
        text = text if isinstance(text, dict) else {}
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            value = hf_config.get(key, text.get(key))
            if value is not None:
                generation.setdefault(key, value)
    return TextFiles(read_text(tokenizer), config, _template(directory, config), generation)


def _template(directory: Path, config: dict[str, Any]) -> str | None:
    """The chat template: a file of its own, or an entry of the tokenizer's config."""
    if (directory / TEMPLATE).is_file():
        return read_text(directory / TEMPLATE)
    found = _optional(directory / OLD_TEMPLATE).get("chat_template", config.get("chat_template"))
    if isinstance(found, list):
        named = [entry for entry in found if isinstance(entry, dict)]
        if len(named) < len(found):
            raise CheckpointError(
                f"{directory / template_file(directory)}: chat_template is a list with something "
                "else than named templates"
            )
        found = next(
            (e.get("template") for e in reversed(named) if e.get("name") == "default"), None
        )
    if found is not None and not isinstance(found, str):
        raise CheckpointError(
            f"{directory / template_file(directory)}: chat_template is not a text"
        )
    return found


def template_file(directory: Path) -> str:
    """Name of the file that the chat template of a directory comes from, if it has one."""
    if (directory / TEMPLATE).is_file():
        return TEMPLATE
    old = "chat_template" in _optional(directory / OLD_TEMPLATE)
    return OLD_TEMPLATE if old else TOKENIZER_CONFIG


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
