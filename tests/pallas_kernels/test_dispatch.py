"""Dispatch: order, declines and names."""

from __future__ import annotations

import pytest

from pallas_kernels.dispatch import NoImplementationError, dispatch


def decline(x: int) -> int:
    raise NotImplementedError(f"no {x} here")


def test_the_first_that_accepts_runs() -> None:
    implementations = {"a": decline, "b": lambda x: x + 1, "c": lambda x: x + 2}
    assert dispatch("op", implementations, None, 1) == 2
    assert dispatch("op", implementations, "c", 1) == 3


def test_all_declines_are_reported() -> None:
    with pytest.raises(NoImplementationError, match=r"op: .*a: no 7 here.*b: no 7 here"):
        dispatch("op", {"a": decline, "b": decline}, None, 7)


def test_a_named_implementation_stands_alone() -> None:
    with pytest.raises(NoImplementationError, match="a: no 7 here"):
        dispatch("op", {"a": decline, "b": lambda x: x}, "a", 7)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="op: there is no implementation 'z'; there are a, b"):
        dispatch("op", {"a": decline, "b": decline}, "z", 7)


def test_other_errors_are_not_declines() -> None:
    def broken(x: int) -> int:
        raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        dispatch("op", {"a": broken, "b": lambda x: x}, None, 1)
