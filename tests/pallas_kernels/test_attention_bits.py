"""Attention rows are bit-equal whatever the chunk, the page table, the pages and the neighbours."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st

from pallas_kernels import attention_decode, attention_prefill
from pallas_kernels.attention import DECODE_IMPLEMENTATIONS, PREFILL_IMPLEMENTATIONS, reference
from tests.pallas_kernels.support import DTYPES, assert_same_bits, normal, run

jitted = functools.partial(jax.jit, static_argnames=("scale", "implementation"))
prefill = jitted(attention_prefill)
decode = jitted(attention_decode)

# Hq, Hkv, D; four query heads a KV head and D 128 once gave chunk-dependent bits.
SHAPES = [(1, 1, 16), (2, 1, 64), (6, 2, 32), (8, 2, 128), (3, 3, 48)]
POOL = 64
int8_or_not = pytest.mark.parametrize("int8", [False, True], ids=["plain", "int8"])


def lay_out(
    rng: np.random.Generator, keys: np.ndarray, values: np.ndarray, table_length: int, int8: bool
) -> tuple[Any, Any, np.ndarray]:
    """Puts a sequence [S, Hkv, D] on random pages among rubbish -> k, v pools, table [N]."""
    length, hkv, d = keys.shape
    pages = -(-length // 64)
    table = rng.permutation(np.arange(1, POOL))[:table_length]

    def pool(tokens: np.ndarray) -> Any:
        result = normal(rng, POOL, hkv, 64, d, dtype=tokens.dtype)
        padded = np.pad(tokens, ((0, pages * 64 - length), (0, 0), (0, 0)))
        result[table[:pages]] = padded.reshape(pages, 64, hkv, d).transpose(0, 2, 1, 3)
        return reference.encode(result) if int8 else result

    return pool(keys), pool(values), table.astype(np.int32)


@int8_or_not
@pytest.mark.parametrize("implementation", PREFILL_IMPLEMENTATIONS)
@hypothesis.settings(max_examples=8)
@hypothesis.given(data=st.data())
def test_prefill(implementation: str, int8: bool, data: st.DataObject) -> None:
    """Chunks of 512 on one table = any chunks on any other, beside other sequences."""
    dtype = data.draw(st.sampled_from(DTYPES))
    hq, hkv, d = data.draw(st.sampled_from(SHAPES))
    total = data.draw(st.integers(1, 1000))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    keys, values = (normal(rng, total, hkv, d, dtype=dtype) for _ in range(2))
    q = normal(rng, total, hq, d, dtype=dtype)

    def attend(table_length: int, batch: int, lane: int, chunks: Any) -> np.ndarray:
        k, v, table = lay_out(rng, keys, values, table_length, int8)
        tables = rng.integers(0, POOL, (batch, table_length), np.int32)
        tables[lane] = table
        done, pieces = 0, []
        for chunk in chunks:
            count = min(chunk, total - done)
            if count <= 0:
                break
            rows = normal(rng, batch, chunk, hq, d, dtype=dtype)
            rows[lane, :count] = q[done : done + count]
            start = np.asarray([64, 0, 100][:batch], np.int32)
            lengths = np.asarray([chunk, 0, 7][:batch], np.int32)
            start[lane], lengths[lane] = done, count
            args = rows, k, v, tables, start, lengths
            out = run(prefill, *args, scale=d**-0.5, implementation=implementation)
            pieces.append(np.asarray(out[lane, :count]))
            done += count
        return np.concatenate(pieces)

    expected = attend(16, 1, 0, [512, 512])
    sizes = data.draw(st.lists(st.sampled_from([64, 128, 256, 512]), min_size=16, max_size=16))
    batch = data.draw(st.sampled_from([1, 3]))
    table_length = data.draw(st.sampled_from([16, 17, 30, 63]))
    lane = data.draw(st.integers(0, batch - 1))
    assert_same_bits(attend(table_length, batch, lane, sizes), expected)


@int8_or_not
@pytest.mark.parametrize("implementation", DECODE_IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_decode(shape: tuple[int, int, int], dtype: Any, implementation: str, int8: bool) -> None:
    """A lane's bits: the same in any lane, on any pages, whatever the other lanes hold."""
    hq, hkv, d = shape
    rng = np.random.default_rng(0)
    for length in (1, 64, 700):
        keys, values = (normal(rng, length, hkv, d, dtype=dtype) for _ in range(2))
        q = normal(rng, hq, d, dtype=dtype)
        results = []
        for lane, table_length, others in ((0, 16, 0), (2, 16, 1000), (3, 16, 65), (1, 40, 999)):
            k, v, table = lay_out(rng, keys, values, table_length, int8)
            tables = rng.integers(0, POOL, (4, table_length), np.int32)
            queries = normal(rng, 4, hq, d, dtype=dtype)
            lengths = np.full(4, others, np.int32)
            tables[lane], queries[lane], lengths[lane] = table, q, length
            args = queries, k, v, tables, lengths
            out = run(decode, *args, scale=d**-0.5, implementation=implementation)
            results.append(np.asarray(out[lane]))
        for other in results[1:]:
            assert_same_bits(other, results[0])


@int8_or_not
@pytest.mark.parametrize("implementation", DECODE_IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(3, 1, 24), (4, 2, 64), (6, 1, 256)])
def test_decode_does_not_depend_on_the_number_of_lanes(
    shape: tuple[int, int, int], implementation: str, int8: bool
) -> None:
    """float32, so that rounding hides nothing."""
    hq, hkv, d = shape
    rng = np.random.default_rng(5)
    keys, values = (normal(rng, 300, hkv, d) for _ in range(2))
    k, v, table = lay_out(rng, keys, values, 8, int8)
    q, lengths = normal(rng, 12, hq, d), rng.integers(1, 300, 12).astype(np.int32)
    options: Any = {"scale": d**-0.5, "implementation": implementation}
    tables = np.tile(table, (12, 1))
    whole = run(decode, q, k, v, tables, lengths, **options)
    for count in (1, 2, 3, 5):
        part = run(decode, q[:count], k, v, tables[:count], lengths[:count], **options)
        assert_same_bits(part, whole[:count])
