"""XLA's persistent compilation cache: a second start loads what the first compiled."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENVIRONMENT = "JAX_COMPILATION_CACHE_DIR"


def use_compile_cache() -> None:
    """Points JAX at a folder in the user's cache, unless the environment names one.

    Set `JAX_COMPILATION_CACHE_DIR` to a folder to use that, or to nothing to use none. Entries are
    keyed by program, JAX version and device, so a stale one is never loaded.
    """
    import jax

    if ENVIRONMENT not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(_user_cache() / "njax" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _user_cache() -> Path:
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
