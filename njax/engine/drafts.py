"""What the multi-token layer does between the decoder's steps: follow the sequence, and draft.

The layer's keys and values are one more attention layer of the pool, the last. Entry t, made of the
decoder's hidden state of token t and the embedding of token t + 1, has slot t + 1 (see
`njax.models.mtp.FIRST`). What it makes of the newest entry is the hidden state of the first draft.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from njax.models.hybrid import HybridModel
from njax.models.mtp import FIRST, MultiTokenLayer
from njax.state import KVPages


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DraftState:
    """What lanes draft from.

    Attributes:
      position: int32 [lanes], tokens that the decoder has absorbed; the index of the newest token.
      tail: [lanes, hidden], the decoder's hidden state of the last of them.
      draft: [lanes, hidden], the layer's hidden state of the newest token, which the head makes
        the first draft of.
    """

    position: jax.Array
    tail: jax.Array
    draft: jax.Array


def init_drafts(lanes: int, hidden: int, dtype: jnp.dtype) -> DraftState:
    return DraftState(
        position=jnp.zeros(lanes, jnp.int32),
        tail=jnp.zeros((lanes, hidden), dtype),
        draft=jnp.zeros((lanes, hidden), dtype),
    )


def follow(
    model: HybridModel,
    layer: MultiTokenLayer,
    tokens: jax.Array,
    hidden: jax.Array,
    pages: KVPages,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
) -> tuple[jax.Array, KVPages]:
    """Adds entries of T consecutive tokens of each of B lanes.

    Args:
      tokens: int32 [B, T], the tokens that the entries embed; tokens[b, 0] has index start[b].
      hidden: [B, T, hidden], of the token before each.
      lengths: int32 [B], 0 to T.

    Returns: [B, T, hidden] for the head, and the layer's pages.
    """
    batch, length = tokens.shape
    steps = jnp.arange(length, dtype=jnp.int32)
    positions = jnp.maximum(start[:, None] + steps - FIRST, 0)
    embedded = model.embedding.lookup(tokens, hidden.dtype)
    return layer(
        embedded,
        hidden,
        jnp.broadcast_to(positions, (3, batch, length)),
        pages,
        page_table,
        start,
        lengths,
        first=FIRST,
    )


def propose(
    model: HybridModel,
    layer: MultiTokenLayer,
    state: DraftState,
    pages: KVPages,
    page_table: jax.Array,
    window: jax.Array,
    count: int,
    adjust: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, KVPages]:
    """Drafts the likeliest tokens, each from the one before.

    Args:
      adjust: what a request does to logits [B, V] before it chooses; without it a token that it
        forbids would be drafted for ever.
      state: of the B lanes.
      window: int32 [B], 0 to `count`: how many of them each lane will use. Entries are made for
        those alone, and overwritten when the tokens are known.

    Returns: int32 [B, count] and the layer's pages.
    """
    hidden, drafts = state.draft[:, None], []
    for step in range(count):
        token = jnp.argmax(adjust(model.logits(hidden[:, 0])), axis=-1).astype(jnp.int32)
        drafts.append(token)
        if step + 1 < count:
            start = state.position + (1 + step)
            used = (step + 1 < window).astype(jnp.int32)
            hidden, pages = follow(
                model, layer, token[:, None], hidden, pages, page_table, start, used
            )
    return jnp.stack(drafts, axis=1), pages


def absorb_prompt(
    model: HybridModel,
    layer: MultiTokenLayer,
    tokens: jax.Array,
    hidden: jax.Array,
    tail: jax.Array,
    pages: KVPages,
    page_table: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
) -> KVPages:
    """Adds the entries of a chunk of a prompt.

    Args:
      tokens: int32 [1, T], the chunk; hidden: [1, T, hidden], the decoder's states of them.
      tail: [1, hidden], its state of the token before (anything at the start of a prompt).
    """
    before = jnp.concatenate([tail[:, None].astype(hidden.dtype), hidden[:, :-1]], axis=1)
    return follow(model, layer, tokens, before, pages, page_table, start, lengths)[1]
