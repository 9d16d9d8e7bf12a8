"""Costs of nodes in a machine: predicted, given by the user, or refined by measured time.

A cost decides where nodes run, never what they compute.  A *factor* says how much longer a user's
node takes, derivative included, than `lower.cost` predicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from actorgraph.errors import GraphError
from actorgraph.graph import Graph, Node
from actorgraph.machines.binding import Binding
from actorgraph.machines.feeds import by_node
from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan

__all__ = ["CUTS_AFTER", "LOOKS", "checked_costs", "forget", "refined", "spent_us"]

CUTS_AFTER = (8, 64)
"""Runs of a mode after which its cut is compared with measured time: at most twice."""

LOOKS = frozenset((3, *CUTS_AFTER))
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


def spent_us(plan: Plan, networks: Iterable[Network]) -> dict[int, float]:
    """Return the measured microseconds of a turn, by task of the plan.

    The median of the latest: other work on the machine makes some turns many times as long.
    """
    found: dict[int, float] = {}
    for network in networks:
        if network.plan is plan:
            for task in network.tasks:
                if len(task.latest) >= _TURNS:
                    found[task.spec.index] = median(task.latest) * 1e6
    return found


def forget(plan: Plan, networks: Iterable[Network]) -> None:
    """Begin to measure anew."""
    for network in networks:
        if network.plan is plan:
            for task in network.tasks:
                task.latest = ()
    if plan.latest is not None:
        plan.latest.direct_latest.clear()


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
        ratio = median(binding.direct_latest) * 1e6 / binding.predicted_us
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
