"""What it costs to compile a graph, against its number of nodes.

Compiling is all that a machine's first run does beyond its second: differentiating, cutting,
generating code, connecting actors. The slope is the exponent between two sizes: 1 is linear.
`--profile` prints where the time of the largest graph goes.
"""

from __future__ import annotations

import cProfile
import gc
import math
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._harness import Figure
from benchmarks._report import exit_status, options, print_environment, print_rows, write_json

if TYPE_CHECKING:
    import actorgraph as ag

SHAPE = (4, 4)
FEEDS = {"x": np.full(SHAPE, 0.5, "float32")}
NODES = (1_000, 10_000, 100_000)
ROUNDS = {1_000: 5, 10_000: 3, 100_000: 1}
LIMITS_S = {10_000: 1.0, 100_000: 15.0}
MACHINES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("TapeMachine", "TapeMachine", {}),
    ("ActorMachine", "ActorMachine", {}),
    ('ActorMachine fuse="none"', "ActorMachine", {"fuse": "none"}),
)
DIRECTIONS = ("forward", "f+b")


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


FORMS: tuple[Callable[[int], ag.Node], ...] = (chain, wide, mlp)


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


def compile_seconds(row: Row, loss: ag.Node) -> float:
    """Return what the first run of a new machine took beyond its second."""
    import actorgraph as ag

    gc.collect()
    forget()
    clock = time.perf_counter
    start = clock()
    with getattr(ag, row.kind)([loss], **row.settings) as machine:
        machine.run_sync(FEEDS, backward=row.backward)
        middle = clock()
        machine.run_sync(FEEDS, backward=row.backward)
        return 2 * middle - start - clock()


def profile(row: Row, loss: ag.Node) -> None:
    """Print the functions that take most of one compilation."""
    profiler = cProfile.Profile()
    profiler.enable()
    compile_seconds(row, loss)
    profiler.disable()
    print(f"\n{row.name}, {len(loss.graph):,} nodes")
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(15)


def measure(rows: Sequence[Row], sizes: Sequence[int], *, profiled: bool) -> list[Figure]:
    """Compile graphs of all sizes; the best of a few rounds, interleaved over the rows."""
    figures: dict[tuple[object, int], Figure] = {}
    for form in dict.fromkeys(row.form for row in rows):
        mine = [row for row in rows if row.form is form]
        for nodes in sizes:
            start = time.perf_counter()
            loss = form(nodes)
            built = Figure(str(nodes), f"{form.__name__}, build", ours=True)
            built.rounds = [time.perf_counter() - start]
            for row in mine:
                figures[row, nodes] = Figure(str(nodes), row.name, ours=True)
            for _ in range(ROUNDS[nodes]):
                for row in mine:
                    figures[row, nodes].rounds.append(compile_seconds(row, loss))
            figures[form, nodes] = built
            if profiled and nodes == sizes[-1]:
                for row in mine:
                    profile(row, loss)
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


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("compile", __doc__, profile=True)
    sizes = NODES[:2] if asked.quick else NODES
    rows = [
        Row(form, machine, kind, settings, backward)
        for form in FORMS
        for machine, kind, settings in MACHINES
        for backward in (False, True)
    ]
    print_environment()
    chosen = [row for row in rows if asked.wants(row.name)]
    figures = measure(chosen, sizes, profiled=asked.profile)
    verdicts = print_figures(figures, sizes)
    write_json("compile", asked, figures, {"targets": verdicts})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
