"""Small tokenizers of the kinds that real checkpoints use, built with `tokenizers` itself."""

from __future__ import annotations

import functools

import pytest
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Rust
from tokenizers.models import BPE, WordLevel

from njax.text.decoders import LETTER_OF_BYTE
from njax.text.tokenizer import Tokenizer


def _byte_level() -> Rust:
    """Qwen's style: byte-level BPE; some added tokens are special, some are plain."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for left, right in ["th", "Ġa", ("th", "e"), "ä½", ("ä½", "ł"), "ðŁ", ("ðŁ", "ĺ"), ("ĺ", "Ģ")]:
        merges.append((left, right))
        vocab[left + right] = len(vocab)
    rust = Rust(BPE(vocab, merges))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    rust.add_tokens([AddedToken(t, special=False) for t in ("<think>", "</think>", " ü x")])
    return rust


def _sentencepiece(decoder: decoders.Decoder) -> Rust:
    pieces = ["▁", "▁▁", "a", "▁a", "b", "▁b", "é", "你", "▁你", "ab", "ba", "�", "<0x", "▁a▁"]
    vocab = {f"<0x{b:02X}>": b for b in range(256)}
    for piece in pieces:
        vocab[piece] = len(vocab)
    rust = Rust(BPE(vocab, [], byte_fallback=True, unk_token=None))
    rust.normalizer = normalizers.Replace(" ", "▁")
    rust.decoder = decoder
    rust.add_special_tokens(["<s>", "</s>"])
    rust.add_tokens([AddedToken("<tool>", special=False)])
    return rust


def _llama() -> Rust:
    d = decoders
    return _sentencepiece(
        d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    )


def _gemma() -> Rust:
    d = decoders
    return _sentencepiece(d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse()]))


def _metaspace() -> Rust:
    d = decoders
    return _sentencepiece(d.Sequence([d.ByteFallback(), d.Metaspace()]))


def _words() -> Rust:
    rust = Rust(WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.add_special_tokens(["</s>"])
    return rust


_MAKERS = {
    "byte_level": _byte_level,
    "llama": _llama,
    "gemma": _gemma,
    "metaspace": _metaspace,
    "words": _words,
}


@functools.cache
def _make(kind: str) -> Tokenizer:
    return Tokenizer.from_json(_MAKERS[kind]().to_str())


@pytest.fixture(scope="session")
def make():
    """`make(kind)`: one of the tokenizers above."""
    return _make


@pytest.fixture(scope="session")
def ids_of_bytes():
    """`ids_of_bytes(raw)`: one token a byte, in the byte_level vocabulary."""
    tokenizer = _make("byte_level")
    return lambda raw: [tokenizer.token_to_id(LETTER_OF_BYTE[byte]) for byte in raw]
