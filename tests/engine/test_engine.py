"""The engine as its callers see it: limits, stops, cancellation, failures, one answer."""

from __future__ import annotations

import time

import numpy as np
import pytest

from njax.config import EngineConfig
from njax.engine.engine import Engine
from njax.engine.types import Delta, Failed, Finished, GenerationRequest, SamplingParams, Started
from njax.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    Overloaded,
    StartupError,
    Unavailable,
)
from tests.engine.conftest import GREEDY, Collector, ask, ask_together, random_prompt
from tests.tiny import load_tiny


def test_events_come_in_order(make_engine):
    answer = ask(make_engine(), range(100), max_tokens=5)
    assert isinstance(answer.events[0], Started)
    assert all(isinstance(event, Delta) for event in answer.events[1:-1])
    assert answer.end.reason == "output_limit"
    assert len(answer.tokens) == answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens == 100
    assert 0 < answer.usage.timings.time_to_first_token <= answer.usage.timings.total


@pytest.mark.parametrize(("chunk", "lanes"), [(64, 1), (512, 4)])
def test_one_answer_for_every_chunk_size_and_lane_count(make_engine, chunk, lanes):
    rng = np.random.default_rng(7)
    prompt = random_prompt(rng, 700)
    reference = ask(make_engine(), prompt, max_tokens=64).tokens
    engine = make_engine(prefill_chunk=chunk, max_concurrency=lanes)
    assert ask(engine, prompt, max_tokens=64).tokens == reference


def test_neighbours_do_not_matter(make_engine):
    rng = np.random.default_rng()
    engine = make_engine()
    prompts = [random_prompt(rng, int(rng.integers(1, 500))) for _ in range(9)]
    alone = [ask(engine, prompt, max_tokens=24).tokens for prompt in prompts]
    together = ask_together(engine, prompts, max_tokens=24)
    assert [answer.tokens for answer in together] == alone


def test_seeded_sampling_is_reproducible_in_any_company(make_engine):
    rng = np.random.default_rng()
    engine = make_engine()
    prompt = random_prompt(rng, 70)
    sampling = SamplingParams(temperature=1.0, seed=1234)
    alone = ask(engine, prompt, max_tokens=24, sampling=sampling).tokens
    others = [random_prompt(rng, 90) for _ in range(3)]
    crowd = ask_together(engine, [*others, prompt], max_tokens=24, sampling=sampling)
    assert crowd[-1].tokens == alone
    different = SamplingParams(temperature=1.0, seed=1235)
    assert ask(engine, prompt, max_tokens=24, sampling=different).tokens != alone


def test_stop_token_ends_the_answer(make_engine):
    engine = make_engine()
    free = ask(engine, range(50), max_tokens=12)
    stop = free.tokens[4]
    first = free.tokens.index(stop)
    stopped = ask(engine, range(50), max_tokens=12, stop_token_ids=(stop,))
    assert stopped.end.reason == "stop_token"
    assert stopped.tokens == free.tokens[: first + 1]


def test_stop_string_keeps_the_text_before_exactly(make_engine):
    rng = np.random.default_rng()
    engine = make_engine()
    for _ in range(5):
        prompt = random_prompt(rng, 40)
        free = ask(engine, prompt, max_tokens=40)
        if len(free.text) < 12:
            continue
        stop = free.text[5:9]  # usually spans tokens
        stopped = ask(engine, prompt, max_tokens=40, stop=(stop,))
        assert stopped.end.reason == "stop_string"
        assert stopped.text == free.text[: free.text.index(stop)]


def test_context_limits_the_answer(make_engine):
    engine = make_engine(max_context=128, prefill_chunk=64)
    answer = ask(engine, range(120), max_tokens=1000)
    assert answer.end.reason == "context_capacity" and len(answer.tokens) == 9
    assert len(ask(engine, range(128), max_tokens=5).tokens) == 1
    with pytest.raises(ContextLengthExceeded, match="129 tokens, the context holds 128"):
        ask(engine, range(129))


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (GenerationRequest(token_ids=(), max_tokens=1), "no tokens"),
        (GenerationRequest(token_ids=(1,), max_tokens=0), "max_tokens is 0"),
        (GenerationRequest(token_ids=(10**6,), max_tokens=1), "token ids outside"),
        (GenerationRequest(token_ids=(-1,), max_tokens=1), "token ids outside"),
    ],
)
def test_impossible_requests_are_refused_at_once(make_engine, request_, match):
    engine = make_engine()
    with pytest.raises(InvalidRequest, match=match):
        engine.submit(request_, lambda event: None)
    assert ask(engine, range(9), max_tokens=2).usage.completion_tokens == 2


def test_cancelling_frees_lane_and_pages(make_engine):
    engine = make_engine()
    collectors = [Collector() for _ in range(7)]
    request = GenerationRequest(
        token_ids=tuple(range(200)), max_tokens=3000, sampling=GREEDY, ignore_eos=True
    )
    handles = [engine.submit(request, collector) for collector in collectors]
    while not any(isinstance(event, Delta) for event in collectors[0].events):
        time.sleep(0.01)
    for handle in handles:  # running, in prefill and waiting ones alike
        handle.cancel()
    for collector in collectors:
        assert collector.answer().end.reason == "cancelled"
    handles[0].cancel()  # once more does no harm
    stats = engine.stats()
    assert (stats["running"], stats["waiting"], stats["outstanding"]) == (0, 0, 0)
    assert stats["pages_used"] == 0
    assert len(ask(engine, range(30), max_tokens=4).tokens) == 4


