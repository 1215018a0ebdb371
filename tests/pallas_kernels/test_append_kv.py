"""Writing tokens into pages: the right rows, nothing else, and without a copy of the pool."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import append_kv
from pallas_kernels.attention import APPEND_IMPLEMENTATIONS, reference
from tests.pallas_kernels.support import DTYPES, assert_same_bits, normal, run

pytestmark = pytest.mark.parametrize("implementation", APPEND_IMPLEMENTATIONS)
append = functools.partial(jax.jit, static_argnames="implementation")(append_kv)


def inputs(seed: int, b: int, t: int, dtype: Any, *, pages: int = 40, row: int = 16) -> Any:
    rng = np.random.default_rng(seed)
    pool = [normal(rng, pages, 2, 64, row, dtype=dtype) for _ in range(2)]
    new = [normal(rng, b, t, 2, row, dtype=dtype) for _ in range(2)]
    table = rng.permutation(np.arange(1, pages))[: b * 8].reshape(b, 8).astype(np.int32)
    return *map(jnp.asarray, pool), *new, table


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("t", "start", "lengths"),
    [
        (1, [0, 63, 64, 500], [1, 1, 1, 1]),
        (1, [0, 63, 64, 500], [0, 1, 0, 1]),
        (64, [0, 64, 448], [64, 1, 0]),
        (128, [0, 64, 130, 384], [128, 127, 65, 128]),
        (200, [1, 62, 63, 300], [200, 64, 66, 200]),
    ],
)
def test_against_the_reference(
    t: int, start: list[int], lengths: list[int], dtype: Any, implementation: str
) -> None:
    arrays = inputs(t, len(start), t, dtype)
    args = *arrays, np.asarray(start, np.int32), np.asarray(lengths, np.int32)
    actual = run(append, *args, implementation=implementation)
    expected = reference.append_kv(*(np.asarray(a) for a in args))
    for pool, wanted in zip(map(np.asarray, actual), expected, strict=True):
        assert pool.dtype == dtype
        assert_same_bits(pool[1:], wanted[1:])  # page 0 is scratch


def test_padding_beyond_the_table_is_harmless(implementation: str) -> None:
    """A padded chunk may reach past the end of the page table; its padding goes nowhere."""
    arrays = inputs(0, 1, 128, jnp.float32)
    args = *arrays, np.asarray([448], np.int32), np.asarray([64], np.int32)
    actual = run(append, *args, implementation=implementation)
    expected = reference.append_kv(*(np.asarray(a) for a in args))
    for pool, wanted in zip(map(np.asarray, actual), expected, strict=True):
        assert_same_bits(pool[1:], wanted[1:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("b", "t"), [(4, 1), (1, 64), (1, 512)])
def test_donated_pools_are_written_in_place(
    b: int, t: int, dtype: Any, implementation: str
) -> None:
    arrays = inputs(0, b, t, dtype, pages=3000)
    args = *arrays, jnp.zeros(b, jnp.int32), jnp.full(b, t)
    donating = jax.jit(append_kv, static_argnames="implementation", donate_argnums=(0, 1))
    compiled = run(donating.lower, *args, implementation=implementation).compile()
    pool_bytes = arrays[0].nbytes
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= 2 * pool_bytes
    assert memory.temp_size_in_bytes < pool_bytes // 4
    assert not re.search(r"\[3000,2,64,16\]\S* copy\(", compiled.as_text())
    pointers = [pool.unsafe_buffer_pointer() for pool in arrays[:2]]
    written = compiled(*args)
    assert [pool.unsafe_buffer_pointer() for pool in written] == pointers


def test_shapes_that_do_not_fit_are_named(implementation: str) -> None:
    pages_k, pages_v, k, v, table = inputs(0, 1, 64, jnp.float32)
    one = np.ones(1, np.int32)
    with pytest.raises(ValueError, match=r"append_kv: k .* do not fit pages"):
        append_kv(pages_k, pages_v, k[..., :8], v, table, one, one, implementation=implementation)
