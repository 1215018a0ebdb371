"""The README's commands are the ones that CI and the command line know."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\.venv/bin/njax .*$|&& \.venv/bin/njax .*$", README, re.MULTILINE)


def test_ci_runs_the_readmes_test_command():
    line = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert f"```sh\n{line}\n```" in README and "pytest" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_exists(command):
    """Options of a command in the README are options that its help knows."""
    words = shlex.split(command.removeprefix("&& "))[1:]
    help_text = subprocess.run(
        [sys.executable, "-m", "njax", words[0], "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"},
    ).stdout  # fmt: skip
    for word in words[1:]:
        if word.startswith("--"):
            assert word in help_text, f"njax {words[0]} has no {word}"


def test_some_commands_were_found():
    assert len(COMMANDS) >= 5
