"""The jitted programs: prefill, decode, and the copies that make and restore snapshots.

A program is pure: state in, state out. The working state is donated, a snapshot never is.
`programs.py` compiles them ahead of time, `speculative.py` has the round that drafts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from njax.config import BLOCK, EngineConfig, ModelConfig
from njax.engine.drafts import DraftState, absorb_prompt, follow, init_drafts
from njax.engine.logits import (
    Logprobs,
    TokenCounts,
    adjust,
    count_token,
    init_counts,
    log_probabilities,
)
from njax.engine.sampling import LaneSampling, sample
from njax.models.hybrid import HybridModel
from njax.models.mtp import MultiTokenLayer
from njax.state import DeltaState, KVPages, ModelState, init_state, kv_storage


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EngineState:
    """All device state of the engine.

    Attributes:
      model: state of every lane and the page pool.
      last_token: int32 [lanes], the newest token of each lane, not yet absorbed by the model.
      counts: tokens that each lane has seen, for penalties.
      drafts: what lanes draft from, where the engine speculates; the layer's pages are then the
        last of `model.kv`.
    """

    model: ModelState
    last_token: jax.Array
    counts: TokenCounts
    drafts: DraftState | None = None


LaneImage = tuple[tuple[DeltaState, ...], jax.Array | None]
"""What of a lane is no page: delta states, and the tail that drafts start from; batch 1."""


@dataclasses.dataclass(frozen=True)
class Graphs:
    """The modules without their parameters.

    Attributes:
      decoder: a `HybridModel`.
      mtp: a `MultiTokenLayer`, if the engine drafts.
    The steps' `params` are the decoder's, or a pair of both modules'.
    """

    decoder: nnx.GraphDef
    mtp: nnx.GraphDef | None = None

    def modules(self, params: Any) -> tuple[HybridModel, MultiTokenLayer | None]:
        if self.mtp is None:
            return nnx.merge(self.decoder, params), None
        return nnx.merge(self.decoder, params[0]), nnx.merge(self.mtp, params[1])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepOutput:
    """What the host reads after a step; B is 1 after a prefill, else the lane width.

    Attributes:
      token: int32 [B], the chosen tokens.
      finite: bool [B], whether the logits that they were chosen from are.
      logprobs: of the chosen tokens.
    """

    token: jax.Array
    finite: jax.Array
    logprobs: Logprobs


def init_engine_state(model: ModelConfig, engine: EngineConfig, dtype: jnp.dtype) -> EngineState:
    """Zeroed state; `jax.eval_shape` of it costs nothing."""
    return EngineState(
        model=init_state(
            model,
            batch=engine.max_concurrency,
            pages=engine.pool_pages + 1,
            dtype=dtype,
            kv_dtype=kv_storage(engine.kv_dtype, dtype),
            more_attention=int(engine.drafting),
        ),
        last_token=jnp.zeros(engine.max_concurrency, jnp.int32),
        counts=init_counts(engine.max_concurrency, model.vocab_size),
        drafts=(
            init_drafts(engine.max_concurrency, model.hidden_size, dtype)
            if engine.drafting
            else None
        ),
    )


def lane_slice(tree: Any, lane: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, lane, 1, axis=0), tree)


def lane_update(tree: Any, lane: jax.Array, row: Any) -> Any:
    return jax.tree.map(
        lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, lane, axis=0), tree, row
    )


def choose_token(
    logits: jax.Array, lanes: LaneSampling, counts: TokenCounts, index: jax.Array
) -> StepOutput:
    """Tokens at positions `index` int32 [B] from raw logits float32 [B, V]."""
    token = sample(adjust(logits, lanes, counts), lanes, index)
    return StepOutput(
        token=token,
        finite=jnp.all(jnp.isfinite(logits), axis=-1),
        logprobs=log_probabilities(logits, token, lanes),
    )


def decoder_pages(state: EngineState) -> tuple[KVPages, ...]:
    """The pages of the decoder's own attention layers."""
    return state.model.kv if state.drafts is None else state.model.kv[:-1]


