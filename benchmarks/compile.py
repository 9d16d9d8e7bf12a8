"""What it costs to compile a graph, against its number of nodes.

Compiling is all that a machine's first run does beyond its second: differentiating, cutting,
generating code, connecting actors. The slope is the exponent between two sizes: 1 is linear.
`--profile` prints where the time of the largest graph goes. Fresh processes then tell what tables
of NumPy's loops (`native`) add to a first run, and to one whose cache directory is empty.
"""

from __future__ import annotations

import cProfile
import gc
import json
import math
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import graphs
from benchmarks._harness import Figure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_rows,
    write_json,
)
from benchmarks._work import irregular
from benchmarks.startup import child

if TYPE_CHECKING:
    import actorgraph as ag

SHAPE = (4, 4)
NODES = (1_000, 10_000, 100_000)
ROUNDS = {1_000: 5, 10_000: 4, 100_000: 1}
LIMITS_S = {10_000: 1.0, 100_000: 15.0}
MACHINES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("TapeMachine", "TapeMachine", {}),
    ("ActorMachine", "ActorMachine", {}),
    ('ActorMachine fuse="none"', "ActorMachine", {"fuse": "none"}),
)
DIRECTIONS = ("forward", "f+b")
TABLES, PLAIN = "tables", "no tables"
MOST = 1.05
"""What a first run may take with tables, as a multiple of one without."""


def _start(name: str) -> tuple[ag.Node, ag.Node]:
    import actorgraph as ag

    graph = ag.Graph(name)
    x = graph.input("x", shape=SHAPE, dtype="float32")
    return x, x * graph.parameter("w", np.ones(SHAPE, "float32"))


def chain(nodes: int) -> ag.Node:
    """One tanh after the other."""
    import actorgraph as ag

    _, value = _start("chain")
    for _ in range(nodes - 4):
        value = ag.ops.tanh(value)
    return value.sum()


