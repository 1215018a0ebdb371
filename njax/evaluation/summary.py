"""Figures of tokens to a few numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from njax.evaluation.scorer import TokenFigures


def summarize(figures: TokenFigures) -> dict[str, Any]:
    """JSON-ready numbers.

    `perplexity` is exp of the mean loss, `perplexity_error` its standard error (first order, tokens
    taken as independent), `top_1` the share of tokens that were the likeliest. With a reference:
    its perplexity, their ratio, the mean, median, 99th percentile and largest KL divergence in
    nats, and the share of tokens for which both find the same one likeliest.
    """
    count = len(figures.loss)
    mean = float(np.mean(figures.loss))
    perplexity = _exp(mean)
    spread = float(np.std(figures.loss, ddof=1)) if count > 1 else math.nan
    out: dict[str, Any] = {
        "tokens": count,
        "loss": mean,
        "perplexity": perplexity,
        "perplexity_error": perplexity * spread / math.sqrt(count) if count > 1 else None,
        "top_1": float(np.mean(figures.right)),
    }
    if figures.reference_loss is None or figures.divergence is None or figures.agrees is None:
        return out
    reference = float(np.mean(figures.reference_loss))
    divergence = figures.divergence
    return out | {
        "reference_perplexity": _exp(reference),
        "perplexity_ratio": _exp(mean - reference),
        "divergence_mean": float(np.mean(divergence)),
        "divergence_median": float(np.median(divergence)),
        "divergence_p99": float(np.quantile(divergence, 0.99)),
        "divergence_max": float(np.max(divergence)),
        "agreement": float(np.mean(figures.agrees)),
    }


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
