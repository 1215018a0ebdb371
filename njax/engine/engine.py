"""The engine as its callers see it: load a model, submit requests, read events."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from njax.checkpoint import Checkpoint
from njax.config import BLOCK, EngineConfig
from njax.engine.compile_counter import compile_counter
from njax.engine.device import Device, smallest_snapshot_bytes
from njax.engine.executor import Executor
from njax.engine.output import OutputPipeline
from njax.engine.pages import PagePool
from njax.engine.programs import Progress
from njax.engine.scheduler import Scheduler
from njax.engine.sequence import Sequence as EngineSequence
from njax.engine.steps import Graphs, init_engine_state
from njax.engine.types import (
    Drafts,
    Event,
    EventSink,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    RequestHandle,
)
from njax.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    StartupError,
    UnsupportedCapability,
)
from njax.models.mtp import bind_mtp
from njax.models.params import bind, place
from njax.prefix.identity import root_digest
from njax.prefix.seeds import SeedStore
from njax.state import kv_storage, kv_token_bytes, tree_bytes
from njax.text.chat_template import ChatTemplate
from njax.text.prompt import Prompt, PromptRenderer
from njax.text.tokenizer import Tokenizer

log = logging.getLogger("njax.engine")


class Engine:
    """A model ready to generate. `start` compiles; until then nothing touches the device.

    Args:
      checkpoint: what `njax.checkpoint.load_checkpoint` or `njax.demo.load_demo` gives.
      config: lanes, context, chunk and memory budgets.
      progress: told what is being compiled.
      on_fatal: called once, from the engine's thread, after a failure that ends the engine.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: EngineConfig | None = None,
        progress: Progress | None = None,
        on_fatal: Callable[[str], None] | None = None,
    ):
        self.config = config or EngineConfig()
        self.model_config = checkpoint.config
        self.tokenizer = Tokenizer.from_json(checkpoint.tokenizer_json, checkpoint.tokenizer_config)
        self.stop_token_ids = frozenset(
            self.tokenizer.eos_ids(checkpoint.generation_config, checkpoint.tokenizer_config)
        )
        self._checkpoint: Checkpoint | None = checkpoint
        self._dtype = jnp.dtype(checkpoint.dtype)
        self._progress = progress
        self._on_fatal = on_fatal
        self._renderer: PromptRenderer | None = None
        self.template_options: frozenset[str] = frozenset()
        if checkpoint.chat_template:
            template = ChatTemplate(checkpoint.chat_template, checkpoint.tokenizer_config)
            self._renderer = PromptRenderer(
                self.tokenizer, template, max_tokens=self.config.max_context
            )
            self.template_options = template.options
        self._fingerprint = _fingerprint(checkpoint)
        self._kv_dtype = kv_storage(self.config.kv_dtype, self._dtype)
        self._kv_token_bytes = kv_token_bytes(
            self.model_config, self._kv_dtype, int(self.config.drafting)
        )
        self._profile = f"activations={checkpoint.dtype} kv={self._kv_dtype} state=float32"
        self._store = SeedStore(self.config.prefix_cache_bytes)
        self._pool = PagePool(self.config.pool_pages)
        self._scheduler = Scheduler(self.config.max_concurrency, self._pool)
        self._ids = itertools.count(1)
        self._executor: Executor | None = None
        self._device: Device | None = None
        self._compiles_at_ready = 0
        self._check_config()

    def _check_config(self) -> None:
        if self.tokenizer.vocab_size > self.model_config.vocab_size:
            raise StartupError(
                f"the tokenizer's ids go to {self.tokenizer.vocab_size - 1}, but the model's "
                f"vocabulary holds {self.model_config.vocab_size}: they do not belong together"
            )
        if self.config.drafting and not (self._checkpoint and self._checkpoint.mtp):
            raise StartupError(
                "spec is 'mtp', but the checkpoint was loaded without its multi-token layer: load "
                "it with mtp=True"
            )
        if self.config.max_context > self.model_config.max_position:
            log.warning(
                "max_context is %d, but the model was made for %d positions: beyond them its "
                "answers may degrade", self.config.max_context, self.model_config.max_position,
            )  # fmt: skip
        needed = smallest_snapshot_bytes(self.model_config, self.config, self._dtype)
        if 0 < self.config.prefix_cache_bytes < needed:
            raise StartupError(
                f"the prefix cache of {self.config.prefix_cache_bytes} bytes is smaller than one "
                f"entry of this model ({needed} bytes): give --prefix-cache-mib at least "
                f"{-(-needed // 2**20)}, or 0 to turn it off"
            )

    def start(self) -> None:
        """Moves the weights to the device, compiles every program, starts the thread.

        Raises:
          StartupError: the device has too little memory for weights and state.
        """
        if self._executor is not None:
            raise RuntimeError("the engine has been started already")
        assert self._checkpoint is not None
        counter = compile_counter()
        began = time.monotonic()
        try:
            graphs, params = self._place_weights(self._checkpoint)
            self._checkpoint = None  # the device holds the weights now; let the host's copy go
            self._device = Device(
                graphs, params, self.model_config, self.config, self._dtype, self._progress
            )
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
                raise StartupError(self._too_large()) from error
            raise
        self._executor = Executor(
            self._device, self._scheduler, self._store, self.config, self._on_fatal or _ignore
        )
        self._compiles_at_ready = counter.count
        self._executor.start()
        log.info("engine ready after %.1f s", time.monotonic() - began)

    def _place_weights(self, checkpoint: Checkpoint) -> tuple[Graphs, Any]:
        """The modules and their weights on the device, as the steps take them."""
        decoder, params = bind(self.model_config, self._dtype, place(checkpoint.params))
        if not self.config.drafting:
            return Graphs(decoder), params
        mtp, drafting = bind_mtp(self.model_config, self._dtype, place(checkpoint.mtp))
        return Graphs(decoder, mtp), (params, drafting)

    def _too_large(self) -> str:
        state = jax.eval_shape(
            lambda: init_engine_state(self.model_config, self.config, self._dtype)
        )
        return (
            f"the device has too little memory: {self.config.max_concurrency} lanes of "
            f"{self.config.max_context} tokens need {tree_bytes(state) / 2**30:.1f} GiB of state "
            f"({tree_bytes(state.model.kv) / 2**30:.1f} GiB of it the KV pool) besides the "
            "weights; lower --max-context, --max-concurrency or --kv-capacity"
            + ("" if self._kv_dtype == jnp.int8 else ", or store it as --kv-dtype int8")
        )

    # --- requests ------------------------------------------------------------------------------

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **template_options: Any,
    ) -> Prompt:
        """Applies the chat template: text, tokens and frontiers.

        Raises:
          InvalidRequest: the template refuses the messages.
          UnsupportedCapability: the model has no chat template.
        """
        if self._renderer is None:
            raise UnsupportedCapability("this model has no chat template")
        return self._renderer.render(messages, tools, **template_options)

    def submit(self, request: GenerationRequest, on_event: EventSink) -> RequestHandle:
        """Queues a request; events arrive on the engine's thread, the last is Finished or Failed.

        Raises:
          RequestError: it is refused at once, and no event will come.
        """
        if self._executor is None:
            raise RuntimeError("the engine has not been started")
        limit, reason = self._check(request)
        sequence = EngineSequence(
            request_id=next(self._ids),
            request=request,
            sink=on_event,
            output=OutputPipeline(request, self.tokenizer, self.stop_token_ids, limit, reason),
            limit=limit,
            root=root_digest(
                fingerprint=self._fingerprint, profile=self._profile, tenant=request.tenant
            ),
            submitted=time.monotonic(),
        )
        self._executor.submit(sequence)
        return RequestHandle(sequence.request_id, self._executor.cancel)

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Submits a request and yields its events; leaving the loop early cancels it."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        handle = self.submit(request, events.put)
        try:
            while True:
                event = events.get()
                yield event
                if isinstance(event, Finished | Failed):
                    return
        finally:
            handle.cancel()

    def _check(self, request: GenerationRequest) -> tuple[int, FinishReason]:
        """Refuses what can never run; otherwise the token limit and why it would end there."""
        length = len(request.token_ids)
        if length == 0:
            raise InvalidRequest("the prompt has no tokens", param="messages")
        if request.max_tokens < 1:
            raise InvalidRequest(
                f"max_tokens is {request.max_tokens}; it must be at least 1", param="max_tokens"
            )
        if not 0 <= min(request.token_ids) <= max(request.token_ids) < self.model_config.vocab_size:
            raise InvalidRequest(
                f"the prompt holds token ids outside 0..{self.model_config.vocab_size - 1}",
                param="prompt",
            )
        for token, _ in request.sampling.logit_bias:
            if token >= self.model_config.vocab_size:
                raise InvalidRequest(
                    f"logit_bias names token {token}; ids go to {self.model_config.vocab_size - 1}",
                    param="logit_bias",
                )
        # The last generated token is never absorbed, so a full context still yields one.
        room = self.config.max_context - length + 1
        if room < 1:
            raise ContextLengthExceeded(
                f"the prompt has {length} tokens, the context holds {self.config.max_context}",
                param="messages",
            )
        if request.max_tokens <= room:
            return request.max_tokens, "output_limit"
        return room, "context_capacity"

    # --- state of the engine -------------------------------------------------------------------

    @property
    def failed(self) -> str | None:
        """Why the engine can no longer serve, or None."""
        return self._executor.failed if self._executor else None

    def stats(self) -> dict[str, Any]:
        """Counters and gauges of this moment, JSON-ready."""
        seeds = self._store
        return {
            "lanes": self.config.max_concurrency,
            "running": len(self._scheduler.active),
            "waiting": len(self._scheduler.waiting),
            "outstanding": self._executor.outstanding if self._executor else 0,
            "pages_used": self._pool.used,
            "pages_free": self._pool.free,
            "page_tokens": BLOCK,
            "kv_dtype": str(self._kv_dtype),
            "kv_token_bytes": self._kv_token_bytes,
            "compiles_after_ready": (
                compile_counter().count - self._compiles_at_ready if self._executor else 0
            ),
            "memory_bytes": (self._device.memory() if self._device else {})
            | {"seeds": seeds.nbytes},
            "seeds": {
                "entries": len(seeds),
                "bytes": seeds.nbytes,
                "budget_bytes": seeds.budget,
                **vars(seeds.counters),
            },
            "drafts": (self._executor.drafts if self._executor else Drafts()).to_dict(),
        }

    def shutdown(self, *, drain: bool = False, timeout: float | None = 30.0) -> bool:
        """Stops the thread; with `drain` after finishing what runs.

        Returns:
          Whether it ended in time.
        """
        return self._executor.stop(drain=drain, timeout=timeout) if self._executor else True

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _fingerprint(checkpoint: Checkpoint) -> str:
    """Identifies the weights by the manifest's digests, or the demo's by its name and config."""
    data = json.dumps([checkpoint.manifest, checkpoint.config.to_dict()], sort_keys=True)
    return hashlib.blake2b(data.encode(), digest_size=16).hexdigest()


def _ignore(_: str) -> None:
    """The default `on_fatal`: the log line has said it."""
