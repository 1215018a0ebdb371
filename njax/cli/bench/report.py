"""What every benchmark prints: where it ran, its rows as a table, and the same as JSON."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def environment() -> dict[str, Any]:
    """Command, date, device and versions of this run, JSON-ready."""
    import jax

    device = jax.devices()[0]
    return {
        "command": " ".join(["njax", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "device": device.device_kind,
        "platform": device.platform,
        "cpu_cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {
            name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax", "numpy")
        },
    }


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest of the samples."""
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def print_report(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    data: dict[str, Any],
    json_path: Path | None = None,
) -> None:
    """Prints the environment and a table; writes everything as JSON if a path is given.

    Args:
      title, columns, rows: the table, cells already formatted.
      data: the figures in full, JSON-ready.
    """
    where = environment()
    console = Console(width=None if sys.stdout.isatty() else 120)
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    console.print(f"$ {where['command']}", markup=False, highlight=False)
    console.print(
        f"{where['date']}, {where['device']} ({where['platform']}, {where['cpu_cores']} cores, "
        f"{where['machine']}), Python {where['python']}, {versions}",
        markup=False,
        highlight=False,
    )
    table = Table(title=title)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps({"environment": where, **data}, indent=2) + "\n")
