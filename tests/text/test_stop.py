"""Stop strings against `str.find` on the whole text, for any split."""

from __future__ import annotations

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from njax.text.stop import StopStrings


def run(stops, text, cuts):
    watcher = StopStrings(stops)
    edges = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    out, stopped = [], False
    for a, b in itertools.pairwise(edges):
        piece, now = watcher.push(text[a:b])
        assert not (stopped and (piece or not now))
        out.append(piece)
        stopped = now
    out.append(watcher.finish())
    return out, watcher


def naive(stops, text):
    found = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return (text[: min(found)], True) if found else (text, False)


letters = st.text(alphabet="abc", max_size=30)


@settings(max_examples=2000, deadline=None)
@given(
    st.lists(st.text(alphabet="abc", max_size=5), max_size=4),
    letters,
    st.lists(st.integers(0, 30)),
)
@example(["abcd", "bc"], "abcx", [1, 2, 3])
@example(["abcd", "bc"], "abcd", [1, 2, 3])
@example(["abcd", "bc"], "abc", [3])
@example(["aab"], "aaab", [1, 2, 3])
def test_equals_find_on_the_whole_text(stops, text, cuts):
    out, watcher = run(stops, text, cuts)
    expected, stopped = naive(stops, text)
    assert "".join(out) == expected
    assert watcher.stopped == stopped
    if stopped:
        assert text.startswith(watcher.matched, len(expected))


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=5), min_size=1), letters)
def test_no_more_is_held_than_may_still_match(stops, text):
    """After each character: what is held begins some stop string, so nothing waits in vain."""
    watcher = StopStrings(stops)
    shown = ""
    for end in range(1, len(text) + 1):
        piece, stopped = watcher.push(text[end - 1 : end])
        shown += piece
        if stopped:
            break
        held = text[len(shown) : end]
        assert not held or any(s.startswith(held) and s != held for s in stops)
        assert len(held) < max(map(len, stops))


def test_stop_of_two_tokens_over_three_chunks():
    watcher = StopStrings(["\n\nHuman:"])
    assert watcher.push("Yes.\n") == ("Yes.", False)
    assert watcher.push("\nHu") == ("", False)
    assert watcher.push("man: more") == ("", True)
    assert watcher.matched == "\n\nHuman:"
    assert watcher.push("and more") == ("", True)
    assert watcher.finish() == ""


def test_held_prefix_is_released():
    watcher = StopStrings(["END"])
    assert watcher.push("the EN") == ("the ", False)
    assert watcher.push("D of it") == ("", True)
    watcher = StopStrings(["END"])
    assert watcher.push("the EN") == ("the ", False)
    assert watcher.push("Glish") == ("ENGlish", False)
    assert watcher.push("E") == ("", False)
    assert watcher.finish() == "E"
    assert not watcher.stopped


def test_without_stops_text_passes():
    watcher = StopStrings(["", ""])
    assert watcher.push("abc") == ("abc", False)
    assert watcher.finish() == ""
