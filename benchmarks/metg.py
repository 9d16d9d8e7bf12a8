"""Table 3: the smallest useful grain, Task Bench's METG(50 %).

The duration of a task at which a system still reaches half of what its workers could do at best:
tasks x duration / workers / time. `np.exp` and products of matrices, in columns that are chains of
their own (independent) or wait for their neighbours too (stencil); 8 columns of 50 tasks.

These tasks are called from Python, as ops of a user's own are.  The same grid follows with tasks
made of the library's ops, which need no Python.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks import _grid_ops as own
from benchmarks import _grid_peers as peers
from benchmarks._grid_ops import OpsGrid
from benchmarks._grid_peers import RAY_DEPTH, RAY_WIDTH, TASKS, WORKERS, Grid
from benchmarks._harness import Case, Effort, Figure, Peer, Trial, Unavailable, measure
from benchmarks._ray import started
from benchmarks._report import (
    exit_status,
    options,
    print_environment,
    print_rows,
    write_json,
)

ALONE = "one thread (how long a task is)"
BARE = "two bare threads, no dependencies"
PER_NODE, DEFAULT = 'ours: ActorMachine fuse="none"', "ours: ActorMachine"
RAY = "Ray compiled graph (2 columns of 10, sends numbers)"
NUMPY = "one NumPy thread (how long a task is)"
CALLS = "one NumPy thread on pairs of numbers (what its calls take)"
NO_TASKS = ALONE, NUMPY, CALLS
BARE_NUMPY = "two bare NumPy threads, no dependencies"
Rows = list[tuple[str, Callable[[ExitStack], Trial]]]
"""Systems, and what makes the trial of each."""
HALF = 0.5
FACTOR = 2.0
PATTERNS = ("independent", "stencil")
SIZES = {
    "exp": tuple(2**power for power in range(7, 19)),
    "matmul": (8, 16, 24, 32, 48, 64, 96, 128, 192),
}
OPS, WORK = " ops", " without calls"
"""In names of cases: tasks are of the library's ops; their time is that of NumPy's loops alone."""

OWN_SIZES = tuple(2**power for power in range(4, 15))
OWN_US = {"independent": 0.5, "stencil": 2.0}
"""METG that is wanted of the library's ops, in microseconds."""


@dataclass(frozen=True)
class Grain:
    """METG of a system in microseconds; `bound` says on which side of the sizes it lies."""

    case: str
    system: str
    us: float | None
    bound: str = ""
    efficiency: tuple[tuple[float, float], ...] = ()

    @property
    def text(self) -> str:
        """The figure as the table shows it."""
        return "-" if self.us is None else f"{self.bound}{self.us:.{1 if self.us >= 0.5 else 2}f}"


def make_case(grid: Grid) -> Case:
    """All systems but Ray on tasks of one size."""
    rows: Rows = [
        (ALONE, partial(peers.one_thread, grid)),
        (BARE, partial(peers.bare_threads, grid)),
        (PER_NODE, partial(peers.ours, grid, {"fuse": "none"})),
        (DEFAULT, partial(peers.ours, grid, {})),
        ("ThreadPoolExecutor", partial(peers.executor, grid)),
        ("Dask threaded", partial(peers.dask_threads, grid)),
    ]
    return _case(f"{grid.pattern} {grid.op} {grid.size}", rows)


def own_case(grid: OpsGrid) -> Case:
    """Systems on tasks of array arithmetic, of one size."""
    rows: Rows = [
        (NUMPY, partial(own.one_thread, grid)),
        (BARE_NUMPY, partial(own.bare_threads, grid)),
        (PER_NODE, partial(own.ours, grid, {"fuse": "none"})),
        (DEFAULT, partial(own.ours, grid, {})),
        ("ThreadPoolExecutor", partial(own.executor, grid)),
    ]
    return _case(f"{grid.pattern}{OPS} {grid.size}", rows)


def _case(name: str, rows: Rows) -> Case:
    systems = [Peer(system, build, ours=system.startswith("ours")) for system, build in rows]
    return Case(name, systems, per_run=TASKS)


