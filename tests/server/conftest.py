"""A real server process on a free port, and helpers to talk to it in raw ways."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jax
import openai
import pytest

from njax.checkpoint import save_checkpoint
from tests.tiny import load_tiny

MODEL = "njax-demo"
CONTEXT = 2048
LANES, PENDING = 4, 2
OPTIONS = (
    "--max-context", str(CONTEXT), "--prefill-chunk", "64", "--max-concurrency", str(LANES),
    "--max-pending-requests", str(PENDING),
)  # fmt: skip
LIMIT_MIB = 11


def python(*args: str) -> list[str]:
    return [sys.executable, *args]


def environment() -> dict[str, str]:
    """This process's, with the run's compilation cache, as all servers compile the same."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "PYTHONUNBUFFERED": "1",
    }


class ServerProcess:
    """`njax serve` (or another command that ends in it), started and ready."""

    def __init__(self, *args: str, command: list[str] | None = None, port: str = "0"):
        command = command or python("-m", "njax", "serve")
        self.process = subprocess.Popen(
            [*command, "--port", port, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.stderr: list[str] = []
        self.stdout: list[str] = []
        self._ready: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.stdout), (self.process.stderr, self.stderr))
        ]
        for reader in self._readers:
            reader.start()
        line = self._ready.get(timeout=180)
        if line is None:
            code = self.wait()
            raise AssertionError(f"the server ended with {code}: {''.join(self.stderr)[-3000:]}")
        self.url = line.split(" on ")[1].strip()
        self.port = int(self.url.rsplit(":", 1)[1])
        self.http = httpx.Client(base_url=self.url, timeout=60)

    def _read(self, stream, lines: list[str]) -> None:
        for line in stream:
            lines.append(line)
            if line.startswith("serving "):
                self._ready.put(line)
        if lines is self.stdout:
            self._ready.put(None)

    def client(self, **options: Any) -> openai.OpenAI:
        options = {"api_key": "none", "max_retries": 0, "timeout": 60} | options
        return openai.OpenAI(base_url=f"{self.url}/v1", **options)

    def post(self, body: Any, **options: Any) -> httpx.Response:
        """POST to the chat endpoint: bytes as they are, everything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return self.http.post("/v1/chat/completions", content=content, headers=headers, **options)

    def connect(self, body: dict[str, Any]) -> socket.socket:
        """Sends a chat request over a raw socket and returns it unread."""
        content = json.dumps(body).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        raw.sendall(head.encode() + content)
        return raw

    def stop(self, number: int = signal.SIGTERM, timeout: float = 30) -> int:
        self.process.send_signal(number)
        return self.wait(timeout)

    def wait(self, timeout: float = 30) -> int:
        """The exit code; all output is there afterwards."""
        code = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(5)
        return code


@contextlib.contextmanager
def serving(*args: str, **options: Any) -> Iterator[ServerProcess]:
    server = ServerProcess(*args, **options)
    try:
        yield server
    finally:
        server.http.close()
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model on disk. Its answers wander and end at their limit only."""
    path = tmp_path_factory.mktemp("tiny") / MODEL
    save_checkpoint(path, load_tiny())
    return path


@pytest.fixture(scope="session")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    """The random model, under the bundled one's name, with seeds on. Tests leave it idle."""
    options = ("--prefix-cache-mib", "64", "--max-request-mib", str(LIMIT_MIB))
    with serving(str(tiny_model), *OPTIONS, *options) as it:
        yield it
        assert it.stop() == 0, "".join(it.stderr)[-3000:]


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with server.client() as it:
        yield it


@pytest.fixture(scope="session")
def demo_server() -> Iterator[ServerProcess]:
    """The bundled model, which thinks and calls tools as it should."""
    options = ("--prefix-cache-mib", "64", "--prefill-chunk", "64", "--max-context", str(CONTEXT))
    with serving(*options) as it:
        yield it


@pytest.fixture(scope="session")
def demo_client(demo_server: ServerProcess) -> Iterator[openai.OpenAI]:
    with demo_server.client() as it:
        yield it


def chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    """A small greedy request that is answered without thinking."""
    messages = [{"role": "user", "content": text}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0}
    return body | {"reasoning_effort": "none"} | fields


def works(server: ServerProcess) -> None:
    """A request sent now is answered."""
    response = server.post(chat())
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["completion_tokens"] > 0


def eventually(check, timeout: float = 20.0) -> None:
    """Repeats `check` until it does not fail."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
