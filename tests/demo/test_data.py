"""The closed world: same bytes everywhere, splits that do not meet, answers that are right."""

from __future__ import annotations

import datetime
import hashlib
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.demo.data import CATEGORIES, arithmetic, names
from njax.demo.data.check import judge, read_turn, typed, violations
from njax.demo.data.dates import MONTHS
from njax.demo.data.dice import Dice, belongs
from njax.demo.data.mixture import MIXES, sample
from njax.demo.data.pack import Bucket, make_batch
from njax.demo.data.render import Renderer
from njax.demo.data.tools.declare import draw_tools
from njax.demo.training.vocabulary import chat_template, train_bpe
from njax.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def renderer():
    text = " ".join(
        json.dumps([s.messages, s.tools])
        for s in (sample(9, "train", i, "short") for i in range(60))
    )
    return Renderer(Tokenizer.from_json(train_bpe([text], 512)), chat_template())


def some(split, count=12, mixes=("short", "medium")):
    return [
        sample(3, split, index, mix, category)
        for mix in mixes
        for category in CATEGORIES
        for index in range(count)
    ]


def test_the_same_bytes_everywhere():
    digest = hashlib.sha256()
    for mix in MIXES:
        for index in range(20):
            one = sample(1, "train", index, mix)
            digest.update(json.dumps([one.messages, one.tools, one.thinking]).encode())
    assert digest.hexdigest()[:16] == "edbf7f8d295d6539"


def test_names_and_tools_of_the_test_split_are_not_in_training():
    words: dict[str, set[str]] = {}
    tools: dict[str, set[str]] = {}
    for split in ("train", "test"):
        found = some(split)
        tools[split] = {tool["function"]["name"] for s in found for tool in s.tools}
        dice = Dice(1, split, "names")
        kinds = ("person", "place", "thing")
        words[split] = {names.name(dice, kind) for kind in kinds for _ in range(2000)}
        assert all(belongs(name, split) for name in tools[split] | words[split])
        assert len(words[split]) > 200 and len(tools[split]) > 50
    assert not words["train"] & words["test"]
    assert not tools["train"] & tools["test"]


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_sample_passes_its_own_check(renderer, split):
    kinds = set()
    for one in some(split, 30, ("short",)) + some(split, 4, ("medium",)):
        assert one.category in CATEGORIES
        kinds.add((one.category, one.kind))
        for target in one.targets:
            text = written(renderer, one, target)
            verdict = judge(one, target, text)
            assert verdict.exact and verdict.valid and verdict.right, text
            calls = one.messages[target].get("tool_calls", ())
            assert verdict.calls == len(calls)
            assert not judge(one, target, text + " and more").exact
    assert len({category for category, _ in kinds}) == len(CATEGORIES) and len(kinds) >= 45


def written(renderer, one, target) -> str:
    """What the model is to write at a target, by the template."""
    render = renderer._template.render
    options = one.options()
    whole = render(one.messages[: target + 1], one.tools, add_generation_prompt=False, **options)
    prompt = render(one.messages[:target], one.tools, **options)
    assert whole.startswith(prompt)
    return whole[len(prompt) :].removesuffix("<|im_end|>\n")


def test_the_mask_is_what_the_model_writes(renderer):
    tokenizer = renderer._tokenizer
    for one in some("train", 6):
        rendered = renderer(one)
        assert tokenizer.decode(list(rendered.tokens), skip_special=False) == renderer.text(one)
        assert not (rendered.judged & ~rendered.mask).any()
        judged = tokenizer.decode(list(rendered.tokens[rendered.judged]), skip_special=False)
        wanted = [written(renderer, one, target) + "<|im_end|>" for target in one.targets]
        assert judged == "".join(wanted)
        for target in one.targets:
            prompt = renderer.prompt(one, target)
            assert list(rendered.tokens[: len(prompt)]) == prompt
        turns = sum(message["role"] == "assistant" for message in one.messages)
        starts = np.flatnonzero(np.diff(np.concatenate([[False], rendered.mask]).astype(int)) == 1)
        assert len(starts) == turns


def test_sums_are_right():
    for index in range(300):
        one = sample(5, "train", index, "short", "arithmetic")
        answer = one.messages[-1]["content"]
        if " = " not in answer:
            continue
        left, right = answer.split(" = ")
        if "/" in left:
            a, b = (int(x) for x in left.split(" / "))
            quotient, _, rest = right.partition(" remainder ")
            assert int(quotient) * b + int(rest or 0) == a and int(rest or 0) < b
        else:
            assert eval(left) == int(right)  # digits, signs and brackets that we wrote ourselves


