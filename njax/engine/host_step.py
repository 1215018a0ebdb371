"""A step's results on the host, in one form for prefill, decode and rounds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from njax.engine.logits import Logprobs
from njax.engine.speculative import RoundOutput
from njax.engine.steps import StepOutput
from njax.engine.types import TokenLogprobs


@dataclasses.dataclass(frozen=True)
class HostStep:
    """Up to T new tokens for each of B rows; T is 1 but for rounds.

    Attributes:
      token: int32 [B, T], finite: bool [B, T].
      count: int32 [B], tokens of the row that count.
      drafted: int32 [B], drafts that were verified for it.
      is_round: whether it comes from a speculative round.
      logprobs: of the tokens, device arrays [B, T, ...] that are read only if somebody asks.
    """

    token: np.ndarray[Any, Any]
    finite: np.ndarray[Any, Any]
    count: np.ndarray[Any, Any]
    drafted: np.ndarray[Any, Any]
    is_round: bool
    logprobs: Logprobs

    def logprobs_of(self, row: int, index: int, wanted: int | None) -> tuple[TokenLogprobs, ...]:
        """Of one token and `wanted` alternatives; nothing for None."""
        if wanted is None:
            return ()
        place = (row, index) if np.ndim(self.logprobs.chosen) == 2 else row
        ids, top = np.asarray(self.logprobs.top_ids)[place], np.asarray(self.logprobs.top)[place]
        return (
            TokenLogprobs(
                token_id=int(self.token[row, index]),
                logprob=float(np.asarray(self.logprobs.chosen)[place]),
                top=tuple((int(i), float(p)) for i, p in zip(ids[:wanted], top, strict=False)),
            ),
        )


def read_step(output: StepOutput | RoundOutput) -> HostStep:
    """Waits for a step and reads what every sequence needs of it."""
    token, finite = np.asarray(output.token), np.asarray(output.finite)
    if isinstance(output, RoundOutput):
        count, drafted = np.asarray(output.count), np.asarray(output.drafted)
        return HostStep(token, finite, count, drafted, True, output.logprobs)
    ones = np.ones_like(token)
    return HostStep(token[:, None], finite[:, None], ones, ones * 0, False, output.logprobs)
