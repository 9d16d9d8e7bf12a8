"""`Report`: whether a mode of a machine can deadlock, given capacities, lanes' orders and credits.

The tasks of the plan, and the admission and the end of runs, are the tasks of a token game
(`lower.deadlock`).  `max_in_flight` is a credit that admission spends and the end returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actorgraph.errors import GraphError, counted, near_names, shown
from actorgraph.graph import Node
from actorgraph.lower.cuts import one_per_node
from actorgraph.lower.deadlock import Action, Arc, Credit, Verdict, check
from actorgraph.lower.joint import Joint
from actorgraph.lower.regions import TaskSpec, connect
from actorgraph.machines.capacities import channel_name, edges_of
from actorgraph.machines.plan import Plan
from actorgraph.options import several

_KINDS = {"F": "forward", "B": "backward", "W": "weights"}
_MODES = {"backward": "forward and backward"}
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class CheckedEdge:
    """The result of a check for one channel.

    Attributes
    ----------
    name : str
        As in ``machine.channels()``.
    capacity : int
        The current capacity.
    suffices : int or None
        A capacity with which nothing blocks, if all other edges have theirs, too; None if no
        capacities suffice.
    peak_depth : int or None
        Most messages that it has held so far, with ``statistics=True``.
    """

    name: str
    capacity: int
    suffices: int | None
    peak_depth: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `Machine.check`; print it.

    Attributes
    ----------
    title : str
        Mode, tasks and cut.
    ok : bool
        Whether every run ends, for any timing of the workers.
    blocked : tuple of str
        If not, which task waits for what, around one cycle.
    edges : tuple of CheckedEdge
        The channels between tasks.
    credits : dict
        For each of the given credits, a number that suffices; empty if none does.
    notes : tuple of str
        Capacities that were given for edges without a channel in this cut.
    """

    title: str
    ok: bool
    blocked: tuple[str, ...]
    edges: tuple[CheckedEdge, ...]
    credits: Mapping[Any, int]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.title}: {'cannot block' if self.ok else 'can block'}"]
        lines += [f"  {line}" for line in (*self.blocked, *self._advice()[:_SHOWN], *self.notes)]
        return "\n".join(lines)

    def _advice(self) -> list[str]:
        """Return what to change, if that can help."""
        if self.ok:
            return []
        if any(edge.suffices is None for edge in self.edges):
            return ["no capacities and credits suffice; the lanes need another order"]
        short = [(edge, edge.suffices) for edge in self.edges if edge.suffices is not None]
        return [
            f"raise the capacity of {edge.name} from {edge.capacity} to {suffices}"
            for edge, suffices in short
            if suffices > edge.capacity
        ] + [f"give {count} credits of {key}" for key, count in self.credits.items()]


def report(
    machine: Any, plan: Plan, lanes: Iterable[Iterable[tuple[Any, str, int]]],
    limits: Mapping[Any, int],
) -> Report:  # fmt: skip
    """Return the report on a machine's mode; parameters as in `Machine.check`.

    A plan that is to be cut by cost, and is not yet, is checked with one task per node.
    """
    uncut = plan.weighs and not plan.partition.tasks
    cut = one_per_node if uncut else plan.cut
    joint, kind = plan.compiled.joint, plan.compiled.mode.kind
    specs = plan.partition.tasks or connect(cut(joint, {}), plan.compiled.result_of)
    names = [spec.name for spec in specs]
    edges = _edges(machine, joint, specs)
    known = _Tasks(plan, specs)
    if isinstance(lanes, Mapping):
        raise GraphError(f"lanes are a list of lists, one for each worker, got {shown(lanes)}")
    for lane in (lanes := several("a list of lists, one for each worker, as lanes", lanes)):
        if not isinstance(lane, Iterable):
            raise GraphError(f"a lane is a list of (node or name, kind, run), got {lane!r}")
    if not isinstance(limits, Mapping) or any(
        not isinstance(key, tuple) or len(key) != 2 for key in limits
    ):
        raise GraphError(f"credits are a dict {{(task, task): int}}, got {shown(limits)}")
    orders = [[known.action(entry) for entry in lane] for lane in lanes]
    runs = 1 + max([run for lane in orders for _, run in lane], default=1)
    # Two more tasks stand for the machine: the start and the end of runs.
    start, end = len(specs), len(specs) + 1
    brought = [spec.index for spec in specs if any(port.producer is None for port in spec.ports)]
    outside = [Arc(start, task, None, f"the start of runs -> {names[task]}") for task in brought]
    outside += [
        Arc(spec.index, end, None, f"{spec.name} -> the end of runs")
        for spec in specs
        if spec.results
    ]
    credits_ = [Credit(start, end, machine.max_in_flight, "runs in flight")]
    for (spender, giver), limit in limits.items():
        ends = known.task(spender), known.task(giver)
        credits_.append(Credit(*ends, limit, f"{names[ends[0]]!r} ahead of {names[ends[1]]!r}"))
    in_lanes = {task for lane in orders for task, _ in lane}
    free = [[(task, run) for run in range(runs)] for task in range(end + 1) if task not in in_lanes]
    tasks = [*names, "the start", "the end"]
    verdict = check(tasks, [*edges, *outside], [*orders, *free], credits_, shown=len(orders))
    suffice = {} if verdict.credits is None else dict(zip(limits, verdict.credits[1:], strict=True))
    count = counted(len(specs), "task")
    how = f"cut {cut.__name__}{' (by cost at the first run)' * uncut}"
    return Report(
        f"{_MODES.get(kind, kind)}, {count}, {how}",
        verdict.ok,
        verdict.blocked,
        _checked(machine, plan, edges, verdict),
        suffice,
        _notes(machine, joint, specs),
    )


