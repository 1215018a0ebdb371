"""An engine for the commands that generate in their own process, and the options they share."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from njax.cli.compile_cache import use_compile_cache
from njax.cli.models import default_sampling, load_model, model_name
from njax.cli.progress import stage, steps
from njax.config import BLOCK, EngineConfig
from njax.engine.types import SamplingParams
from njax.errors import StartupError

if TYPE_CHECKING:
    from njax.engine.engine import Engine

Model = Annotated[
    str | None, typer.Argument(help="Converted model directory; none: the bundled model.")
]
Greedy = Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")]
Temperature = Annotated[
    float | None, typer.Option(help="0 is greedy.", show_default="the model's own")
]
TopP = Annotated[
    float | None, typer.Option(help="Keep this mass of likely tokens.", show_default="the model's")
]
TopK = Annotated[
    int | None, typer.Option(help="Keep the k likeliest; 0: all.", show_default="the model's")
]
MinP = Annotated[
    float | None,
    typer.Option(help="Drop below this part of the likeliest.", show_default="the model's"),
]
Seed = Annotated[int | None, typer.Option(help="Equal seeds give equal answers.")]
Stop = Annotated[
    list[str] | None, typer.Option(help="A text that ends the answer; may be given again.")
]
MaxNew = Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")]
MaxContext = Annotated[int, typer.Option(min=1, help="Tokens of prompt and answer together.")]


@dataclasses.dataclass(frozen=True)
class Session:
    """A running engine, and how to sample."""

    engine: Engine
    sampling: SamplingParams


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """What the command line says about sampling; None where it says nothing."""

    greedy: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None

    def over(self, base: SamplingParams) -> SamplingParams:
        """The model's parameters with these in their place.

        Raises:
          NjaxError: values out of range, or greedy with a temperature.
        """
        given = {name: value for name, value in vars(self).items() if value is not None}
        if given.pop("greedy"):
            if self.temperature:
                raise StartupError("--greedy and --temperature contradict each other")
            given["temperature"] = 0.0
        return dataclasses.replace(base, **given)


@contextlib.contextmanager
def session(model: str | None, max_context: int, options: SamplingOptions) -> Iterator[Session]:
    """Loads a model and starts an engine of one lane, telling of it on stderr."""
    config = EngineConfig(
        max_context=max_context,
        max_concurrency=1,
        prefill_chunk=min(EngineConfig.prefill_chunk, -(-max_context // BLOCK) * BLOCK),
    )
    options.over(SamplingParams())  # a mistake shows before the model is loaded
    with stage(f"loading {model_name(model)}"):
        from njax.engine.engine import Engine

        use_compile_cache()
        checkpoint = load_model(model)
    sampling = options.over(default_sampling(checkpoint))
    with steps() as progress:
        engine = Engine(checkpoint, config, progress)
        del checkpoint
        engine.start()
    try:
        yield Session(engine, sampling)
    finally:
        engine.shutdown()