def calls_case(grid: OpsGrid) -> Case:
    """NumPy's calls for the same tasks."""
    peer = Peer(CALLS, partial(own.one_thread, grid._replace(size=2)))
    return Case(f"{grid.pattern}{OPS} {grid.size}", [peer], per_run=TASKS)


def grains(name: str, sized: Sequence[Sequence[Figure]], tasks: dict[int, float]) -> list[Grain]:
    """Find the smallest tasks with which each system reaches one half.

    `sized` holds, by size, the figures of the case; `tasks` the seconds of a task by place there.
    """
    found = []
    for system in dict.fromkeys(figure.system for figures in sized for figure in figures):
        if system in NO_TASKS:
            continue
        curve = [
            (tasks[place], tasks[place] / WORKERS / figure.seconds)
            for place, figures in enumerate(sized)
            for figure in figures
            if figure.system == system and figure.seconds is not None
        ]
        found.append(_grain(name, system, sorted(curve)))
    return found


def _grain(name: str, system: str, curve: list[tuple[float, float]]) -> Grain:
    points = tuple((seconds * 1e6, efficiency) for seconds, efficiency in curve)
    if not points:
        return Grain(name, system, None)
    if points[0][1] >= HALF:
        return Grain(name, system, points[0][0], "< ", points)
    for (low, worse), (high, better) in itertools.pairwise(points):
        if better >= HALF:
            share = (HALF - worse) / (better - worse)
            us = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
            return Grain(name, system, us, "", points)
    return Grain(name, system, points[-1][0], "> ", points)


def measure_grid(
    pattern: str, op: str, effort: Effort, only: str
) -> tuple[list[Figure], list[Grain]]:
    """Measure all sizes of one pattern and op."""
    figures: list[Figure] = []
    sized = []
    for size in SIZES[op]:
        found = measure(make_case(Grid(pattern, op, size)), effort, only, keep=ALONE)
        sized.append(found)
        figures += found
    tasks = _task_seconds(sized)
    return figures, grains(f"{pattern} {op}", sized, tasks)


def measure_own(
    pattern: str, effort: Effort, only: str, sizes: Sequence[int] = OWN_SIZES
) -> tuple[list[Figure], list[Grain]]:
    """Measure all sizes of one pattern, made of the library's ops.

    The time of a task contains NumPy's calls, which are most of a short one.  A second figure takes
    a task to be shorter by the time that NumPy needs for arrays of two numbers.
    """
    sized = []
    for size in sizes:
        grid = OpsGrid(pattern, size)
        found = measure(own_case(grid), effort, only, keep=NUMPY)
        needed = CALLS if len(found) > 1 else ""
        sized.append([*found, *measure(calls_case(grid), effort, only, keep=needed)])
    figures = [figure for found in sized for figure in found]
    whole = _task_seconds(sized)
    every = [f.seconds for f in figures if f.system == CALLS and f.seconds is not None]
    calls = min(every, default=math.inf)
    work = {place: seconds - calls for place, seconds in whole.items() if seconds > calls}
    name = f"{pattern}{OPS}"
    longer = [found for place, found in enumerate(sized) if place in work]
    return figures, [
        *grains(name, sized, whole),
        *grains(f"{name}{WORK}", longer, dict(enumerate(work.values()))),
    ]


def _task_seconds(sized: Sequence[Sequence[Figure]]) -> dict[int, float]:
    return {
        place: next(
            f.seconds for f in figures if f.system in (ALONE, NUMPY) and f.seconds is not None
        )
        for place, figures in enumerate(sized)
    }


def _sized(trial: Callable[[int], Trial], size: int, _: ExitStack) -> Trial:
    return trial(size)


