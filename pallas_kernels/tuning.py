"""Tuned kernel configurations, committed as data: one JSON table for each kind of device.

A table maps operation -> regime -> "NxK" -> the fields of that kernel's Config. It is written by
`njax bench kernels --write`; a shape without an entry gets the kernel's default, which is a
heuristic, not a measurement. A configuration may decide in which order a sum is taken, so changing
a table can change last bits; within one table a shape always has one configuration.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import re
from typing import Any


def table_name(device_kind: str) -> str:
    """File name of a device's table: "NVIDIA H200" -> "nvidia_h200.json"."""
    return re.sub(r"[^a-z0-9]+", "_", device_kind.lower()).strip("_") + ".json"


@functools.cache
def load_table(device_kind: str) -> dict[str, Any]:
    """The table of a kind of device; empty when there is none."""
    folder = importlib.resources.files("pallas_kernels") / "tables"
    file = folder / table_name(device_kind)
    return json.loads(file.read_text()) if file.is_file() else {}


def lookup(device_kind: str, op: str, regime: str, n: int, k: int) -> dict[str, Any]:
    """Config fields for a matrix of n rows and k columns; {} means the kernel's default."""
    return load_table(device_kind).get(op, {}).get(regime, {}).get(f"{n}x{k}", {})
