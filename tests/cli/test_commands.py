"""The commands as users run them. One engine start each, so each test asks for much."""

from __future__ import annotations

import json
import re
import subprocess
import time

import pytest

from tests.server.conftest import python

SMALL = ("--max-context", "64")


def test_help_is_quick_and_loads_nothing_heavy(njax):
    names = ("serve", "generate", "chat", "perplexity", "convert", "inspect", "bench")
    for args in ([], *([name] for name in names)):
        assert "Usage" in njax(*args, "--help").stdout
    code = "import sys; sys.argv = ['njax', '--version']; from njax.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print(sorted({'jax', 'numpy', 'litestar', 'flax'} & set(sys.modules)))"
    began = time.monotonic()
    result = subprocess.run(python("-c", code), capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[0].startswith("njax 0.")
    assert result.stdout.splitlines()[1] == "[]"
    assert time.monotonic() - began < 10


def test_generate(njax, tmp_path):
    """The answer alone on stdout; a file says what --prompt says; a stop string cuts it."""
    args = ("generate", *SMALL, "--greedy", "--max-new", 12)
    first = njax(*args, "--prompt", "-", "--print-token-ids", stdin="Hello")
    ids = re.search(r"token ids: ([\d ]+)", first.stderr)
    assert ids and len(ids[1].split()) == 12
    assert "12 generated" in first.stderr
    assert first.stdout.strip() and "token ids" not in first.stdout
    conversation = {"messages": [{"role": "user", "content": "Hello"}]}
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(conversation))
    stop = first.stdout[4:7]
    stopped = njax(*args, "--messages", file, "--stop", stop)
    assert stopped.stdout == first.stdout[: first.stdout.index(stop)] + "\n"
    assert "stop string" in stopped.stderr


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (("generate",), 2, "--prompt or --messages"),
        (("generate", "--prompt", "x", "--max-new", "0"), 2, "--max-new"),
        (("generate", "--prompt", "x", "--temperature", "-1"), 1, "temperature is -1"),
        (("generate", "--prompt", "x", "--greedy", "--temperature", "1"), 1, "contradict"),
        (("generate", "--messages", "/no/such/file"), 1, "/no/such/file"),
        (("generate", "--messages", __file__), 1, "not JSON"),
        (("generate", "/no/such/model", "--prompt", "x"), 1, "no such directory"),
        (("inspect", "/no/such/model"), 1, "no such directory"),
        (("serve", "--kv-capacity", "many"), 1, "--kv-capacity"),
        (("perplexity", "demo", "/no/such/file"), 1, "/no/such/file"),
        (("perplexity", "demo", __file__, "--stride", "2048"), 2, "--stride"),
        (("perplexity", "demo", __file__, "--kv-dtype", "int4"), 1, "--kv-dtype is 'int4'"),
        (("serve", "--kv-dtype", "int4"), 1, "kv_dtype is 'int4'"),
        (("serve", "--spec", "eagle"), 1, "spec is 'eagle'"),
        (("serve", "--spec", "mtp", "--draft-tokens", "6"), 2, "--draft-tokens"),
        (("bench", "spec", "--draft-tokens", "6"), 1, "draft_tokens is 6"),
        (("serve", "--port", "70000"), 2, "--port"),
        (("nonsense",), 2, "nonsense"),
    ],
)
def test_mistakes_get_one_clear_line(njax, args, code, part):
    result = njax(*args, code=code)
    assert part in result.stderr and not result.stdout
    if code == 1:
        line = result.stderr.splitlines()[-1]
        assert line.startswith("error: ") and part in line


def test_chat_from_a_pipe(njax):
    """Turns go on a conversation, /reset forgets it, /quit leaves."""
    ask = "What is 2 + 3?"
    lines = [ask, "/reset", ask, "", "/nonsense", "x" * 3000, "What is 4 + 8?", "/quit", "No"]
    result = njax("chat", *SMALL, "--greedy", "--max-new", 9, stdin="\n".join(lines))
    answers = result.stdout.splitlines()
    assert answers[0] == answers[1]
    assert len(answers) == 3 and answers[2] != answers[0]
    assert "/nonsense" in result.stderr and "empty again" in result.stderr
    assert "error: the prompt has" in result.stderr
    assert ">" not in result.stdout


def test_bench_sse(njax, tmp_path):
    """A small run; a server that is not installed is named and left out."""
    args = ("--clients", 3, "--tokens", 20, "--repeats", 1, "--json", tmp_path / "figures")
    assert "uvicorn" in njax("bench", "sse", *args).stdout
    data = json.loads((tmp_path / "figures").read_text())
    assert data["samples"]["uvicorn"]["events_per_s"][0] > 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", "expected a list of messages"),
        ('{"messages": []}', "expected a list of messages"),
        ('{"messages": "x"}', "expected a list of messages"),
        ('[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]',
         "text only"),
    ],
)  # fmt: skip
def test_a_useless_messages_file_shows_early(njax, tmp_path, content, problem):
    path = tmp_path / "messages.json"
    path.write_text(content)
    result = njax("generate", "--messages", str(path), code=1)
    assert problem in result.stderr
    assert "loading" not in result.stderr


def test_perplexity(njax, tmp_path):
    """A text file against the same model with another KV cache; figures as JSON."""
    file = tmp_path / "text.txt"
    file.write_text("Some words to predict, and a few more of them.\n" * 4)
    args = ("perplexity", "demo", file, "--window", 128, "--against-kv-dtype", "int8")
    figures = json.loads(njax(*args, "--json").stdout)
    assert figures["tokens"] > 40 and figures["perplexity"] > 1
    assert 0 < figures["divergence_mean"] < 0.1 and figures["agreement"] > 0.8
    assert "KV int8" in figures["reference"]
