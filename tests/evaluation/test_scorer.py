"""Figures of tokens against float64 arithmetic on the logits that transformers computed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from njax.checkpoint import convert_checkpoint, load_checkpoint
from njax.evaluation import Scorer, TokenSequence, score_sequences, summarize
from tests.models.conftest import GOLDENS, golden

NAME, LENGTH = "chat", 200
WIDE = {"size": 256, "stride": 128}


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """(float32, NVFP4) forms of one golden model."""
    folder = tmp_path_factory.mktemp("scored")
    found = []
    for form in ("none", "nvfp4"):
        convert_checkpoint(GOLDENS / NAME, folder / form, quantize=form, dtype="float32")
        found.append(load_checkpoint(folder / form))
    return found


@pytest.fixture(scope="module")
def scorer(checkpoints):
    return Scorer(checkpoints[0], 256, chunk=128)


def test_losses_are_those_of_transformers(scorer):
    """Float32 logits of two implementations, up to 22 in size, differ by 1e-5 in relation."""
    data = golden(NAME)
    tokens, logits = data[f"tokens_{LENGTH}"], data[f"logits_{LENGTH}"]
    figures = score_sequences([TokenSequence(tuple(tokens.tolist()))], scorer, **WIDE)
    expected = -log_probabilities(logits[:-1])[np.arange(LENGTH - 1), tokens[1:]]
    np.testing.assert_allclose(figures.loss, expected, atol=1e-4, rtol=2e-5)
    assert (figures.right == (logits[:-1].argmax(-1) == tokens[1:])).mean() > 0.99
    summary = summarize(figures)
    assert summary["tokens"] == LENGTH - 1
    assert math.isclose(summary["perplexity"], math.exp(expected.mean()), rel_tol=1e-4)


def test_only_tokens_that_count(scorer):
    tokens = tuple(golden(NAME)[f"tokens_{LENGTH}"].tolist())
    every = score_sequences([TokenSequence(tokens)], scorer, **WIDE)
    counts = np.random.default_rng().random(LENGTH) < 0.3
    counts[[0, 150]] = True
    some = score_sequences([TokenSequence(tokens, tuple(counts.tolist()))], scorer, **WIDE)
    np.testing.assert_array_equal(some.loss, every.loss[counts[1:]])
    nothing = TokenSequence(tokens, (True,) + (False,) * (LENGTH - 1))
    with pytest.raises(ValueError, match="no token"):
        score_sequences([nothing], scorer, **WIDE)


def test_short_windows_see_less(scorer):
    """The tokens of the first window are scored as ever, later ones from their window alone."""
    tokens = tuple(golden(NAME)[f"tokens_{LENGTH}"].tolist())
    wide = score_sequences([TokenSequence(tokens)], scorer, **WIDE)
    narrow = score_sequences([TokenSequence(tokens)], scorer, size=64, stride=32)
    np.testing.assert_array_equal(narrow.loss[:63], wide.loss[:63])
    alone = score_sequences([TokenSequence(tokens[32:96])], scorer, **WIDE)
    np.testing.assert_array_equal(narrow.loss[63:95], alone.loss[31:63])


def test_divergence(checkpoints, scorer):
    """Nothing from itself, float64 arithmetic's from another; both directions of reports."""
    tokens = TokenSequence(tuple(golden(NAME)[f"tokens_{LENGTH}"].tolist()))
    same = score_sequences([tokens], scorer, scorer, **WIDE)
    assert not same.divergence.any() and same.agrees.all()
    np.testing.assert_array_equal(same.loss, same.reference_loss)

    other = Scorer(checkpoints[1], 256, chunk=128)
    reports = []
    figures = score_sequences(
        [tokens, tokens], other, scorer, progress=lambda *report: reports.append(report), **WIDE
    )
    assert reports == [(LENGTH, 2 * LENGTH), (2 * LENGTH, 2 * LENGTH)]
    truth, ours = (
        log_probabilities(np.asarray(one.head(one.params, one.hidden(tokens.tokens)[0])))
        for one in (scorer, other)
    )
    expected = (np.exp(truth) * (truth - ours)).sum(-1)
    np.testing.assert_allclose(figures.divergence[:127], expected[:127], atol=1e-5)
    agrees = ours.argmax(-1) == truth.argmax(-1)
    np.testing.assert_array_equal(figures.agrees[:127], agrees[:127])
    summary = summarize(figures)
    assert 0 < summary["divergence_median"] <= summary["divergence_p99"]
    assert math.isclose(
        summary["perplexity_ratio"], summary["perplexity"] / summary["reference_perplexity"]
    )
