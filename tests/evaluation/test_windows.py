"""Windows: each token scored once, with enough before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from njax.evaluation.windows import windows


@given(st.integers(0, 300), st.integers(2, 60), st.data())
def test_each_token_is_scored_once(length, size, data):
    stride = data.draw(st.integers(1, size - 1))
    scored = []
    for window in windows(length, size, stride):
        assert 0 <= window.start < window.scored < window.end <= length
        assert window.end - window.start <= size
        assert window.start == 0 or window.scored - window.start >= size - stride
        scored += range(window.scored, window.end)
    assert scored == list(range(1, length))


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (4, 4), (4, 0)])
def test_sizes_out_of_range(size, stride):
    with pytest.raises(ValueError, match="1 <= stride < size"):
        list(windows(10, size, stride))
