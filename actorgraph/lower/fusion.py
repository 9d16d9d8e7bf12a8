"""Which forward nodes run as one region, by predicted cost.

Two threads lose below some 3 us an op and gain above 10 us, where NumPy releases the GIL.  So only
nodes above `HEAVY_US` are worth running in parallel, and a graph without enough of them runs as one
region.  Otherwise a node joins the region that all its inputs come from, if it is cheap or their
only consumer; a node with inputs of several regions begins a new one.

Invariant: the inputs of every region (but a leaf's) are computed before its first step, so regions
form no cycle.  `lower.cuts` and the tuner of machines call these functions; they decide where nodes
run, never what they compute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush

from actorgraph.graph import Node
from actorgraph.lower.rates import rates

HEAVY_US = 10.0
"""Least predicted cost of a node or turn that is worth another worker."""

PARALLEL_US = 100.0
"""The value of `parallel_us` where waking a worker takes `_WAKE_US` or less."""

_WAKE_US = 50.0

_LONGEST = 0.85
"""Largest share of all work on the critical path; above, two workers gain less than messages
cost."""

_TURN_US = 6.0
"""Overhead of a turn: messages, fresh memory, and waiting for the GIL."""

_BESIDE = 1.1
"""Slowdown of steps that run in parallel: threads share the GIL and the memory bandwidth."""

_WORTH = 0.85
"""Largest predicted share of the sequential time for which tasks are worth their messages."""

_SHARED = 0.2
"""Speed that each further worker adds to a product of tiles among other steps.

Measured between 0.15 (branches of products just above the cut) and 0.6 (a chain of them alone)."""

_PARTS = 16
"""A region has at most the total cost divided by this, so that runs in flight can overlap."""


def is_heavy(cost_us: float) -> bool:
    """Return whether a step of that cost is worth another worker.

    Only single steps count, because NumPy releases the GIL within one call: ten calls of 2 us on
    another thread would only compete for it.
    """
    return cost_us >= HEAVY_US


def heavy_ids(costs: Mapping[int, float]) -> set[int]:
    """Return the ids of the nodes that are heavy, as `is_heavy` says."""
    return {number for number, cost in costs.items() if cost >= HEAVY_US}


def parallel_us() -> float:
    """Return the heavy work of a graph below which one worker is faster on this machine."""
    return PARALLEL_US * max(1.0, rates().wake_us / _WAKE_US)


def one_after_another(
    order: Sequence[Node], costs: Mapping[int, float], workers: int, walked: Collection[int] = ()
) -> str | None:
    """Return why the steps gain nothing from running in parallel, None if they may gain.

    There is one worker, or too little heavy work, or the critical path through both directions is
    nearly as long as all steps: a chain that is cut only passes messages, and loses memory that its
    steps could share.  Ops that wait always run in parallel.  Steps that machine code walks
    (`walked`, ids) count as heavy however short they are, as they hold no GIL.
    """
    if any(op.waits for op in {node.op for node in order}):
        return None
    if workers == 1:
        return "there is one worker"
    numbers = heavy_ids(costs).union(walked)
    heavy = sum([costs[node.id] for node in order if node.id in numbers]) if numbers else 0
    if heavy < parallel_us():
        return (
            f"steps of {HEAVY_US:.0f} us and more make up only {heavy:.0f} us, and below "
            f"{parallel_us():.0f} us one worker alone is faster"
        )
    until: dict[int, float] = {}
    for node in order:
        before = 0.0
        for part in node.inputs:  # takes a third of the time of `max`
            if (ended := until.get(part.id, 0.0)) > before:
                before = ended
        until[node.id] = before + costs[node.id]
    if max(until.values()) > _LONGEST * sum([costs[node.id] for node in order]):
        return "nearly all work lies on one path; runs overlap, steps do not"
    return None


def cluster(
    nodes: Sequence[Node], costs: Mapping[int, float], heavy: Collection[int], size: int
) -> list[list[Node]]:
    """Return the regions, of at most `size` nodes, of forward nodes and of leaves that own sums.

    `nodes` are in topological order; `costs` are totals of both directions; nodes with a heavy step
    in either direction are in `heavy`.
    """
    limit = max(parallel_us(), sum(costs.values()) / _PARTS)
    ends: set[int] = set()  # nodes without a consumer so far
    groups: list[list[Node]] = []
    group_of: dict[int, int] = {}
    group_us: list[float] = []
    for node in nodes:
        cost = costs[node.id]
        # A leaf's region has backward steps only and runs after all others: it is no source.
        sources = {group_of[part.id] for part in node.inputs if part.id in group_of}
        index = sources.pop() if len(sources) == 1 else -1
        # A second heavy consumer begins a branch that may run in parallel with the first.
        follows = any(part.id in ends for part in node.inputs)
        joins = (
            index >= 0
            and not (node.op.waits or groups[index][-1].op.waits)
            and len(groups[index]) < size
            and (node.id not in heavy or (follows and group_us[index] + cost < limit))
        )
        if not joins:
            index = len(groups)
            groups.append([])
            group_us.append(0.0)
        groups[index].append(node)
        group_us[index] += cost
        if not node.is_leaf:
            group_of[node.id] = index
            ends.difference_update([part.id for part in node.inputs])
            ends.add(node.id)
    return groups


def sharing(parts: int, workers: int) -> float:
    """Return the speed-up of a step whose parts idle workers share."""
    return 1.0 + _SHARED * (min(parts, workers) - 1)


def may_gain(tasks: int, workers: int, alone_us: float) -> bool:
    """Return whether that many tasks could gain at all, by the overhead of their turns."""
    return tasks * _TURN_US / workers < _WORTH * alone_us


def gains(
    tasks: Sequence[Collection[int]], costs: Sequence[float], workers: int, alone_us: float,
    worth: float = _WORTH,
) -> bool:  # fmt: skip
    """Return whether tasks are predicted to end clearly sooner on several workers than in sequence.

    It simulates a free worker taking the task that became ready first.  `tasks` has the tasks that
    each waits for; `alone_us` is the time of the steps in sequence, in which workers share tiles of
    large products, and `worth` the largest share of it that counts.
    """
    left = TopologicalSorter(dict(enumerate(tasks)))
    left.prepare()
    ready = [(0.0, task) for task in sorted(left.get_ready())]
    free = [0.0] + [rates().wake_us] * (workers - 1)
    heapify(free)
    last = 0.0
    while ready:
        since, task = heappop(ready)
        ended = max(since, heappop(free)) + costs[task] * _BESIDE + _TURN_US
        heappush(free, ended)
        last = max(last, ended)
        left.done(task)
        for other in left.get_ready():
            heappush(ready, (ended, other))
    return last < worth * alone_us
