"""`njax bench kernels`: the GPU kernels against the card's limits and against the baselines.

Times are CUPTI's, from a call that runs the kernel over several weights that together are larger
than the L2 cache several times over, so that no weight is read from a warm cache. "kernel" is the
kernel alone, "op" includes what XLA adds around it (order of x, sum of partial results).
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from njax.cli.bench.report import print_report, spread

# Outputs x inputs of a 27B hybrid's projections: gate and up, down, delta input, attention input,
# output projections, vocabulary head.
SHAPES = ((34816, 5120), (5120, 17408), (16384, 5120), (14336, 5120), (5120, 6144), (248320, 5120))
READ_LIMIT = 4.28
"""TB/s of a read-only reduction on an H200."""
MATMUL_LIMIT = 800.0
"""bfloat16 TFLOP/s of a large cuBLAS product on an H200."""
_ROTATED_BYTES = 300e6
_LARGEST_BASELINE = 200e6


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Times in microseconds: of the named kernel, and of all kernels of one call of the op."""

    kernel: list[float]
    op: float


def measure(call: Callable[..., Any], sets: Sequence[Any], *args: Any, name: str) -> Measurement:
    """Times `call(*args, operands)` for every element of `sets`, all in one program.

    `name` picks the kernel among those of the program; "" takes all of them together.
    """
    import jax
    from jax.experimental.mosaic.gpu import profiler

    run = jax.jit(lambda args, sets: [call(*args, operands) for operands in sets])
    timed: Any = profiler.measure(run, aggregate=False, iterations=5)
    _, runs = timed(args, list(sets))
    op = [sum(time for _, time in launches) * 1e3 / len(sets) for launches in runs]
    kernel = [time * 1e3 for launches in runs for launch, time in launches if name in launch]
    return Measurement(kernel if name else op, statistics.median(op))


def kernels(
    goals: Annotated[str, typer.Option(help="Which goals, comma separated.")] = "P1,P2,P4",
    rows: Annotated[str, typer.Option(help="Rows of P1.")] = "1,8,16,64",
    wide_rows: Annotated[str, typer.Option(help="Rows of P2.")] = "1024,4096,8192",
    baselines: Annotated[bool, typer.Option(help="Also XLA and cuBLAS, in the same run.")] = True,
    tune: Annotated[bool, typer.Option(help="Sweep the configurations of P1 instead.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all figures here.")
    ] = None,
) -> None:
    """Measures each kernel: time, bandwidth or arithmetic rate, share of the limit, baseline."""
    from njax.errors import StartupError
    from pallas_kernels.mosaic import require_hopper

    try:
        require_hopper()
    except NotImplementedError as error:
        raise StartupError(f"njax bench kernels {error}") from None
    wanted = goals.split(",")
    figures: list[dict[str, Any]] = []
    if tune:
        for shape in SHAPES:
            figures += sweep_skinny(*shape)
    else:
        for shape in SHAPES:
            if "P1" in wanted:
                figures += nvfp4(*shape, _numbers(rows), "hopper_skinny", baselines)
            if "P2" in wanted and shape[0] < 100_000:
                figures += nvfp4(*shape, _numbers(wide_rows), "hopper_wide", baselines)
        if "P4" in wanted:
            figures += [delta_step(lanes, baselines) for lanes in (1, 16, 64)]
    columns = ["kernel", "shape", "rows", "kernel us", "op us", "rate", "of limit", "baseline us"]
    table = [[str(figure[column]) for column in columns] for figure in figures]
    print_report("kernels", columns, table, {"figures": figures}, json_path)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def nvfp4(
    n: int, k: int, rows: Sequence[int], implementation: str, baselines: bool
) -> list[dict[str, Any]]:
    """One NVFP4 matrix at several numbers of rows."""
    import jax
    import jax.numpy as jnp

    from pallas_kernels.nvfp4_matmul import nvfp4_matmul

    weights = _random_packed(n, k)
    skinny = implementation == "hopper_skinny"
    op = functools.partial(nvfp4_matmul, implementation=implementation)
    figures = []
    for m in rows:
        x = jax.random.normal(jax.random.key(1), (m, k), jnp.bfloat16)
        times = measure(op, weights, x, name="nvfp4_matmul")
        baseline: dict[str, float] = {}
        if baselines:
            baseline = _baselines(x, n, k, weights[0] if skinny else None)
        figures.append(_figure("nvfp4 " + implementation, n, k, m, times, baseline, skinny))
    return figures


