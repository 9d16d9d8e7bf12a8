"""Forward mode: tangents pushed through a graph, as nodes of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actorgraph.autodiff.reverse import DERIVED, check_differentiable, fitting, fragment, or_zeros
from actorgraph.errors import GraphTypeError
from actorgraph.graph import Graph, Node, as_nodes, topological_order


def tangents(outputs: Any, seeds: Mapping[Node, Node]) -> list[Node]:
    """Return the tangents of `outputs` along `seeds` (node to tangent) as nodes of the graph.

    Parameters
    ----------
    outputs : node, or list or dict of nodes
    seeds : mapping of node to node
        Tangents of float or complex nodes, of the same shape and dtype.

    Returns
    -------
    list of Node
        One for each output, zeros where it does not depend on a seeded node.

    Raises
    ------
    GraphTypeError
        If a seed has another dtype than its node, or an op on the way has no forward rule.
    ShapeError
        If a seed is known to have another shape than its node.
    """
    targets = as_nodes(outputs)
    check_differentiable(seeds, "tangent of")
    graph = targets[0].graph
    with graph.building():
        fitted = {node: fitting(seed, node, "tangent") for node, seed in seeds.items()}
        return or_zeros(push_forward(graph, topological_order(targets), fitted), targets)


def push_forward(
    graph: Graph, order: Sequence[Node], seeds: dict[Node, Node], owned: bool = False
) -> dict[Node, Node]:
    """Build the tangent of every node of `order` that has one; see `reverse.pull_back`."""
    tangent_of = dict(seeds)
    for node in order:
        if node in tangent_of or node.dtype.kind not in DERIVED:
            continue
        tans = tuple(tangent_of.get(part) for part in node.inputs)
        if all(tan is None for tan in tans):
            continue
        if node.op.jvp is None:
            reached = [i for i, tan in enumerate(tans) if tan is not None]
            if node.op.vjp is None or any(map(node.op.has_vjp, reached)):
                raise GraphTypeError(
                    f"op {node.op.name!r} of {node!r} (built at {node.where_built()}) has no "
                    "forward-mode rule, but a tangent reaches it"
                )
            continue
        with fragment(graph, node, owned):
            tan = node.op.jvp(tans, node, *node.inputs, **node.attrs)
            if tan is not None and node.op.checked:
                tan = fitting(tan, node, f"tangent that the jvp of {node.op.name!r} gave")
        if tan is not None:
            tangent_of[node] = tan
    return tangent_of
