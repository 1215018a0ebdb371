"""Identity, seed store and planner: pure host logic, no device."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.config import BLOCK
from njax.engine.buckets import segment_sizes
from njax.prefix.identity import block_digests, root_digest
from njax.prefix.planner import make_plan
from njax.prefix.seeds import SeedStore
from njax.state import DeltaState, KVPages, Snapshot, tree_bytes

ROOT = root_digest(fingerprint="weights", profile="bf16", tenant="")


def pages(count: int) -> tuple[KVPages, ...]:
    """One layer's run of pages of 8 bytes each."""
    return (KVPages(k=np.zeros((count, 1), np.float32), v=np.zeros((count, 1), np.float32)),)


def snapshot(length: int, nbytes: int = 1024, shared: list | None = None) -> Snapshot:
    conv, recurrent = np.zeros((2, nbytes // 8), np.float32)
    runs = list(shared or [])
    runs += [pages(size) for size in segment_sizes(length // BLOCK)[len(runs) :]]
    return Snapshot(length, (DeltaState(conv=conv, recurrent=recurrent),), tuple(runs))


def prompt(length: int, first: int = 0) -> tuple[int, ...]:
    return tuple((first + i) % 1000 for i in range(length))


def store_with(*heads: tuple[int, ...], budget: int = 1 << 20) -> SeedStore:
    store = SeedStore(budget)
    for head in heads:
        store.put(block_digests(ROOT, head), head, snapshot(len(head)))
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
    store.put(block_digests(ROOT, prompt(256)), prompt(256, first=7), snapshot(256))
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
    captured = [chunk.end for chunk in result.chunks if chunk.capture]
    wanted = {min(f, length) // BLOCK * BLOCK for f in frontiers}
    assert set(captured) <= wanted
    known = sorted({result.base, *captured})
    for frontier in wanted - set(captured):
        # Left out only because it lies too close behind something that is kept, or is kept already.
        before = max((k for k in known if k <= frontier), default=None)
        assert before is None or frontier - before < 256 or frontier == seeded * BLOCK


def test_store_off_neither_looks_nor_captures():
    off = plan(SeedStore(0), prompt(600), 512)
    assert off.path == "full_reset" and not any(chunk.capture for chunk in off.chunks)


def test_least_recently_used_leaves_first():
    size = tree_bytes(snapshot(256))
    store = SeedStore(3 * size)
    heads = [prompt(256, first=n) for n in range(4)]
    for head in heads[:3]:
        assert store.put(block_digests(ROOT, head), head, snapshot(256))
    first = store.longest(block_digests(ROOT, heads[0]), (*heads[0], 1))
    store.record_hit(first)
    assert store.put(block_digests(ROOT, heads[3]), heads[3], snapshot(256))
    present = [block_digests(ROOT, head)[-1] in store for head in heads]
    assert present == [True, False, True, True]
    assert store.nbytes == 3 * size and store.counters.evictions == 1


def test_entry_larger_than_the_budget_changes_nothing():
    store = store_with(prompt(256), budget=2048)
    head = prompt(320)
    assert not store.put(block_digests(ROOT, head), head, snapshot(320, nbytes=4096))
    assert len(store) == 1 and store.counters.rejected_too_large == 1


def test_second_capture_of_a_prefix_is_refused():
    store = store_with(prompt(256))
    assert not store.put(block_digests(ROOT, prompt(256)), prompt(256), snapshot(256))
    assert store.counters.captures == 1


def test_frontiers_too_close_together_are_one():
    chunks = plan(SeedStore(1 << 20), prompt(2000), 1500, 1000, 700, 500).chunks
    assert [chunk.end for chunk in chunks if chunk.capture] == [448, 960, 1472]


def put(store: SeedStore, head: tuple[int, ...]) -> bool:
    """As the executor does: share what can be shared, copy the rest."""
    digests = block_digests(ROOT, head)
    shared = store.shared_segments(digests, head, segment_sizes(len(digests)))
    return store.put(digests, head, snapshot(len(head), shared=shared))


def test_a_longer_entry_shares_the_pages_of_a_shorter_one():
    store = SeedStore(1 << 20)
    assert put(store, prompt(64 * 37))
    alone = store.nbytes
    assert put(store, prompt(64 * 60))
    # 37 pages are runs of 16, 16, 4 and 1; 60 are 16, 16, 16, 4, 4 and 4: two runs are shared.
    assert store.nbytes - alone == 1024 + 8 * (60 - 32)
    short, long = store._entries.values()
    assert long.snapshot.segments[1] is short.snapshot.segments[1]


def test_other_tokens_share_nothing():
    store = SeedStore(1 << 20)
    put(store, prompt(64 * 20))
    other = prompt(64 * 20, first=1)
    digests = block_digests(ROOT, other)
    assert store.shared_segments(digests, other, segment_sizes(20)) == []


@given(st.data())
def test_bytes_are_those_of_the_distinct_arrays(data):
    """Whatever comes and goes, the count equals the bytes really held, within the budget."""
    store = SeedStore(data.draw(st.integers(1500, 12_000)))
    for _ in range(12):
        head = prompt(64 * data.draw(st.integers(4, 60)), first=data.draw(st.integers(0, 1)))
        put(store, head)
        arrays = {
            id(leaf): leaf.nbytes
            for seed in store._entries.values()
            for leaf in jax.tree.leaves(seed.snapshot)
        }
        assert store.nbytes == sum(arrays.values()) <= store.budget
        assert set(store._segments) == {
            key for seed in store._entries.values() for key, _ in store._runs(seed)
        }