def _random_packed(n: int, k: int) -> list[Any]:
    """Enough random packed weights to defeat the L2 cache. Random: zeros draw less power."""
    import jax
    import jax.numpy as jnp

    from pallas_kernels.nvfp4_matmul import NVFP4Weight, pack

    @jax.jit
    def make(key: jax.Array) -> Any:
        codes = jax.random.bits(key, (n, k // 2), jnp.uint8)
        scales = 60 + jax.random.bits(key, (n, k // 16), jnp.uint8) // 8
        return pack(NVFP4Weight(codes, scales, jnp.float32(1)))

    count = max(2, int(_ROTATED_BYTES / (n * k * 9 / 16)) + 1)
    return [make(jax.random.key(i)) for i in range(count)]


def _baselines(x: Any, n: int, k: int, packed: Any | None) -> dict[str, float]:
    """cuBLAS on bfloat16 weights; where `packed` is given also XLA's decode-and-dot. us."""
    import jax
    import jax.numpy as jnp

    from pallas_kernels.nvfp4_matmul import nvfp4_matmul, unpack

    found = {}
    if n * k * 2 < 4 * _LARGEST_BASELINE:
        dense = [jax.random.normal(jax.random.key(i), (n, k), jnp.bfloat16) for i in range(2)]
        found["cublas"] = measure(lambda x, w: x @ w.T, dense, x, name="").op
    if packed is not None and n * k * 9 / 16 < _LARGEST_BASELINE:
        canonical = [unpack(packed)] * 2  # far larger than the cache while decoded
        xla = functools.partial(nvfp4_matmul, implementation="xla")
        found["xla"] = measure(xla, canonical, x, name="").op
    return found


def _figure(
    kernel: str,
    n: int,
    k: int,
    m: int,
    times: Measurement,
    baseline: dict[str, float],
    by_bandwidth: bool,
) -> dict[str, Any]:
    us = statistics.median(times.kernel)
    if by_bandwidth:
        rate, limit, unit = n * k * 9 / 16 / us / 1e6, READ_LIMIT, "TB/s"
    else:
        rate, limit, unit = 2 * m * n * k / us / 1e6, MATMUL_LIMIT, "TFLOP/s"
    return {
        "kernel": kernel,
        "shape": f"{n}x{k}",
        "rows": m,
        "kernel us": round(us, 2),
        "op us": round(times.op, 2),
        "rate": f"{rate:.2f} {unit}" if by_bandwidth else f"{rate:.0f} {unit}",
        "of limit": f"{rate / limit:.0%}",
        "baseline us": ", ".join(f"{name} {time:.1f}" for name, time in baseline.items()),
        "samples": spread(times.kernel),
        "baselines": baseline,
    }


def delta_step(lanes: int, baselines: bool) -> dict[str, Any]:
    """One token of each lane through a 27B delta layer: 16 key, 48 value heads of 128."""
    import jax
    import jax.numpy as jnp

    from pallas_kernels.gated_delta import gated_delta_step

    hk, hv, d = 16, 48, 128
    keys = jax.random.split(jax.random.key(0), 3)
    q, k = (jax.random.normal(key, (lanes, hk, d), jnp.bfloat16) for key in keys[:2])
    v = jax.random.normal(keys[2], (lanes, hv, d), jnp.bfloat16)
    gate = jnp.full((lanes, hv), 0.5, jnp.float32)
    size = lanes * hv * d * d * 4
    count = max(2, int(_ROTATED_BYTES / size) + 1)
    states = [
        jax.random.normal(jax.random.key(i), (lanes, hv, d, d), jnp.float32) for i in range(count)
    ]

    def call(name: str) -> Callable[..., Any]:
        def step(q: jax.Array, k: jax.Array, v: jax.Array, state: jax.Array) -> Any:
            active = jnp.ones(lanes, bool)
            return gated_delta_step(q, k, v, -gate, gate, state, active, implementation=name)

        return step

    # Without donation the op copies the state first: only the kernel's own time means something.
    us = measure(call("hopper"), states, q, k, v, name="gated_delta_step").kernel
    baseline = {"xla": measure(call("xla"), states, q, k, v, name="").op} if baselines else {}
    rate = 2 * size / statistics.median(us) / 1e6
    return {
        "kernel": "gated_delta_step",
        "shape": f"{hk}/{hv} heads of {d}",
        "rows": lanes,
        "kernel us": round(statistics.median(us), 2),
        "op us": "",
        "rate": f"{rate:.2f} TB/s",
        "of limit": f"{rate / READ_LIMIT:.0%}",
        "baseline us": ", ".join(f"{name} {time:.1f}" for name, time in baseline.items()),
        "samples": spread(us),
        "baselines": baseline,
    }


def sweep_skinny(n: int, k: int) -> list[dict[str, Any]]:
    """All configurations of the skinny kernel at 8 rows; the first of a shape is the fastest."""
    import jax
    import jax.numpy as jnp

    from pallas_kernels.mosaic import require_hopper
    from pallas_kernels.nvfp4_matmul import hopper_skinny

    sms = require_hopper().core_count
    weights = _random_packed(n, k)
    x = jax.random.normal(jax.random.key(1), (8, k), jnp.bfloat16)
    figures = []
    for blocks, stages, ahead in (
        *((1, stages, ahead) for stages in (4, 5, 6, 8) for ahead in (True, False)),
        *((2, stages, False) for stages in (2, 3, 4)),
    ):
        config = hopper_skinny.Config(stages=stages, blocks_per_sm=blocks, ahead=ahead)
        try:
            config.check(8)
        except ValueError:
            continue
        call = functools.partial(hopper_skinny.matmul, config=config, sms=sms)
        times = measure(call, weights, x, name="nvfp4_matmul")
        figures.append(_figure(str(config), n, k, 8, times, {}, by_bandwidth=True))
    return sorted(figures, key=lambda figure: figure["kernel us"])
