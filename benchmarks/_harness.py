"""Timing of competing systems in one process, in interleaved rounds, best of many.

A `Case` is one piece of work, a `Peer` one system that can do it, a `Trial` the peer made ready.
Rounds go A B C A B C ..., so a noisy minute hits every system and the ratios stay fair.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

MISSING_PEER = "not installed: pip install -e '.[bench]'"
MISSING_OURS = "not installed: pip install -e ."
# OpenMP threads keep spinning for a while after their work; the next system should not pay.
SETTLE_S = 0.005
# Shorter calls are timed in groups, or the clock itself would weigh on them.
GROUP_S = 20e-6


class Unavailable(Exception):
    """A system cannot run here; the message says why."""


@dataclass
class Trial:
    """One system made ready for one case. `run` returns the arrays that `Case.expected` names."""

    run: Callable[[], Sequence[object] | None]
    before: Callable[[], object] | None = None
    best: Callable[[float], float] | None = None
    executions: int | None = None
    facts: dict[str, object] = field(default_factory=dict)

    def best_seconds(self, slice_s: float) -> float:
        """Return the shortest call within a slice of time."""
        if self.before is not None:
            self.before()
        return self.best(slice_s) if self.best is not None else best_call(self.run, slice_s)


@dataclass(frozen=True)
class Peer:
    """A system to measure. `build` makes a Trial and registers what must be closed."""

    system: str
    build: Callable[[ExitStack], Trial]
    ours: bool = False
    # Apart: it leaves processes running that would disturb the interleaved rounds.
    apart: bool = False
    # Work done per run where it is not the case's own (Ray: hops instead of nodes).
    per_run: int | None = None


@dataclass(frozen=True)
class Case:
    """One piece of work: a column of the table. Times are divided by `per_run`."""

    name: str
    peers: Sequence[Peer]
    per_run: int = 1
    expected: Sequence[np.ndarray] | None = None


@dataclass
class Figure:
    """What one system needed for one case, or why there is no figure."""

    case: str
    system: str
    ours: bool = False
    seconds: float | None = None
    rounds: list[float] = field(default_factory=list)
    note: str = ""
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Effort:
    """How long to measure: the number of rounds, and the time of each system in a round."""

    rounds: int
    slice_s: float


def installed(*modules: str) -> None:
    """Raise Unavailable unless all these peers can be imported."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise Unavailable(MISSING_PEER)


def best_call(run: Callable[[], object], slice_s: float) -> float:
    """Return the shortest of all calls that fit into `slice_s` seconds, after one to warm up."""
    clock = time.perf_counter
    run()
    start = clock()
    run()
    group = max(1, math.ceil(GROUP_S / max(clock() - start, 1e-9)))
    best, end = math.inf, clock() + slice_s
    while True:
        start = clock()
        for _ in range(group):
            run()
        now = clock()
        best = min(best, (now - start) / group)
        if now >= end:
            return best


def at_median(run: Callable[[], Sequence[object] | None]) -> Trial:
    """Make a trial whose figure is the p50 of all calls of a slice, not the shortest."""

    def median(slice_s: float) -> float:
        clock, found = time.perf_counter, []
        run()
        end = clock() + slice_s
        while (start := clock()) < end:
            run()
            found.append(clock() - start)
        return statistics.median(found)

    return Trial(run, best=median)


def awaited(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[object]]) -> Trial:
    """Make a trial whose calls are awaited one after the other within a running loop."""

    async def once() -> None:
        await call()

    async def best(slice_s: float) -> float:
        clock = time.perf_counter
        await call()
        shortest, end = math.inf, clock() + slice_s
        while (start := clock()) < end:
            await call()
            shortest = min(shortest, clock() - start)
        return shortest

    return Trial(
        run=lambda: loop.run_until_complete(once()),
        best=lambda slice_s: loop.run_until_complete(best(slice_s)),
    )


def measure(case: Case, effort: Effort, only: str = "", keep: str = "") -> list[Figure]:
    """Measure the peers whose name holds `only` (and the one called `keep`), interleaved."""
    peers = [p for p in case.peers if only.lower() in p.system.lower() or p.system == keep]
    together = _measure_group(case, [p for p in peers if not p.apart], effort)
    apart = _measure_group(case, [p for p in peers if p.apart], effort)
    found = {figure.system: figure for figure in together + apart}
    return [found[peer.system] for peer in peers]


def _measure_group(case: Case, peers: Sequence[Peer], effort: Effort) -> list[Figure]:
    figures = [Figure(case.name, peer.system, peer.ours) for peer in peers]
    with ExitStack() as scope:
        trials = [
            _ready(case, peer, figure, scope) for peer, figure in zip(peers, figures, strict=True)
        ]
        for _ in range(effort.rounds):
            for figure, trial in zip(figures, trials, strict=True):
                if trial is not None:
                    time.sleep(SETTLE_S)
                    figure.rounds.append(trial.best_seconds(effort.slice_s))
    for peer, figure in zip(peers, figures, strict=True):
        per_run = peer.per_run or case.per_run
        figure.rounds = [seconds / per_run for seconds in figure.rounds]
        figure.seconds = min(figure.rounds, default=None)
    return figures


def _ready(case: Case, peer: Peer, figure: Figure, scope: ExitStack) -> Trial | None:
    """Build and verify a trial; a system that is not here leaves a note. Failures are ours."""
    try:
        trial = peer.build(scope)
    except Unavailable as error:
        figure.note = str(error)
        return None
    except ModuleNotFoundError as error:
        if not (peer.ours and error.name == "actorgraph"):
            raise
        figure.note = MISSING_OURS
        return None
    figure.facts = trial.facts
    if case.expected is not None and peer.per_run is None:
        _check(peer.system, trial, case.expected)
    return trial


def _check(system: str, trial: Trial, expected: Sequence[np.ndarray]) -> None:
    """Compare with the hand-written NumPy result: a fast wrong answer is no answer."""
    if trial.before is not None:
        trial.before()
    result = trial.run()
    assert result is not None, f"{system} returned nothing to compare"
    assert len(result) == len(expected), f"{system} returned {len(result)} results"
    for got, want in zip(result, expected, strict=True):
        error = f"{system} computes something else"
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=1e-4, err_msg=error)
