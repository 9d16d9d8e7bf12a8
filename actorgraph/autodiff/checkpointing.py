"""`checkpoint`: recompute a part of the graph in the backward pass instead of storing its values.

The nodes of the part stay ordinary nodes.  Each result gets one more node, of the op
``checkpoint``, whose inputs are the result and all starts of the part.  So the part can be derived
from the graph, and from a copy of it: it is what lies between.

The backward pass visits the nodes of the part as usual and adds the same cotangents in the same
order, but gives their rules recomputed values.  Recomputation starts from ``recompute`` nodes,
which are the starts again, made to wait for a cotangent.  Invariant: gradients are equal bit for
bit, and of the part's forward values only its starts are kept.

Source: T. Chen et al., Training deep nets with sublinear memory cost, 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from actorgraph.autodiff.trees import flatten, unflatten
from actorgraph.errors import GraphTypeError
from actorgraph.graph import Graph, Node, build, topological_order
from actorgraph.op import CONSTANT, VIEW, Attrs, Op, Sample
from actorgraph.ops._rules import declare


def first_of_many(arity: int, attrs: Attrs) -> str:
    """Return the scheme of an op whose result has the type of its first argument."""
    args = [f"a{i}[*s{i}]" for i in range(arity)]
    return " -> ".join([*args, args[0]])


_RECOMPUTE: Op = declare(
    "recompute", "a[*s] -> a1[*t] -> a[*s]", lambda xp, x, ct: x,
    vjp=(lambda ct, y, x, _: ct, None), jvp=lambda tans, y, x, ct: tans[0],
    samples=(Sample(((3, 4), (2,))),), memory=VIEW,
    doc="The first argument, not before the second is there.",
)  # fmt: skip

_CHECKPOINT: Op = declare(
    "checkpoint", first_of_many, lambda xp, y, *xs: y, vjp=(lambda ct, *_: ct,),
    jvp=lambda tans, *_: tans[0], samples=(Sample(((3, 4), (2,))),), memory=VIEW,
    doc="The first argument, which the backward pass recomputes from the others.",
)  # fmt: skip


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let the backward pass recompute the values of `function` instead of storing them.

    Gradients are those without `checkpoint`, in every machine bit for bit; only if the same result
    is also built and used outside the part, cotangents are added in another order.  Memory falls to
    the inputs of the part (captured nodes included) and the values of one part at a time; time
    grows by one more forward pass of the part.  Parts may be nested.  Forward mode is not affected.

    Parameters
    ----------
    function : callable
        Function of nodes that returns a node, or a dict, list or tuple of nodes.

    Returns
    -------
    callable
        The same function, whose results are checkpointed.

    Raises
    ------
    GraphTypeError
        If it is called without any node.

    Examples
    --------
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x = g.input("x", shape=(3,), dtype="float64")
    >>> def block(x):
    ...     return (x * x + x) * x
    >>> ag.checkpoint(ag.checkpoint(block))(x)
    <checkpoint_5: float64[3]>
    """

    @wraps(function)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        leaves, _ = flatten((args, kwargs))
        node_args = [leaf for leaf in leaves if isinstance(leaf, Node)]
        if not node_args:
            raise GraphTypeError(f"checkpoint of {function!r} needs a node among its arguments")
        graph = node_args[0].graph
        start = len(graph)
        results, structure = flatten(function(*args, **kwargs))
        ends = [graph.lift(node) for node in results if isinstance(node, Node)]
        boundary = starts_of(ends, node_args, start)
        marked = [
            build(_CHECKPOINT, leaf, *boundary) if isinstance(leaf, Node) else leaf
            for leaf in results
        ]
        return unflatten(structure, marked)

    return checkpointed


def starts_of(ends: Iterable[Node], given: Iterable[Node], start: int) -> list[Node]:
    """Return the starts of the part that ends at `ends`: arguments, and captured older nodes.

    A node older than `start` belongs to the part if it depends on an argument: then an equal node
    was built before.
    """
    arguments = {node.id: node for node in given}
    first = min(arguments)

    def inputs_of(node: Node) -> Iterable[Node]:
        return node.inputs if node.id not in arguments and node.id > min(first, start) else ()

    inside = {node.id: node for node in topological_order(ends, inputs_of)}
    dependent = set(arguments)
    for number, node in inside.items():
        if any(part.id in dependent for part in node.inputs):
            dependent.add(number)
    part = {i for i, node in inside.items() if not node.is_leaf and (i >= start or i in dependent)}
    part -= set(arguments)
    used = {node.id: node for i in part for node in inside[i].inputs}
    used |= {node.id: node for node in ends}
    return [used[i] for i in sorted(used) if i not in part and used[i].op is not CONSTANT]


def _part_of(end: Node) -> list[Node]:
    """Return the nodes that the checkpoint node `end` recomputes, in build order."""
    stops = {node.id for node in end.inputs[1:]}

    def inside(nodes: Iterable[Node]) -> list[Node]:
        return [node for node in nodes if node.id not in stops and not node.is_leaf]

    def inputs_of(node: Node) -> list[Node]:
        return inside(node.inputs)

    return [*topological_order(inside(end.inputs[:1]), inputs_of)]


class Recomputation:
    """The recomputed nodes of one backward pass.

    They belong to the fragment of the checkpoint node, in which they are built (`graph.building`).
    So a machine recomputes in the backward task of that node, and the values travel from later to
    earlier nodes, as cotangents do.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._operands: dict[Node, tuple[Node, tuple[Node, ...]]] = {}
        self._copies: dict[tuple[Node, ...], dict[Node, Node]] = {}

    def enter(self, node: Node, ct: Node) -> None:
        """Recompute the part of a checkpoint node when `ct` arrives; ignore other nodes."""
        if node.op is not _CHECKPOINT:
            return
        _, (_, *values) = self.operands(node)
        copies = self._copies.setdefault(tuple(values), {})  # results of one call share them
        for start, value in zip(node.inputs[1:], values, strict=True):
            if start not in copies:
                copies[start] = build(_RECOMPUTE, value, ct)
        for inner in _part_of(node):
            inputs = tuple([copies.get(part, part) for part in inner.inputs])
            if inner not in copies:
                copies[inner] = self._graph.apply(inner.op, inputs, inner.attrs)
            self._operands[inner] = copies[inner], inputs

    def operands(self, node: Node) -> tuple[Node, tuple[Node, ...]]:
        """Return the node and its inputs, recomputed if they are in a part, for the node's rule."""
        return self._operands.get(node, (node, node.inputs))
