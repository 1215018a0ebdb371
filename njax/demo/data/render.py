"""Conversations as tokens, through the chat template, with a mask of what the model writes."""

from __future__ import annotations

import dataclasses

import numpy as np

from njax.demo.data.sample import Sample
from njax.text.chat_template import ChatTemplate
from njax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Rendered:
    """One conversation.

    Attributes:
      tokens: uint16 [T].
      mask: bool [T], the tokens of assistant turns: text, thinking, calls and the end mark. What
        the prompt of a turn holds already (its header, the opening of the thinking block, the
        whole block when thinking is off) is not among them.
      judged: bool [T], the part of the mask after the last user turn.
    """

    tokens: np.ndarray
    mask: np.ndarray
    judged: np.ndarray


class Renderer:
    """Renders samples with one tokenizer and template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate):
        self._tokenizer, self._template = tokenizer, template
        header = "<|im_start|>assistant\n"
        self._header = tokenizer.encode(header)
        self._user = tokenizer.encode("<|im_start|>user\n")
        # What follows the header in a prompt; the longer one first.
        self._openings = [
            tokenizer.encode(header + text)[len(self._header) :]
            for text in ("<think>\n\n</think>\n\n", "<think>\n")
        ]
        self._start = self._header[0]
        (self._end,) = tokenizer.encode("<|im_end|>")

    def text(self, sample: Sample) -> str:
        """The whole conversation as the template writes it."""
        return self._template.render(
            sample.messages, sample.tools, add_generation_prompt=False, **sample.options()
        )

    def prompt(self, sample: Sample, target: int) -> list[int]:
        """Tokens before the assistant message at index `target`, its opening included."""
        text = self._template.render(sample.messages[:target], sample.tools, **sample.options())
        return self._tokenizer.encode(text)

    def __call__(self, sample: Sample) -> Rendered:
        tokens = self._tokenizer.encode(self.text(sample))
        mask = np.zeros(len(tokens), bool)
        judged = np.zeros(len(tokens), bool)
        # An assistant turn of the template's last stretch is the only kind that opens a block.
        starts = [i for i, token in enumerate(tokens) if token == self._start]
        for start in starts:
            first = start + len(self._header)
            if tokens[start:first] != self._header:
                continue
            end = tokens.index(self._end, first) + 1
            for opening in self._openings:
                if tokens[first : first + len(opening)] == opening:
                    first += len(opening)
                    judged[first:end] = True
                    break
            mask[first:end] = True
        return Rendered(np.array(tokens, np.uint16), mask, judged)
