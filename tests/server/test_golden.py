"""A transformers checkpoint, converted and served by the commands, says what it said there.

In bfloat16 an answer runs free from the first token whose margin is too small, so what is compared
is the text before it; tests/models compares every token.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.models.test_goldens import bf16_bound
from tests.server.conftest import environment, python, serving

GOLDEN = Path(__file__).parent.parent / "goldens" / "chat"


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_greedy_answers(tmp_path, dtype):
    converted = tmp_path / "golden"
    subprocess.run(
        python("-m", "njax", "convert", str(GOLDEN), str(converted), "--dtype", dtype),
        check=True, env=environment(), timeout=120,
    )  # fmt: skip
    data = np.load(GOLDEN / "golden.npz")
    tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))
    sure: list[int] = []
    chats = json.loads((GOLDEN / "chats.json").read_text())
    options = ("--max-context", "512", "--prefill-chunk", "64", "--max-concurrency", "3")
    with serving(str(converted), *options) as server:
        for index, messages in enumerate(chats):
            body = {"model": "golden", "messages": messages, "temperature": 0, "max_tokens": 64}
            answer = server.post(body).json()
            tokens = data[f"generate_tokens_{index}"]
            assert answer["usage"]["prompt_tokens"] == len(data[f"generate_prompt_{index}"])
            content = answer["choices"][0]["message"]["content"]
            expected = tokenizer.decode(tokens.tolist())
            assert answer["usage"]["completion_tokens"] == len(tokens)
            if dtype == "float32":
                assert content == expected
            sure.append(_sure(data, index))
            # The last character may still be open there.
            known = tokenizer.decode(tokens[: sure[-1]].tolist()).rstrip("\ufffd")
            assert content.startswith(known)
    assert any(sure), sure


def _sure(data: np.lib.npyio.NpzFile, index: int) -> int:
    """How many tokens from the start bfloat16 cannot change (see tests/models/test_goldens.py)."""
    moves = 3 * np.sqrt(2) * bf16_bound(data) * np.sqrt(np.mean(data["logits_200"] ** 2))
    unsure = data[f"generate_margin_{index}"] <= moves
    return int(np.argmax(unsure)) if unsure.any() else len(unsure)
