"""The server as a process: its start, its keys, its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.server.conftest import LANES, OPTIONS, chat, environment, python, serving, works

KEY = "sk-secret-0123456789"


def fails(*args: str) -> str:
    """Runs a server that must not start; its one line of complaint."""
    began = time.monotonic()
    result = subprocess.run(
        python("-m", "njax", "serve", *args),
        capture_output=True, text=True, env=environment(), timeout=120,
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr and not result.stdout
    assert time.monotonic() - began < 100
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and result.stderr.splitlines()[-1] == errors[0], result.stderr
    return errors[0]


def test_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = fails("--port", port)
    assert port in line and "in use" in line


def test_bad_starts(tmp_path):
    assert "no such directory" in fails("--port", "0", str(tmp_path / "none"))
    (tmp_path / "config.json").write_text("{}")
    assert "njax convert" in fails("--port", "0", str(tmp_path))
    assert "multiple of 64" in fails("--port", "0", "--prefill-chunk", "100")
    assert "kv_capacity" in fails("--port", "0", "--kv-capacity", "64")
    assert "no-such-host" in fails("--port", "0", "--host", "no-such-host.invalid")


def test_keys_and_a_graceful_end():
    """One server: what its key protects, and SIGTERM while it streams."""
    with serving(*OPTIONS, "--api-key", KEY, "--model-id", "my/model") as server:
        refused(server)
        client = server.client(api_key=KEY)
        assert client.models.retrieve("my/model").id == "my/model"
        body = chat(model="my/model", max_tokens=300, stream=True)
        with ThreadPoolExecutor(1) as pool:
            stream = client.chat.completions.create(**body, extra_body={"ignore_eos": True})
            next(stream)
            answer = pool.submit(list, stream)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with pytest.raises(openai.APIConnectionError):
                server.client(api_key=KEY).models.list()
            chunks = answer.result()
        assert chunks[-1].choices[0].finish_reason == "length"
        assert server.wait() == 0
        log = "".join(server.stdout + server.stderr)
        assert KEY not in log and "Traceback" not in log


def refused(server) -> None:
    assert server.http.get("/health").status_code == 200
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"authorization": f"Bearer {KEY}x"},
        {"x-api-key": KEY[:-1]},
        {"x-api-key": b"\xff\xfe"},
        {"x-api-key": ""},
    ):
        for path in ("/v1/models", "/v1/models/my/model", "/v1/chat/completions"):
            method = "POST" if path.endswith("completions") else "GET"
            response = server.http.request(method, path, headers=headers, content=b"{")
            assert response.status_code == 401, (headers, path, response.text)
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert KEY not in response.text
    for headers in ({"x-api-key": KEY}, {"authorization": f"bearer {KEY}"}):
        assert server.http.get("/v1/models", headers=headers).status_code == 200
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="wrong").models.list()


FATAL = """
import sys, threading
import server.run
from njax.engine.device import Device
from njax.cli import main

decode, calls = Device.decode, []

def broken(self, position, active):
    calls.append(1)
    if len(calls) > 20:
        raise ValueError("the device is gone")
    return decode(self, position, active)

if {hang}:
    server.run.DRAIN_S = 2
    server.run.exit_now = lambda code: threading.Event().wait()

Device.decode = broken
sys.argv = ["njax", "serve", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("hang", ["False", "True"])
def test_a_failed_engine_ends_the_process(hang):
    """Whoever waits is told, in the stream and outside; exit code 1, also if Python hangs."""
    command = python("-c", FATAL.replace("{hang}", hang))
    with serving(*OPTIONS, command=command) as server, ThreadPoolExecutor(2) as pool:
        works(server)
        long = {"max_tokens": 500, "ignore_eos": True}
        whole = pool.submit(server.post, chat(**long))
        stream = pool.submit(server.post, chat(**long, stream=True))
        assert whole.result().status_code == 503
        assert whole.result().json()["error"]["code"] == "service_unavailable"
        text = stream.result().text
        assert '"code":"service_unavailable"' in text.strip().split("\n\n")[-1]
        assert "[DONE]" not in text
        assert server.wait(20) == 1
        log = "".join(server.stderr)
        assert "the device is gone" in log


SLOW = """
import sys, threading, time
import server.run
from njax.cli import main
from njax.engine.device import Device

server.run.DRAIN_S, server.run._MARGIN_S = 1, 4
decode, calls = Device.decode, []

def slow(self, position, active):
    calls.append(1)
    time.sleep(0.05)
    if {stuck} and len(calls) > 10:
        threading.Event().wait()
    return decode(self, position, active)

Device.decode = slow
sys.argv = ["njax", "serve", *sys.argv[1:]]
main()
"""


def read_all(raw: socket.socket) -> bytes:
    received = b""
    while part := raw.recv(65536):
        received += part
    return received


def test_waiting_and_a_deadline():
    """A slow device: streams that wait are kept alive, then refused; SIGTERM does not wait long."""
    command = python("-c", SLOW.replace("{stuck}", "False"))
    with (
        serving(*OPTIONS, "--pending-timeout-ms", "11000", command=command) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        long = chat(max_tokens=1500, ignore_eos=True, stream=True)
        held = [server.connect(long) for _ in range(LANES)]
        assert all(b"200 OK" in raw.recv(65536) for raw in held)
        whole = pool.submit(server.post, chat())
        waiting = server.connect(chat(stream=True))
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += waiting.recv(65536)
        assert b"200 OK" in received and b'"role":"assistant"' in received
        assert b": keep-alive\n\n" in received
        assert b'"code":"request_queue_timeout"' in received and b"[DONE]" not in received
        assert whole.result().status_code == 503
        assert whole.result().json()["error"]["code"] == "request_queue_timeout"

        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 10
        for raw in held:
            assert b'"code":"service_unavailable"' in read_all(raw).split(b"data: ")[-1]
            raw.close()


def test_a_stuck_device_does_not_hold_up_the_end():
    command = python("-c", SLOW.replace("{stuck}", "True"))
    with serving(*OPTIONS, command=command) as server:
        held = server.connect(chat(max_tokens=100, ignore_eos=True, stream=True))
        held.settimeout(4)
        with pytest.raises(TimeoutError):
            read_all(held)
        assert server.http.get("/health").status_code == 200
        began = time.monotonic()
        assert server.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < 10
