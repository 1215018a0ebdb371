"""Identity, seed store and planner: pure host logic, no device."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.config import BLOCK
from njax.prefix.identity import block_digests, root_digest
from njax.prefix.planner import make_plan
from njax.prefix.seeds import SeedStore
from njax.state import DeltaState, Snapshot, tree_bytes

ROOT = root_digest(fingerprint="weights", profile="bf16", tenant="")


def snapshot(length: int, nbytes: int = 1024) -> Snapshot:
    half = jnp.zeros(nbytes // 8, jnp.float32)
    return Snapshot(length, (DeltaState(conv=half, recurrent=half),), ())


def prompt(length: int, first: int = 0) -> tuple[int, ...]:
    return tuple((first + i) % 1000 for i in range(length))


def store_with(*heads: tuple[int, ...], budget: int = 1 << 20) -> SeedStore:
    store = SeedStore(budget)
    for head in heads:
        store.put(block_digests(ROOT, head)[-1], head, snapshot(len(head)))
    return store


def plan(store: SeedStore, tokens: tuple[int, ...], *frontiers: int, chunk: int = 512, **kw):
    return make_plan(
        root=ROOT, token_ids=tokens, frontiers=frontiers, store=store, prefill_chunk=chunk, **kw
    )


@pytest.mark.parametrize("field", ["fingerprint", "profile", "tenant"])
def test_root_depends_on_every_part(field):
    parts = {"fingerprint": "a", "profile": "b", "tenant": "c"}
    assert root_digest(**parts) != root_digest(**(parts | {field: "x"}))


def test_root_parts_cannot_run_into_each_other():
    assert root_digest(fingerprint="ab", profile="c", tenant="") != root_digest(
        fingerprint="a", profile="bc", tenant=""
    )


@given(st.lists(st.integers(0, 2**32 - 1), max_size=300), st.data())
def test_digest_covers_every_token_before_it(tokens, data):
    digests = block_digests(ROOT, tokens)
    assert len(digests) == len(tokens) // BLOCK
    if digests:
        changed = data.draw(st.integers(0, len(digests) * BLOCK - 1))
        other = list(tokens)
        other[changed] ^= 1
        for block, (a, b) in enumerate(zip(digests, block_digests(ROOT, other), strict=True)):
            assert (a == b) == (changed >= (block + 1) * BLOCK)


def test_longest_entry_that_leaves_a_token():
    store = store_with(prompt(256), prompt(320), prompt(640))
    assert plan(store, prompt(1000)).base == 640
    assert plan(store, prompt(641)).base == 640
    assert plan(store, prompt(640)).base == 320, "an entry as long as the prompt leaves nothing"
    assert plan(store, prompt(300)).base == 256
    assert plan(store, prompt(256)).base == 0


def test_one_different_token_shares_nothing_after_it():
    store = store_with(prompt(256), prompt(512))
    other = list(prompt(600))
    other[300] = 999
    assert plan(store, tuple(other)).base == 256
    other[0] = 999
    assert plan(store, tuple(other)).path == "full_reset"


def test_a_colliding_digest_is_not_a_hit():
    store = SeedStore(1 << 20)
    store.put(block_digests(ROOT, prompt(256))[-1], prompt(256, first=7), snapshot(256))
    assert plan(store, prompt(300)).base == 0


def test_reuse_and_capture_can_be_refused():
    store = store_with(prompt(256))
    refused = plan(store, prompt(600), 512, reuse=False, capture=False)
    assert refused.base == 0 and not any(chunk.capture for chunk in refused.chunks)


@pytest.mark.parametrize(("frontier", "captured"), [(255, []), (256, [256]), (319, [256])])
def test_minimum_frontier(frontier, captured):
    chunks = plan(SeedStore(1 << 20), prompt(1000), frontier).chunks
    assert [chunk.end for chunk in chunks if chunk.capture] == captured


@given(
    length=st.integers(1, 3000),
    frontiers=st.lists(st.integers(0, 4000), max_size=4),
    blocks=st.integers(1, 12),
    seeded=st.integers(0, 30),
)
def test_chunks_tile_the_prompt_and_end_at_every_frontier(length, frontiers, blocks, seeded):
    tokens = prompt(length)
    store = store_with(tokens[: seeded * BLOCK]) if 0 < seeded * BLOCK <= length else store_with()
    result = plan(store, tokens, *frontiers, chunk=blocks * BLOCK)
    assert result.base == (seeded * BLOCK if 0 < seeded * BLOCK < length else 0)
    position = result.base
    for chunk in result.chunks:
        assert chunk.start == position and chunk.start % BLOCK == 0
        assert 0 < chunk.length <= blocks * BLOCK
        position = chunk.end
    assert position == length
    wanted = {min(f, length) // BLOCK * BLOCK for f in frontiers}
    expected = {f for f in wanted if f >= 256 and f > result.base and f != seeded * BLOCK}
    assert {chunk.end for chunk in result.chunks if chunk.capture} == expected


def test_store_off_neither_looks_nor_captures():
    off = plan(SeedStore(0), prompt(600), 512)
    assert off.path == "full_reset" and not any(chunk.capture for chunk in off.chunks)


def test_least_recently_used_leaves_first():
    size = tree_bytes(snapshot(256))
    store = SeedStore(3 * size)
    heads = [prompt(256, first=n) for n in range(4)]
    for head in heads[:3]:
        assert store.put(block_digests(ROOT, head)[-1], head, snapshot(256))
    first = store.longest(block_digests(ROOT, heads[0]), (*heads[0], 1))
    store.record_hit(first)
    assert store.put(block_digests(ROOT, heads[3])[-1], heads[3], snapshot(256))
    present = [block_digests(ROOT, head)[-1] in store for head in heads]
    assert present == [True, False, True, True]
    assert store.nbytes == 3 * size and store.counters.evictions == 1


def test_entry_larger_than_the_budget_changes_nothing():
    store = store_with(prompt(256), budget=2048)
    head = prompt(320)
    assert not store.put(block_digests(ROOT, head)[-1], head, snapshot(320, nbytes=4096))
    assert len(store) == 1 and store.counters.rejected_too_large == 1


def test_second_capture_of_a_prefix_is_refused():
    store = store_with(prompt(256))
    assert not store.put(block_digests(ROOT, prompt(256))[-1], prompt(256), snapshot(256))
    assert store.counters.captures == 1
