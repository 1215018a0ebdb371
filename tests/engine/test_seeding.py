"""Cross-request prefix seeding on a real engine: what is captured, restored and left alone."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from njax.config import EngineConfig
from njax.engine.device import smallest_snapshot_bytes
from njax.engine.engine import Engine
from njax.errors import StartupError
from njax.prefix.planner import Chunk
from njax.state import tree_bytes
from tests.engine.conftest import ask, ask_together, random_prompt
from tests.tiny import load_tiny

SEEDED = {"prefix_cache_bytes": 256 << 20}


def siblings(rng, head_length: int, count: int) -> list[tuple[int, ...]]:
    head = random_prompt(rng, head_length)
    return [head + random_prompt(rng, int(rng.integers(1, 40))) for _ in range(count)]


def test_six_siblings_one_capture_then_seeds_and_equal_tokens(make_engine):
    rng = np.random.default_rng()
    seeded, cold = make_engine(**SEEDED), make_engine()
    prompts = siblings(rng, 1500, 6)
    before = seeded.stats()["seeds"]
    warm = ask_together(seeded, prompts, max_tokens=32, frontiers=(1500,))
    after = seeded.stats()["seeds"]
    assert after["captures"] - before["captures"] == 1
    paths = [answer.usage.reuse_path for answer in warm]
    assert paths == ["full_reset"] + ["seed_prefix"] * 5
    assert [a.usage.cached_tokens for a in warm] == [0] + [1500 // 64 * 64] * 5
    off = ask_together(cold, prompts, max_tokens=32, frontiers=(1500,))
    assert [a.usage.reuse_path for a in off] == ["full_reset"] * 6
    assert [a.tokens for a in warm] == [a.tokens for a in off]


@pytest.mark.parametrize("tail", [1, 2, 63, 64, 65, 300])
@pytest.mark.parametrize("head", [256, 321, 575])
def test_seeded_equals_cold(make_engine, head, tail):
    rng = np.random.default_rng()
    engine = make_engine(**SEEDED)
    shared = random_prompt(rng, head)
    ask(engine, shared + random_prompt(rng, 9), max_tokens=1, frontiers=(head,))
    prompt = shared + random_prompt(rng, tail)
    warm = ask(engine, prompt, max_tokens=40)
    cold = ask(engine, prompt, max_tokens=40, reuse_prefix=False, capture_prefix=False)
    assert warm.usage.reuse_path == "seed_prefix" and cold.usage.reuse_path == "full_reset"
    assert warm.tokens == cold.tokens


def test_heads_that_differ_in_one_token_never_share(make_engine):
    rng = np.random.default_rng()
    engine = make_engine(**SEEDED)
    head = list(random_prompt(rng, 600))
    ask(engine, [*head, 1], max_tokens=1, frontiers=(600,))
    for position in (0, 300, 575):
        other = list(head)
        other[position] ^= 1
        answer = ask(engine, [*other, 1, 2], max_tokens=1)
        assert answer.usage.cached_tokens == 0


def test_tenants_never_share(make_engine):
    rng = np.random.default_rng()
    engine = make_engine(**SEEDED)
    prompt = random_prompt(rng, 400)
    ask(engine, prompt, max_tokens=1, frontiers=(400,), tenant="a")
    assert ask(engine, (*prompt, 1), max_tokens=1, tenant="b").usage.cached_tokens == 0
    assert ask(engine, (*prompt, 1), max_tokens=1, tenant="a").usage.cached_tokens == 384


@pytest.mark.parametrize(("length", "captures"), [(255, 0), (256, 1)])
def test_minimum_frontier(make_engine, length, captures):
    rng = np.random.default_rng()
    engine = make_engine(**SEEDED)
    before = engine.stats()["seeds"]["captures"]
    ask(engine, random_prompt(rng, 300), max_tokens=1, frontiers=(length,))
    assert engine.stats()["seeds"]["captures"] - before == captures


def test_restored_state_equals_the_captured_one_bit_for_bit(make_engine):
    """Every tensor, straight on the device layer: capture, restore elsewhere, capture again."""
    rng = np.random.default_rng()
    engine = make_engine(**SEEDED)
    device = engine._device
    tokens = random_prompt(rng, 640)
    sampling = engine_sampling()
    pages = list(range(1, 12))
    device.assign_lane(0, pages, sampling)
    device.prefill(0, tokens, Chunk(0, 256), is_last=False)
    device.prefill(0, tokens, Chunk(256, 512), is_last=False)
    first = device.capture(0, pages, 512)
    device.prefill(0, tokens, Chunk(512, 640), is_last=True)  # the lane moves on
    kept = jax.tree.map(np.array, first)
    elsewhere = list(range(30, 41))
    device.assign_lane(2, elsewhere, sampling)
    device.restore(2, elsewhere, first)
    second = device.capture(2, elsewhere, 512)
    for a, b, c in zip(*map(jax.tree.leaves, (kept, first, second)), strict=True):
        np.testing.assert_array_equal(a, np.asarray(b), "the snapshot itself changed")
        np.testing.assert_array_equal(a, np.asarray(c))
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(first.delta))
    assert first.length == 512 and sum(s[0].k.shape[0] for s in first.segments) == 8


def engine_sampling():
    from njax.engine.types import SamplingParams

    return SamplingParams(temperature=0.0)


def test_budget_is_kept_and_the_oldest_leaves(make_engine):
    rng = np.random.default_rng()
    probe = make_engine(**SEEDED)
    entry = smallest_snapshot_bytes(probe.model_config, probe.config, probe._dtype)
    engine = make_engine(prefix_cache_bytes=2 * entry + 100)
    heads = [random_prompt(rng, 256) for _ in range(3)]
    for head in heads:
        ask(engine, (*head, 1), max_tokens=1, frontiers=(256,))
        assert engine.stats()["seeds"]["bytes"] <= engine.config.prefix_cache_bytes
    assert engine.stats()["seeds"]["entries"] == 2
    cached = [ask(engine, (*head, 2), max_tokens=1).usage.cached_tokens for head in heads]
    assert cached == [0, 256, 256]


def test_smallest_snapshot_is_what_one_costs(make_engine):
    engine = make_engine(**SEEDED)
    snapshot = engine._device.capture(0, [1, 2, 3, 4], 256)
    assert tree_bytes(snapshot) == smallest_snapshot_bytes(
        engine.model_config, engine.config, engine._dtype
    )


def test_budget_below_one_entry_is_a_startup_error():
    with pytest.raises(StartupError, match=r"--prefix-cache-mib at least \d+"):
        Engine(load_tiny(), EngineConfig(prefix_cache_bytes=1000))


def test_capture_point_inside_a_chunk_splits_it(make_engine):
    """Frontier and prompt end in one chunk, at different places: both are honoured."""
    rng = np.random.default_rng()
    engine = make_engine(**SEEDED)
    prompt = random_prompt(rng, 450)
    first = ask(engine, prompt, frontiers=(300,), max_tokens=8)
    again = ask(engine, prompt, frontiers=(300,), max_tokens=8)
    assert again.usage.cached_tokens == 256 and again.tokens == first.tokens


def test_a_conversation_reuses_its_earlier_turns_and_equals_cold(make_engine):
    """Turn after turn the prompt grows; each starts from the one before, sharing its pages."""
    rng = np.random.default_rng()
    engine = make_engine(**SEEDED)
    conversation = random_prompt(rng, 700)
    before = engine.stats()["seeds"]["bytes"]
    cached = []
    for _ in range(4):
        live = len(conversation)
        warm = ask(engine, (*conversation, 5, 6), max_tokens=8, frontiers=(300, live))
        cold = ask(engine, (*conversation, 5, 6), max_tokens=8, reuse_prefix=False,
                   capture_prefix=False)  # fmt: skip
        assert warm.tokens == cold.tokens
        cached.append(warm.usage.cached_tokens)
        conversation = (*conversation, 5, 6, *warm.tokens, *random_prompt(rng, 280))
    # Each turn adds 290 tokens, so every live turn is worth a snapshot: 640, 960, 1280, ...
    assert cached == [0, 640, 960, 1280]
    page = engine._device.capture(0, [1], 64).segments[0]
    spent = engine.stats()["seeds"]["bytes"] - before
    image = tree_bytes(engine._device.capture(0, [1], 64).delta)
    copied = 5 * image + sum(n // 64 for n in (256, 640, 960, 1280, 1536)) * tree_bytes(page)
    assert spent < copied, "entries of one conversation share pages"
