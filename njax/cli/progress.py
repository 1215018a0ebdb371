"""Progress of loading and compiling: a bar on a terminal, plain lines elsewhere. On stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""


def say(line: str) -> None:
    """One line for people, on stderr, there at once."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Says what begins, and how long it took."""
    began = time.monotonic()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text(what)):
            yield
    else:
        say(f"{what} ...")
        yield
    say(f"{what}: {time.monotonic() - began:.1f} s")


@contextlib.contextmanager
def steps() -> Iterator[Progress]:
    """A progress callback for a piece of work with counted steps."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: say(f"[{done}/{total}] {what}")
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )
