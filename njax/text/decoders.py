"""What streaming must know about a tokenizer's decoder.

A decoder turns a list of token strings into text. Two families stream exactly:

- bytes: byte-level BPE. Each token is a fixed byte string, the text is the UTF-8 of all of them.
- window: sentencepiece-like chains of per-token rewriting, byte fallback and a strip at the very
  beginning. What a token adds depends on at most a little of what stands before it.

Anything else (WordPiece clean-up, CTC) lets later tokens change earlier text, so no stream of it
can be exact; such tokenizers are refused when they are loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from njax.errors import CheckpointError


@dataclasses.dataclass(frozen=True)
class DecoderFacts:
    """How a decoder may be streamed.

    Attributes:
      kind: see the module.
      byte_fallback: runs of `<0xAB>` tokens are bytes, decoded a whole run at a time.
    """

    kind: Literal["bytes", "window"]
    byte_fallback: bool = False


def decoder_facts(spec: Mapping[str, Any] | None) -> DecoderFacts:
    """Reads the `decoder` part of a `tokenizer.json`.

    Raises:
      CheckpointError: the decoder cannot be streamed exactly.
    """
    chain = [] if spec is None else _flatten(spec)
    kinds = [part.get("type") for part in chain]
    if kinds == ["ByteLevel"]:
        return DecoderFacts("bytes")
    fused = False
    for part in chain:
        kind = part.get("type")
        if kind == "Fuse":
            fused = True
        elif kind == "Strip" and (not fused or part.get("stop", 0) == 0):
            continue
        elif kind in ("Replace", "ByteFallback", "Metaspace") and not fused:
            continue
        else:
            raise CheckpointError(
                f"tokenizer.json: decoder {' > '.join(map(str, kinds))} cannot be streamed: "
                f"{kind} may change text that was sent already; supported are ByteLevel, and "
                "Replace, ByteFallback, Metaspace and Strip before an optional Fuse"
            )
    return DecoderFacts("window", byte_fallback="ByteFallback" in kinds)


def _flatten(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if spec.get("type") != "Sequence":
        return [spec]
    return [part for inner in spec.get("decoders", ()) for part in _flatten(inner)]


def _byte_letters() -> dict[str, int]:
    """The 256 letters by which byte-level BPE spells bytes (GPT-2's table).

    Printable Latin-1 characters stand for themselves; the others get the letters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    for offset, byte in enumerate(b for b in range(256) if b not in set(printable)):
        letters[chr(0x100 + offset)] = byte
    return letters


BYTE_OF_LETTER = _byte_letters()
LETTER_OF_BYTE = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}


def byte_level_bytes(token: str) -> bytes:
    """Bytes of a byte-level token; an added token with other letters stands for its own UTF-8."""
    try:
        return bytes([BYTE_OF_LETTER[letter] for letter in token])
    except KeyError:
        return token.encode("utf-8")


def fallback_byte(token: str) -> int | None:
    """The byte of a `<0xAB>` token, or None for any other token."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None
