"""Running `njax` as a process of its own."""

from __future__ import annotations

import subprocess

import pytest

from tests.server.conftest import environment, python


@pytest.fixture(scope="session")
def njax():
    """`njax(*args, stdin=..., code=...)`: runs the command and checks its exit code."""

    def run(*args: object, stdin: str | None = None, code: int = 0) -> subprocess.CompletedProcess:
        result = subprocess.run(
            python("-m", "njax", *map(str, args)), input=stdin, text=True, capture_output=True,
            env=environment(), timeout=180,
        )  # fmt: skip
        assert result.returncode == code, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        return result

    return run
