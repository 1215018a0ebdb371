"""From tokens to events: text, stop conditions and the end of one request's answer."""

from __future__ import annotations

import dataclasses

from njax.engine.types import Delta, FinishReason, GenerationRequest, TokenLogprobs
from njax.text.detokenizer import Detokenizer
from njax.text.stop import StopStrings
from njax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Step:
    """What one token led to: perhaps something to send, perhaps the end."""

    delta: Delta | None
    finish: FinishReason | None


class OutputPipeline:
    """Turns the tokens of one request into text deltas and finds its end.

    Args:
      request: what was asked.
      tokenizer: decodes tokens.
      stop_token_ids: the model's own stop tokens (ignored when the request says so).
      limit: most tokens to accept.
      limit_reason: why the answer ends there.
    """

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: Tokenizer,
        stop_token_ids: frozenset[int],
        limit: int,
        limit_reason: FinishReason,
    ):
        own = frozenset() if request.ignore_eos else stop_token_ids
        self._stop_ids = own | frozenset(request.stop_token_ids)
        self._detokenizer = Detokenizer(
            tokenizer, skip_special=request.skip_special_tokens, prompt=request.token_ids
        )
        self._stop_strings = StopStrings(request.stop) if request.stop else None
        self._limit = limit
        self._limit_reason = limit_reason
        self.accepted = 0

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._stop_strings.matched if self._stop_strings is not None else None

    def push(self, token: int, logprobs: tuple[TokenLogprobs, ...] = ()) -> Step:
        """Takes the next token. After a `finish` nothing more may be pushed.

        The log probability of a stop token is dropped with it: neither is part of the answer.
        """
        step = self._push(token)
        if logprobs and step.delta is not None and step.finish != "stop_token":
            return Step(dataclasses.replace(step.delta, logprobs=logprobs), step.finish)
        return step

    def _push(self, token: int) -> Step:
        self.accepted += 1
        if token in self._stop_ids:
            return self._end((token,), "", "stop_token")
        text = self._detokenizer.push([token])
        if self._stop_strings is not None:
            text, stopped = self._stop_strings.push(text)
            if stopped:
                return Step(Delta((token,), text), "stop_string")
        if self.accepted >= self._limit:
            return self._end((token,), text, self._limit_reason)
        return Step(Delta((token,), text), None)

    def _end(self, tokens: tuple[int, ...], text: str, reason: FinishReason) -> Step:
        tail = self._detokenizer.finish()
        if self._stop_strings is None:
            text += tail
        else:
            more, _ = self._stop_strings.push(tail)
            text += more + self._stop_strings.finish()
            if self._stop_strings.stopped:
                reason = "stop_string"
        return Step(Delta(tokens, text), reason)
