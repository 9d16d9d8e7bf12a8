"""Table 7: the peak memory of forward + backward, and what is left after many steps.

The bound is computed here, from the order in which `TapeMachine` executes and the sizes of what
each step makes: an array lives from the step that makes it until the last step that reads it or a
view of it, results until the end, and a step's operands until it has made its result. Leaves and
what a kernel allocates inside itself do not count. Several workers may need that much each.

What a machine keeps once, however many steps follow, has columns of its own.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._report import Options, options, print_environment, print_rows, write_json
from benchmarks.graphs import Built, attention, chain, convnet, ensemble, lstm, mlp

if TYPE_CHECKING:
    import actorgraph as ag

GRAPHS: tuple[Callable[[int], Built], ...] = (chain, mlp, ensemble, attention, convnet, lstm)
MEDIUM, LARGE = 1, 2
WITHIN = 1.1
# A machine may cut its graph again after some runs, and it writes tables after 100 calls of a part.
# What grows is counted from then on; what was allocated until then has columns of its own.
SETTLED = 200
# Runs after which tables are asked for, and then a table that declines is given up.
TABLED, DECLINED = 110, 9
STEPS = (10, 100, 1_000)
MACHINES: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("TapeMachine workers=1", "TapeMachine", {"workers": 1}, 1),
    ("TapeMachine workers=2", "TapeMachine", {"workers": 2}, 2),
    ("ActorMachine workers=1", "ActorMachine", {"workers": 1}, 1),
    ("ActorMachine workers=2", "ActorMachine", {"workers": 2}, 2),
    ('ActorMachine fuse="none" workers=1', "ActorMachine", {"fuse": "none", "workers": 1}, 1),
)


@dataclass(frozen=True)
class Peak:
    """Bytes that a machine needed at most in one run, against the bound.

    `scratch_bytes` of them are temporary memory of ops, which all machines of the process share
    until the last one closes.  `tables_bytes` and `tables_ratio` are those of a run after tables
    were written.
    """

    graph: str
    machine: str
    peak_bytes: int
    scratch_bytes: int
    bound_bytes: int
    ratio: float
    tables_bytes: int
    tables_ratio: float
    met: bool


@dataclass(frozen=True)
class Growth:
    """Bytes of arrays, and of all Python objects, alive after so many steps.

    `once_array_bytes` and `once_bytes` were allocated from before the machine was opened until it
    had settled: its arrays and programs, tables, and what the process makes for all machines.
    """

    machine: str
    steps: int
    array_bytes: int
    all_bytes: int
    once_array_bytes: int
    once_bytes: int


def bound_bytes(loss: ag.Node, feeds: dict[str, np.ndarray]) -> int:
    """Return the most bytes that are alive at once in the order of `TapeMachine`."""
    from actorgraph.lower.joint import Mode, join
    from actorgraph.lower.kernels import kernel

    joint = join([loss], list(loss.graph.parameters), Mode("backward", (loss,)))
    steps = len(joint.order)
    values: dict[int, Any] = {}
    for leaf in joint.leaves:
        source: Any = leaf.source
        if leaf.kind == "feed":
            values[leaf.node.id] = feeds[source.name]
        else:
            seed = leaf.kind == "seed"
            values[leaf.node.id] = np.ones(source.shape, "float32") if seed else source.value
    for node in joint.order:
        for part in node.inputs:
            if part.op.name == "constant":
                values[part.id] = part.attrs["value"]
    owners = {id(_owner(value)): -1 for value in values.values()}  # array to the step that made it
    held = {node.id for node in (*joint.values.values(), *joint.derivatives.values())}
    sizes, last = [0] * steps, list(range(steps))
    for number, node in enumerate(joint.order):
        operands = [values[part.id] for part in node.inputs]
        made = values[node.id] = np.asarray(kernel(node, np, {})(*operands))
        owner = _owner(made)
        if owners.setdefault(id(owner), number) == number:
            sizes[number] = owner.nbytes
        for used in (*operands, made):
            maker = owners[id(_owner(used))]
            if maker >= 0:
                last[maker] = max(
                    last[maker], steps if used is made and node.id in held else number
                )
    alive = peak = 0
    for number, size in enumerate(sizes):
        alive += size
        peak = max(peak, alive)
        alive -= sum(sizes[maker] for maker in range(number + 1) if last[maker] == number)
    return peak


def _owner(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def peak_bytes(make: Callable[[], Any], feeds: dict[str, np.ndarray]) -> tuple[int, int, int]:
    """Return what a warm machine keeps and a run needs more at most, and what of it is scratch.

    The last number is the first one again, after tables were written.
    """
    from actorgraph import scratch

    scratch.clear()  # `bound_bytes` has called kernels
    gc.collect()
    before = array_bytes()
    with make() as machine:

        def run() -> None:
            machine.run_sync(feeds, backward=True)

        def peak() -> int:
            gc.collect()
            kept = array_bytes() - before
            start = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            run()
            return kept + tracemalloc.get_traced_memory()[1] - start

        for _ in range(3):
            run()
        first, shared = peak(), scratch.scratch_bytes()
        for _ in range(TABLED):
            run()
        wait_for_tables()
        for _ in range(DECLINED):
            run()
        return first, shared, peak()


def array_bytes() -> int:
    """Return the bytes of all NumPy arrays that are alive."""
    mine = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    snapshot = tracemalloc.take_snapshot().filter_traces([mine])
    return sum(trace.size for trace in snapshot.traces)


def peaks(asked: Options) -> list[Peak]:
    """Measure all graphs on all machines."""
    import actorgraph as ag

    found = []
    for build in GRAPHS:
        loss, feeds = build(MEDIUM if asked.quick else LARGE)
        bound = bound_bytes(loss, feeds)
        for name, kind, settings, times in MACHINES:
            if not asked.wants(f"{build.__name__} {name}"):
                continue
            made = peak_bytes(partial(getattr(ag, kind), [loss], **settings), feeds)
            (peak, shared, later), most = made, bound * times
            met = max(peak, later) <= WITHIN * most
            ratios = peak / most, later / most
            found.append(
                Peak(build.__name__, name, peak, shared, most, ratios[0], later, ratios[1], met)
            )
    return found


def growth(asked: Options) -> list[Growth]:
    """Train a small network for many steps, and count what stays."""
    import actorgraph as ag

    found = []
    for name, kind, settings, _ in MACHINES:
        if asked.wants(f"mlp {name}"):
            found += growth_of(name, partial(getattr(ag, kind), **settings))
    return found


def growth_of(name: str, make: Callable[..., Any]) -> list[Growth]:
    """Count what stays in one machine, from before it is opened."""
    import actorgraph as ag

    loss, feeds = mlp(0)
    solver = ag.solvers.SGD(lr=1e-3)
    before, done, found = alive(), 0, []
    with make([loss]) as machine:

        def train(steps: int) -> None:
            for _ in range(steps):
                run = machine.run_sync(feeds, backward=True)
                solver.step([run[p] for p in loss.graph.parameters])
                del run

        train(SETTLED)
        wait_for_tables()
        once = [now - then for now, then in zip(alive(), before, strict=True)]
        for steps in STEPS:
            train(steps - done)
            done = steps
            found.append(Growth(name, steps, *alive(), *once))
    return found


def alive() -> tuple[int, int]:
    """Return the bytes of arrays, and of all Python objects, that are alive."""
    gc.collect()
    return array_bytes(), tracemalloc.get_traced_memory()[0]


def wait_for_tables() -> None:
    """Wait until machine code and tables that were requested are written."""
    from actorgraph.devices.background import BACKGROUND

    done = Event()
    BACKGROUND.submit(done.set)
    done.wait()


def print_peaks(found: list[Peak]) -> None:
    """Print megabytes, bound and verdict."""
    rows = [
        [
            "graph", "machine", "peak MB", "of it scratch", "MB with tables", "bound MB", "ratio",
            "ratio with tables", "",
        ]
    ]  # fmt: skip
    for p in found:
        sizes = [p.peak_bytes, p.scratch_bytes, p.tables_bytes, p.bound_bytes]
        figures = [f"{one / 1e6:.2f}" for one in sizes]
        figures += [f"{one:.2f}" for one in (p.ratio, p.tables_ratio)]
        rows.append([p.graph, p.machine, *figures, "met" if p.met else "MISSED"])
    title = f"peak of one run f+b; wanted: {WITHIN:g}x the bound (times the workers)"
    print_rows(f"memory: {title}", rows, words=2)


def print_growth(found: list[Growth]) -> list[dict[str, object]]:
    """Print what is alive after steps of a settled machine; arrays must not grow by a byte."""
    rows = [
        [
            "machine", "steps", "arrays", "kept once", "since 10 steps",
            "all objects, kept once", "since 10 steps", "",
        ]
    ]  # fmt: skip
    first = {g.machine: g for g in reversed(found)}
    verdicts: list[dict[str, object]] = []
    for g in found:
        start = first[g.machine]
        grown, objects = g.array_bytes - start.array_bytes, g.all_bytes - start.all_bytes
        met = grown <= 0
        verdicts.append({"machine": g.machine, "steps": g.steps, "grown": grown, "met": met})
        figures = (
            g.steps, g.array_bytes, g.once_array_bytes, grown, g.once_bytes, objects
        )  # fmt: skip
        rows.append([g.machine, *[f"{one:,}" for one in figures], "met" if met else "MISSED"])
    title = f"bytes alive after steps of training, behind {SETTLED} that settle the machine"
    print_rows(f"{title}; wanted: no growth of arrays", rows)
    return verdicts


def main() -> int:
    """Measure, print and write."""
    from actorgraph.lower.multiplying import numbers

    asked = options("memory", __doc__)
    print_environment()
    numbers("f", 1)  # what the process keeps for all machines
    tracemalloc.start()
    found = peaks(asked)
    grown = growth(asked)
    tracemalloc.stop()
    print_peaks(found)
    verdicts = print_growth(grown)
    write_json("memory", asked, found, {"growth": [vars(g) for g in grown], "targets": verdicts})
    return 0


if __name__ == "__main__":
    sys.exit(main())
