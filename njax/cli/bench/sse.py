"""`njax bench sse`: streams through the whole application, under uvicorn and granian, in one run.

The model is replaced by a source that only counts, so that the server is what is measured: parsing,
template and tokenizer, the bridge between threads, encoding, HTTP. Two kinds of load: as fast as
it goes (events that wait are written together), and steps at the pace of a device, in each of
which every client gets one event.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from njax.cli.bench.report import print_report, spread

SERVERS = ("uvicorn", "granian")
PACED_STEPS = 200


def sse(
    clients: Annotated[int, typer.Option(min=1, help="Streams at a time.")] = 16,
    tokens: Annotated[int, typer.Option(min=1, help="Events of a stream.")] = 5000,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds for each server, in turn.")] = 5,
    step_ms: Annotated[float, typer.Option(min=0.1, help="Pace of the second kind.")] = 5.0,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
) -> None:
    """Measure server-sent events of the server alone: events a second, processor time of each."""
    kinds = [kind for kind in SERVERS if importlib.util.find_spec(kind)]
    for kind in set(SERVERS) - set(kinds):
        typer.echo(f"{kind} is not installed and left out", err=True)
    figures: dict[str, dict[str, list[float]]] = {
        kind: {"events_per_s": [], "paced_cpu_us": [], "first_event_ms": []} for kind in kinds
    }
    with contextlib.ExitStack() as stack:
        fast = {kind: stack.enter_context(_serving(kind, 0.0)) for kind in kinds}
        paced = {kind: stack.enter_context(_serving(kind, step_ms / 1000)) for kind in kinds}
        for server in (*fast.values(), *paced.values()):
            server.load(clients, 20)
        for _ in range(repeats):  # in turn, so that a drifting clock hits all alike
            for kind in kinds:
                into = figures[kind]
                seconds, _, first = fast[kind].load(clients, tokens)
                into["events_per_s"].append(clients * tokens / seconds)
                into["first_event_ms"].append(1e3 * first)
                steps = min(tokens, PACED_STEPS)
                _, cpu, _ = paced[kind].load(clients, steps)
                into["paced_cpu_us"].append(1e6 * cpu / (clients * steps))
    rows = []
    for kind, samples in figures.items():
        cells = [f"{spread(samples[name])['median']:,.0f}" for name in samples]
        low, high = min(samples["events_per_s"]), max(samples["events_per_s"])
        rows.append([kind, *cells, f"{low:,.0f} to {high:,.0f}"])
    print_report(
        f"{clients} streams of {tokens} events, medians of {repeats}",
        [
            "server",
            "events/s",
            f"cpu us/event at {step_ms:g} ms",
            "first event ms",
            "events/s range",
        ],
        rows,
        {"clients": clients, "tokens": tokens, "step_ms": step_ms, "samples": figures},
        json_path,
    )


class _Server:
    """A server process and how to load it."""

    def __init__(self, port: int, cpu: Any):
        self._port = port
        self._cpu = cpu

    def load(self, clients: int, tokens: int) -> tuple[float, float, float]:
        """Wall seconds, processor seconds of the server, mean seconds to the first event."""
        before = self._cpu()
        began = time.perf_counter()
        firsts = asyncio.run(_clients(self._port, clients, tokens))
        seconds = time.perf_counter() - began
        return seconds, self._cpu() - before, sum(firsts) / len(firsts)


async def _clients(port: int, clients: int, tokens: int) -> list[float]:
    return await asyncio.gather(*(_client(port, tokens) for _ in range(clients)))


async def _client(port: int, tokens: int) -> float:
    body = json.dumps(
        {
            "model": "bench",
            "messages": [{"role": "user", "content": "Count, please."}],
            "max_tokens": tokens,
            "chat_template_kwargs": {"enable_thinking": False},  # all of it is content
            "stream": True,
        }
    ).encode()
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    events, first, tail = 0, 0.0, b""
    while part := await reader.read(1 << 16):
        first = first or time.perf_counter() - began
        part = tail + part
        events += part.count(b'"content":"')
        tail = part[-10:] if not part.endswith(b'"content":"') else b""
    writer.close()
    if events != tokens + 1:  # and the opening
        raise RuntimeError(f"{events} events came, expected {tokens + 1}")
    return first


@contextlib.contextmanager
def _serving(kind: str, step_s: float) -> Iterator[_Server]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(kind, step_s, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        port = ours.recv()
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

        def cpu() -> float:
            ours.send(None)
            return ours.recv()

        yield _Server(port, cpu)
    finally:
        process.kill()
        process.join()


def _serve(kind: str, step_s: float, pipe: Any) -> None:
    """In the server's process."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    from server.app import create_app
    from server.listen import bind
    from server.settings import Settings

    app = create_app(_Source(step_s), Settings("bench"))  # type: ignore[arg-type]
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]

    def answer() -> None:
        with contextlib.suppress(EOFError):
            while True:
                pipe.recv()
                pipe.send(time.process_time())

    pipe.send(port)
    threading.Thread(target=answer, daemon=True).start()
    if kind == "uvicorn":
        import uvicorn

        bound.listen(2048)
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[bound])
    else:
        from granian.constants import Interfaces  # type: ignore[import-not-found]
        from granian.server.embed import Server  # type: ignore[import-not-found]

        bound.close()  # granian opens its own
        embedded = Server(
            app, port=port, interface=Interfaces.ASGI, websockets=False, log_enabled=False
        )
        import uvloop

        uvloop.run(embedded.serve())


class _Source:
    """Stands where an engine would: real template and tokenizer, answers that cost nothing."""

    failed = None

    def __init__(self, step_s: float):
        from njax.config import EngineConfig
        from njax.demo import load_demo
        from njax.text.chat_template import ChatTemplate
        from njax.text.prompt import PromptRenderer
        from njax.text.tokenizer import Tokenizer

        demo = load_demo()
        assert demo.chat_template is not None
        template = ChatTemplate(demo.chat_template, demo.tokenizer_config)
        self.config = EngineConfig()
        self.template_options = template.options
        self.tokenizer = Tokenizer.from_json(demo.tokenizer_json)
        self.render = PromptRenderer(self.tokenizer, template).render
        self._step_s = step_s
        self._wake = threading.Condition()
        self._active: list[list[Any]] = []
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, request: Any, sink: Any) -> Any:
        from njax.engine.types import RequestHandle

        with self._wake:
            self._active.append([request, sink, 0])
            self._wake.notify()
        return RequestHandle(0, lambda _: None)

    def _run(self) -> None:
        from njax.engine.types import Delta, Finished, Usage

        while True:
            with self._wake:
                while not self._active:
                    self._wake.wait()
                active = list(self._active)
            if self._step_s:
                time.sleep(self._step_s)
            for entry in active:
                request, sink, done = entry
                if done < request.max_tokens:
                    sink(Delta((done,), " word"))
                    entry[2] += 1
                    continue
                usage = Usage(len(request.token_ids), done, 0, "full_reset")
                sink(Finished("output_limit", usage))
                with self._wake:
                    self._active.remove(entry)
