"""Pipelines on two workers: measured makespan against the simulator's, and the rate of streams.

Two stages, each with an op of 1 ms for F, B and W.  One kind of op *computes*: `exp` of an array
that stays in the cache, again and again, without the GIL.  The other *waits* 1 ms without the GIL,
as for a device: its figures are those of the executor, whatever else the cores have to do.

A prediction is simulated with what the same run has shown (`ag.pipeline.measure`): mean times of
actions, the mean overhead between two of them, and the mean latency of a hand-off to a stage that
waits for it.  Makespans are from the start of the first action to the end of the last; what the
caller waits for beside that stands in a column of its own.  The figure of a row is the median over
rounds of measured by predicted.  Schedules alternate round by round in one process.

Means know nothing of ops that take longer now and then, as they do where other work wants the
cores.  So another column has measured by what the lists take if every action takes its own time:
what this leaves open is the executor's, what lies between the two columns is the ops'.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from threading import Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np

import actorgraph as ag
from benchmarks._harness import Figure
from benchmarks._report import exit_status, options, print_environment, print_rows, tell, write_json

OP_S = 1e-3
SIZE = 16_384
MICROBATCHES = (2, 4, 8, 16, 32, 64)
SCHEDULES = ("1f1b", "zb-h1")
CLOSE, LEAST_RATE, FEW = 0.10, 0.9, 8
BATCHES, STREAMED = 4, 96


def wait() -> None:
    sleep(OP_S)


def computing() -> Callable[[], None]:
    """Return what computes for 1 ms with nobody beside it."""
    values = np.full(SIZE, 0.5, "float32")

    def compute(times: int) -> None:
        out = np.empty_like(values)
        for _ in range(times):
            np.exp(values, out)

    compute(10)
    best = float("inf")
    for _ in range(20):
        started = perf_counter()
        compute(100)
        best = min(best, perf_counter() - started)
    times = max(1, round(OP_S / (best / 100)))
    return lambda: compute(times)


def layer(name: str, work: Callable[[], None]) -> Callable[..., Any]:
    """Return an op of an array and a weight whose F, B and W each do the work once."""

    def backward(xp: Any, value: Any) -> Any:
        work()
        return value * 1

    def forward(xp: Any, value: Any, weight: Any) -> Any:
        work()
        return value * weight

    worked = ag.ops.define(f"{name}_backward", scheme="f[*s] -> f[*s]", forward=backward)

    def vjp(argnum: int, ct: Any, y: Any, x: Any, w: Any) -> Any:
        return worked(ct * w) if argnum == 0 else worked((ct * x).sum())

    scheme = "f[*s] -> f[] -> f[*s]"
    return ag.ops.define(f"{name}_layer", scheme=scheme, forward=forward, vjp=vjp)


@dataclass
class Row:
    """A schedule for a number of microbatches, and its figures round by round."""

    pipeline: ag.pipeline.Pipeline
    feeds: dict[str, Any]
    microbatches: int
    rounds: list[ag.pipeline.Measured] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def round(self, runs: int) -> None:
        self.rounds += ag.pipeline.measure([self.pipeline], self.feeds, runs=runs)
        batches = max(BATCHES, STREAMED // self.microbatches)
        started = perf_counter()
        for _ in self.pipeline.stream([self.feeds] * batches):
            pass
        took = (perf_counter() - started) / batches
        slowest = max(map(sum, self.pipeline.stage_costs())) * self.microbatches
        self.rates.append(slowest / took)

    @property
    def ratio(self) -> float:
        """Measured by predicted."""
        return median(found.makespan_s / float(found.predicted.makespan) for found in self.rounds)

    @property
    def makespans(self) -> list[float]:
        """Seconds, by round."""
        return [found.makespan_s for found in self.rounds]


def by_own_times(found: ag.pipeline.Measured) -> float:
    """Return the makespan of a run by what its lists take if every action takes its own time."""
    schedule = found.schedule
    took = [{bar.label: bar.end - bar.start for bar in row} for row in found.rows]
    latency = max(0.0, found.latency_s - found.overhead_s)
    ends: dict[tuple[int, bool, int], float] = {}
    free = [0.0] * schedule.devices
    for device, step in schedule.order:
        for stage, kind, microbatch, _ in step:
            forward = kind == "F"
            sent = ends.get((stage + (-1 if forward else 1), forward, microbatch))
            start = free[device]
            if sent is not None and kind != "W":
                start = max(start, sent + latency)
            own = took[device].get(f"{kind}{microbatch}")  # the first stage has no B
            free[device] = start + (0.0 if own is None else own + found.overhead_s)
            if kind != "W":
                ends[stage, forward, microbatch] = free[device]
    return max(bar.end for row in found.rows for bar in row) / max(free)


def rows(kind: str, work: Callable[[], None], scope: ExitStack) -> dict[tuple[str, int], Row]:
    """Make the pipelines ready: two stages of one op each, wrt their weights and the feed."""
    g = ag.Graph(kind)
    apply = layer(f"bench_{kind}", work)
    x = g.input("x", shape=("batch", 4), dtype="float32")
    weights = [g.parameter(f"w{i}", np.float32(0.5)) for i in range(2)]
    with g.stage(0):
        h = apply(x, weights[0])
    with g.stage(1):
        loss = apply(h, weights[1]).mean()
    found = {}
    for m in MICROBATCHES:
        feeds = {"x": np.ones((m, 4), "float32")}
        for name in SCHEDULES:
            made = ag.pipeline.Pipeline(
                loss, [x, *weights], schedule=name, microbatches=m, max_in_flight=3
            )
            scope.enter_context(made).run_sync(feeds)
            found[name, m] = Row(made, feeds, m)
    return found


def speedup(work: Callable[[], None], times: int = 50) -> float:
    """Return how much more two bare threads do than one."""

    def repeat() -> None:
        for _ in range(times):
            work()

    started = perf_counter()
    repeat()
    alone = perf_counter() - started
    threads = [Thread(target=repeat) for _ in range(2)]
    started = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 2 * alone / (perf_counter() - started)


def verdicts(kind: str, found: dict[tuple[str, int], Row]) -> list[dict[str, object]]:
    """Say which targets are met: predictions, rates, and zero bubble before 1F1B for few."""
    told: list[dict[str, object]] = []
    for (name, m), row in found.items():
        case = f"{kind}, {name}, m = {m}"
        close = abs(row.ratio - 1) <= CLOSE
        told.append(
            {"case": case, "target": "measured by predicted", "is": row.ratio, "met": close}
        )
        rate = median(row.rates)
        told.append({"case": case, "target": "rate", "is": rate, "met": rate >= LEAST_RATE})
    for m in MICROBATCHES:
        if m <= FEW:
            gain = min(found["1f1b", m].makespans) / min(found["zb-h1", m].makespans)
            case = f"{kind}, m = {m}"
            told.append({"case": case, "target": "1f1b by zb-h1", "is": gain, "met": gain > 1})
    return told


def table(found: dict[tuple[str, int], Row]) -> list[list[str]]:
    """Return the table of a kind of op."""
    lines = [["schedule", "m", "ms", "by predicted", "by own times", "whole run ms", "overhead us",
              "latency us", "rate of stream"]]  # fmt: skip
    for (name, m), row in found.items():
        lines.append(
            [
                name,
                str(m),
                f"{median(row.makespans) * 1e3:.2f}",
                f"{row.ratio:.3f}",
                f"{median(map(by_own_times, row.rounds)):.3f}",
                f"{median([one.run_s for one in row.rounds]) * 1e3:.2f}",
                f"{median([one.overhead_s for one in row.rounds]) * 1e6:.0f}",
                f"{median([one.latency_s for one in row.rounds]) * 1e6:.0f}",
                f"{median(row.rates):.3f}",
            ]
        )
    return lines


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("pipeline", __doc__, only="only what computes or only what waits")
    print_environment()
    figures: list[Figure] = []
    told: list[dict[str, object]] = []
    kinds = {"waits": wait, "computes": computing()}
    for kind, work in kinds.items():
        if not asked.wants(kind):
            continue
        with ExitStack() as scope:
            found = rows(kind, work, scope)
            gains = []
            for _ in range(2 if asked.quick else 10):
                gains.append(speedup(work))
                for row in found.values():
                    row.round(2)
        title = f"two bare threads do {median(gains):.2f} times as much as one"
        print_rows(f"ops of 1 ms, what {kind}: {title}", table(found))
        told += verdicts(kind, found)
        figures += [
            Figure(f"{kind}, m = {m}", name, True, min(row.makespans), row.makespans)
            for (name, m), row in found.items()
        ]
    for one in told:
        if not one["met"]:
            tell(f"MISSED: {one['case']}: {one['target']} is {one['is']:.3f}")
    tell(f"{sum(bool(one['met']) for one in told)} of {len(told)} targets met")
    write_json("pipeline", asked, figures, {"targets": told})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
