"""Table 6: how late a 1 ms ticker on the caller's event loop wakes while a machine is saturated.

Several tasks of the same loop await runs one after the other; the references are an idle loop
and threads that spin on bare NumPy. Lateness is the time slept beyond the 1 ms asked for.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from benchmarks._chains_arrays import numpy_forward
from benchmarks._harness import MISSING_OURS, SETTLE_S
from benchmarks._report import options, print_environment, print_rows, write_json
from benchmarks._work import Built, chain_arrays, chains, matmul_weights, matmuls

TICK_S = 0.001
LATE_S = 0.005
IN_FLIGHT = 4
# The targets of the page of benchmarks, for the rows of ours.
P50_S, P99_S = 1e-3, 10e-3

# Every load appends the runs it finished and the seconds it took for them.
Counter = list[tuple[int, float]]
Load = Callable[[Counter], AbstractAsyncContextManager[None]]


@dataclass
class Row:
    """One load and the lateness measured under it, in seconds."""

    name: str
    load: Load
    ours: bool = False
    lateness_s: list[float] = field(default_factory=list)
    duration_s: float = 0.0
    runs: int = 0
    load_s: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Lateness:
    """What is reported of a row."""

    system: str
    ours: bool
    ticks: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    share_above_5_ms: float | None
    runs_per_s: float
    note: str


@asynccontextmanager
async def idle(_: Counter) -> AsyncIterator[None]:
    """No load at all: the resolution of the loop's own timer."""
    yield


def spinning(threads: int, work: Callable[[], object]) -> Load:
    """Threads of bare NumPy, which share nothing with the loop but the GIL and the cores."""

    @asynccontextmanager
    async def load(done: Counter) -> AsyncIterator[None]:
        stop = threading.Event()
        counts = [0] * threads

        def spin(number: int) -> None:
            while not stop.is_set():
                work()
                counts[number] += 1

        with ExitStack() as scope:
            for number in range(threads):
                thread = threading.Thread(target=spin, args=(number,))
                thread.start()
                scope.callback(thread.join)
            scope.callback(stop.set)
            begin = time.perf_counter()
            yield
            done.append((sum(counts), time.perf_counter() - begin))

    return load


def awaiting(make: Callable[[], Built], **settings: object) -> Load:
    """Our machine, kept busy by a few tasks that await one run after the other."""

    @asynccontextmanager
    async def load(done: Counter) -> AsyncIterator[None]:
        import actorgraph as ag

        built = make()
        feeds = {"x": chain_arrays()[0] if make is chains else matmul_weights()}
        stop = asyncio.Event()
        async with ag.ActorMachine(built.ends, wrt=[], **settings) as machine:
            await machine.run(feeds)

            async def keep_busy() -> int:
                runs = 0
                while not stop.is_set():
                    await machine.run(feeds)
                    runs += 1
                    # A run that finished inline must not keep the loop to itself.
                    await asyncio.sleep(0)
                return runs

            begin = time.perf_counter()
            tasks = [asyncio.create_task(keep_busy()) for _ in range(IN_FLIGHT)]
            try:
                yield
            finally:
                stop.set()
                runs = sum(await asyncio.gather(*tasks))
                done.append((runs, time.perf_counter() - begin))

    return load


async def tick(seconds: float) -> tuple[list[float], float]:
    """Sleep 1 ms again and again; return how much longer each sleep took, and the time passed."""
    clock, lateness = time.perf_counter, []
    begin = now = clock()
    while now - begin < seconds:
        start = clock()
        await asyncio.sleep(TICK_S)
        now = clock()
        lateness.append(now - start - TICK_S)
    return lateness, now - begin


async def measure(row: Row, seconds: float) -> None:
    """Add one round to a row."""
    done: Counter = []
    async with row.load(done):
        await asyncio.sleep(0.1)  # until threads run and queues are full
        lateness, duration = await tick(seconds)
    row.lateness_s += lateness
    row.duration_s += duration
    row.runs += sum(runs for runs, _ in done)
    row.load_s += sum(load_s for _, load_s in done)


