"""Ops that wait: runs in flight together, beside `asyncio.gather` of the bare coroutine.

Tasks of one loop make one call after the other, as many tasks as calls are to be in flight; of a
stream one task takes the results.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks._harness import MISSING_OURS
from benchmarks._report import options, print_environment, print_rows, write_json

CASES = tuple((wait_s, count) for wait_s in (0.1, 0.01, 0.001) for count in (16, 64))
"""Seconds that a call waits, and calls in flight."""
SLICE_S = 0.3
WANTED = 0.9
ROW = np.ones(4)

Calls = Callable[[int], Awaitable[object]]
"""Makes so many calls for each that may be in flight."""

System = Callable[[float, int], AbstractAsyncContextManager[Calls]]


@dataclass
class Row:
    """One system and the calls a second that it has made, by case, in the best round."""

    name: str
    system: System
    like: str | None = None  # the row that it is compared with
    rates: dict[tuple[float, int], float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """What is reported of a row and a case."""

    system: str
    wait_s: float
    in_flight: int
    calls_per_s: float
    ratio: float | None


def gathered(call: Callable[[], Awaitable[object]], in_flight: int) -> Calls:
    """Return tasks that make one call after the other."""

    async def calls(each: int) -> None:
        async def some() -> None:
            for _ in range(each):
                await call()

        await asyncio.gather(*[some() for _ in range(in_flight)])

    return calls


@asynccontextmanager
async def bare(wait_s: float, in_flight: int) -> AsyncIterator[Calls]:
    """The coroutine by itself."""

    async def call() -> object:
        await asyncio.sleep(wait_s)
        return ROW + 1.0

    yield gathered(call, in_flight)


@asynccontextmanager
async def bare_steps(wait_s: float, in_flight: int) -> AsyncIterator[Calls]:
    """The coroutine, and what NumPy does in the graph of our rows: the least that a run takes."""

    async def call() -> object:
        x = ROW * 2.0
        await asyncio.sleep(wait_s)
        return np.tanh(x + 1.0)

    yield gathered(call, in_flight)


@asynccontextmanager
async def threads(wait_s: float, in_flight: int) -> AsyncIterator[Calls]:
    """A pool of as many threads as calls are in flight."""

    def blocking() -> object:
        time.sleep(wait_s)
        return ROW + 1.0

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(in_flight) as pool:
        yield gathered(lambda: loop.run_in_executor(pool, blocking), in_flight)


def ours(*, blocking: bool = False, stream: bool = False, **settings: Any) -> System:
    """Runs of a machine, of a graph with the op between two others."""

    @asynccontextmanager
    async def system(wait_s: float, in_flight: int) -> AsyncIterator[Calls]:
        import actorgraph as ag

        async def wait(xp: Any, x: Any) -> Any:
            await asyncio.sleep(wait_s)
            return x + 1.0

        def block(xp: Any, x: Any) -> Any:
            time.sleep(wait_s)
            return x + 1.0

        x = ag.Graph().input("x", ROW.shape, "float64")
        name = f"benchmarks_wait_{time.perf_counter_ns()}"
        forward = block if blocking else wait
        op = ag.ops.define(name, scheme="f[*s] -> f[*s]", forward=forward, blocking=blocking)
        y = ag.ops.tanh(op(x * 2.0))
        async with ag.ActorMachine([y], workers=2, max_in_flight=in_flight, **settings) as machine:
            run = await machine.run({"x": ROW})
            assert np.array_equal(run[y].value, np.tanh(ROW * 2.0 + 1.0))

            async def streamed(each: int) -> None:
                async for _ in machine.stream({"x": ROW} for _ in range(each * in_flight)):
                    pass

            yield streamed if stream else gathered(lambda: machine.run({"x": ROW}), in_flight)

    return system


async def measure(row: Row, wait_s: float, in_flight: int) -> None:
    """Note the calls a second of one round, if it was the best."""
    each = max(2, round(SLICE_S / wait_s))
    async with row.system(wait_s, in_flight) as calls:
        await calls(1)
        begin = time.perf_counter()
        await calls(each)
        rate = each * in_flight / (time.perf_counter() - begin)
    row.rates[wait_s, in_flight] = max(rate, row.rates.get((wait_s, in_flight), 0.0))


def all_rows() -> list[Row]:
    """The references, each before what is compared with it."""
    return [
        Row("asyncio.gather", bare),
        Row("asyncio.gather, NumPy's steps", bare_steps, like="asyncio.gather"),
        Row("ours", ours(), like="asyncio.gather"),
        Row("ours stream", ours(stream=True), like="asyncio.gather"),
        Row("ours fuse=none", ours(fuse="none"), like="asyncio.gather"),
        Row("ThreadPoolExecutor", threads),
        Row("ours blocking=True", ours(blocking=True), like="ThreadPoolExecutor"),
    ]


def ratio(row: Row, rows: Sequence[Row], case: tuple[float, int]) -> float | None:
    """Return the throughput as a part of that of the reference, None without one."""
    found = [other.rates.get(case) for other in rows if other.name == row.like]
    return row.rates[case] / found[0] if found and found[0] and case in row.rates else None


def print_table(rows: Sequence[Row]) -> None:
    """One line a system, one column a case."""
    table = [["system", *[f"{wait * 1e3:.0f} ms x {count}" for wait, count in CASES], "target"]]
    for row in rows:
        cells, ratios = [], [ratio(row, rows, case) for case in CASES]
        for case, part in zip(CASES, ratios, strict=True):
            text = f"{row.rates[case]:.0f}/s" if case in row.rates else "-"
            cells.append(text if part is None else f"{text} ({part:.2f}x)")
        known = [part for part in ratios if part is not None]
        met = "" if not known else "met" if min(known) >= WANTED else "MISSED"
        table.append([row.name, *cells, met])
    title = "calls a second of an op that waits, by time and calls in flight"
    print_rows(f"async_ops: {title}; wanted: {WANTED}x the bare calls", table)
    for row in rows:
        if row.note:
            print(f"  {row.name}: {row.note}")


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("async_ops", __doc__)
    print_environment()
    rows = [row for row in all_rows() if row.like is None or asked.wants(row.name)]
    for _ in range(2 if asked.quick else 7):
        for row in rows:
            for case in CASES:
                try:
                    asyncio.run(measure(row, *case))
                except ModuleNotFoundError as error:
                    if error.name != "actorgraph":
                        raise
                    row.note = MISSING_OURS
    print_table(rows)
    found = [
        Figure(row.name, *case, rate, ratio(row, rows, case))
        for row in rows
        for case, rate in row.rates.items()
    ]
    write_json("async_ops", asked, found, {"targets": {"ratio": WANTED}})
    return int(any(row.like is not None and not row.rates for row in rows))


if __name__ == "__main__":
    sys.exit(main())
