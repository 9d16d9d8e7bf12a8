"""Cuts: how a joint graph becomes the tasks of a machine.

A cut is a function of the joint graph and of its nodes' predicted costs.  It returns tasks with
steps but without ports (`regions.connect` adds these).  Invariants: every node of ``joint.order``
is in one task; within a task steps keep that order; tasks form no cycle.  `regions.by_region` makes
the tasks of any grouping of ``joint.owners`` in which no two groups wait for each other.

A cut decides where nodes run, never what they compute: all cuts give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from itertools import pairwise
from typing import TypeAlias

from actorgraph.errors import GraphError, shown, text_of
from actorgraph.graph import Node
from actorgraph.lower.fusion import cluster, is_heavy
from actorgraph.lower.joint import Joint, owner_of
from actorgraph.lower.parts import ends, last_needs
from actorgraph.lower.regions import (
    Region,
    TaskSpec,
    by_region,
    with_sums_apart,
    with_weights_apart,
)

Costs: TypeAlias = Mapping[int, float]
"""Predicted microseconds by id of a node of the joint graph."""

Cut: TypeAlias = Callable[[Joint, Costs], list[TaskSpec]]
"""How a joint graph becomes tasks."""

REGION_LIMIT = 1000
"""Most forward nodes of one region: longer straight-line functions compile superlinearly."""


def one_per_node(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """One region for each forward node."""
    return with_sums_apart(by_region(joint, [[owner] for owner in joint.owners]), joint)


def fewest(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """As few regions as the limit of their size allows."""
    return with_sums_apart(by_region(joint, chunked(joint.owners)), joint)


def by_cost(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """Heavy nodes may run in parallel; cheap ones join the region of their inputs."""
    heavy = {owner_of(node).id for node in joint.order if is_heavy(costs[node.id])}
    tasks = by_region(joint, cluster(joint.owners, _totals(joint, costs), heavy, REGION_LIMIT))
    return with_sums_apart(with_weights_apart(tasks, costs), joint)


def side_by_side(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """Branches may run in parallel whatever they cost, as lanes wake no thread."""
    totals = _totals(joint, costs)
    return by_region(joint, cluster(joint.owners, totals, totals, REGION_LIMIT))


def _totals(joint: Joint, costs: Costs) -> dict[int, float]:
    """Return the costs of owners by id, both directions together."""
    totals = dict.fromkeys([owner.id for owner in joint.owners], 0.0)
    for node in joint.order:
        totals[owner_of(node).id] += costs[node.id]
    return totals


def sequential(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """The sequential order, both directions together, in tasks of a limited size."""
    chunks = chunked(joint.order)
    return [TaskSpec(i, Region(i, steps), "forward", steps) for i, steps in enumerate(chunks)]


def chunked(nodes: Sequence[Node]) -> list[list[Node]]:
    """Cut into chunks of a limited size where few values cross; an op that waits stands alone.

    So the chunks of a graph that repeats itself begin alike, and share their code.
    """
    waiting = [place for place, node in enumerate(nodes) if node.op.waits]
    edges = sorted({0, len(nodes), *waiting, *[place + 1 for place in waiting]})
    chunks: list[list[Node]] = []
    last, size = last_needs(nodes), (-(-REGION_LIMIT // 2), REGION_LIMIT)
    for begin, stop in pairwise(edges):
        for end in ends(nodes, begin, stop, last, size):
            chunks.append([*nodes[begin:end]])
            begin = end
    return chunks


_OWN = one_per_node, fewest, by_cost, side_by_side, sequential


def checked(cut: Cut) -> Cut:
    """Return a cut that raises `GraphError` if its tasks cannot be run; the cuts here need not."""
    if any(cut is own for own in _OWN):  # a user's cut may be unhashable
        return cut
    name = shown(getattr(cut, "__name__", cut))

    def guarded(joint: Joint, costs: Costs) -> list[TaskSpec]:
        try:
            tasks = cut(joint, costs)
        except Exception as error:
            raise GraphError(f"the cut {name} failed: {text_of(error)}") from error
        if not isinstance(tasks, list) or not all(isinstance(spec, TaskSpec) for spec in tasks):
            raise GraphError(f"the cut {name} must return a list of tasks, got {shown(tasks)}")
        place = {node.id: number for number, node in enumerate(joint.order)}
        positions = [[place.get(step.id, -1) for step in spec.steps] for spec in tasks]
        if sorted(number for steps in positions for number in steps) != list(range(len(place))):
            raise GraphError(
                f"the cut {name} must put each of the {len(place)} nodes of joint.order into one "
                "task; regions.by_region does so for groups of joint.owners"
            )
        if any(steps != sorted(steps) for steps in positions):
            raise GraphError(f"in a task, the cut {name} must keep joint.order")
        return tasks

    return update_wrapper(guarded, cut)