def all_rows() -> list[Row]:
    """The references first, then ours under (a) large and (b) tiny ops."""
    x, scales = chain_arrays()
    big = matmul_weights()

    def small() -> None:
        for _ in range(100):
            np.matmul(x, x)

    works: dict[str, Callable[[], object]] = {
        "8x8 matmuls": small,
        "8x8 tanh chains": lambda: numpy_forward(x, scales),
        "512x512 matmuls": lambda: [big @ big for _ in range(8)],
    }
    rows = [Row("idle loop", idle)]
    rows += [
        Row(f"NumPy threads {threads}, {name}", spinning(threads, work))
        for name, work in works.items()
        for threads in (1, 2)
    ]
    for name, make in (("(a) 512x512 matmuls", matmuls), ("(b) 8x8 tanh chains", chains)):
        for settings in ({"workers": 1}, {"workers": 2}, {"workers": 2, "fuse": "none"}):
            words = " ".join(f"{key}={value}" for key, value in settings.items())
            rows.append(Row(f"ours {name}, {words}", awaiting(make, **settings), ours=True))
    return rows


def summary(row: Row) -> Lateness:
    """Percentiles of a row; the last share is of the time, not of the ticks."""
    if not row.lateness_s:
        return Lateness(row.name, row.ours, 0, None, None, None, None, 0.0, row.note)
    lateness = np.array(row.lateness_s)
    p50, p99 = np.percentile(lateness, [50, 99])
    above = lateness[lateness > LATE_S].sum() / row.duration_s
    return Lateness(
        system=row.name,
        ours=row.ours,
        ticks=len(lateness),
        p50_ms=float(p50 * 1e3),
        p99_ms=float(p99 * 1e3),
        max_ms=float(lateness.max() * 1e3),
        share_above_5_ms=float(above),
        runs_per_s=row.runs / row.load_s if row.load_s else 0.0,
        note=row.note,
    )


def print_lateness(rows: Sequence[Lateness]) -> None:
    """One line per load, with a verdict on ours."""
    head = ["load", "p50 ms", "p99 ms", "max ms", "time above 5 ms", "runs/s", "target"]
    table = [head]
    for row in rows:
        if row.p50_ms is None or row.p99_ms is None:
            table.append([row.system, *["-"] * (len(head) - 1)])
            continue
        met = row.p50_ms <= P50_S * 1e3 and row.p99_ms <= P99_S * 1e3
        table.append(
            [
                row.system,
                f"{row.p50_ms:.3f}",
                f"{row.p99_ms:.3f}",
                f"{row.max_ms:.3f}",
                f"{row.share_above_5_ms:.1%}",
                f"{row.runs_per_s:.0f}",
                ("met" if met else "MISSED") if row.ours else "",
            ]
        )
    title = f"lateness of a 1 ms ticker, {IN_FLIGHT} runs in flight"
    print_rows(f"loop: {title}; wanted: p50 <= 1 ms, p99 <= 10 ms", table)
    for note in dict.fromkeys(f"{row.system}: {row.note}" for row in rows if row.note):
        print(f"  {note}")


def measure_round(rows: Sequence[Row], seconds: float) -> None:
    """Measure every row once, each on an event loop of its own."""
    for row in rows:
        time.sleep(SETTLE_S)
        try:
            asyncio.run(measure(row, seconds))
        except ModuleNotFoundError as error:
            if not (row.ours and error.name == "actorgraph"):
                raise
            row.note = MISSING_OURS


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("loop", __doc__)
    rounds, seconds = (1, 1.0) if asked.quick else (5, 1.0)
    print_environment()
    rows = [row for row in all_rows() if asked.wants(row.name)]
    for _ in range(rounds):
        measure_round(rows, seconds)
    found = [summary(row) for row in rows]
    print_lateness(found)
    targets = {"p50_ms": P50_S * 1e3, "p99_ms": P99_S * 1e3}
    write_json("loop", asked, found, {"targets": targets, "seconds_per_row": rounds * seconds})
    return int(any(row.ours and row.p50_ms is None for row in found))


if __name__ == "__main__":
    sys.exit(main())
