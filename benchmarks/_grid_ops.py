"""The grid of `_grid_peers` made of array arithmetic: what a task is given, it computes with.

A task of the pattern *independent* is ``exp(-x)`` of its column's value, one of *stencil* is
``tanh`` of the sum of the values of its column and its neighbours.  All values stay between -1 and
1.  NumPy writes into arrays that were made before, so that a task is as short as NumPy can make it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from benchmarks._grid_peers import DEPTH, WIDTH, WORKERS
from benchmarks._harness import Trial
from benchmarks._work import Array

Row = Sequence[Array]


class OpsGrid(NamedTuple):
    """A grid of tasks on float32 arrays of one size."""

    pattern: str
    size: int

    def feeds(self) -> list[Array]:
        """Return the values before the first step, one a column."""
        draw = np.random.default_rng(5)
        return [draw.uniform(0.1, 0.9, self.size).astype("float32") for _ in range(WIDTH)]

    def rows(self) -> tuple[list[Array], list[Array]]:
        """Return arrays to write into, those of even and of odd steps."""
        first, second = ([np.zeros(self.size, "float32") for _ in range(WIDTH)] for _ in range(2))
        return first, second

    def near(self, column: int) -> range:
        """Return the columns whose values a task of this column needs."""
        reach = 1 if self.pattern == "stencil" else 0
        return range(max(0, column - reach), min(WIDTH, column + reach + 1))

    def tasks(self, columns: Sequence[int]) -> Callable[[Row, Row], None]:
        """Return what computes a step of these columns from a row of arrays into another one."""
        add, tanh, negative, exp = np.add, np.tanh, np.negative, np.exp
        needs = [(column, *self.near(column)) for column in columns]

        def step_alone(given: Row, made: Row) -> None:
            for column in columns:
                out = made[column]
                negative(given[column], out)
                exp(out, out)

        def step_with_neighbours(given: Row, made: Row) -> None:
            for column, first, second, *third in needs:
                out = made[column]
                add(given[first], given[second], out)
                if third:
                    add(out, given[third[0]], out)
                tanh(out, out)

        return step_with_neighbours if self.pattern == "stencil" else step_alone


def one_thread(grid: OpsGrid, _: ExitStack) -> Trial:
    """All tasks in turn in NumPy: how long a task is."""
    step, feeds, rows = grid.tasks(range(WIDTH)), grid.feeds(), grid.rows()

    def run() -> list[Array]:
        given: Row = feeds
        for number in range(DEPTH):
            made = rows[number % 2]
            step(given, made)
            given = made
        return [*given]

    return Trial(run)


def bare_threads(grid: OpsGrid, scope: ExitStack) -> Trial:
    """Each thread computes its half of the columns: nobody waits, so neighbours may be of any step.

    What comes out of a stencil is therefore not compared.
    """
    feeds, rows = grid.feeds(), grid.rows()
    pool = scope.enter_context(ThreadPoolExecutor(WORKERS))
    each = WIDTH // WORKERS
    shares = [grid.tasks(range(each * k, each * (k + 1))) for k in range(WORKERS)]

    def share(step: Callable[[Row, Row], None]) -> None:
        given: Row = feeds
        for number in range(DEPTH):
            made = rows[number % 2]
            step(given, made)
            given = made

    def run() -> None:
        for future in [pool.submit(share, step) for step in shares]:
            future.result()

    return Trial(run)


def executor(grid: OpsGrid, scope: ExitStack) -> Trial:
    """A future per task; the last of those that a task waits for submits it."""
    pool = scope.enter_context(ThreadPoolExecutor(WORKERS))
    feeds, rows = grid.feeds(), grid.rows()
    steps = [grid.tasks([column]) for column in range(WIDTH)]
    lock = threading.Lock()

    def run() -> list[Array]:
        missing = [[len(grid.near(column)) for column in range(WIDTH)] for _ in range(DEPTH)]
        left, done = [WIDTH], threading.Event()

        def fire(column: int, number: int) -> None:
            steps[column](rows[1 - number % 2] if number else feeds, rows[number % 2])
            if number == DEPTH - 1:
                with lock:
                    left[0] -= 1
                if left[0] == 0:
                    done.set()
                return
            with lock:
                for other in grid.near(column):
                    missing[number + 1][other] -= 1
                ready = [other for other in grid.near(column) if missing[number + 1][other] == 0]
            for other in ready:
                pool.submit(fire, other, number + 1)

        for column in range(WIDTH):
            pool.submit(fire, column, 0)
        done.wait()
        return [*rows[(DEPTH - 1) % 2]]

    return _compared(grid, Trial(run), scope)


def ours(grid: OpsGrid, settings: dict[str, Any], scope: ExitStack) -> Trial:
    """`ActorMachine` on a graph of the library's ops."""
    import actorgraph as ag

    graph = ag.Graph("grid")
    row = [graph.input(f"x{column}", (grid.size,), "float32") for column in range(WIDTH)]
    feeds = {node.name: array for node, array in zip(row, grid.feeds(), strict=True)}

    def task(row: list[ag.Node], column: int) -> ag.Node:
        if grid.pattern == "independent":
            return ag.ops.exp(-row[column])
        first, *others = [row[other] for other in grid.near(column)]
        return ag.ops.tanh(sum(others, start=first))

    for _ in range(DEPTH):
        row = [task(row, column) for column in range(WIDTH)]
    machine = scope.enter_context(ag.ActorMachine(row, workers=WORKERS, **settings))

    def run() -> list[Array]:
        done = machine.run_sync(feeds)
        return [done[end].value for end in row]

    return _compared(grid, Trial(run), scope)


def _compared(grid: OpsGrid, trial: Trial, scope: ExitStack) -> Trial:
    """Return the trial, whose first and last call have to give the bits of one NumPy thread.

    Tables take over after some calls, and helpers later.
    """
    wanted = one_thread(grid, ExitStack()).run()
    assert wanted is not None
    expected = np.array(wanted)

    def check() -> None:
        found = trial.run()
        assert found is not None
        np.testing.assert_array_equal(np.array(found), expected)

    check()
    scope.callback(check)
    return trial