def wide(nodes: int) -> ag.Node:
    """Chains of 9 tanh beside each other, each from a product with a constant of its own."""
    import actorgraph as ag

    _, first = _start("wide")
    ends = []
    for number in range(nodes // 11):
        value = first * np.float32(1 + number * 1e-5)
        for _ in range(9):
            value = ag.ops.tanh(value)
        ends.append(value)
    return ag.ops.stack(ends).sum()


def mlp(nodes: int) -> ag.Node:
    """Layers of a product, a bias and relu, each with parameters of its own."""
    import actorgraph as ag

    value, _ = _start("mlp")
    eye, zeros = np.eye(SHAPE[0], dtype="float32"), np.zeros(SHAPE[0], "float32")
    for number in range(nodes // 5):
        weight = value.graph.parameter(f"W{number}", eye)
        value = ag.ops.relu(value @ weight + value.graph.parameter(f"b{number}", zeros))
    return value.sum()


REGULAR: tuple[Callable[[int], ag.Node], ...] = (chain, wide, mlp)
FORMS = (*REGULAR, irregular)


def fed(form: Callable[[int], ag.Node], nodes: int) -> graphs.Built:
    """Build a graph of one of the forms, with its feeds."""
    loss = form(nodes)
    return loss, {"x": np.full(SHAPE, 0.5, loss.dtype)}


FIRST_RUNS: dict[str, tuple[Callable[[], graphs.Built], bool]] = {
    "irregular, 1,000 nodes, forward": (partial(fed, irregular, 1_000), False),
    "irregular, 10,000 nodes, f+b": (partial(fed, irregular, 10_000), True),
    "chain, 10,000 nodes, f+b": (partial(fed, chain, 10_000), True),
    "MLP, small, f+b": (partial(graphs.mlp, 0), True),
    "convnet, small, f+b": (partial(graphs.convnet, 0), True),
    "LSTM, small, f+b": (partial(graphs.lstm, 0), True),
    "transformer block, small, f+b": (partial(graphs.attention, 0), True),
}
COLD = ("irregular, 1,000 nodes, forward", "MLP, small, f+b", "LSTM, small, f+b")


@dataclass(frozen=True, eq=False)
class Row:
    """One way to compile graphs of one form."""

    form: Callable[[int], Any]
    machine: str
    kind: str
    settings: dict[str, Any]
    backward: bool

    @property
    def name(self) -> str:
        """Say what is compiled and by what."""
        return f"{self.form.__name__}, {self.machine}, {DIRECTIONS[self.backward]}"


def forget() -> None:
    """Empty the caches of the package: generated code that is seen again is not compiled again."""
    for thing in gc.get_objects():
        if isinstance(thing, _lru_cache_wrapper) and thing.__module__.startswith("actorgraph"):
            thing.cache_clear()


def compile_seconds(row: Row, loss: ag.Node, feeds: dict[str, np.ndarray]) -> float:
    """Return what the first run of a new machine took beyond its second."""
    import actorgraph as ag

    gc.collect()
    forget()
    clock = time.perf_counter
    start = clock()
    with getattr(ag, row.kind)([loss], **row.settings) as machine:
        machine.run_sync(feeds, backward=row.backward)
        middle = clock()
        machine.run_sync(feeds, backward=row.backward)
        return 2 * middle - start - clock()


def profile(row: Row, loss: ag.Node, feeds: dict[str, np.ndarray]) -> None:
    """Print the functions that take most of one compilation."""
    profiler = cProfile.Profile()
    profiler.enable()
    compile_seconds(row, loss, feeds)
    profiler.disable()
    print(f"\n{row.name}, {len(loss.graph):,} nodes")
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(15)


def measure(rows: Sequence[Row], rounds: Mapping[int, int], *, profiled: bool) -> list[Figure]:
    """Compile graphs of all sizes; the best of a few rounds, interleaved over the rows."""
    figures: dict[tuple[object, int], Figure] = {}
    forms = list(dict.fromkeys(row.form for row in rows))
    for nodes, times in rounds.items():
        made: dict[Any, graphs.Built] = {}
        for form in forms:
            start = time.perf_counter()
            made[form] = fed(form, nodes)
            built = Figure(str(nodes), f"{form.__name__}, build", ours=True)
            built.rounds = [time.perf_counter() - start]
            for row in rows:
                if row.form is form:
                    figures[row, nodes] = Figure(str(nodes), row.name, ours=True)
            figures[form, nodes] = built
        for _ in range(times):
            for row in rows:
                figures[row, nodes].rounds.append(compile_seconds(row, *made[row.form]))
        if profiled and nodes == max(rounds):
            for row in rows:
                profile(row, *made[row.form])
    for figure in figures.values():
        figure.seconds = min(figure.rounds)
    return list(figures.values())


def print_figures(figures: Sequence[Figure], sizes: Sequence[int]) -> list[dict[str, object]]:
    """Print seconds by size, the slope between the last two sizes, and the targets."""
    seconds = {(f.system, f.case): f.seconds or math.nan for f in figures}
    verdicts: list[dict[str, object]] = []
    rows = [["compile", *(f"{nodes:,} nodes" for nodes in sizes), "slope", ""]]
    for system in dict.fromkeys(figure.system for figure in figures):
        times = [seconds[system, str(nodes)] for nodes in sizes]
        slope = math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])
        met = {
            nodes: value < LIMITS_S[nodes]
            for nodes, value in zip(sizes, times, strict=True)
            if nodes in LIMITS_S
        }
        verdicts += [{"system": system, "nodes": n, "met": ok} for n, ok in met.items()]
        missed = [f"{nodes:,}" for nodes, ok in met.items() if not ok]
        note = f"MISSED at {' and '.join(missed)}" if missed else "met"
        rows.append([system, *(f"{value:.3f}" for value in times), f"{slope:.2f}", note])
    limits = " and ".join(f"{nodes:,} nodes < {limit:g} s" for nodes, limit in LIMITS_S.items())
    print_rows(f"compile: seconds, best of a few; wanted: {limits}, slope about 1", rows)
    return verdicts