def _edges(machine: Any, joint: Joint, specs: Sequence[TaskSpec]) -> list[Arc]:
    arcs, most = [], machine.max_in_flight
    for spec in specs:
        capacities = machine._capacities.of(joint, spec, most)
        for port, capacity in zip(spec.ports, capacities, strict=True):
            if port.producer is not None:
                bound, name = capacity if capacity < most else None, channel_name(specs, spec, port)
                arcs.append(Arc(port.producer, spec.index, bound, name))
    return arcs


def _checked(
    machine: Any, plan: Plan, edges: Sequence[Arc], verdict: Verdict
) -> tuple[CheckedEdge, ...]:
    peaks: dict[str, int] = {}
    for network in machine._networks():
        if network.plan is plan and network.counted:
            for channel in network.channels:
                depth = channel.statistics().peak_depth or 0
                peaks[channel.name] = max(peaks.get(channel.name, 0), depth)
    enough = verdict.capacities or [None] * len(edges)
    pairs = [(edge.capacity or machine.max_in_flight, edge.name) for edge in edges]
    return tuple(
        [
            CheckedEdge(name, capacity, suffices, peaks.get(name))
            for (capacity, name), suffices in zip(pairs, enough, strict=False)
        ]
    )


def _notes(machine: Any, joint: Joint, specs: Sequence[TaskSpec]) -> tuple[str, ...]:
    """Return notes on given capacities that bound no channel."""
    capacities = machine._capacities
    if not capacities.by_edge and not capacities.by_node:
        return ()
    connected = set()
    for spec in specs:
        for port, pairs in zip(spec.ports, edges_of(joint, spec), strict=True):
            if port.producer is not None:
                connected.update(pairs)
    nodes = {producer for producer, _ in connected}
    lost = [f"{a.name} -> {b.name}" for a, b in capacities.by_edge if (a, b) not in connected]
    lost += [f"{node.name} -> all" for node in capacities.by_node if node not in nodes]
    why = "no channel, since both ends run in one task, or runs bring the value along"
    return tuple([f"{name}: {why}" for name in lost])


class _Tasks:
    """The tasks by their names for users: a node that they compute, and a kind."""

    def __init__(self, plan: Plan, specs: Sequence[TaskSpec]) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._seen: set[Action] = set()
        for spec in specs:
            for node in spec.region.nodes:
                name = plan.compiled.joint.source(node).name
                self._numbers.setdefault((name, spec.direction), spec.index)

    def action(self, entry: tuple[Any, str, int]) -> Action:
        """Return the action of an entry of a lane."""
        if not isinstance(entry, tuple) or len(entry) != 3:
            raise GraphError(f"a lane lists (node or name, kind, run), got {entry!r}")
        task, run = self.task(entry[:2]), entry[2]
        if isinstance(run, bool) or not isinstance(run, int) or run < 0:
            raise GraphError(f"runs in lanes count from 0, got {entry!r}")
        if (task, run) in self._seen:
            raise GraphError(f"lanes list {entry!r} twice; a task fires once for a run")
        self._seen.add((task, run))
        return task, run

    def task(self, key: Any) -> int:
        """Return the number of a task."""
        node, kind = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
        if kind not in _KINDS:
            raise GraphError(f"a task is (node or name, 'F', 'B' or 'W'), got {key!r}")
        name = node.name if isinstance(node, Node) else node
        number = self._numbers.get((name, _KINDS[kind]))
        if number is None:
            known = [other for other, direction in self._numbers if direction == _KINDS[kind]]
            near = near_names(name, known) if isinstance(name, str) else ""
            raise GraphError(f"no task computes {_KINDS[kind]} of {name!r} in this mode{near}")
        return number
