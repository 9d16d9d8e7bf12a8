"""Served models in process, beside `asyncio.to_thread` with NumPy and with PyTorch.

Clients of one loop ask one request of one row after the other.  The models are an MLP that takes
about a millisecond for a row, most of it to read its weights, and a small convolution net for the
8 x 8 digits.  A product uses one thread, as ours does: NumPy's own threads would fight for cores.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks._harness import MISSING_OURS
from benchmarks._report import options, print_environment, print_rows, write_json

CLIENTS = (1, 8, 64)
SLICE_S = 1.0
WIDTHS = (784, 1536, 1536, 1536, 10)
DRAW = np.random.default_rng(0)
WEIGHTS = [
    (DRAW.standard_normal((wide, narrow)) / wide**0.5).astype("float32")
    for wide, narrow in itertools.pairwise(WIDTHS)
]
ROW = DRAW.standard_normal((1, WIDTHS[0])).astype("float32")
DIGIT = DRAW.standard_normal((1, 1, 8, 8)).astype("float32")
WANTED = {"MLP, ours batched": 3.0}
"""Times the requests a second of ours unbatched, with 64 clients."""

Ask = Callable[[], Awaitable[Any]]
System = Callable[[], AbstractAsyncContextManager[Ask]]


@dataclass
class Row:
    """One system, and by number of clients the requests a second and times of the best round."""

    name: str
    system: System
    rates: dict[int, float] = field(default_factory=dict)
    times_ms: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """p50, p99 of requests, and p99 of the loop's lateness."""

    note: str = ""


@dataclass(frozen=True)
class Figure:
    """What is reported of a row and a number of clients."""

    system: str
    clients: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    loop_late_p99_ms: float


def computed(x: Any) -> Any:
    """Return what NumPy computes."""
    for weight in WEIGHTS[:-1]:
        x = np.maximum(x @ weight, 0)
    return x @ WEIGHTS[-1]


@asynccontextmanager
async def with_numpy() -> AsyncIterator[Ask]:
    """A thread of the pool for each request."""
    yield lambda: asyncio.to_thread(computed, ROW)


@asynccontextmanager
async def with_torch() -> AsyncIterator[Ask]:
    """The same with PyTorch, on one thread for each request."""
    import torch

    torch.set_num_threads(1)
    weights = [torch.from_numpy(weight) for weight in WEIGHTS]

    def forward() -> Any:
        with torch.inference_mode():
            x = torch.from_numpy(ROW)
            for weight in weights[:-1]:
                x = torch.relu(x @ weight)
            return (x @ weights[-1]).numpy()

    yield lambda: asyncio.to_thread(forward)


def mlp() -> tuple[Any, Any]:
    """Return input and output of our MLP."""
    import actorgraph as ag

    g = ag.Graph("mlp")
    x = h = g.input("x", ("rows", WIDTHS[0]), "float32")
    for number, weight in enumerate(WEIGHTS):
        h = h @ g.parameter(f"W{number}", weight)
        h = ag.ops.relu(h) if number < len(WEIGHTS) - 1 else h
    return x, h


def layers(nn: Any) -> Any:
    """Return the convolution net, of PyTorch's or of our modules."""
    first, second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
    head = [nn.Flatten(), nn.Linear(128, 10)]
    pool = nn.MaxPool2d(2)
    return nn.Sequential(first, nn.ReLU(), pool, second, nn.ReLU(), pool, *head).eval()


def digits() -> tuple[Any, Any]:
    """Return input and output of our convolution net."""
    import actorgraph as ag

    x = ag.Graph("digits").input("x", ("rows", 1, 8, 8), "float32")
    return x, layers(ag.nn)(x)


@asynccontextmanager
async def digits_with_torch() -> AsyncIterator[Ask]:
    """The convolution net with PyTorch, on one thread for each request."""
    import torch

    torch.set_num_threads(1)
    net, row = layers(torch.nn), torch.from_numpy(DIGIT)

    def forward() -> Any:
        with torch.inference_mode():
            return net(row).numpy()

    yield lambda: asyncio.to_thread(forward)


