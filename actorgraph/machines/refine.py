"""Costs of nodes in a machine: predicted, given by the user, or refined by measured time.

A cost decides where nodes run, never what they compute.  A *factor* says how much longer a user's
node takes, derivative included, than `lower.cost` predicts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from actorgraph.errors import GraphError
from actorgraph.graph import Graph, Node
from actorgraph.machines.binding import Binding
from actorgraph.machines.feeds import by_node
from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan

__all__ = [
    "CUT_AFTER", "LOOKS", "TRIAL_AFTER", "checked_costs", "decided", "forget", "on_trial",
    "refined", "spent_us",
]  # fmt: skip

CUT_AFTER = 8
"""Runs of a mode after which its cut is compared with measured time, and a trial is decided."""

TRIAL_AFTER = 16
"""Runs after which several tasks have to show that they are faster than one sequence."""

_TRIED_NODES = 2000
"""Nodes above which nothing is tried: compiling the sequence alone takes 0.1 s and more."""

LOOKS = frozenset((3, CUT_AFTER, TRIAL_AFTER))
"""Runs after which measuring begins anew: at first threads start and memory is touched."""

_WORTH = 2.0
"""Predictions off by less than this are left alone: another cut would gain little."""

_TURNS = 3
"""Timed turns of a task below which its figure counts for nothing."""


def checked_costs(graph: Graph, given: Any) -> dict[Node, float] | None:
    """Return microseconds by node from what a user gave by node or name.

    Raises
    ------
    FeedError, GraphError
        A key is no node of the graph, or a cost is no positive number.
    """
    if given is None:
        return None
    found = by_node(given, {node.name: node for node in graph.nodes}, "cost")
    for node, cost in found.items():
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not cost > 0:
            raise GraphError(f"the cost of {node!r} is microseconds above 0, got {cost!r}")
    return found


def _median(seconds: Collection[float]) -> float:
    # The module `statistics` takes 4 ms to import.
    return sorted(seconds)[len(seconds) // 2]


def spent_us(plan: Plan, networks: Iterable[Network]) -> dict[int, float]:
    """Return the measured microseconds of a turn, by task of the plan.

    The median of the latest: other work on the machine makes some turns many times as long.
    """
    found: dict[int, float] = {}
    for network in networks:
        if network.plan is plan:
            for task in network.tasks:
                if len(task.latest) >= _TURNS:
                    found[task.spec.index] = _median(task.latest) * 1e6
    return found


def forget(plan: Plan, networks: Iterable[Network]) -> None:
    """Begin to measure anew."""
    for network in networks:
        if network.plan is plan:
            for task in network.tasks:
                task.latest = ()
    plan.walls.clear()
    if plan.latest is not None:
        plan.latest.direct_latest.clear()


def on_trial(plan: Plan) -> Plan | None:
    """Return the plan in sequential order, to be tried against one of several tasks, or None.

    No prediction tells what a second core is worth on a machine that others use too, nor what the
    GIL costs when it changes hands: only runs do, and only those that met no other.
    """
    if (
        plan.sequential is not None
        or plan.waits
        or len(plan.tasks) < 2
        or len(plan.walls) < _TURNS
        or plan.only_binding is None
        or len(plan.joint.order) > _TRIED_NODES
    ):
        return None
    tried = plan.in_sequence()
    tried.rival, tried.runs = plan, 0
    tried.sequential = f"it is on trial against {len(plan.tasks)} tasks"
    return tried


def decided(tried: Plan, workers: int) -> tuple[Plan, Plan]:
    """Return the faster one of a plan on trial and its rival, and the other."""
    rival, tried.rival = tried.rival, None
    assert rival is not None
    rival._in_sequence = None
    binding = tried.only_binding
    seconds = tried.walls or (binding.direct_latest if binding is not None else ())
    if len(seconds) < _TURNS or _median(seconds) > _median(rival.walls):
        return rival, tried
    tried.sequential = (
        f"runs took {_median(seconds) * 1e6:.0f} us so, and {_median(rival.walls) * 1e6:.0f} us as "
        f"{len(rival.tasks)} tasks on {workers} workers"
    )
    return tried, rival


def refined(plan: Plan, networks: Iterable[Network]) -> dict[Node, float] | None:
    """Return better factors by measured time, None where the predictions will do.

    Figures are compared for one set of dims: where several were run, nothing is known.
    """
    binding = plan.only_binding
    if binding is None:
        return None
    ratios = _ratios(plan, binding, spent_us(plan, networks))
    if all(1 / _WORTH < ratio < _WORTH for ratio in ratios.values()):
        return None
    factors = dict(plan.factors)
    for node, ratio in ratios.items():
        factors[node] = factors.get(node, 1.0) * ratio
    return factors


def _ratios(plan: Plan, binding: Binding, spent: Mapping[int, float]) -> dict[Node, float]:
    """Return measured over predicted time by user's node."""
    sources = dict.fromkeys(plan.joint.source(node) for node in plan.joint.order)
    if len(binding.direct_latest) >= _TURNS:
        ratio = _median(binding.direct_latest) * 1e6 / binding.predicted_us
        return dict.fromkeys(sources, ratio)
    measured: dict[Node, float] = {}
    predicted: dict[Node, float] = {}
    for spec in plan.tasks:
        if spec.index not in spent:
            continue
        costs = [plan.cost_us(step, binding.symbols) for step in spec.steps]
        ratio = spent[spec.index] / sum(costs)
        for step, cost in zip(spec.steps, costs, strict=True):
            source = plan.joint.source(step)
            measured[source] = measured.get(source, 0.0) + cost * ratio
            predicted[source] = predicted.get(source, 0.0) + cost
    return {node: measured[node] / predicted[node] for node in measured}
