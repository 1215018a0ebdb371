"""`Tokenizer`: text to token ids and back, from a `tokenizer.json`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as _Rust
from tokenizers.models import BPE

from njax.errors import CheckpointError, InvalidRequest
from njax.text.decoders import LETTER_OF_BYTE, DecoderFacts, byte_level_bytes, decoder_facts


class Tokenizer:
    """An immutable tokenizer; safe to share between threads.

    Attributes:
      vocab_size: largest token id + 1 (a model may have more rows, never addressed).
      added_tokens: content to id of the tokens that are matched as a whole before the model runs.
      special_ids: ids left out by `decode(skip_special=True)`.
      turn_tokens: special tokens that are found in a text wherever they stand, and so separate
        what is before them from what is after.
      decoder: how ids become text, as far as streaming needs to know.
    """

    def __init__(self, rust: _Rust):
        # Chat prompts are never cut or padded behind the caller's back, whatever the file says.
        rust.no_truncation()
        rust.no_padding()
        self._rust = rust
        added = rust.get_added_tokens_decoder()
        self.added_tokens: Mapping[str, int] = {token.content: i for i, token in added.items()}
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.turn_tokens = tuple(
            token.content
            for token in added.values()
            if token.special and not (token.normalized or token.single_word or token.lstrip)
        )
        vocab = rust.get_vocab(with_added_tokens=True)
        if not vocab:
            raise CheckpointError("tokenizer.json: the vocabulary is empty")
        self.vocab_size = max(vocab.values()) + 1
        self.decoder: DecoderFacts = decoder_facts(_state(rust.decoder) or None)
        self._characters_per_token = _characters_per_token(rust, vocab)
        self._bytes: dict[int, bytes] = {}
        self._plain: _Rust | None = None
        self._plain_lock = threading.Lock()

    @classmethod
    def from_json(cls, text: str, tokenizer_config: Mapping[str, Any] | None = None) -> Tokenizer:
        """From the text of a `tokenizer.json`.

        Args:
          tokenizer_config: the `tokenizer_config.json` beside it. Its `added_tokens_decoder` may
            name tokens that `tokenizer.json` lacks; they are added under their ids.

        Raises:
          CheckpointError: the text is no tokenizer, or ids contradict each other.
        """
        try:
            tree = json.loads(text)
        except ValueError as error:
            raise CheckpointError(f"tokenizer.json is not valid JSON: {error}") from None
        if not isinstance(tree, dict):
            raise CheckpointError("tokenizer.json: expected a JSON object")
        extra = _missing_added_tokens(tree, tokenizer_config or {})
        if extra:
            tree["added_tokens"] = [*(tree.get("added_tokens") or []), *extra]
            text = json.dumps(tree)
        tokenizer = cls(_load(text))
        for entry in tree.get("added_tokens") or []:
            if tokenizer.token_to_id(entry["content"]) != entry["id"]:
                raise CheckpointError(
                    f"tokenizer.json: added token {entry['content']!r} has id {entry['id']}, but "
                    f"the vocabulary gives it {tokenizer.token_to_id(entry['content'])}"
                )
        return tokenizer

    @classmethod
    def from_file(
        cls, path: str | Path, tokenizer_config: Mapping[str, Any] | None = None
    ) -> Tokenizer:
        """Like `from_json`, from a file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"cannot read the tokenizer {path}: {error}") from None
        return cls.from_json(text, tokenizer_config)

    def to_json(self) -> str:
        """Text of a `tokenizer.json` that gives this tokenizer back."""
        return self._rust.to_str()

    def encode(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Token ids of `text`; nothing is put before or after it.

        Args:
          parse_special: read added tokens such as `<|im_start|>` in the text as those tokens, as a
            rendered chat template needs. With False they are ordinary characters: for text from a
            stranger that must not open a turn of its own.

        Raises:
          InvalidRequest: the text is no Unicode text (a lone surrogate).
        """
        rust = self._rust if parse_special else self._plain_twin()
        try:
            # Of the binding's ways to encode this one lets other threads run meanwhile; a long
            # text would otherwise stop the whole process for seconds.
            return rust.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except TypeError:
            # The binding says "wrong type" about a string that has no UTF-8 form.
            raise InvalidRequest(
                "the text is not valid Unicode: it holds half a surrogate pair"
            ) from None

    def least_tokens(self, text: str) -> int:
        """A lower bound of `len(encode(text))` that costs nothing; 0 where none is known.

        Tokenising runs at about a megabyte a second: a text that is far too long for any context
        can be refused without it.
        """
        if self._characters_per_token is None:
            return 0
        # NFC joins at most four characters, and leaves ASCII alone.
        joined = 1 if text.isascii() else 4
        return len(text) // (joined * self._characters_per_token)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of `ids`, all at once. Ids outside the vocabulary give no text."""
        return self._rust.decode(list(ids), skip_special_tokens=skip_special)

    def token_to_id(self, token: str) -> int | None:
        """Id of a token in its stored spelling (byte-level letters for byte-level BPE)."""
        return self._rust.token_to_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Stored spelling of a token; None outside the vocabulary."""
        if not 0 <= token_id < self.vocab_size:
            return None
        return self._rust.id_to_token(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes that a token of a byte-level vocabulary stands for; none outside it."""
        data = self._bytes.get(token_id)
        if data is None:
            token = self.id_to_token(token_id)
            data = b"" if token is None else byte_level_bytes(token)
            self._bytes[token_id] = data
        return data

    def eos_ids(
        self,
        generation_config: Mapping[str, Any] | None = None,
        tokenizer_config: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """Ids that end an answer, ascending: those that both files name, together.

        `generation_config.json` gives `eos_token_id` (an id or a list), `tokenizer_config.json`
        gives `eos_token` (a string or an added-token object). They differ in published
        checkpoints, and going on past either never helps. An id or token that the vocabulary
        lacks does no harm: it is never generated.

        Raises:
          CheckpointError: an id that is no whole number.
        """
        found: set[int] = set()
        listed = (generation_config or {}).get("eos_token_id")
        for token_id in listed if isinstance(listed, list) else [listed]:
            if token_id is None:
                continue
            if not isinstance(token_id, int) or isinstance(token_id, bool):
                raise CheckpointError(
                    f"generation_config.json: eos_token_id holds {token_id!r}, expected token ids"
                )
            found.add(token_id)
        token = token_content((tokenizer_config or {}).get("eos_token"))
        if token is not None and (named := self.token_to_id(token)) is not None:
            found.add(named)
        return tuple(sorted(found))

    def _plain_twin(self) -> _Rust:
        """The same tokenizer without added tokens; made on first use (it costs a second copy)."""
        with self._plain_lock:
            if self._plain is None:
                tree = json.loads(self._rust.to_str())
                tree["added_tokens"] = []
                tree["post_processor"] = None
                self._plain = _load(json.dumps(tree))
            return self._plain


def _characters_per_token(rust: _Rust, vocab: Mapping[str, int]) -> int | None:
    """Most characters of normalised text that one token can stand for; None if there is no limit.

    The limit is the longest spelling in the vocabulary (which has a letter for each byte if it is
    byte-level), unless something drops or fuses text: a normaliser other than NFC, an unknown
    token, added tokens that swallow the space beside them.
    """
    normalizer, pre = _state(rust.normalizer), _state(rust.pre_tokenizer)
    steps = {
        (step.get("type"), step.get("behavior", "Isolated") == "Removed")
        for step in [*(pre.get("pretokenizers") or []), *([] if "pretokenizers" in pre else [pre])]
    }
    keeps_everything = (
        normalizer.get("type") in (None, "NFC")
        and ("ByteLevel", False) in steps
        and steps <= {("ByteLevel", False), ("Split", False), ("Digits", False)}
        and isinstance(rust.model, BPE)
        and rust.model.unk_token is None
        and vocab.keys() >= set(LETTER_OF_BYTE.values())
        and not any(t.lstrip or t.rstrip for t in rust.get_added_tokens_decoder().values())
    )
    return max(map(len, vocab)) if keeps_everything else None


def _state(part: Any) -> dict[str, Any]:
    """A part of a tokenizer as its JSON says; {} for one that is absent."""
    return {} if part is None else json.loads(part.__getstate__())


def token_content(value: Any) -> str | None:
    """Text of a token in a `tokenizer_config.json`, which spells it as a string or an object."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _load(text: str) -> _Rust:
    try:
        return _Rust.from_str(text)
    except Exception as error:  # the binding raises bare Exception
        raise CheckpointError(f"tokenizer.json cannot be read: {error}") from None


def _missing_added_tokens(
    tree: Mapping[str, Any], tokenizer_config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    declared = tokenizer_config.get("added_tokens_decoder")
    if not isinstance(declared, Mapping):
        return []
    known = {entry["content"] for entry in tree.get("added_tokens") or []}
    extra: list[dict[str, Any]] = []
    for token_id, entry in _by_id(declared.items()):
        content = entry.get("content")
        if not isinstance(content, str):
            raise CheckpointError(
                f"tokenizer_config.json: added_tokens_decoder[{token_id}] has no content"
            )
        if content not in known:
            extra.append(
                {
                    "id": token_id,
                    "content": content,
                    "single_word": bool(entry.get("single_word", False)),
                    "lstrip": bool(entry.get("lstrip", False)),
                    "rstrip": bool(entry.get("rstrip", False)),
                    "normalized": bool(entry.get("normalized", False)),
                    "special": bool(entry.get("special", False)),
                }
            )
    return extra


def _by_id(items: Iterable[tuple[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    try:
        pairs = [(int(key), value) for key, value in items]
    except (TypeError, ValueError):
        raise CheckpointError(
            "tokenizer_config.json: the keys of added_tokens_decoder must be token ids"
        ) from None
    for key, value in pairs:
        if not isinstance(value, Mapping):
            raise CheckpointError(
                f"tokenizer_config.json: added_tokens_decoder[{key}] must be an object"
            )
    return sorted(pairs, key=lambda pair: pair[0])
