"""The model against transformers on seven random hybrids (tests/oracles/make_goldens.py).

Tolerances. float32: 1e-5 of the norm of the logits, over all positions; two float32
implementations that sum in different orders differ by about 1e-6 here. bfloat16: transformers' own
bfloat16 logits differ from its float32 ones by 2 to 8% on these models; ours round at the same
places, so 1.5 times that distance (the worst over the prompts of a model) bounds ours.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.conftest import NAMES, distance, golden

LENGTHS = (1, 2, 63, 64, 65, 200)


def bf16_bound(data: dict[str, np.ndarray]) -> float:
    return 1.5 * max(float(data[f"bf16_distance_{length}"]) for length in LENGTHS)


@pytest.mark.parametrize("name", NAMES)
def test_float32_logits(golden_runner, name):
    runner, data = golden_runner(name, "float32"), golden(name)
    for length in LENGTHS:
        logits, _, _ = runner.prefill(data[f"tokens_{length}"])
        assert distance(logits, data[f"logits_{length}"]) < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_logits(golden_runner, name):
    runner, data = golden_runner(name, "bfloat16"), golden(name)
    for length in LENGTHS:
        logits, _, _ = runner.prefill(data[f"tokens_{length}"])
        assert 0 < distance(logits, data[f"logits_{length}"]) < bf16_bound(data)


@pytest.mark.parametrize("name", NAMES)
def test_batch_of_different_lengths(golden_runner, name):
    runner, data = golden_runner(name, "float32"), golden(name)
    lengths = data["batch_lengths"]
    padded = np.zeros((len(lengths), 192), np.int32)
    padded[:, : data["batch_tokens"].shape[1]] = data["batch_tokens"]
    state, table = runner.start(batch=len(lengths))
    _, logits, _ = runner.step(padded, state, table, np.zeros(len(lengths)), lengths)
    logits = np.concatenate([np.asarray(logits)[i, :n] for i, n in enumerate(lengths)])
    assert distance(logits, data["batch_logits"]) < 1e-5


def decode(runner, prompt: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Logits [len(given), V] of a decode that is fed `given`, after a prefill of the prompt."""
    logits, state, table = runner.prefill(prompt)
    rows = [logits[-1]]
    for index, token in enumerate(given[:-1]):
        _, logits, state = runner.step([[token]], state, table, [len(prompt) + index], [1])
        rows.append(np.asarray(logits)[0, 0])
    return np.stack(rows)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("index", range(3))
def test_greedy_answer_float32(golden_runner, name, index):
    """Decode step by step gives transformers' 64 greedy tokens."""
    runner, data = golden_runner(name, "float32"), golden(name)
    answer = data[f"generate_tokens_{index}"]
    logits = decode(runner, data[f"generate_prompt_{index}"], answer)
    np.testing.assert_array_equal(logits.argmax(-1), answer)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("index", range(3))
def test_greedy_answer_bfloat16(golden_runner, name, index):
    """The same tokens wherever the margin exceeds what bfloat16 may move two logits by.

    The bound of the logits' norm, spread over all logits, is bound * rms; both logits of a pair may
    move, and a single one by several times the rms: three of them cover a normal error.
    """
    runner, data = golden_runner(name, "bfloat16"), golden(name)
    answer, margin = data[f"generate_tokens_{index}"], data[f"generate_margin_{index}"]
    logits = decode(runner, data[f"generate_prompt_{index}"], answer)
    sure = margin > 3 * np.sqrt(2) * bf16_bound(data) * np.sqrt(np.mean(logits**2))
    np.testing.assert_array_equal(logits.argmax(-1)[sure], answer[sure])
    assert sure.any(), "the bound leaves nothing to compare"


@pytest.mark.parametrize("name", NAMES)
def test_decode_continues_prefill(golden_runner, name):
    """prefill(n) then decode(m) agrees with prefill(n + m) to rounding."""
    runner, data = golden_runner(name, "float32"), golden(name)
    tokens = data["tokens_200"]
    whole, _, _ = runner.prefill(tokens)
    for split in (1, 63, 64, 130, 190):
        stepped = decode(runner, tokens[:split], np.append(tokens[split : split + 9], 0))
        assert distance(stepped, whole[split - 1 : split + 9]) < 1e-5
