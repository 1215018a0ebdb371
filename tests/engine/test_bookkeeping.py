"""Buckets and the page pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.engine.buckets import SEGMENT_PAGES, bucket_for, prefill_buckets, segment_sizes
from njax.engine.pages import PagePool


@given(st.integers(1, 64).map(lambda n: 64 * n))
def test_every_chunk_length_has_a_bucket(chunk):
    buckets = prefill_buckets(chunk, "cpu")
    assert buckets[-1] == chunk and list(buckets) == sorted(set(buckets))
    for length in range(1, chunk + 1):
        bucket = bucket_for(length, buckets)
        assert bucket >= length and (bucket == 64 or bucket < 2 * length + 64)
    with pytest.raises(ValueError):
        bucket_for(chunk + 1, buckets)


def test_one_program_where_the_height_of_a_product_matters():
    assert prefill_buckets(512, "gpu") == (512,)


@given(st.integers(0, 500))
def test_segments_cover_exactly(pages):
    sizes = segment_sizes(pages)
    assert sum(sizes) == pages and set(sizes) <= set(SEGMENT_PAGES)
    assert sizes == sorted(sizes, reverse=True)


@given(st.data())
def test_pool_never_lends_a_page_twice(data):
    pool = PagePool(20)
    held: list[list[int]] = []
    for _ in range(30):
        if held and data.draw(st.booleans()):
            pool.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
        else:
            count = data.draw(st.integers(0, 9))
            free = pool.free
            pages = pool.take(count)
            assert (pages is None) == (count > free)
            if pages is not None:
                held.append(pages)
        owned = [page for pages in held for page in pages]
        assert len(owned) == len(set(owned)) == pool.used
        assert 0 not in owned and pool.used + pool.free == 20
