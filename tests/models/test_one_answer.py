"""One answer: the bits of a sequence depend on its tokens alone.

Not on how a prompt is cut into chunks, nor on how a chunk is padded, on which lane or pages the
sequence has or on what the other lanes do. Shapes straddle those where XLA:CPU changes the order of
a sum or the kind of a loop.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from njax.config import BLOCK, ModelConfig
from njax.models.hybrid import HybridModel
from njax.models.params import params_of
from njax.state import ModelState, state_after
from tests.models.conftest import PAGES, Lanes, Runner

PROMPT = 256


def config(hidden: int, **options) -> ModelConfig:
    base = dict(
        vocab_size=157,
        hidden_size=hidden,
        intermediate_size=2 * hidden - 12,
        layer_kinds=("delta", "attention"),
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rotary_dim=4,
        rope_theta=1e6,
        mrope_section=(2, 1, 1),
        delta_key_heads=1,
        delta_value_heads=3,
        delta_key_dim=16,
        delta_value_dim=8,
        conv_width=4,
        rms_norm_eps=1e-6,
        max_position=4096,
        tied_head=False,
    )
    return ModelConfig(**(base | options))


CONFIGS = {
    "tiny": config(32),
    "odd": config(
        100, num_heads=3, num_kv_heads=1, head_dim=24, delta_key_heads=3, delta_key_dim=24,
        delta_value_dim=40, conv_width=3, tied_head=True,
    ),
    "wide": config(
        384, num_heads=6, num_kv_heads=3, head_dim=64, delta_key_heads=2, delta_value_heads=4,
        delta_key_dim=64, delta_value_dim=64, conv_width=2,
    ),
}  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[*((name, "float32") for name in CONFIGS), ("odd", "bfloat16")],
    ids="-".join,
)
def runner(request) -> Runner:
    name, dtype = request.param
    rng = np.random.default_rng(7)
    model = HybridModel(CONFIGS[name], dtype=jnp.dtype(dtype), rngs=nnx.Rngs(3))
    params = {
        key: value + jnp.asarray(0.2 * rng.normal(size=value.shape), value.dtype)
        if value.ndim == 1
        else value
        for key, value in params_of(model).items()
    }
    return Runner(CONFIGS[name], dtype, params)


def tokens_of(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 157, shape)


def held(lanes: Lanes, lane: int) -> list[np.ndarray]:
    """Everything that a lane has absorbed: delta states, and K and V token by token."""
    delta = [np.asarray(leaf)[lane] for leaf in jax.tree.leaves(lanes.state.delta)]
    kv = [
        np.moveaxis(np.asarray(leaf)[lanes.table[lane]], 1, 2).reshape(
            PAGES * BLOCK, *leaf.shape[1::2]
        )[: lanes.start[lane]]
        for leaf in jax.tree.leaves(lanes.state.kv)
    ]
    return delta + kv


def same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.astype(np.float32), b.astype(np.float32))


def prefill_alone(runner: Runner, tokens: np.ndarray, chunks) -> list[np.ndarray]:
    """One lane, chunks of (tokens, padded length) each; padding is noise, not zeros."""
    lanes = runner.lanes(1)
    parts = []
    for length, padded in chunks:
        first = int(lanes.start[0])
        row = tokens_of(first + padded, 1, padded)
        row[0, :length] = tokens[first : first + length]
        parts.append([out[0, :length] for out in runner.step(lanes, row, [length])])
    hidden, logits = (np.concatenate(part) for part in zip(*parts, strict=True))
    return [hidden, logits, *held(lanes, 0)]


def test_chunks_and_padding_do_not_matter(runner):
    tokens = tokens_of(1, PROMPT)
    whole = prefill_alone(runner, tokens, [(256, 256)])
    assert np.isfinite(whole[0].astype(np.float32)).all()
    for chunks in (
        [(64, 64)] * 4,
        [(128, 256), (64, 64), (64, 64)],
        [(64, 256), (192, 256)],
    ):
        same(prefill_alone(runner, tokens, chunks), whole)


def test_the_end_of_a_prompt_inside_a_block(runner):
    tokens = tokens_of(2, 150)
    whole = prefill_alone(runner, tokens, [(150, 256)])
    same(prefill_alone(runner, tokens, [(128, 256), (22, 64)]), whole)
    same(prefill_alone(runner, tokens, [(64, 64), (64, 64), (22, 256)]), whole)


def among_others(runner: Runner, tokens: np.ndarray, lane: int, others: str, steps: int):
    """The sequence in one of three lanes: prefill, then `steps` decoding steps."""
    rng = np.random.default_rng(lane + len(others))
    pages = 1 + rng.permutation(3 * PAGES).reshape(3, PAGES)
    lanes = runner.lanes(3, pages)
    for length, padded in [(64, 64)] + [(1, 1)] * steps:
        first = int(lanes.start[lane])
        row = rng.integers(0, 157, (3, padded))
        row[lane, :length] = tokens[first : first + length]
        lengths = np.zeros(3, np.int32)
        if others == "busy":
            lengths[:] = rng.integers(0, length + 1, 3) if first else (5, 64, 33)
        lengths[lane] = length
        hidden, logits = runner.step(lanes, row, lengths)
    return [hidden[lane], logits[lane], *held(lanes, lane)]


def test_neighbours_lane_and_pages_do_not_matter(runner):
    tokens = tokens_of(3, 70)
    one = among_others(runner, tokens, 0, "idle", 5)
    for lane in range(3):
        for others in ("idle", "busy"):
            same(among_others(runner, tokens, lane, others, 5), one)


def test_prefill_does_not_depend_on_the_number_of_lanes(runner):
    tokens = tokens_of(4, 64)
    alone = prefill_alone(runner, tokens, [(64, 64)])
    among = among_others(runner, tokens, 1, "busy", 0)
    same(among[2:], alone[2:])
    same([among[0][:64], among[1][:64]], alone[:2])


def test_an_idle_lane_keeps_its_bits(runner):
    lanes = runner.lanes(3)
    runner.step(lanes, tokens_of(5, 3, 64), [64, 64, 30])
    before = held(lanes, 2)
    runner.step(lanes, tokens_of(6, 3, 1), [1, 1, 0])
    runner.step(lanes, tokens_of(7, 3, 64), [0, 0, 0])
    same(held(lanes, 2), before)


def test_a_window_has_the_bits_of_single_steps(runner):
    """Lanes that take 4, 2 and 0 tokens of it; only some of those count afterwards."""
    tokens, given, kept = tokens_of(8, 3, 68), np.array([4, 2, 0]), np.array([3, 2, 0])
    windowed, stepped = runner.lanes(3), runner.lanes(3)
    for lanes in (windowed, stepped):
        runner.step(lanes, tokens[:, :64], [64, 64, 64])
    before = windowed.state.delta
    outputs = runner.step(windowed, tokens[:, 64:], given)
    singles = [runner.step(stepped, tokens[:, 64 + t : 65 + t], t < kept) for t in range(max(kept))]
    for lane, count in enumerate(kept):
        for window, single in zip(outputs, zip(*singles, strict=True), strict=True):
            same([window[lane, :count]], [np.concatenate(single, axis=1)[lane, :count]])
    delta = state_after(jnp.asarray(kept), before, windowed.state.delta)
    windowed.state = ModelState(delta=delta, kv=windowed.state.kv)
    windowed.start = stepped.start
    for lane in range(3):
        same(held(windowed, lane), held(stepped, lane))
