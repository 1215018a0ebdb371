"""`njax serve`: the HTTP server."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from njax.cli.compile_cache import use_compile_cache
from njax.cli.models import default_sampling, load_model, model_name
from njax.cli.progress import say, stage, steps
from njax.cli.session import Model
from njax.config import MAX_DRAFT_TOKENS, EngineConfig
from njax.errors import StartupError

_DEFAULT = EngineConfig()
_MIB = 1 << 20


def serve(
    model: Model = None,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 8080,
    model_id: Annotated[
        str | None,
        typer.Option(help="Name that requests give.", show_default="name of the directory"),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="NJAX_API_KEY",
            show_envvar=True,
            help="What clients must send. In the environment no process list shows it.",
        ),
    ] = None,
    max_context: Annotated[
        int, typer.Option(min=1, help="Tokens of a prompt and its answer together.")
    ] = _DEFAULT.max_context,
    kv_capacity: Annotated[
        str, typer.Option(metavar="TOKENS|auto", help="Tokens that all lanes may hold; auto: full.")
    ] = "auto",
    kv_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="bf16|int8",
            help="How keys and values are stored.",
            show_default="as activations",
        ),
    ] = None,
    max_concurrency: Annotated[
        int, typer.Option(min=1, help="Requests that generate together (lanes).")
    ] = _DEFAULT.max_concurrency,
    max_pending_requests: Annotated[
        int, typer.Option(min=0, help="Requests that may wait for a lane.")
    ] = _DEFAULT.max_pending,
    pending_timeout_ms: Annotated[int, typer.Option(min=1, help="How long one may wait.")] = int(
        _DEFAULT.pending_timeout_s * 1000
    ),
    prefill_chunk: Annotated[
        int, typer.Option(min=64, help="Most prompt tokens of one step; a multiple of 64.")
    ] = _DEFAULT.prefill_chunk,
    spec: Annotated[
        str | None,
        typer.Option(
            metavar="mtp",
            help="Draft tokens ahead with the multi-token layer; answers stay the same.",
            show_default="nothing",
        ),
    ] = None,
    draft_tokens: Annotated[
        int, typer.Option(min=1, max=MAX_DRAFT_TOKENS, help="Most drafts of a round, with --spec.")
    ] = _DEFAULT.draft_tokens,
    draft_lanes: Annotated[
        int, typer.Option(min=1, help="With more lanes busy than this nothing is drafted.")
    ] = _DEFAULT.draft_lanes,
    prefix_cache_mib: Annotated[
        int, typer.Option(min=0, help="Memory for shared prompt heads; 0: off.")
    ] = 0,
    default_max_tokens: Annotated[
        int, typer.Option(min=1, help="Answer length of requests that give none.")
    ] = 8192,
    max_request_mib: Annotated[int, typer.Option(min=1, help="Largest request body.")] = 384,
    response_store_max_records: Annotated[
        int, typer.Option(min=1, help="Responses that /v1/responses keeps at most.")
    ] = 1024,
    response_store_max_mib: Annotated[
        int, typer.Option(min=1, help="Memory for them and their conversations.")
    ] = 256,
    keep_billing_header: Annotated[
        bool,
        typer.Option(
            "--keep-billing-header",
            help="Render the x-anthropic-billing-header line, which spoils shared heads.",
        ),
    ] = False,
) -> None:
    """Serve a model over HTTP, as the OpenAI API does.

    The address is taken first, so that a mistake shows before the model is loaded; it answers once
    everything is loaded and compiled.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("njax").setLevel(logging.INFO)
    engine_config = EngineConfig(
        max_context=max_context,
        max_concurrency=max_concurrency,
        max_pending=max_pending_requests,
        pending_timeout_s=pending_timeout_ms / 1000,
        prefill_chunk=prefill_chunk,
        kv_capacity=_capacity(kv_capacity),
        kv_dtype=kv_dtype,
        spec=spec,
        draft_tokens=draft_tokens,
        draft_lanes=draft_lanes,
        prefix_cache_bytes=prefix_cache_mib * _MIB,
    )
    from server.listen import bind, url_of

    bound = bind(host, port)
    with stage(f"loading {model_name(model)}"):
        from njax.engine.engine import Engine
        from server.app import create_app
        from server.run import Fatal, exit_now, run
        from server.settings import Settings

        use_compile_cache()
        checkpoint = load_model(model, mtp=engine_config.drafting)
    if not prefix_cache_mib:
        say("hint: --prefix-cache-mib N lets requests with the same system block share its work")
    settings = Settings(
        model_id=model_name(model) if model_id is None else model_id,
        api_key=api_key,
        default_max_tokens=default_max_tokens,
        default_sampling=default_sampling(checkpoint),
        max_request_bytes=max_request_mib * _MIB,
        response_store_max_records=response_store_max_records,
        response_store_bytes=response_store_max_mib * _MIB,
        drop_billing_header=not keep_billing_header,
    )
    fatal = Fatal()
    with steps() as progress:
        engine = Engine(checkpoint, engine_config, progress, on_fatal=fatal)
        del checkpoint
        engine.start()
    url = url_of(bound)
    code = run(
        create_app(engine, settings),
        engine,
        bound,
        fatal,
        lambda: print(f"serving {settings.model_id} on {url}", flush=True),
    )
    exit_now(code)


def _capacity(text: str) -> int | None:
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise StartupError(f"--kv-capacity is {text!r}; give tokens, or auto") from None
