"""Speculative decoding with the multi-token layer: the round, and how far each lane looks ahead.

A round drafts w tokens for a lane, runs the decoder over the newest token and the drafts at once,
chooses a token from each row's logits as plain decoding would, and keeps them up to and including
the first that differs from its draft (Leviathan et al., arXiv 2211.17192, Chen et al., 2302.01318).

The proposals are one token each, without a probability. Acceptance is therefore drawn together
with the correction: row j draws x from its distribution p, with the random number that belongs to
the token's position. With probability p(draft) x is the draft and the next row counts; otherwise x
has the distribution p without the draft, renormalised, which is the residual. Greedy or not, the
tokens are those of plain decoding, whatever the drafts were and however many: a seeded request
gives the same answer in any company and under any window.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from njax.config import EngineConfig
from njax.engine.drafts import DraftState, follow, propose
from njax.engine.logits import Logprobs, TokenCounts, adjust, count_token
from njax.engine.sampling import LaneSampling
from njax.engine.steps import EngineState, Graphs, choose_token, decoder_pages
from njax.engine.types import Drafts
from njax.state import ModelState, state_after


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RoundOutput:
    """What the host reads after a round of B lanes with T rows (T - 1 drafts at most).

    Attributes:
      token: int32 [B, T]; the first count[b] are the lane's new tokens.
      count: int32 [B], accepted drafts plus one; 0 for a lane that had nothing to do.
      drafted: int32 [B], drafts that were verified.
      finite: bool [B, T], whether the logits of a row are.
      logprobs: of the chosen tokens, [B, T, ...].
    """

    token: jax.Array
    count: jax.Array
    drafted: jax.Array
    finite: jax.Array
    logprobs: Logprobs


def verify(
    logits: jax.Array,
    drafts: jax.Array,
    window: jax.Array,
    active: jax.Array,
    lanes: LaneSampling,
    counts: TokenCounts,
    position: jax.Array,
) -> tuple[RoundOutput, TokenCounts]:
    """Chooses tokens row by row while they agree with the drafts.

    Penalties of a row see the tokens that were accepted before it.

    Args:
      logits: float32 [B, T, V]; row j follows draft j - 1.
      drafts: int32 [B, T - 1].
      window: int32 [B], 0 to T - 1: drafts of the lane that count.
      active: bool [B].
      position: int32 [B], index of the newest token; row j chooses that of index position + 1 + j.

    Returns: the output, and `counts` with the new tokens.
    """
    batch, rows, _ = logits.shape
    none = jnp.full((batch, 1), -1, jnp.int32)
    wanted = jnp.concatenate([drafts, none], axis=1)

    def row(
        carry: tuple[jax.Array, TokenCounts, jax.Array], at: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, TokenCounts, jax.Array], Any]:
        going, counts, count = carry
        index, row_logits, draft = at
        output = choose_token(row_logits, lanes, counts, position + 1 + index)
        counts = count_token(counts, output.token, going)
        count = count + going.astype(jnp.int32)
        going = going & (index < window) & (output.token == draft)
        return (going, counts, count), output

    steps = jnp.arange(rows, dtype=jnp.int32)
    start = active, counts, jnp.zeros(batch, jnp.int32)
    by_row = steps, jnp.moveaxis(logits, 1, 0), wanted.T
    (_, counts, count), outputs = jax.lax.scan(row, start, by_row)
    outputs = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), outputs)
    drafted = jnp.where(active, window, 0)
    output = RoundOutput(outputs.token, count, drafted, outputs.finite, outputs.logprobs)
    return output, counts


def make_round(graphs: Graphs, most: int) -> Callable[..., tuple[EngineState, RoundOutput]]:
    """One round of at most `most` drafts for some lanes: B of all C, so that few pay for few.

    With 0 it is a decoding step that keeps the multi-token layer's pages up to date.
    """
    run = _make_round(graphs, most)

    def round_(
        params: Any,
        state: EngineState,
        page_table: jax.Array,  # int32 [C, pages_per_lane]
        lanes: jax.Array,  # int32 [B], distinct; all of them in order if B is C
        last: jax.Array,  # int32 [B], the highest index that a token of the lane may have
        window: jax.Array,  # int32 [B], drafts that the host wants
        active: jax.Array,  # bool [B]
        sampling: LaneSampling,  # of all C
    ) -> tuple[EngineState, RoundOutput]:
        if lanes.shape == state.last_token.shape:
            return run(params, state, page_table, last, window, active, sampling)
        part, output = run(
            params,
            _with_lanes(state, jax.tree.map(lambda leaf: leaf[lanes], _by_lane(state))),
            page_table[lanes],
            last,
            window,
            active,
            jax.tree.map(lambda leaf: leaf[lanes], sampling),
        )
        merged = jax.tree.map(
            lambda leaf, new: leaf.at[lanes].set(new, unique_indices=True),
            _by_lane(state),
            _by_lane(part),
        )
        return _with_lanes(part, merged), output

    return round_


def _by_lane(state: EngineState) -> Any:
    """What has the lanes in front: all but the page pool."""
    return state.model.delta, state.last_token, state.counts, state.drafts


def _with_lanes(state: EngineState, parts: Any) -> EngineState:
    delta, last_token, counts, drafts = parts
    return EngineState(ModelState(delta, state.model.kv), last_token, counts, drafts)


def _make_round(graphs: Graphs, most: int) -> Callable[..., tuple[EngineState, RoundOutput]]:
    """The round for all lanes of a state, B of them; arguments as above."""

    def round_(
        params: Any,
        state: EngineState,
        page_table: jax.Array,
        last: jax.Array,
        window: jax.Array,
        active: jax.Array,
        sampling: LaneSampling,
    ) -> tuple[EngineState, RoundOutput]:
        model, layer = graphs.modules(params)
        own, pages = state.drafts, state.model.kv[-1]
        assert layer is not None and own is not None
        position = own.position
        # The host may be a round late: a lane whose tokens are all there has nothing to do, and
        # no round goes beyond the last one.
        active = active & (position < last)
        window = jnp.where(active, jnp.clip(window, 0, jnp.minimum(most, last - position - 1)), 0)
        tokens = state.last_token[:, None]
        drafts = jnp.zeros((tokens.shape[0], 0), jnp.int32)
        if most:
            drafts, pages = propose(
                model, layer, own, pages, page_table, window, most,
                lambda logits: adjust(logits, sampling, state.counts),
            )  # fmt: skip
            tokens = jnp.concatenate([tokens, drafts], axis=1)

        rows = jnp.arange(most + 1, dtype=jnp.int32)
        positions = position[:, None] + rows
        hidden, new = model(
            tokens,
            jnp.broadcast_to(positions, (3, *positions.shape)),
            ModelState(delta=state.model.delta, kv=decoder_pages(state)),
            page_table,
            position,
            jnp.where(active, window + 1, 0),
        )
        output, counts = verify(
            model.logits(hidden), drafts, window, active, sampling, state.counts, position
        )
        count = output.count
        delta = state_after(count, state.model.delta, new.delta) if most else new.delta

        # The layer follows the tokens that are certain now. The very last one will not be
        # absorbed, and has no slot.
        slots = jnp.minimum(count, jnp.maximum(last - 1 - position, 0))
        drafting, pages = follow(
            model, layer, output.token, hidden, pages, page_table, position + 1, slots
        )

        def newest(rows: jax.Array, old: jax.Array) -> jax.Array:
            taken = rows[jnp.arange(count.shape[0]), jnp.maximum(count - 1, 0)]
            return jnp.where((count > 0).reshape(-1, *[1] * (old.ndim - 1)), taken, old)

        state = EngineState(
            model=ModelState(delta=delta, kv=(*new.kv, pages)),
            last_token=newest(output.token, state.last_token),
            counts=counts,
            drafts=DraftState(
                position=position + count,
                tail=newest(hidden, own.tail),
                draft=newest(drafting, own.draft),
            ),
        )
        return state, output

    return round_


def round_shapes(config: EngineConfig) -> tuple[tuple[int, int], ...]:
    """(drafts, lanes) that rounds are compiled for, ascending; 0 drafts run in all lanes.

    A lane that wants fewer drafts leaves rows unused, which costs less than waiting for one more
    program.
    """
    most = config.draft_tokens
    windows = {most} | ({2} if most > 3 else set())
    widths = {1, min(config.draft_lanes, config.max_concurrency)}
    drafting = {(window, width) for window in windows for width in widths}
    return tuple(sorted({(0, config.max_concurrency)} | drafting))


def round_shape(shapes: Iterable[tuple[int, int]], window: int, lanes: int) -> tuple[int, int]:
    """The smallest of the shapes that holds so many drafts and lanes."""
    return min(shape for shape in shapes if shape[0] >= window and shape[1] >= lanes)


@dataclasses.dataclass
class DraftRecord:
    """How the drafts of one request fared.

    Attributes:
      drafted, accepted: counts by position in the window, the first draft at 0. The accepted ones
        of a position are those whose predecessors were accepted too.
      rounds: rounds of the request.
      rate: running mean of the acceptance of a draft whose predecessors were accepted.
    """

    drafted: list[int]
    accepted: list[int]
    rounds: int = 0
    rate: float = 0.9
    idle_rounds: int = 0

    @classmethod
    def of(cls, draft_tokens: int) -> DraftRecord:
        return cls([0] * draft_tokens, [0] * draft_tokens)

    def drafts(self) -> Drafts:
        return Drafts(tuple(self.drafted), tuple(self.accepted), self.rounds)

    def add(self, drafted: int, accepted: int) -> None:
        """Takes the outcome of one round."""
        self.rounds += 1
        for position in range(drafted):
            self.drafted[position] += 1
            self.accepted[position] += position < accepted
        for hit in [1.0] * accepted + [0.0] * (accepted < drafted):
            self.rate += _LEARNING * (hit - self.rate)


_LEARNING = 0.1
_WORTH = 0.3
"""Least probability of being accepted at which a draft pays for its row."""
_PROBE_EVERY = 16
"""A lane whose drafts are not worth it tries one again after so many rounds."""


def choose_window(record: DraftRecord, most: int) -> int:
    """How many drafts a lane should try next, 0 to `most`.

    Draft i is accepted with about rate ** i; those below `_WORTH` cost more than they bring.
    """
    rate = min(record.rate, 0.999)
    if rate >= _WORTH:
        record.idle_rounds = 0
        return min(most, max(1, math.floor(math.log(_WORTH) / math.log(rate))))
    record.idle_rounds += 1
    if record.idle_rounds % _PROBE_EVERY:
        return 0
    return min(most, 1)
