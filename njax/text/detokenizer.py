"""`Detokenizer`: tokens to text, a few at a time.

The pieces that `push` and `finish` return, put together, are exactly what decoding all tokens at
once gives, U+FFFD for invalid bytes included; no piece ends inside a character. Work per token is
constant (amortised): a piece is decoded once, beside a short window of earlier tokens.

When text is held back:
  byte-level BPE: while the last 1 to 3 bytes are the beginning of a character;
  byte fallback: while the last tokens are `<0xAB>` bytes, because the decoder judges such a run as
  a whole (one invalid byte turns each of its bytes into U+FFFD).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from njax.text.decoders import fallback_byte
from njax.text.tokenizer import Tokenizer


class _Stream(Protocol):
    def push(self, ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class Detokenizer:
    """One stream of tokens. Not for several threads at once."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True, prompt: Sequence[int] = ()):
        """
        Args:
          tokenizer: where the tokens come from.
          skip_special: leave special tokens out of the text.
          prompt: tokens before the stream. Their text is not repeated, but they are the context:
            a character that the prompt began is returned when the stream completes it, and a
            leading space is not taken for the beginning of a text. Only the end is looked at.
        """
        self._stream: _Stream
        if tokenizer.decoder.kind == "bytes":
            self._stream = _ByteStream(tokenizer, skip_special, prompt)
        else:
            self._stream = _WindowStream(tokenizer, skip_special, prompt)

    def push(self, ids: Sequence[int]) -> str:
        """The text that `ids` complete; may be empty."""
        return self._stream.push(ids)

    def finish(self) -> str:
        """The rest: U+FFFD for what is left of a character that will not be completed."""
        return self._stream.finish()


class _ByteStream:
    """Byte-level BPE: concatenated bytes through an incremental UTF-8 decoder.

    Python's "replace" and the tokenizer's own lossy decoding follow the same rule (one U+FFFD for
    each maximal part of an ill-formed sequence, Unicode 16 section 3.9).
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool, prompt: Sequence[int]):
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = self._unfinished_character(prompt)

    def push(self, ids: Sequence[int]) -> str:
        data = b"".join(map(self._bytes, ids))
        if self._begun and data:
            begun, self._begun = self._begun, b""
            if _continues(begun, data[0]):
                data = begun + data
            # Otherwise the prompt's broken character is the prompt's, not new text.
        return self._utf8.decode(data)

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)

    def _bytes(self, token_id: int) -> bytes:
        if token_id in self._skipped:
            return b""
        return self._tokenizer.token_bytes(token_id)

    def _unfinished_character(self, prompt: Sequence[int]) -> bytes:
        tail = b""
        for token_id in reversed(prompt):
            tail = self._bytes(token_id) + tail
            if len(tail) >= 4:
                break
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        utf8.decode(tail)
        return utf8.getstate()[0]


def _continues(begun: bytes, byte: int) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(begun + bytes([byte]))
    except UnicodeDecodeError:
        return False
    return True


class _WindowStream:
    """Sentencepiece-like decoders: a piece is decoded behind a window of earlier pieces.

    The window is the shortest run of whole pieces that gives any text at all: then the strip at
    the beginning of a text has been used up by the window, and what a piece adds is what it adds
    to the whole text. At the true beginning the window is empty.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool, prompt: Sequence[int]):
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset()
        self._window: list[list[int]] = []
        self._window_text = ""
        self._held: list[int] = []
        self._prompt_bytes = b""
        if prompt:
            self._set_context(prompt)

    def push(self, ids: Sequence[int]) -> str:
        ready = 0
        for token_id in ids:
            token = self._token(token_id)
            if token is None:
                continue
            self._held.append(token_id)
            if self._fallback_byte(token) is None:
                ready = len(self._held)
        return self._take(ready) if ready else ""

    def finish(self) -> str:
        return self._take(len(self._held)) if len(self._held) > len(self._prompt_bytes) else ""

    def _take(self, count: int) -> str:
        piece, self._held = self._held[:count], self._held[count:]
        text = self._decode([*self._window, piece])[len(self._window_text) :]
        if self._prompt_bytes:
            text = text[self._chars_of_prompt(piece) :]
            self._prompt_bytes = b""
        self._window.append(piece)
        self._shrink()
        return text

    def _shrink(self) -> None:
        """Drops old pieces while the rest still gives text. At most a few are ever kept."""
        self._window_text = self._decode(self._window)
        while len(self._window) > 1 and (text := self._decode(self._window[1:])):
            del self._window[0]
            self._window_text = text

    def _decode(self, pieces: Sequence[Sequence[int]]) -> str:
        return self._tokenizer.decode([i for piece in pieces for i in piece], skip_special=False)

    def _token(self, token_id: int) -> str | None:
        return None if token_id in self._skipped else self._tokenizer.id_to_token(token_id)

    def _fallback_byte(self, token: str) -> int | None:
        return fallback_byte(token) if self._tokenizer.decoder.byte_fallback else None

    def _set_context(self, prompt: Sequence[int]) -> None:
        run: list[int] = []
        run_bytes: list[int] = []
        piece: list[int] = []
        first_byte: int | None = None
        for token_id in reversed(prompt):
            token = self._token(token_id)
            if token is None:
                continue
            byte = self._fallback_byte(token)
            if not piece and byte is not None:
                run.insert(0, token_id)
                run_bytes.insert(0, byte)
                continue
            inside_run = byte is not None and first_byte is not None
            if piece and not inside_run and self._decode([piece]):
                break
            piece.insert(0, token_id)
            first_byte = byte
        if piece:
            self._window = [piece]
            self._window_text = self._decode([piece])
        self._held = run
        self._prompt_bytes = bytes(run_bytes)

    def _chars_of_prompt(self, piece: Sequence[int]) -> int:
        """How many characters of the run that the prompt began are the prompt's own."""
        run = bytearray()
        for token_id in piece:
            byte = self._fallback_byte(self._token(token_id) or "")
            if byte is None:
                break
            run.append(byte)
        try:
            run.decode("utf-8")
        except UnicodeDecodeError:
            return len(self._prompt_bytes)  # one U+FFFD a byte
        return len(codecs.getincrementaldecoder("utf-8")("replace").decode(self._prompt_bytes))
