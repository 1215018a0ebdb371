"""Messages to a prompt: text, token ids, and the frontiers worth a snapshot.

A frontier is the number of tokens of the rendered system block (system text and tool
declarations), the head that many conversations share. It is not computed from the template's
source, which may be anything, but found by rendering: what two conversations with the same system
and tools and different first turns have in common, cut where the first turn's special token
begins. It is proven by tokenising: the tokens of the head on its own are the first tokens of the
whole prompt.

A head is found once for each (system text, tools, options) and kept; a prompt with a known head
tokenises only what follows it, when it was proven that the cut separates (the special token there
ends one run of text for the tokenizer and begins the next).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from njax.errors import ContextLengthExceeded, InvalidRequest
from njax.text.chat_template import ChatTemplate
from njax.text.messages import Message, normalize_messages, system_text
from njax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A rendered conversation.

    Attributes:
      text: what the template made.
      token_ids: its tokens.
      frontiers: token counts, ascending, at which a snapshot can serve other conversations.
      live_turn: token count where the opening of the answer begins, at the last special token: what
        stands before is what the next request of this conversation sends again. 0 if unknown.
    """

    text: str
    token_ids: tuple[int, ...]
    frontiers: tuple[int, ...]
    live_turn: int = 0


@dataclasses.dataclass(frozen=True)
class _Head:
    """A rendered system block.

    Attributes:
      text, token_ids: the block.
      joints: special tokens that were seen to follow it and to separate it from what comes.
    """

    text: str
    token_ids: tuple[int, ...]
    joints: frozenset[str]


class PromptRenderer:
    """Renders prompts for one tokenizer and template; safe to share between threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        cached_heads: int = 64,
        max_tokens: int | None = None,
    ):
        """
        Args:
          cached_heads: how many system blocks to keep, least recently used out first.
          max_tokens: prompts that are certainly longer are refused before they are tokenised.
        """
        self._max_tokens = max_tokens
        self._tokenizer = tokenizer
        self._template = template
        self._cached_heads = cached_heads
        self._heads: OrderedDict[bytes, _Head | None] = OrderedDict()
        self._lock = threading.Lock()
        turn = sorted(map(re.escape, tokenizer.turn_tokens), key=len, reverse=True)
        self._turn = re.compile("|".join(turn)) if turn else None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Prompt:
        """Renders and tokenises; arguments as for `ChatTemplate.render`.

        Raises:
          InvalidRequest: malformed messages, or the template refuses or fails on them.
          ContextLengthExceeded: certainly more than `max_tokens`.
        """
        normal = normalize_messages(messages)
        text = self._template.render_normalized(normal, tools, **options)
        if self._max_tokens is not None:
            least = self._tokenizer.least_tokens(text)
            if least > self._max_tokens:
                raise ContextLengthExceeded(
                    f"the prompt has at least {least} tokens, the context holds {self._max_tokens}",
                    param="messages",
                )
        head = self._head(normal, tools, options)
        if head is not None and not text.startswith(head.text):
            # The template depends on more than its inputs, e.g. on the date: look again.
            head = self._head(normal, tools, options, fresh=True)
        if head is None or not text.startswith(head.text):
            return self._prompt(text, tuple(self._tokenizer.encode(text)), 0)
        count = len(head.token_ids)
        if any(text.startswith(joint, len(head.text)) for joint in head.joints):
            rest = self._tokenizer.encode(text[len(head.text) :])
            return self._prompt(text, (*head.token_ids, *rest), count)
        ids = tuple(self._tokenizer.encode(text))
        proven = ids[:count] == head.token_ids and count < len(ids)
        return self._prompt(text, ids, count if proven else 0)

    def _prompt(self, text: str, ids: tuple[int, ...], head: int) -> Prompt:
        """With its frontiers; `head` is the token count of the proven head, 0 without one."""
        special = self._tokenizer.special_ids
        live = next((at for at in range(len(ids) - 1, 0, -1) if ids[at] in special), 0)
        return Prompt(text, ids, (head,) if head else (), live)

    def _head(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
        fresh: bool = False,
    ) -> _Head | None:
        system = system_text(messages)
        key = _key(system, tools, options)
        with self._lock:
            if not fresh and key in self._heads:
                self._heads.move_to_end(key)
                return self._heads[key]
        head = self._find_head(system, tools, options)
        with self._lock:
            self._heads[key] = head
            self._heads.move_to_end(key)
            while len(self._heads) > self._cached_heads:
                self._heads.popitem(last=False)
        return head

    def _find_head(
        self,
        system: str | None,
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
    ) -> _Head | None:
        leading = [] if system is None else [{"role": "system", "content": system}]
        texts = []
        # The third shows what belongs to the user's opening rather than to the system block; a
        # template that insists on a user's turn first refuses it, which is no loss.
        for turns in (
            [{"role": "user", "content": "x"}],
            [{"role": "user", "content": "y"}],
            [{"role": "assistant", "content": "z"}, {"role": "user", "content": "x"}],
        ):
            try:
                texts.append(self._template.render_normalized([*leading, *turns], tools, **options))
            except InvalidRequest:
                continue
        if len(texts) < 2:
            return None
        common = _common_start(texts)
        cut = self._cut(texts, len(common))
        text = common if cut is None else common[:cut]
        if leading or tools:
            if not self._says_something(text):
                # The template writes the system text into the user's turn: nothing separates them.
                cut, text = None, common
        elif cut is None:
            return None
        if not self._says_something(text):
            return None
        ids = tuple(self._tokenizer.encode(text))
        joints: dict[str, bool] = {}
        for whole in texts if cut is not None else ():
            assert self._turn is not None and cut is not None
            match = self._turn.match(whole, cut)
            assert match is not None
            if match.group() not in joints:
                apart = [*ids, *self._tokenizer.encode(whole[cut:])]
                joints[match.group()] = apart == self._tokenizer.encode(whole)
        return _Head(text, ids, frozenset(joint for joint, proven in joints.items() if proven))

    def _cut(self, texts: Sequence[str], limit: int) -> int | None:
        """The last place up to `limit` at which each text begins a special token."""
        if self._turn is None:
            return None
        for match in reversed(list(self._turn.finditer(texts[0]))):
            at = match.start()
            if at <= limit and all(self._turn.match(text, at) for text in texts):
                return at
        return None

    def _says_something(self, text: str) -> bool:
        """Whether anything but special tokens and white space is in it."""
        return bool((self._turn.sub("", text) if self._turn else text).strip())


def render_prompt(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> Prompt:
    """One prompt without a renderer that is kept. See `PromptRenderer.render`."""
    return PromptRenderer(tokenizer, template).render(messages, tools, **options)


def _common_start(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)  # in alphabetical order; all others lie between
    for at, (a, b) in enumerate(zip(low, high, strict=False)):
        if a != b:
            return low[:at]
    return low


def _key(
    system: str | None, tools: Sequence[Mapping[str, Any]] | None, options: Mapping[str, Any]
) -> bytes:
    # The order of a tool's keys shows in the rendered text, so it is part of the key.
    data = json.dumps([system, list(tools or ()), sorted(options.items())], default=repr)
    return hashlib.sha256(data.encode()).digest()