@given(st.integers(0, 99_999), st.integers(0, 99_999))
def test_traces_end_in_the_result(a, b):
    last = arithmetic.add_trace(a, b).replace("so ", "").replace(" carry 1", "").split()[-1]
    assert int(last) == a + b
    last = arithmetic.subtract_trace(max(a, b), min(a, b)).replace(" borrow 1", "").split()[-1]
    assert int(last) == abs(a - b)
    assert arithmetic.multiply_trace(a % 100, b % 1000).split(" = ")[-1] == str(
        a % 100 * (b % 1000)
    )
    quotient = arithmetic.divide_trace(a, b % 12 + 1).split("so ")[-1].split()[0]
    assert int(quotient) == a // (b % 12 + 1)


def test_dates_are_right():
    shift = re.compile(r"(\d+) days? (after|before) (\d+) (\w+) (\d{4})")
    checked = 0
    for index in range(600):
        one = sample(5, "train", index, "short", "calendar")
        found = shift.search(one.messages[-2]["content"])
        if found is None or found[4] not in MONTHS:
            continue
        start = datetime.date(int(found[5]), MONTHS.index(found[4]) + 1, int(found[3]))
        step = datetime.timedelta(days=int(found[1]) * (1 if found[2] == "after" else -1))
        end = start + step
        answer = f"{end.day} {MONTHS[end.month - 1]} {end.year}"
        assert one.messages[-1]["content"] == answer
        if one.thinking:
            assert one.messages[-1]["reasoning_content"].endswith(answer)
        checked += 1
    assert checked > 20


def test_calls_fit_their_schemas():
    types = set()
    for index in range(150):
        one = sample(7, "test", index, "medium", "tools")
        declared = {t["function"]["name"]: t["function"]["parameters"] for t in one.tools}
        assert len(declared) == len(one.tools)
        for message in one.messages:
            for call in message.get("tool_calls", ()):
                function = call["function"]
                assert not violations(function["arguments"], declared[function["name"]])
                for key in function["arguments"]:
                    types.add(declared[function["name"]]["properties"][key]["type"])
    assert types == {"string", "integer", "number", "boolean", "array", "object"}


CALL = "<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "s": {"type": "string", "enum": ["a", "b"]},
        "o": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
        "l": {"type": "array", "items": {"type": "number"}},
    },
    "required": ["n"],
}


def test_reading_a_turn():
    turn = read_turn(f"so\n</think>\n\nText.\n\n{CALL}\n{CALL}", thinking=True)
    assert turn.reasoning == "so" and turn.content == "Text." and turn.well_formed
    assert turn.calls == (("f", {"n": "3"}),) * 2
    assert not read_turn("no end of thinking", thinking=True).well_formed
    assert not read_turn(CALL[:-8], thinking=False).well_formed


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"n": 3, "s": "a", "o": {"x": True}, "l": [1, 2.5]}, 0),
        ({}, 1),
        ({"n": True}, 1),
        ({"n": 3.5, "s": "c"}, 2),
        ({"n": 3, "o": {}, "extra": 1}, 2),
        ({"n": 3, "l": ["x", 1]}, 1),
    ],
)
def test_violations(arguments, wrong):
    assert len(violations(arguments, SCHEMA)) == wrong


def test_typing():
    assert typed({"n": "3", "s": "3", "l": "[1]", "o": "{"}, SCHEMA) == {
        "n": 3, "s": "3", "l": [1], "o": "{",
    }  # fmt: skip


@pytest.mark.parametrize("bucket", [Bucket("short", 3, 1024), Bucket("medium", 2, 4096)])
def test_packing(renderer, bucket):
    batch = make_batch(renderer, bucket, 1, 7)
    again = make_batch(renderer, bucket, 1, 7)
    for name in ("tokens", "segments", "mask"):
        assert np.array_equal(getattr(batch, name), getattr(again, name))
        assert getattr(batch, name).shape == (bucket.rows, bucket.length)
    assert (batch.segments > 0).mean() > 0.9
    assert not (batch.mask & (batch.segments == 0)).any()
    (start,) = renderer._tokenizer.encode("<|im_start|>")
    for row in range(bucket.rows):
        steps = np.diff(batch.segments[row].astype(int))
        last = int(batch.segments[row].max())
        assert set(steps[steps != 0]) <= {1, -last}
        for number in range(1, last + 1):
            assert batch.tokens[row][batch.segments[row] == number][0] == start


def test_a_tool_does_what_no_other_in_its_list_does():
    tools = draw_tools(Dice(1, "train", "x"), 30)
    assert len({(tool.verb, tool.noun) for tool in tools}) == 30
