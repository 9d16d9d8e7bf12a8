"""Task Bench's grid of tasks on every system: `WIDTH` columns, `DEPTH` steps.

A task waits for others and then runs a kernel whose duration does not depend on what they sent, as
in Task Bench (E. Slaughter et al., Task Bench: a parameterized benchmark for evaluating parallel
runtime performance, 2020): `np.exp` of an array, or a product of square matrices.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._harness import Trial, Unavailable, installed
from benchmarks._work import Array

WORKERS = 2
WIDTH, DEPTH = 8, 50
TASKS = WIDTH * DEPTH
# Ray's hops take so long that a small grid tells as much.
RAY_WIDTH, RAY_DEPTH = WORKERS, 10

Place = tuple[int, int]  # column, step


@dataclass(frozen=True)
class Grid:
    """Tasks of one pattern, with the kernel of one size."""

    pattern: str
    op: str
    size: int

    def kernel(self) -> Callable[..., Array]:
        """Return the task's work: what it is given is waited for, not looked at."""
        shape = (self.size,) if self.op == "exp" else (self.size, self.size)
        work = np.full(shape, 0.01, "float32")
        if self.op == "exp":
            return lambda *_: np.exp(work)
        return lambda *_: np.matmul(work, work)

    def needs(self, place: Place) -> tuple[Place, ...]:
        """Return what a task waits for: its own column, and in a stencil the neighbours' too."""
        column, step = place
        if step == 0:
            return ()
        reach = 1 if self.pattern == "stencil" else 0
        columns = range(max(0, column - reach), min(WIDTH, column + reach + 1))
        return tuple((other, step - 1) for other in columns)


def places() -> list[Place]:
    """List all tasks, step by step."""
    return [(column, step) for step in range(DEPTH) for column in range(WIDTH)]


def bare_threads(grid: Grid, scope: ExitStack) -> Trial:
    """Each thread calls the kernel for its half of the tasks: nobody waits for anybody."""
    kernel = grid.kernel()
    pool = scope.enter_context(ThreadPoolExecutor(WORKERS))

    def share() -> None:
        for _ in itertools.repeat(None, TASKS // WORKERS):
            kernel()

    def run() -> None:
        for future in [pool.submit(share) for _ in range(WORKERS)]:
            future.result()

    return Trial(run)


def one_thread(grid: Grid, _: ExitStack) -> Trial:
    """All kernels one after the other: how long a task is."""
    kernel = grid.kernel()

    def run() -> None:
        for _ in itertools.repeat(None, TASKS):
            kernel()

    return Trial(run)


def executor(grid: Grid, scope: ExitStack) -> Trial:
    """A future per task; the last of those that a task waits for submits it."""
    kernel = grid.kernel()
    pool = scope.enter_context(ThreadPoolExecutor(WORKERS))
    followers: dict[Place, list[Place]] = {place: [] for place in places()}
    for place in places():
        for other in grid.needs(place):
            followers[other].append(place)
    lock = threading.Lock()

    def run() -> None:
        missing = {place: len(grid.needs(place)) for place in places()}
        left, done = [WIDTH], threading.Event()

        def fire(place: Place) -> None:
            kernel()
            with lock:
                for other in followers[place]:
                    missing[other] -= 1
                ready = [other for other in followers[place] if missing[other] == 0]
                left[0] -= place[1] == DEPTH - 1
            for other in ready:
                pool.submit(fire, other)
            if left[0] == 0:
                done.set()

        for column in range(WIDTH):
            pool.submit(fire, (column, 0))
        done.wait()

    return Trial(run)


def dask_threads(grid: Grid, scope: ExitStack) -> Trial:
    """Dask's threaded scheduler on its own form of graph."""
    installed("dask")
    from dask.threaded import get

    kernel = grid.kernel()
    pool = scope.enter_context(ThreadPoolExecutor(WORKERS))
    graph = {place: (kernel, *grid.needs(place)) for place in places()}
    ends = [(column, DEPTH - 1) for column in range(WIDTH)]

    def run() -> None:
        get(graph, ends, pool=pool, num_workers=WORKERS)

    return Trial(run)


def ours(grid: Grid, settings: dict[str, Any], scope: ExitStack) -> Trial:
    """`ActorMachine` on a graph with one node a task."""
    import actorgraph as ag
    from actorgraph.op import REGISTRY, Op

    kernel = grid.kernel()
    shape = kernel().shape
    cost = REGISTRY["exp" if grid.op == "exp" else "matmul"].cost

    def declared(arity: int) -> Op:
        return Op(
            f"task_{arity}",
            " -> ".join(["f[*s]"] * (arity + 1)),
            lambda xp, *arrays: kernel(),
            cost=cost and (lambda shapes, result, attrs: cost((shape, shape), shape, {})),
        )

    ops = {arity: declared(arity) for arity in (1, 2, 3)}
    graph = ag.Graph("grid")
    nodes: dict[Place, ag.Node] = {}
    for place in places():
        inputs = [nodes[other] for other in grid.needs(place)]
        inputs = inputs or [graph.input(f"x{place[0]}", shape=shape, dtype="float32")]
        nodes[place] = graph.apply(ops[len(inputs)], inputs)
    ends = [nodes[column, DEPTH - 1] for column in range(WIDTH)]
    machine = scope.enter_context(ag.ActorMachine(ends, workers=WORKERS, **settings))
    feeds = {f"x{column}": kernel() for column in range(WIDTH)}

    def run() -> None:
        machine.run_sync(feeds)

    return Trial(run)


def ray_grid(grid: Grid, scope: ExitStack, sizes: Sequence[int]) -> Callable[[int], Trial]:
    """Compile the small grid on two Ray actors; the size of the kernel is the run's input.

    What travels is that number, no array: this is kind to Ray.
    """
    installed("ray")
    import ray
    from ray.dag import InputNode, MultiOutputNode

    kernels = {size: Grid(grid.pattern, grid.op, size).kernel() for size in sizes}

    class Task:
        def task(self, size: int, *_: int) -> int:
            kernels[size]()
            return size

    try:
        remote: Any = ray.remote(num_cpus=0)(Task)
        actors = [remote.remote() for _ in range(RAY_WIDTH)]
        with InputNode() as node:
            row = [node] * RAY_WIDTH
            for _ in range(RAY_DEPTH):
                stencil = grid.pattern == "stencil"
                row = [
                    actor.task.bind(*(row if stencil and row[0] is not node else [row[column]]))
                    for column, actor in enumerate(actors)
                ]
            program = MultiOutputNode(row).experimental_compile()
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise Unavailable(f"Ray: {type(error).__name__}: {first_line}") from error
    scope.callback(program.teardown)
    return lambda size: Trial(lambda: ray.get(program.execute(size)))
