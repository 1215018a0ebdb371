"""The held-out split as a file for `njax perplexity`.

`python -m njax.demo.data.held_out FILE.jsonl --count 200` writes conversations of the test split,
a line for every answer that is judged, to be measured with `--answers-only`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from njax.demo.data.mixture import MIXES, sample

SEED = 1


def held_out_lines(count: int, mix: str = "short", *, seed: int = SEED) -> Iterator[str]:
    """JSON lines of `count` conversations: `messages` up to an answer, `tools`, `options`."""
    for index in range(count):
        one = sample(seed, "test", index, mix)
        for target in one.targets:
            row = {
                "messages": one.messages[: target + 1],
                "tools": one.tools,
                "options": one.options(),
            }
            yield json.dumps(row, ensure_ascii=False)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m njax.demo.data.held_out", description=__doc__.splitlines()[0]
    )
    parser.add_argument("file", type=Path, help="written anew; should end in .jsonl")
    parser.add_argument("--count", type=int, default=200, help="conversations")
    parser.add_argument("--mix", choices=sorted(MIXES), default="short", help="their length")
    parser.add_argument("--seed", type=int, default=SEED, help="of the data set")
    given = parser.parse_args(arguments)
    lines = held_out_lines(given.count, given.mix, seed=given.seed)
    given.file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