def measure_ray(
    effort: Effort, tasks: dict[str, dict[int, float]]
) -> tuple[list[Figure], list[Grain]]:
    """Measure Ray last: its daemons would disturb the others."""
    figures: list[Figure] = []
    found: list[Grain] = []
    for case, by_place in tasks.items():
        pattern, op = case.split()
        sized: list[list[Figure]] = []
        try:
            with ExitStack() as scope:
                started(scope)
                trial = peers.ray_grid(Grid(pattern, op, 0), scope, SIZES[op])
                for size in SIZES[op]:
                    one = Case(
                        f"{case} {size}",
                        [Peer(RAY, partial(_sized, trial, size))],
                        per_run=RAY_WIDTH * RAY_DEPTH,
                    )
                    sized.append(measure(one, effort))
        except (Unavailable, TimeoutError) as error:  # on a busy machine its channels time out
            sized = [[Figure(case, RAY, note=str(error))]]
        figures += [figure for one in sized for figure in one]
        found += grains(case, sized, by_place)
    return figures, found


def print_grains(found: Sequence[Grain], figures: Sequence[Figure]) -> list[dict[str, object]]:
    """Print METG by system and case, why some have none, and the targets."""
    cells = {(grain.system, grain.case): grain for grain in found}
    by_user = [grain for grain in found if OPS not in grain.case]
    _print_table("metg: microseconds of the smallest task with 50 % efficiency", by_user)
    by_library = [grain for grain in found if OPS in grain.case]
    _print_table("metg of the library's own ops: microseconds of the smallest task", by_library)
    for note in dict.fromkeys(f"  {f.system}: {f.note}" for f in figures if f.note):
        print(note)
    verdicts: list[dict[str, object]] = []
    lines = [["case", "system", "against", "ratio", "target", ""]]

    def judge(mine: Grain | None, against: str, wanted_us: float | None, factor: float) -> None:
        if mine is None or mine.us is None or wanted_us is None:
            return
        ratio = mine.us / wanted_us
        met = ratio <= factor and mine.bound != "> "
        verdicts.append({"case": mine.case, "ratio": ratio, "met": met})
        word = "met" if met else "MISSED"
        lines.append([mine.case, mine.system, against, f"{ratio:.2f}", f"<= {factor:g}x", word])

    for case in dict.fromkeys(grain.case for grain in by_user):
        bare = cells.get((BARE, case))
        judge(cells.get((PER_NODE, case)), BARE, bare and bare.us, FACTOR)
    for pattern, us in OWN_US.items():
        for name in (f"{pattern}{OPS}", f"{pattern}{OPS}{WORK}"):
            judge(cells.get((DEFAULT, name)), f"{us:g} us", us, 1.0)
    if verdicts:
        print_rows("targets", lines, words=3)
    return verdicts


def _print_table(title: str, found: Sequence[Grain]) -> None:
    cases = list(dict.fromkeys(grain.case for grain in found))
    cells = {(grain.system, grain.case): grain for grain in found}
    rows = [["system", *cases]]
    for system in dict.fromkeys(grain.system for grain in found):
        row = [cells.get((system, case)) for case in cases]
        rows.append([system, *(grain.text if grain else "-" for grain in row)])
    if found:
        print_rows(title, rows)


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("metg", __doc__)
    effort = Effort(3, 0.02) if asked.quick else Effort(10, 0.1)
    print_environment()
    figures: list[Figure] = []
    found: list[Grain] = []
    tasks: dict[str, dict[int, float]] = {}
    for op in SIZES:
        for pattern in PATTERNS:
            more, measured = measure_grid(pattern, op, effort, asked.only)
            figures += more
            found += measured
            alone = [[f] for f in more if f.system == ALONE]
            tasks[f"{pattern} {op}"] = _task_seconds(alone)
    for pattern in PATTERNS:
        more, measured = measure_own(pattern, effort, asked.only)
        figures += more
        found += measured
    if asked.wants(RAY):
        more, measured = measure_ray(effort, tasks)
        figures += more
        found += measured
    verdicts = print_grains(found, figures)
    extra = {"targets": verdicts, "grains": [vars(grain) for grain in found]}
    write_json("metg", asked, figures, extra)
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
