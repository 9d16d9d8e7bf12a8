"""Reverse mode: the backward pass of a graph, built as nodes of the graph.

Each op's vjp builds a small fragment of nodes.  `gradients` adds the fragments to the user's graph.
Machines add the same fragments to a private copy, each owned by its forward node, and send values
that cross owners through reverse channels.

Invariant: the cotangents of a node are summed from left to right in a fixed order: the seed first,
then the consumers from the latest built to the earliest (a consumer's arguments in order).  A
sequential reverse pass meets them in that order, so each can be added when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from actorgraph.autodiff.checkpointing import Recomputation
from actorgraph.errors import FeedError, GraphError, GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph, Node, as_nodes, topological_order
from actorgraph.ops._records import summed
from actorgraph.ops.broadcasting import add, broadcast_like, zeros_like
from actorgraph.types import shapes_differ

DERIVED = "fcVO"
"""Kinds of dtypes that have derivatives: floats, complex numbers, and records of them."""


def gradients(outputs: Any, wrt: Any, seeds: Any = None) -> list[Node]:
    """Return the gradients of `outputs` as ordinary nodes of the same graph.

    Parameters
    ----------
    outputs : node, or list or dict of nodes
        The nodes to differentiate.
    wrt : node, or list or dict of nodes
        Any float or complex nodes, not only leaves.
    seeds : array, node or list, optional
        One cotangent for each output; without seeds every output must be a scalar, seeded with 1.

    Returns
    -------
    list of Node
        One for each `wrt`, of its shape and dtype; zeros where no output depends on it.

    Raises
    ------
    GraphTypeError
        If a wrt or an output is neither float nor complex, or an op on the way has no gradient.
    ShapeError
        If an output is no scalar and there are no seeds, or a seed has another shape.

    Examples
    --------
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x = g.input("x", shape=(3,), dtype="float64")
    >>> (dx,) = ag.gradients((x * x).sum(), [x])
    >>> dx.shape
    (3,)
    """
    targets = as_nodes(outputs)
    if not targets:
        raise GraphError("gradients needs at least one output")
    graph = targets[0].graph
    for node in targets:
        graph.lift(node)
    sources = [graph.lift(node) for node in as_nodes(wrt, graph)]
    check_differentiable(sources, "wrt")
    check_differentiable(targets, "output")
    with graph.building():
        seed_of = seeded(zip(targets, _seed_nodes(graph, targets, seeds), strict=True))
        return or_zeros(pull_back(graph, topological_order(targets), seed_of, sources), sources)


def seeded(pairs: Iterable[tuple[Node, Node]]) -> dict[Node, Node]:
    """Return the seed of each node; several of one node are added."""
    seeds: dict[Node, Node] = {}
    for node, seed in pairs:
        seeds[node] = add(seeds[node], seed) if node in seeds else seed
    return seeds


def or_zeros(found: Mapping[Node, Node | None], nodes: Iterable[Node]) -> list[Node]:
    """Return the derivatives of nodes, zeros for those that have none."""
    pairs = [(node, found.get(node)) for node in nodes]
    return [zeros_like(node) if one is None else one for node, one in pairs]


def check_differentiable(nodes: Iterable[Node], what: str) -> None:
    """Raise `GraphTypeError` for a node that is neither float nor complex."""
    for node in nodes:
        if node.dtype.kind not in "fcV":
            raise GraphTypeError(
                f"{what} {node!r} is {node.dtype} and has no gradient; "
                "only float and complex nodes do; convert with .astype('float32')"
            )


def _seed_nodes(graph: Graph, outputs: Sequence[Node], seeds: Any) -> list[Node]:
    if seeds is None:
        for node in outputs:
            if node.ndim:
                raise ShapeError(
                    f"output {node!r} is no scalar; pass seeds=[...], one cotangent of its shape "
                    "per output, or differentiate node.sum()",
                    reference="AG114",
                )
        return [graph.constant(np.ones((), node.dtype)) for node in outputs]
    given = seeds if isinstance(seeds, (list, tuple)) else [seeds]
    if len(given) != len(outputs):
        raise FeedError(f"got {len(given)} seeds for {len(outputs)} outputs")
    nodes = []
    for seed, output in zip(given, outputs, strict=True):
        node = seed if isinstance(seed, Node) else graph.constant(seed, dtype=output.dtype)
        nodes.append(fitting(node, output, "seed", scalars=True))
    return nodes


def fitting(given: Any, node: Node, what: str, scalars: bool = False) -> Node:
    """Return a seed, cotangent or tangent with the dtype and shape of its node, or raise.

    If it is unknown before a run whether shapes agree, the run checks it.
    """
    if not isinstance(given, Node):
        raise GraphTypeError(
            f"the {what} of {node!r} has to be a node, got {type(given).__name__} "
            f"{shown(given)}; build it from what the rule is given"
        )
    if given.graph is not node.graph:
        raise GraphTypeError(
            f"the {what} of {node!r} is {given!r} of another graph; a rule may use its arguments "
            "only, for machines differentiate a copy of the graph"
        )
    if given.dtype != node.dtype:
        raise GraphTypeError(f"the {what} of {node!r} is {given.dtype}; convert it to {node.dtype}")
    if shapes_differ(given.dims, node.dims) and not (scalars and not given.ndim):
        raise ShapeError(
            f"the {what} of {node!r} has shape {given.shape}; it has to have shape {node.shape}"
        )
    return broadcast_like(given, node)


def active_nodes(order: Sequence[Node], wrt: Iterable[Node]) -> set[Node]:
    """Return the nodes of `order` that depend on `wrt` through float or complex values."""
    active = set(wrt)
    for node in order:
        if node not in active and node.dtype.kind in DERIVED:
            op = node.op
            for argnum, part in enumerate(node.inputs):
                if part in active and (op.vjp is None or op.has_vjp(argnum)):
                    active.add(node)
                    break
    return active


def pull_back(
    graph: Graph, order: Sequence[Node], seeds: dict[Node, Node], wrt: Sequence[Node],
    owned: bool = False,
) -> dict[Node, Node | None]:  # fmt: skip
    """Build the backward pass and return the cotangent of each `wrt` (None is a symbolic zero).

    `order` has, in topological order, everything that the seeded nodes depend on.  With `owned`
    each fragment belongs to its forward node and has its line (machines); otherwise its nodes are
    ordinary ones of the surrounding `graph.building` (`gradients`, rules that differentiate).
    """
    active = active_nodes(order, wrt)
    again = Recomputation(graph)
    arrived: dict[Node, list[Node]] = {node: [seed] for node, seed in seeds.items()}
    totals: dict[Node, Node | None] = {}
    wanted = set(wrt)
    for node in reversed(order):
        contributions = arrived.pop(node, None)
        if contributions is None or node not in active:
            continue
        with fragment(graph, node, owned):
            ct = contributions[0]
            for other in contributions[1:]:
                ct = summed(ct, other)
            if node in wanted:
                totals[node] = ct
            again.enter(node, ct)
            for part, pulled in _pull_through(node, active, ct, *again.operands(node)):
                if pulled is not None:
                    arrived.setdefault(part, []).append(pulled)
    return {node: totals.get(node) for node in wrt}


def fragment(graph: Graph, node: Node, owned: bool) -> AbstractContextManager[None]:
    """Build the nodes of a rule as the fragment of `node` if `owned`, else as ordinary nodes."""
    return graph.building(node.line, node) if owned else nullcontext()


def _pull_through(
    node: Node, active: set[Node], ct: Node, y: Node, xs: tuple[Node, ...]
) -> Iterable[tuple[Node, Node | None]]:
    """Return the cotangents that a node's rule gives to its active inputs, in order of arguments.

    `y` and `xs` are the node and its inputs, perhaps recomputed ones.
    """
    op = node.op
    reached = [argnum for argnum, part in enumerate(node.inputs) if part in active]
    if op.vjp is None and reached:
        raise GraphTypeError(
            f"op {op.name!r} of {node!r} (built at {node.where_built()}) has no gradient "
            "rule, but a wrt reaches an output through it; give the op a vjp, or put "
            "ag.stop_gradient around what should have no gradient"
        )
    argnums = [argnum for argnum in reached if op.has_vjp(argnum)]
    pulled = op.pull(argnums, ct, y, xs, node.attrs) if argnums else []
    if op.checked:
        what = f"cotangent that the vjp of {op.name!r} gave"
        pulled = [
            None if found is None else fitting(found, xs[argnum], what)
            for argnum, found in zip(argnums, pulled, strict=True)
        ]
    return zip([node.inputs[argnum] for argnum in argnums], pulled, strict=True)
