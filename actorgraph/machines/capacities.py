"""`Capacities`: how many messages each edge of the user's graph may hold, in each direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from actorgraph.errors import GraphError, near_names, printable
from actorgraph.graph import Graph, Node
from actorgraph.lower.joint import Joint
from actorgraph.lower.regions import Port, TaskSpec
from actorgraph.options import positive

_BOUNDED = ("value", "bundle")
"""Kinds of ports whose channels are bounded by capacities of edges; residuals are not."""

Pair = tuple[Node, Node]
"""An edge of the user's graph: producer and consumer."""


@dataclass(frozen=True)
class Capacities:
    """Bounds of channels: by edge, by node for all edges out of it, and a default."""

    default: int | None = None  # None for `max_in_flight`
    by_edge: Mapping[Pair, int] = field(default_factory=dict)
    by_node: Mapping[Node, int] = field(default_factory=dict)

    @classmethod
    def checked(cls, graph: Graph, requested: Any) -> Capacities:
        """Return the capacities of a user's `capacity`, or raise if it names no node or edge."""
        if requested is None or not isinstance(requested, Mapping):
            return cls(None if requested is None else positive("capacity", requested))
        by_edge: dict[Pair, int] = {}
        by_node: dict[Node, int] = {}
        for key, value in requested.items():
            if not isinstance(key, tuple):
                node = _node(graph, key)
                by_node[node] = positive(f"the capacity of edges out of {node.name!r}", value)
                continue
            if len(key) != 2:
                raise GraphError(f"an edge is (producer, consumer), got {key!r}")
            producer, consumer = [_node(graph, end) for end in key]
            if all(producer is not part for part in consumer.inputs):
                takers = [f"{node.name!r}" for node in graph.consumers(producer)]
                raise GraphError(
                    f"capacity is given for {producer.name!r} -> {consumer.name!r}, which is no "
                    f"edge of the graph; {producer.name!r} goes to {', '.join(takers) or 'no node'}"
                )
            what = f"the capacity of {producer.name!r} -> {consumer.name!r}"
            by_edge[producer, consumer] = positive(what, value)
        return cls(None, by_edge, by_node)

    def of(self, joint: Joint, spec: TaskSpec, max_in_flight: int) -> list[int]:
        """Return the capacity of the channel into each port of a task, the least of its edges.

        Channels of leaves and residuals hold `max_in_flight` messages: leaves come as runs are
        admitted, and a residual may wait for its cotangent as long as its run is in flight.
        """
        edges: list[list[Pair]] = [[]] * len(spec.ports)
        if self.by_edge or self.by_node:
            edges = edges_of(joint, spec)
        elif self.default is None:
            return [max_in_flight] * len(edges)
        capacities = []
        for port, pairs in zip(spec.ports, edges, strict=True):
            bounds = [self.by_edge.get(pair, self.by_node.get(pair[0])) for pair in pairs]
            bounded = port.producer is not None and port.kind in _BOUNDED
            known = [one for one in (*bounds, self.default) if one is not None and bounded]
            capacities.append(min([*known, max_in_flight]))
        return capacities


def channel_name(specs: Sequence[TaskSpec], spec: TaskSpec, port: Port) -> str:
    """Return the name of the channel into a port, such as ``"x -> tanh_3"``."""
    sender = "the run" if port.producer is None else specs[port.producer].name
    source: str = port.kind
    if port.kind == "value":
        source = port.nodes[0].name
    elif port.kind == "bundle":
        source = f"{len(port.nodes)} values of {sender}"
    elif port.kind == "residual":
        source = f"residual of {sender}"
    return f"{printable(source)} -> {spec.name}"


def edges_of(joint: Joint, spec: TaskSpec) -> list[list[Pair]]:
    """Return for each port the user's edges whose values or cotangents it receives."""
    users: dict[int, list[Node]] = {}
    for step in spec.steps:
        for part in step.inputs:
            users.setdefault(part.id, []).append(joint.source(step))
    return [_edges(joint, port, users) for port in spec.ports]


def _edges(joint: Joint, port: Port, users: Mapping[int, list[Node]]) -> list[Pair]:
    if port.producer is None or port.kind not in _BOUNDED:
        return []
    edges: dict[Pair, None] = {}
    for node in port.nodes:
        here = joint.source(node)
        for other in users.get(node.id, ()):
            producer, consumer = (here, other) if here.id < other.id else (other, here)
            if any(producer is part for part in consumer.inputs):
                edges[producer, consumer] = None
    return list(edges)


def _node(graph: Graph, key: object) -> Node:
    known = {node.name: node for node in graph.nodes}
    if isinstance(key, Node) and known.get(key.name) is key:
        return key
    if isinstance(key, str) and key in known:
        return known[key]
    near = near_names(key, known) if isinstance(key, str) else ""
    raise GraphError(
        f"capacity is given for {key!r}, which is no node of the graph{near}; "
        "write an int, or a dict {(producer, consumer): int} or {producer: int}"
    )