def make_prefill(graphs: Graphs) -> Callable[..., tuple[EngineState, StepOutput]]:
    """Prefill of one lane's chunk. Its padded length is the bucket, T below."""

    def prefill(
        params: Any,
        state: EngineState,
        tokens: jax.Array,  # int32 [T]
        lane: jax.Array,  # int32 []
        page_row: jax.Array,  # int32 [pages_per_lane]
        start: jax.Array,  # int32 [], absolute position of tokens[0]
        length: jax.Array,  # int32 [], real tokens of the T
        is_last: jax.Array,  # bool [], the chunk ends the prompt: choose a token
        sampling: LaneSampling,
    ) -> tuple[EngineState, StepOutput]:
        model, layer = graphs.modules(params)
        delta = jax.tree.map(
            lambda leaf: jnp.where(start == 0, jnp.zeros_like(leaf), leaf),
            lane_slice(state.model.delta, lane),
        )
        positions = start + jnp.arange(tokens.shape[0], dtype=jnp.int32)
        hidden, new = model(
            tokens[None],
            jnp.broadcast_to(positions, (3, 1, tokens.shape[0])),
            ModelState(delta=delta, kv=decoder_pages(state)),
            page_row[None],
            start[None],
            length[None],
        )
        row = jax.lax.dynamic_slice_in_dim(hidden[0], length - 1, 1, axis=0)
        seen = lane_slice(state.counts, lane)
        fresh = TokenCounts(generated=jnp.zeros_like(seen.generated), prompt=seen.prompt)

        def choose() -> StepOutput:
            index = (start + length)[None]
            return choose_token(model.logits(row), lane_slice(sampling, lane), fresh, index)

        output = jax.lax.cond(
            is_last,
            choose,
            lambda: jax.tree.map(jnp.zeros_like, jax.eval_shape(choose)),
        )
        counts = count_token(fresh, output.token, is_last[None])
        drafts, kv = state.drafts, new.kv
        if drafts is not None and layer is not None:
            place = page_row[None], start[None], length[None]
            tail = lane_slice(drafts.tail, lane)
            pages = absorb_prompt(
                model, layer, tokens[None], hidden, tail, state.model.kv[-1], *place
            )
            # The entry that embeds the chosen token; nothing is kept of it unless it is the last.
            end = start + length
            inside = is_last & (end < page_row.shape[0] * BLOCK)
            draft, pages = follow(
                model,
                layer,
                output.token[:, None],
                row[:, None],
                pages,
                page_row[None],
                end[None],
                inside.astype(jnp.int32)[None],
            )
            drafts = DraftState(
                position=lane_update(drafts.position, lane, end[None]),
                tail=lane_update(drafts.tail, lane, row),
                draft=lane_update(drafts.draft, lane, draft[:, 0]),
            )
            kv = (*kv, pages)
        state = EngineState(
            model=ModelState(delta=lane_update(state.model.delta, lane, new.delta), kv=kv),
            last_token=lane_update(state.last_token, lane, output.token),
            counts=lane_update(state.counts, lane, counts),
            drafts=drafts,
        )
        return state, output

    return prefill


def make_decode(graphs: Graphs) -> Callable[..., tuple[EngineState, StepOutput]]:
    """One token for every active lane; B is the fixed lane width."""

    def decode(
        params: Any,
        state: EngineState,
        page_table: jax.Array,  # int32 [B, pages_per_lane]
        position: jax.Array,  # int32 [B], where each lane's last token goes
        active: jax.Array,  # bool [B]
        sampling: LaneSampling,
    ) -> tuple[EngineState, StepOutput]:
        model, _ = graphs.modules(params)
        hidden, new = model(
            state.last_token[:, None],
            jnp.broadcast_to(position[:, None], (3, position.shape[0], 1)),
            state.model,
            page_table,
            position,
            active.astype(jnp.int32),
        )
        output = choose_token(model.logits(hidden[:, 0]), sampling, state.counts, position + 1)
        state = EngineState(
            model=new,
            last_token=jnp.where(active, output.token, state.last_token),
            counts=count_token(state.counts, output.token, active),
        )
        return state, output

    return decode


def mark_prompt(state: EngineState, lane: jax.Array, prompt: jax.Array) -> EngineState:
    """Notes which tokens (bool [V]) stand in a lane's prompt, for its repetition penalty."""
    marked = lane_update(state.counts.prompt, lane, prompt[None])
    counts = TokenCounts(generated=state.counts.generated, prompt=marked)
    return dataclasses.replace(state, counts=counts)


def capture_lane(state: EngineState, lane: jax.Array) -> LaneImage:
    """A copy of what one lane has besides its pages."""
    tail = None if state.drafts is None else lane_slice(state.drafts.tail, lane)
    return lane_slice(state.model.delta, lane), tail


def restore_lane(state: EngineState, lane: jax.Array, image: LaneImage) -> EngineState:
    """Copies a snapshot's image into a lane."""
    delta, tail = image
    drafts = state.drafts
    if drafts is not None:
        drafts = dataclasses.replace(drafts, tail=lane_update(drafts.tail, lane, tail))
    model = ModelState(delta=lane_update(state.model.delta, lane, delta), kv=state.model.kv)
    return dataclasses.replace(state, model=model, drafts=drafts)


def capture_pages(state: EngineState, pages: jax.Array) -> tuple[KVPages, ...]:
    """A copy of these pool pages (int32 [n]) of every attention layer."""
    return jax.tree.map(lambda leaf: leaf[pages], state.model.kv)


def restore_pages(
    state: EngineState, pages: jax.Array, segment: tuple[KVPages, ...]
) -> EngineState:
    """Copies a snapshot's run of pages into these pool pages (int32 [n], distinct)."""
    kv = jax.tree.map(
        lambda leaf, new: leaf.at[pages].set(new, unique_indices=True), state.model.kv, segment
    )
    return dataclasses.replace(state, model=ModelState(delta=state.model.delta, kv=kv))
