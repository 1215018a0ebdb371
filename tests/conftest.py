"""Settings of the whole suite: strict promotion, CPU unless GPU tests are asked for, one cache.

GPU tests run with `pytest -m gpu`; JAX_PLATFORMS in the environment always wins.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

# Suites share helpers as `tests.<area>.support`, also where pytest is not run as a module.
sys.path.insert(0, str(Path(__file__).parent.parent))

if "JAX_PLATFORMS" not in os.environ and not any("gpu" in arg for arg in sys.argv[1:]):
    os.environ["JAX_PLATFORMS"] = "cpu"

import hypothesis
import jax
import pytest

# Many tests compile the same small programs; the cache lives as long as the run. The environment
# hands it to pytest-xdist's workers and to the processes that tests start.
_CACHE = None
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="njax-test-cache-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE.name

hypothesis.settings.register_profile("njax", deadline=None, max_examples=25)
hypothesis.settings.load_profile("njax")


def pytest_configure(config: pytest.Config) -> None:
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def pytest_unconfigure(config: pytest.Config) -> None:
    jax.config.update("jax_compilation_cache_dir", None)
    if _CACHE is not None:
        _CACHE.cleanup()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if jax.default_backend() == "gpu":
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
