"""Losses and scores of a run, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from njax.demo.training.state import Progress


def write_curves(folder: Path, progress: Progress) -> None:
    """`curves.json`, and `curves.png` where matplotlib is installed."""
    partial = folder / "curves.json.partial"
    partial.write_text(json.dumps(dataclasses.asdict(progress), indent=1) + "\n")
    os.replace(partial, folder / "curves.json")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [row["step"] for row in progress.losses]
    names = ("loss", "prompt_loss", *sorted(_drafts(progress)))
    for name in names:
        left.plot(steps, [row.get(name) for row in progress.losses], label=name, linewidth=0.9)
    left.set(xlabel="step", ylabel="loss (nats a token)", yscale="log")
    left.legend(fontsize=8)
    at = [row["step"] for row in progress.scores]
    for name in progress.scores[-1] if progress.scores else ():
        if name not in ("step", "rounded"):
            right.plot(at, [row.get(name) for row in progress.scores], label=name, linewidth=0.9)
    right.set(xlabel="step", ylabel="exact, or accepted", ylim=(0, 1))
    right.grid(alpha=0.3)
    if progress.scores:
        right.legend(fontsize=7, ncols=2)
    figure.savefig(folder / "curves.png", dpi=110)


def _drafts(progress: Progress) -> set[str]:
    return {name for row in progress.losses for name in row if name.startswith("mtp_loss")}
