"""What callers exchange with the engine: plain values, no arrays, safe across threads."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

from njax.engine import field_names
from njax.errors import InvalidRequest, RequestError

FinishReason = Literal["stop_token", "stop_string", "output_limit", "context_capacity", "cancelled"]
ReusePath = Literal["seed_prefix", "full_reset"]
"""Where a prompt's state came from. Further names arrive with further sources."""


MAX_LOGPROBS = 20
MAX_BIASES = 300


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen. Temperature 0 is greedy: lowest id among the best.

    Attributes:
      temperature: at least 0.
      top_k: keep the k most likely; 0 keeps all.
      top_p: keep the shortest head of the distribution with at least this mass, in (0, 1].
      min_p: drop tokens below min_p times the likeliest, in [0, 1].
      seed: equal seeds give equal tokens in any batch; None draws a fresh one.
      repetition_penalty: above 1 makes tokens of prompt and answer less likely, below 1 more.
      presence_penalty, frequency_penalty: taken from the logit of a token that the answer holds,
        once and for each time, in [-2, 2].
      logit_bias: (token id, what to add to its logit), ids distinct.
      logprobs: report the log probability of each token and of this many alternatives; None: of
        nothing.

    Penalties and biases hold for greedy choices too.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_real("temperature", self.temperature, 0.0, 100.0)
        _check_real("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _check_real("min_p", self.min_p, 0.0, 1.0)
        _check_real("repetition_penalty", self.repetition_penalty, 0.0, 100.0, low_open=True)
        _check_real("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_real("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self._check_bias()
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_LOGPROBS:
            raise InvalidRequest(
                f"logprobs is {self.logprobs}; it must be between 0 and {MAX_LOGPROBS}",
                param="logprobs",
            )
        if self.top_k < 0:
            raise InvalidRequest(f"top_k is {self.top_k}; it must be 0 or more", param="top_k")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise InvalidRequest(
                f"seed is {self.seed}; it must be between 0 and 2**64 - 1", param="seed"
            )

    def _check_bias(self) -> None:
        if len(self.logit_bias) > MAX_BIASES:
            raise InvalidRequest(
                f"logit_bias has {len(self.logit_bias)} entries; at most {MAX_BIASES} are taken",
                param="logit_bias",
            )
        if len({token for token, _ in self.logit_bias}) != len(self.logit_bias):
            raise InvalidRequest("logit_bias names a token twice", param="logit_bias")
        for token, bias in self.logit_bias:
            if token < 0:
                raise InvalidRequest(f"logit_bias names token {token}", param="logit_bias")
            _check_real("logit_bias", bias, -100.0, 100.0)


def _check_real(name: str, value: float, low: float, high: float, low_open: bool = False) -> None:
    below = value <= low if low_open else value < low
    # The range first: isfinite() of an integer too large for a float raises.
    if below or not value <= high or not math.isfinite(value):
        bracket = "(" if low_open else "["
        raise InvalidRequest(
            f"{name} is {value}; it must be a number in {bracket}{low:g}, {high:g}]", param=name
        )


@dataclasses.dataclass(frozen=True)
class GenerationRequest:
    """One generation.

    Attributes:
      token_ids: the whole prompt.
      max_tokens: most tokens to generate; capped by the room that the context leaves.
      sampling: how tokens are chosen.
      stop: strings that end the answer; they are not part of it, the text before is exact.
      stop_token_ids: tokens that end the answer, besides the model's own.
      ignore_eos: go on past the model's own stop tokens (benchmarks).
      frontiers: prompt positions (token counts) worth a snapshot, ascending.
      tenant: name that separates prefix caches; part of every prefix identity.
      reuse_prefix: allow starting from a cached prefix.
      capture_prefix: allow capturing one.
      skip_special_tokens: leave special tokens out of the text.
    """

    token_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    frontiers: tuple[int, ...] = ()
    tenant: str = ""
    reuse_prefix: bool = True
    capture_prefix: bool = True
    skip_special_tokens: bool = True


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds on the engine's clock; 0 where a phase did not happen."""

    queued: float = 0.0
    time_to_first_token: float = 0.0
    total: float = 0.0


@dataclasses.dataclass(frozen=True)
class Drafts:
    """Speculation of one request, by position in the window (the first draft first).

    Attributes:
      drafted: drafts that were verified.
      accepted: those that became tokens, as did all before them.
      rounds: rounds after the first token, with drafts or without.
    Empty where the engine does not draft.
    """

    drafted: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    rounds: int = 0

    def __add__(self, other: Drafts) -> Drafts:
        """Counts of both, position by position."""
        return Drafts(
            _sums(self.drafted, other.drafted),
            _sums(self.accepted, other.accepted),
            self.rounds + other.rounds,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: sums, and counts by position."""
        return {
            field_names.DRAFT_N: sum(self.drafted),
            field_names.DRAFT_N_ACCEPTED: sum(self.accepted),
            "draft_rounds": self.rounds,
            f"{field_names.DRAFT_N}_by_position": list(self.drafted),
            f"{field_names.DRAFT_N_ACCEPTED}_by_position": list(self.accepted),
        }


def _sums(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in itertools.zip_longest(a, b, fillvalue=0))


@dataclasses.dataclass(frozen=True)
class Usage:
    """Token counts of one request.

    The first `cached_tokens` of the prompt came from a snapshot; the `captured_tokens` after them
    are in a snapshot now that this request left.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reuse_path: ReusePath
    captured_tokens: int = 0
    timings: Timings = Timings()
    drafts: Drafts = Drafts()


@dataclasses.dataclass(frozen=True)
class Started:
    """The request left the queue; its prefill begins."""

    cached_tokens: int
    reuse_path: ReusePath


@dataclasses.dataclass(frozen=True)
class TokenLogprobs:
    """Natural log probability of a token, and of the likeliest ones as (id, log probability)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclasses.dataclass(frozen=True)
class Delta:
    """New tokens and the text that they complete. Text may lag behind tokens, never lead.

    `logprobs` has one entry for each token if the request asked, else none.
    """

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclasses.dataclass(frozen=True)
class Finished:
    """Last event of a request that ended as it should. `stop_string` is the one that ended it."""

    reason: FinishReason
    usage: Usage
    stop_string: str | None = None


@dataclasses.dataclass(frozen=True)
class Failed:
    """Last event of a request that did not."""

    error: RequestError


Event = Started | Delta | Finished | Failed
EventSink = Callable[[Event], None]
"""Called on the engine's thread, in order; must return at once and never raise."""


class RequestHandle:
    """A submitted request. `cancel` may be called from any thread, any number of times."""

    def __init__(self, request_id: int, cancel: Callable[[int], None]):
        self.request_id = request_id
        self._cancel = cancel

    def cancel(self) -> None:
        """Frees the lane within one step; the request ends with reason "cancelled"."""
        self._cancel(self.request_id)