def ours(made: Callable[[], tuple[Any, Any]], row: Any, **config: Any) -> System:
    """A served model."""

    @asynccontextmanager
    async def system() -> AsyncIterator[Ask]:
        import actorgraph as ag

        x, y = made()
        async with ag.serving.Server() as server:
            model = server.add("net", {"y": y}, inputs=[x], max_queued=1000, **config)

            async def ask() -> Any:
                return (await model.infer({"x": row}))["y"]

            yield ask

    return system


def all_rows() -> list[Row]:
    """The reference of each model first."""
    return [
        Row("MLP, NumPy to_thread", with_numpy),
        Row("MLP, PyTorch to_thread", with_torch),
        Row("MLP, ours", ours(mlp, ROW)),
        Row("MLP, ours batched", ours(mlp, ROW, max_batch_size=64)),
        Row("MLP, ours exact batches", ours(mlp, ROW, max_batch_size=64, exact_batches=True)),
        Row("digits, PyTorch to_thread", digits_with_torch),
        Row("digits, ours", ours(digits, DIGIT)),
        Row("digits, ours batched", ours(digits, DIGIT, max_batch_size=64)),
    ]


async def measure(row: Row, clients: int) -> None:
    """Note one round, if it was the best."""
    times: list[float] = []
    late: list[float] = []
    async with row.system() as ask:
        found = await ask()
        if row.name.startswith("MLP"):
            np.testing.assert_allclose(found, computed(ROW), rtol=1e-3, atol=1e-4)
        begin = time.perf_counter()
        end = begin + SLICE_S

        async def client() -> None:
            while (start := time.perf_counter()) < end:
                await ask()
                times.append(time.perf_counter() - start)

        async def ticks() -> None:
            while (start := time.perf_counter()) < end:
                await asyncio.sleep(0.002)
                late.append(time.perf_counter() - start - 0.002)

        await asyncio.gather(ticks(), *[client() for _ in range(clients)])
        rate = len(times) / (time.perf_counter() - begin)
    if rate > row.rates.get(clients, 0.0):
        row.rates[clients] = rate
        p50, p99 = np.percentile(times, [50, 99]) * 1e3
        row.times_ms[clients] = float(p50), float(p99), float(np.percentile(late, 99) * 1e3)


def print_table(rows: Sequence[Row]) -> None:
    """One line a system, one column a number of clients."""
    table = [["system", *[f"{count} clients" for count in CLIENTS], "target"]]
    by_name = {row.name: row.rates for row in rows}
    for row in rows:
        base = next(one.rates for one in rows if one.name[:3] == row.name[:3])
        cells = []
        for count in CLIENTS:
            if count not in row.rates:
                cells.append("-")
                continue
            p50, p99, _ = row.times_ms[count]
            part = row.rates[count] / base[count] if count in base else float("nan")
            cells.append(f"{row.rates[count]:.0f}/s ({part:.2f}x), {p50:.1f}, {p99:.1f} ms")
        least, most = WANTED.get(row.name), CLIENTS[-1]
        met = ""
        single = by_name.get("MLP, ours", {})
        if least is not None and most in row.rates and most in single:
            met = "met" if row.rates[most] >= least * single[most] else "MISSED"
        table.append([row.name, *cells, met])
    title = "requests of one row a second, and p50 and p99 of their time, by clients"
    wanted = ", ".join(f"{name} {least}x unbatched" for name, least in WANTED.items())
    print_rows(f"serve: {title}; wanted with {CLIENTS[-1]} clients: {wanted}", table)
    for row in rows:
        if row.note:
            print(f"  {row.name}: {row.note}")


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("serve", __doc__)
    print_environment()
    rows = [row for row in all_rows() if asked.wants(row.name)]
    for _ in range(1 if asked.quick else 3):
        for row in rows:
            for clients in CLIENTS:
                try:
                    asyncio.run(measure(row, clients))
                except ModuleNotFoundError as error:
                    row.note = MISSING_OURS if error.name == "actorgraph" else f"no {error.name}"
    print_table(rows)
    found = [
        Figure(row.name, clients, rate, *row.times_ms[clients])
        for row in rows
        for clients, rate in row.rates.items()
    ]
    write_json("serve", asked, found, {"targets": WANTED})
    return int(any("ours" in row.name and not row.rates for row in rows))


if __name__ == "__main__":
    sys.exit(main())
