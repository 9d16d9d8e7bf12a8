"""What it costs to look: a turn of an actor with nobody listening, with counters, and recorded.

A chain of 200 `tanh` of 8x8, one actor a node, on one worker: nothing but turns.  The ways to look
alternate round by round in one process, and the figure is the shortest run of all rounds divided by
its turns; read the differences.  Working out the records after the end is a row of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import numpy as np

import actorgraph as ag
from actorgraph.trace.live import Live
from benchmarks._harness import Figure
from benchmarks._report import exit_status, options, print_environment, print_rows, tell, write_json

TURNS = 200
LIMIT_US = 0.5
WORKED_OUT = "records worked out afterwards"


class Turns(ag.trace.Instrument):
    """Hears of turns and does nothing."""

    def on_turn(self, *told: object) -> None: ...


def counted() -> AbstractContextManager[Any]:
    return ag.trace.use(Live())


def heard() -> AbstractContextManager[Any]:
    return ag.trace.use(Turns())


WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nobody listens": nullcontext,
    "runs are counted, as by `top`": counted,
    "an instrument hears of turns": heard,
    "recorded": ag.trace.record,
}


def measure(rounds: int, runs: int = 20) -> list[Figure]:
    g = ag.Graph()
    end = x = g.input("x", (8, 8))
    for _ in range(TURNS):
        end = np.tanh(end)
    feeds = {x: np.ones((8, 8), "float32")}
    figures = {way: Figure(way, "ours", ours=True) for way in (*WAYS, WORKED_OUT)}
    with ag.ActorMachine([end], fuse="none", workers=1) as machine:
        for _ in range(runs):
            machine.run_sync(feeds)
        for _ in range(rounds):
            for way, look in WAYS.items():
                with look():
                    best = float("inf")
                    for _ in range(runs):
                        started = perf_counter()
                        machine.run_sync(feeds)
                        ended = perf_counter()
                        best = min(best, ended - started)
                left = perf_counter() - ended
                figures[way].rounds.append(best / TURNS)
            figures[WORKED_OUT].rounds.append(left / (TURNS * runs))
    for figure in figures.values():
        figure.seconds = min(figure.rounds)
    return list(figures.values())


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("tracing", __doc__, only=None)
    print_environment()
    figures = measure(10 if asked.quick else 100)
    off, recorded = figures[0].seconds, figures[3].seconds
    assert off is not None
    assert recorded is not None
    rows = [["way", "best", "more than off"]]
    for figure in figures:
        assert figure.seconds is not None
        more = "" if figure.case == WORKED_OUT else f"{(figure.seconds - off) * 1e6:.3f}"
        rows.append([figure.case, f"{figure.seconds * 1e6:.3f}", more])
    print_rows("tracing: us a turn", rows)
    cost_us = (recorded - off) * 1e6
    tell(f"recording: {'met' if cost_us <= LIMIT_US else 'MISSED'} (<= {LIMIT_US:g} us a turn)")
    verdict = {"case": "recorded", "limit_us": LIMIT_US, "met": cost_us <= LIMIT_US}
    write_json("tracing", asked, figures, {"targets": [verdict]})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
