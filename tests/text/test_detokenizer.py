"""Streaming text equals whole decoding: every kind of vocabulary, any tokens, any split."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Rust
from tokenizers import decoders
from tokenizers.models import WordLevel

from njax.errors import CheckpointError
from njax.text.detokenizer import Detokenizer
from njax.text.tokenizer import Tokenizer


def stream(tokenizer, ids, cuts, **kwargs):
    detokenizer = Detokenizer(tokenizer, **kwargs)
    edges = [0, *sorted(min(c, len(ids)) for c in cuts), len(ids)]
    pieces = [detokenizer.push(ids[a:b]) for a, b in itertools.pairwise(edges)]
    return [*pieces, detokenizer.finish()]


@st.composite
def token_sequences(draw, tokenizer):
    anything = st.integers(0, tokenizer.vocab_size + 3)  # also ids outside the vocabulary
    words = [t for t in range(tokenizer.vocab_size) if t < 3 or t > 200]
    likely = st.sampled_from(words)
    text = st.text(max_size=6).map(tokenizer.encode)
    pieces = draw(st.lists(st.one_of(anything.map(lambda i: [i]), likely.map(lambda i: [i]), text)))
    return [i for piece in pieces for i in piece]


@pytest.mark.parametrize("skip_special", [True, False])
@pytest.mark.parametrize("kind", ["byte_level", "llama", "gemma", "metaspace", "words"])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_pieces_make_up_the_whole_decode(make, kind, skip_special, data):
    tokenizer = make(kind)
    ids = data.draw(token_sequences(tokenizer))
    cuts = data.draw(st.lists(st.integers(0, len(ids) + 1)))
    rust = Rust.from_str(tokenizer.to_json())
    whole = rust.decode(ids, skip_special_tokens=skip_special)
    pieces = stream(tokenizer, ids, cuts, skip_special=skip_special)
    assert "".join(pieces) == whole
    one_by_one = stream(tokenizer, ids, range(len(ids)), skip_special=skip_special)
    assert "".join(one_by_one) == whole


@settings(max_examples=300, deadline=None)
@given(st.text(), st.lists(st.integers(0, 60)))
def test_a_valid_text_never_shows_a_replacement_character(make, ids_of_bytes, text, cuts):
    text = text.replace("�", "")
    tokenizer = make("byte_level")
    ids = ids_of_bytes(text.encode())
    for piece in stream(tokenizer, ids, cuts):
        assert "�" not in piece


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=24), cuts=st.lists(st.integers(0, 24)))
@example(raw=b"\xf0\x9f\x98", cuts=[1, 2])
@example(raw=b"\xe4\xbd\xe4\xbd\xa0\xff\xc0\x80\xed\xa0\x80", cuts=[1, 2, 4])
def test_invalid_bytes(make, ids_of_bytes, raw, cuts):
    """Every byte string, valid or not: U+FFFD exactly where the whole decode has it."""
    byte_level = make("byte_level")
    ids = ids_of_bytes(raw)
    assert "".join(stream(byte_level, ids, cuts)) == byte_level.decode(ids)
    assert byte_level.decode(ids) == raw.decode("utf-8", "replace")
    for kind in ("llama", "gemma", "metaspace"):
        fallback = make(kind)
        ids = list(raw)
        assert "".join(stream(fallback, ids, cuts)) == fallback.decode(ids)


def test_a_character_is_shown_as_soon_as_it_is_whole(make, ids_of_bytes):
    tokenizer = make("byte_level")
    detokenizer = Detokenizer(tokenizer)
    ids = ids_of_bytes("a你!".encode())
    assert [detokenizer.push([i]) for i in ids] == ["a", "", "", "你", "!"]


@pytest.mark.parametrize("kind", ["byte_level", "llama", "gemma", "metaspace"])
def test_prompt_that_ends_inside_a_character(make, ids_of_bytes, kind):
    tokenizer = make(kind)
    of_bytes = ids_of_bytes if kind == "byte_level" else list
    char = "你".encode()
    for cut in range(4):
        prompt, answer = of_bytes(b"x" + char[:cut]), of_bytes(char[cut:] + b"y")
        pieces = stream(tokenizer, answer, range(len(answer)), prompt=prompt)
        assert "".join(pieces) == ("你y" if cut < 3 else "y"), cut


@pytest.mark.parametrize("kind", ["byte_level", "llama", "gemma", "metaspace"])
def test_broken_end_of_a_prompt_is_not_new_text(make, ids_of_bytes, kind):
    tokenizer = make(kind)
    of_bytes = ids_of_bytes if kind == "byte_level" else list
    prompt = of_bytes(b"x\xe4\xbd")
    letter = tokenizer.token_to_id("b")
    assert "".join(stream(tokenizer, [letter], [], prompt=prompt)) == "b"
    assert "".join(stream(tokenizer, [], [], prompt=prompt)) == ""


@pytest.mark.parametrize("kind", ["llama", "gemma", "metaspace"])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_the_prompt_is_context(make, kind, data):
    """Answer text behind a prompt = whole decode of both, less that of the prompt."""
    tokenizer = make(kind)
    words = st.lists(st.integers(256, tokenizer.vocab_size - 1), min_size=1, max_size=12)
    prompt, answer = data.draw(words), data.draw(words)
    before = tokenizer.decode(prompt)
    whole = tokenizer.decode([*prompt, *answer])
    pieces = stream(tokenizer, answer, range(len(answer)), prompt=prompt)
    assert before + "".join(pieces) == whole


def test_work_per_token_is_bounded(make):
    """Spaces alone give no text by themselves in a strip-first decoder; the window stays short."""
    tokenizer = make("llama")
    detokenizer = Detokenizer(tokenizer)
    space, letter = tokenizer.token_to_id("▁"), tokenizer.token_to_id("a")
    text = "".join(detokenizer.push([i]) for i in [space] * 500 + [letter] * 500)
    assert text + detokenizer.finish() == " " * 499 + "a" * 500
    assert sum(map(len, detokenizer._stream._window)) < 5


def test_decoders_that_rewrite_earlier_text_are_refused():
    rust = Rust(WordLevel({"a": 0}, unk_token="a"))
    rust.decoder = decoders.WordPiece()
    with pytest.raises(CheckpointError, match="WordPiece"):
        Tokenizer.from_json(rust.to_str())
    tree = json.loads(rust.to_str())
    tree["decoder"] = {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]}
    with pytest.raises(CheckpointError, match="ByteFallback"):
        Tokenizer.from_json(json.dumps(tree))
