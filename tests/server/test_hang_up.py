"""Clients that go away: their lanes are free at once."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from tests.server.conftest import LANES, PENDING, chat, eventually, works

LONG = {"max_tokens": 1500, "ignore_eos": True}


def reset(raw: socket.socket) -> None:
    """Closes with RST, as a killed client does."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()


def all_lanes_are_free(server) -> None:
    """As many requests as the server takes are accepted together."""
    streams = [server.connect(chat(stream=True, max_tokens=4)) for _ in range(LANES + PENDING)]
    heads = [raw.recv(15) for raw in streams]
    for raw in streams:
        while raw.recv(65536):
            pass
        raw.close()
    assert heads == [b"HTTP/1.1 200 OK"] * len(streams)


@pytest.mark.parametrize("close", [socket.socket.close, reset], ids=["close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
def test_during_decode(server, stream, close):
    held = [server.connect(chat(**LONG, stream=stream)) for _ in range(LANES + PENDING)]
    if stream:
        for raw in held[:LANES]:
            received = b""
            while received.count(b"data:") < 4:
                received += raw.recv(65536)
    else:
        time.sleep(0.3)
    began = time.monotonic()
    for raw in held:
        close(raw)
    eventually(lambda: works(server), timeout=5)
    # 1500 tokens in six requests would take much longer.
    assert time.monotonic() - began < 3
    eventually(lambda: _plenty(server), timeout=5)


def _plenty(server) -> None:
    """Several requests in a row: nothing waits for an abandoned one."""
    for _ in range(3):
        works(server)


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05])
def test_during_prefill(server, delay):
    held = [
        server.connect(chat("long prompt " * 150, **LONG, stream=bool(number % 2)))
        for number in range(LANES + PENDING)
    ]
    time.sleep(delay)
    for raw in held:
        reset(raw)
    eventually(lambda: _plenty(server), timeout=10)


def test_in_the_middle_of_the_body(server):
    for _ in range(LANES + PENDING + 1):
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        raw.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        )
        raw.close()
    works(server)


def test_a_slow_reader_gets_everything(server):
    whole = server.post(chat(max_tokens=64)).json()["choices"][0]["message"]["content"]
    raw = server.connect(chat(max_tokens=64, stream=True))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        part = raw.recv(512)
        assert part
        received += part
        time.sleep(0.001)
    raw.close()
    assert b"data: [DONE]" in received and len(received) > len(whole)