def test_leaving_the_event_loop_cancels(make_engine):
    engine = make_engine()
    request = GenerationRequest(
        token_ids=(1, 2, 3), max_tokens=3000, sampling=GREEDY, ignore_eos=True
    )
    for event in engine.generate(request):
        if isinstance(event, Delta):
            break
    deadline = time.monotonic() + 10
    while engine.stats()["outstanding"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.stats()["outstanding"] == 0


def test_overload_and_queue_timeout():
    config = EngineConfig(
        max_context=4096, prefill_chunk=64, max_concurrency=1, max_pending=1, pending_timeout_s=0.2
    )
    with Engine(load_tiny(), config) as engine:
        long = GenerationRequest(
            token_ids=(1, 2), max_tokens=2000, sampling=GREEDY, ignore_eos=True
        )
        running, waiting = Collector(), Collector()
        handle = engine.submit(long, running)
        engine.submit(long, waiting)
        with pytest.raises(Overloaded, match="2 requests are outstanding, the limit is 2"):
            engine.submit(long, lambda event: None)
        assert waiting.answer().error.code == "request_queue_timeout"
        handle.cancel()
        running.answer()
        assert len(ask(engine, (1, 2), max_tokens=3).tokens) == 3


def test_state_that_does_not_fit_is_a_startup_error():
    config = EngineConfig(max_context=2**25, max_concurrency=64, prefill_chunk=64)
    with pytest.raises(StartupError, match=r"too little memory: 64 lanes of 33554432 tokens"):
        Engine(load_tiny(), config).start()


def test_a_context_beyond_the_models_positions_is_remarked_on(caplog):
    Engine(load_tiny(), EngineConfig(max_context=40_000))
    assert "max_context is 40000, but the model was made for 32768 positions" in caplog.text


def test_capacity_that_nobody_could_use_is_refused():
    with pytest.raises(StartupError, match="could never be used"):
        EngineConfig(max_context=1024, max_concurrency=2, kv_capacity=4096)


def test_two_hundred_random_requests_compile_nothing(make_engine):
    rng = np.random.default_rng()
    engine = make_engine(prefix_cache_bytes=64 << 20)
    head = random_prompt(rng, 700)
    for _ in range(20):
        prompts = []
        for _ in range(10):
            shared = head[: int(rng.integers(0, 700))]
            prompts.append(shared + random_prompt(rng, int(rng.integers(1, 400))))
        sampling = SamplingParams(
            temperature=float(rng.choice([0.0, 0.7, 1.3])),
            top_k=int(rng.integers(0, 30)),
            top_p=float(rng.uniform(0.1, 1)),
        )
        answers = ask_together(
            engine, prompts, max_tokens=int(rng.integers(1, 6)), sampling=sampling,
            frontiers=(int(rng.integers(0, 900)),),
        )  # fmt: skip
        assert all(isinstance(answer.end, Finished) for answer in answers)
    assert engine.stats()["compiles_after_ready"] == 0
    assert engine.stats()["pages_used"] == 0


def test_a_poisoned_request_ends_alone():
    checkpoint = load_tiny()
    embedding = np.array(checkpoint.params["embedding.weight"])
    embedding[77] = np.nan
    checkpoint.params["embedding.weight"] = embedding
    with Engine(checkpoint, EngineConfig(max_context=512, prefill_chunk=64)) as engine:
        good, bad = (1, 2, 3), (1, 77, 3)
        answers = ask_together(engine, [good, bad, good], max_tokens=10)
        assert isinstance(answers[1].end, Failed)
        assert answers[1].error.code == "numeric_failure"
        assert answers[0].tokens == answers[2].tokens and len(answers[0].tokens) == 10
        # The lane that held NaN serves the next request as if nothing had been.
        for _ in range(4):
            assert ask(engine, good, max_tokens=10).tokens == answers[0].tokens


def test_a_raising_sink_harms_nobody(make_engine):
    engine = make_engine()

    def sink(event):
        raise RuntimeError("boom")

    engine.submit(GenerationRequest(token_ids=(1,), max_tokens=3, sampling=GREEDY), sink)
    assert len(ask(engine, range(20), max_tokens=4).tokens) == 4
    assert engine.failed is None


def test_a_failure_of_the_device_is_fatal_once_and_told_to_everyone():
    reasons = []
    with Engine(
        load_tiny(), EngineConfig(max_context=512, prefill_chunk=64), on_fatal=reasons.append
    ) as engine:
        collectors = [Collector() for _ in range(6)]
        request = GenerationRequest(token_ids=(1, 2), max_tokens=400, sampling=GREEDY)
        real = engine._device.decode
        calls = []

        def failing(*args):
            calls.append(1)
            if len(calls) > 3:
                raise RuntimeError("device lost")
            return real(*args)

        engine._device.decode = failing
        for collector in collectors:
            engine.submit(request, collector)
        for collector in collectors:
            assert collector.answer().error.code == "service_unavailable"
        deadline = time.monotonic() + 5
        while not reasons and time.monotonic() < deadline:
            time.sleep(0.01)
        assert reasons == ["RuntimeError: device lost"]
        assert engine.failed == "RuntimeError: device lost"
        with pytest.raises(Unavailable, match="device lost"):
            engine.submit(request, lambda event: None)


def test_shutdown_can_finish_what_runs():
    engine = Engine(load_tiny(), EngineConfig(max_context=512, prefill_chunk=64))
    engine.start()
    collectors = [Collector() for _ in range(6)]
    for collector in collectors:
        engine.submit(
            GenerationRequest(token_ids=(1, 2), max_tokens=20, sampling=GREEDY, ignore_eos=True),
            collector,
        )
    assert engine.shutdown(drain=True, timeout=60)
    assert all(len(collector.answer().tokens) == 20 for collector in collectors)
    with pytest.raises(Unavailable, match="stopping"):
        engine.submit(GenerationRequest(token_ids=(1,), max_tokens=1), lambda event: None)