def first_run(name: str) -> None:
    """Print CPU and wall seconds of a new machine and its first run; for a fresh process."""
    import actorgraph as ag

    make, backward = FIRST_RUNS[name]
    loss, feeds = make()
    gc.collect()
    before = time.process_time(), time.perf_counter()
    with ag.ActorMachine([loss]) as machine:
        machine.run_sync(feeds, backward=backward)
        after = time.process_time(), time.perf_counter()
    print(json.dumps([end - start for start, end in zip(before, after, strict=True)]))


def measure_first_runs(names: Sequence[str], rounds: int, *, cold: bool) -> list[Figure]:
    """Take fresh processes with and without tables in turn, after one of each that is not counted.

    The figures are CPU time, or with `cold` the wall clock where the cache directory is empty.
    """
    figures = []
    for name in names:
        pair = [Figure(name, system, ours=True) for system in (TABLES, PLAIN)]
        code = f"from benchmarks.compile import first_run; first_run({name!r})"
        for number in range(rounds + 1):
            for figure in pair[:: 1 if number % 2 else -1]:
                with tempfile.TemporaryDirectory() as empty:
                    changed = {"ACTORGRAPH_NATIVE": "1" if figure.system == TABLES else "0"}
                    told = child(code, **changed, **({"XDG_CACHE_HOME": empty} if cold else {}))
                if number:
                    figure.rounds.append(json.loads(told.stdout)[cold])
        for figure in pair:
            figure.seconds = min(figure.rounds)
            figure.case += ", empty cache" if cold else ""
        figures += pair
    return figures


def print_first_runs(figures: Sequence[Figure], *, cold: bool) -> list[dict[str, object]]:
    """Print pairs of figures with their ratios, and return which are within what is wanted."""
    verdicts: list[dict[str, object]] = []
    rows = [["first run", TABLES, PLAIN, "ratio", "of medians", ""]]
    for on, off in zip(figures[::2], figures[1::2], strict=True):
        ratio = on.seconds / off.seconds
        medians = statistics.median(on.rounds) / statistics.median(off.rounds)
        met = ratio <= MOST
        verdicts.append({"case": on.case, "ratio": ratio, "met": met})
        times = [f"{1e3 * one.seconds:.1f}" for one in (on, off)]
        verdict = "met" if met else "MISSED"
        rows.append([on.case, *times, f"{ratio:.3f}", f"{medians:.3f}", verdict])
    told = "wall clock with an empty cache directory" if cold else "CPU time"
    wanted = f"not slower, with {MOST:g}x allowed for noise" if cold else f"at most {MOST:g}x"
    best = f"ms, best of {len(figures[0].rounds)} fresh processes"
    print_rows(f"a new machine and its first run, {told}: {best}; wanted: {wanted}", rows)
    return verdicts


def targets(sizes: Sequence[int]) -> list[Target]:
    """Want an irregular graph to compile as fast as each regular one."""
    system = "{}, ActorMachine, f+b".format
    return [
        Target(str(nodes), system("irregular"), (system(form.__name__),), 1.0)
        for nodes, form in product(sizes, REGULAR)
    ]


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("compile", __doc__, profile=True)
    rounds = dict.fromkeys(NODES[:2], 1) if asked.quick else ROUNDS
    sizes = list(rounds)
    rows = [
        Row(form, machine, kind, settings, backward)
        for form in FORMS
        for machine, kind, settings in MACHINES
        for backward in (False, True)
        # One actor a node joins nothing: to it, graphs are alike.
        if not (settings and form is irregular)
    ]
    print_environment()
    chosen = [row for row in rows if asked.wants(row.name)]
    figures = measure(chosen, rounds, profiled=asked.profile)
    verdicts: list[dict[str, object]] = []
    if figures:
        verdicts = print_figures(figures, sizes) + judge(targets(sizes[1:]), figures)
    for cold in (False, True):
        names = [n for n in FIRST_RUNS if asked.wants(n) and (n in COLD or not cold)]
        if names:
            pairs = measure_first_runs(names, 2 if asked.quick else 10, cold=cold)
            verdicts += print_first_runs(pairs, cold=cold)
            figures += pairs
    write_json("compile", asked, figures, {"targets": verdicts})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
