"""The cut of a graph into stages: as the user placed its nodes, or automatic.

A stage takes values of any earlier stage, and of no later one: skip connections and several inputs
and outputs are allowed.  The automatic cut divides the build order, which is topological, into
consecutive parts.  Among the cuts whose slowest stage takes the least time, or almost the least, it
is one that sends the fewest bytes; a value counts at every cut that it crosses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from actorgraph.errors import ScheduleError
from actorgraph.graph import Node
from actorgraph.memory.buffers import is_view


def placed(nodes: Sequence[Node]) -> bool:
    """Return whether the user placed any of the nodes, with ``graph.stage``."""
    return any(node.id in node.graph.stages for node in nodes if not node.is_leaf)


def cut_by_placement(nodes: Sequence[Node]) -> list[list[Node]]:
    """Return the stages that the user gave, with ``with graph.stage(0): ...``.

    `nodes` are in build order; leaves are left out.  A node without a placement is in the first
    stage that has all its inputs.  Raises `ScheduleError` if a node is placed before one of its
    inputs, or a stage has no nodes.
    """
    stage_of: dict[int, int] = {}
    stages: dict[int, list[Node]] = {}
    for node in nodes:
        if node.is_leaf:
            continue
        inputs = {stage_of[part.id]: part for part in node.inputs if part.id in stage_of}
        earliest = max(inputs, default=0)
        stage = node.graph.stages.get(node.id, earliest)
        if stage < earliest:
            raise ScheduleError(
                f"node {node.name!r} (built at {node.where_built()}) is placed in stage {stage}, "
                f"but takes {inputs[earliest].name!r} of stage {earliest}; a stage takes values "
                "of earlier stages only"
            )
        stage_of[node.id] = stage
        stages.setdefault(stage, []).append(node)
    count = 1 + max(stages, default=-1)
    empty = [stage for stage in range(count) if stage not in stages]
    if empty:
        raise ScheduleError(f"stage {empty[0]} of {count} has no nodes; stages count from 0")
    return [stages[stage] for stage in range(count)]


def cut_by_cost(
    nodes: Sequence[Node], stages: int, *, costs: Mapping[int, float], sizes: Mapping[int, float],
    slack: float = 0.0,
) -> list[list[Node]]:  # fmt: skip
    """Return consecutive parts of the build order whose slowest is as fast as possible.

    No part is empty.  `nodes` are in build order; leaves are left out.  `costs` has the time of
    each node, forward and backward, and `sizes` the size of its value, by its number and in any
    unit.  The slowest stage may be slower by the share `slack`, to send fewer bytes.  Raises
    `ScheduleError` for fewer nodes than stages.
    """
    every = [node for node in nodes if not node.is_leaf]
    if len(every) < stages:
        raise ScheduleError(
            f"{stages} stages need as many nodes, but there are {len(every)}; take fewer "
            "stages (devices times the chunks of the schedule)"
        )
    homes = _homes(every)
    steps = [node for node in every if node.id not in homes]
    if len(steps) < stages:
        homes, steps = {}, every
    together = {node.id: costs.get(node.id, 0.0) for node in steps}
    for number, home in homes.items():
        together[home] += costs.get(number, 0.0)
    total = [0.0, *accumulate(together[node.id] for node in steps)]
    limit = _least_slowest(total, stages) * (1 + slack)
    ends = _cheapest_ends(total, _crossing(steps, sizes), stages, limit)
    stage_of = {
        node.id: stage
        for stage, (start, end) in enumerate(zip([0, *ends], ends))
        for node in steps[start:end]
    }
    parts: list[list[Node]] = [[] for _ in range(stages)]
    for node in every:
        parts[stage_of[homes.get(node.id, node.id)]].append(node)
    return parts


def _homes(steps: Sequence[Node]) -> dict[int, int]:
    """Return the first user of each view of a leaf: in its stage the view costs nothing."""
    shown: set[int] = set()
    for node in steps:
        of = node.inputs[0] if node.inputs and is_view(node) else None
        if of is not None and (of.is_leaf or of.id in shown):
            shown.add(node.id)
    first: dict[int, int] = {}
    for node in reversed(steps):
        home = first.get(node.id, node.id) if node.id in shown else node.id
        first.update((part.id, home) for part in node.inputs)
    return {number: first[number] for number in shown if number in first}


def _crossing(steps: Sequence[Node], sizes: Mapping[int, float]) -> list[float]:
    """Return for every k the bytes sent if the first k nodes are cut from the rest."""
    position = {node.id: number for number, node in enumerate(steps)}
    last_use = dict(position)
    for node in steps:
        for part in node.inputs:
            if part.id in position:
                last_use[part.id] = max(last_use[part.id], position[node.id])
    change = [0.0] * (len(steps) + 2)
    for number, node in enumerate(steps):
        change[number + 1] += sizes.get(node.id, 0.0)
        change[last_use[node.id] + 1] -= sizes.get(node.id, 0.0)
    return list(accumulate(change))[: len(steps) + 1]


def _least_slowest(total: Sequence[float], stages: int) -> float:
    """Return the least possible cost of the slowest part, exactly: the sum of some stretch.

    Filling parts greedily shows whether a limit suffices.  Bisection over doubles ends when the
    limits are neighbours, and the greedy parts of the upper one keep it.
    """
    low, high = max(b - a for a, b in pairwise(total)), total[-1]
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _parts(total, middle) <= stages:
            high = middle
        else:
            low = middle
    return low if _parts(total, low) <= stages else high


def _parts(total: Sequence[float], limit: float) -> int:
    """Return the number of parts needed with at most that cost each."""
    parts, start = 0, 0
    for end in range(1, len(total)):
        if total[end] - total[start] > limit:
            parts, start = parts + 1, end - 1
    return parts + 1


def _cheapest_ends(
    total: Sequence[float], crossing: Sequence[float], stages: int, limit: float
) -> list[int]:
    """Return the ends of parts within the limit that send the least.

    `best[end]` is the least sent with the last part ending at `end`.  The possible starts of a part
    that ends at `end` are a sliding window, so a monotonic queue finds the best one in constant
    amortised time: the whole is linear for each stage.
    """
    count = len(total) - 1
    best = [0.0] + [float("inf")] * count
    choices: list[list[int]] = []
    for _ in range(stages):
        following = [float("inf")] * (count + 1)
        choice = [-1] * (count + 1)
        window: deque[int] = deque()
        for end in range(1, count + 1):
            start = end - 1
            while window and best[window[-1]] >= best[start]:
                window.pop()
            window.append(start)
            while total[end] - total[window[0]] > limit:
                window.popleft()
            if best[window[0]] < float("inf"):
                following[end] = best[window[0]] + crossing[end]
                choice[end] = window[0]
        best = following
        choices.append(choice)
    ends = [count]
    for choice in reversed(choices[1:]):
        ends.append(choice[ends[-1]])
    return ends[::-1]
