"""Which forward nodes run as one region, by predicted cost.

Two threads lose below some 3 us an op and gain above 10 us, where NumPy has given up the GIL: so
only nodes above `HEAVY_US` are worth running beside each other, and a graph without enough of
them runs as one region.  Elsewhere a node joins the region that all its inputs come from, if it
is cheap itself or the only consumer; a join of several regions begins a new one.  So every region
but a leaf's has its inputs computed before its first step, and regions form no cycle.

The cut decides where nodes run, never what they compute: results are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush

from actorgraph.graph import Node
from actorgraph.lower.rates import rates

HEAVY_US = 10.0
"""A node or turn predicted to take longer is worth another worker."""

PARALLEL_US = 100.0
"""What `parallel_us` is where waking another worker takes `_WAKE_US` or less."""

_WAKE_US = 50.0

_LONGEST = 0.85
"""Part of all work that may lie on one path: above, two workers gain less than messages cost."""

_TURN_US = 6.0
"""What a turn costs beside its steps: messages, fresh memory, and waiting for the GIL."""

_BESIDE = 1.1
"""How much longer steps take beside others: two threads share the GIL and the memory."""

_WORTH = 0.85
"""Part of the sequential time that tasks may be predicted to take, to be worth their messages."""

_SHARED = 0.2
"""What each further worker adds to the speed of a product of tiles among other steps.

Measured between 0.15 (branches of products just above the cut) and 0.6 (a chain of them alone)."""

_PARTS = 16
"""A region takes at most this part of the whole, so that runs in flight can overlap."""


def is_heavy(cost_us: float) -> bool:
    """Return whether a step of that cost is worth another worker.

    What counts is the single step, for it is NumPy inside of one call that gives up the GIL: ten
    calls of 2 us on another thread only fight for it.
    """
    return cost_us >= HEAVY_US


def parallel_us() -> float:
    """Return the heavy work of a graph below which one worker alone is faster here."""
    return PARALLEL_US * max(1.0, rates().wake_us / _WAKE_US)


def one_after_another(
    order: Sequence[Node], costs: Mapping[int, float], workers: int, walked: Collection[int] = ()
) -> str | None:
    """Return why the steps gain nothing from running beside each other, None where they may.

    Either there is one worker, or too little heavy work, or the longest path through the steps of
    both directions takes nearly as long as all of them: a chain that is cut only passes messages,
    and loses memory that its steps could share.  Ops that wait always do so beside each other.
    What machine code walks (`walked`, ids) holds no GIL however short its steps are.
    """
    if any(op.waits for op in {node.op for node in order}):
        return None
    if workers == 1:
        return "there is one worker"
    heavy = sum([costs[node.id] for node in order if is_heavy(costs[node.id]) or node.id in walked])
    if heavy < parallel_us():
        return (
            f"steps of {HEAVY_US:.0f} us and more make up only {heavy:.0f} us, and below "
            f"{parallel_us():.0f} us one worker alone is faster"
        )
    until: dict[int, float] = {}
    for node in order:
        before = 0.0
        for part in node.inputs:  # a third of the time of `max`
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

    Nodes come in topological order; `costs` are those of both directions together, and `heavy` has
    a step in one of them.
    """
    limit = max(parallel_us(), sum(costs.values()) / _PARTS)
    ends: set[int] = set()  # nodes that no node before has consumed
    groups: list[list[Node]] = []
    group_of: dict[int, int] = {}
    taken: list[float] = []
    for node in nodes:
        cost = costs[node.id]
        # A leaf's region runs backward only, and after all others: it is no source.
        sources = {group_of[part.id] for part in node.inputs if part.id in group_of}
        index = sources.pop() if len(sources) == 1 else -1
        # A second heavy consumer begins a branch, which may run beside the first.
        follows = any(part.id in ends for part in node.inputs)
        joins = (
            index >= 0
            and not (node.op.waits or groups[index][-1].op.waits)
            and len(groups[index]) < size
            and (node.id not in heavy or (follows and taken[index] + cost < limit))
        )
        if not joins:
            index = len(groups)
            groups.append([])
            taken.append(0.0)
        groups[index].append(node)
        taken[index] += cost
        if not node.is_leaf:
            group_of[node.id] = index
            ends.difference_update([part.id for part in node.inputs])
            ends.add(node.id)
    return groups


def sharing(parts: int, workers: int) -> float:
    """Return how much sooner a step of so many parts ends where idle workers take some of them."""
    return 1.0 + _SHARED * (min(parts, workers) - 1)


def may_gain(tasks: int, workers: int, alone_us: float) -> bool:
    """Return whether so many tasks may gain at all, by their turns alone."""
    return tasks * _TURN_US / workers < _WORTH * alone_us


def gains(
    tasks: Sequence[Collection[int]], costs: Sequence[float], workers: int, alone_us: float
) -> bool:
    """Return whether tasks are expected to end clearly sooner on several workers than in sequence.

    A simulation: whoever is free takes the task that became ready first.  `tasks` are those that
    each waits for; `alone_us` is what the steps take in turn, where workers share tiles of large
    products.
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
    return last < _WORTH * alone_us
