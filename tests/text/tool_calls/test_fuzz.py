"""A sample of the random answers; `tests.text.tool_calls.fuzz` runs as many as one likes."""

from __future__ import annotations

import os

import pytest

from tests.text.tool_calls.fuzz import run_case

CASES = int(os.environ.get("NJAX_FUZZ_CASES", "2000"))
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_random_answers(part):
    kinds = set()
    for seed in range(part, CASES, PARTS):
        try:
            kinds.add(run_case(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert kinds == {"known", "damaged"}
