"""Bodies: a Python function of nodes, traced into a graph of its own.

While a body is traced, everything that is built in the graph around it is built in the body
instead.  Outer nodes that it uses are captured: they become operands, with a placeholder for each.
Constants are copied.  Invariant: a finished body is immutable, and two bodies of one structure are
equal, whatever their names and lines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, final

import numpy as np

from actorgraph.autodiff.trees import Structure, flatten
from actorgraph.errors import GraphError, GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph, Node
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.fusion import is_heavy
from actorgraph.lower.inner import between
from actorgraph.op import CONSTANT, RUN_NUMBER, Attrs, Op, attrs_key
from actorgraph.operands import foreign, is_weak
from actorgraph.store import Held
from actorgraph.types import Checks, Tensor, dtype_of

INDEX = Tensor.of("int64", ())
"""The type of the position of an iteration."""

_MASK = 2**64 - 1


def _mixed(bits: int) -> int:
    """Mix 64 bits: the finaliser of splitmix64 (S. Vigna, 2015)."""
    bits = (bits + 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


_FOLD_IN = Op(
    "fold_in", "int64[] -> int64[] -> int64[]",
    lambda xp, number, index: np.int64(_mixed(_mixed(int(number)) ^ int(index)) >> 1),
    vjp=(None, None), doc="The number by which an iteration draws, from that of the run.",
)  # fmt: skip


@final
class BodyGraph(Graph):
    """The graph into which a body is traced; the `outer` graph may be a body's, too.

    If it is `indexed`, it runs in iterations, and the placeholder `index` is the position of each.
    `captures` maps nodes of the outer graph to their placeholders.
    """

    def __init__(self, outer: Graph, what: str, indexed: bool) -> None:
        super().__init__(what, outer.seed, convert=outer.convert)
        self.captures: dict[Node, Node] = {}
        self.index = leaf_of(self, "iteration", INDEX) if indexed else None
        self.outer = outer
        self._draws_by: Node | None = None
        self.is_open = True

    def __enter__(self) -> Self:
        self.outer.inside = self
        return self

    def __exit__(self, *_: object) -> None:
        self.outer.inside, self.is_open = None, False

    def next_draw(self) -> int:
        """Return the number of the next draw, unique in the outermost graph."""
        return self.outer.next_draw()

    @property
    def run_number(self) -> Node:
        """The number that random draws of this iteration depend on."""
        if self._draws_by is None:
            given = self.captured(self.outer.run_number, as_it_is=True)
            indexed = self.index is not None
            self._draws_by = super().apply(_FOLD_IN, (given, self.index)) if indexed else given
        return self._draws_by

    def apply(self, op: Op, args: Sequence[Any], attrs: Attrs | None = None) -> Node:
        """Build a node of the body; outer operands are captured."""
        if self.inside is None:
            self._check_open()
            if op.waits:
                raise GraphError(
                    f"op {op.name!r} waits, but {self.name} cannot pause; call it outside"
                )
            args = [self.captured(arg) if isinstance(arg, Node) else arg for arg in args]
        return super().apply(op, args, attrs)

    def lift(self, value: Any) -> Node:
        """Return a value as a node of the body."""
        if self.inside is not None or not isinstance(value, Node):
            return super().lift(value)
        self._check_open()
        return self.captured(value)

    @property
    def outermost(self) -> Graph:
        """The graph around all bodies, which has the parameters and buffers."""
        return self.outer.outermost

    def bind(self, held: Held, name: str | None = None) -> Any:
        """Return the placeholder for a leaf of the outermost graph."""
        return self.captured(self.outermost.bind(held, name))

    def _variable(self, kind: Any, op: Op, name: str, value: Any) -> Any:
        return self.captured(self.outermost._variable(kind, op, name, value))

    def assign(self, buffer: Node, value: Node, on: Node) -> None:
        """Raise `GraphError`: the end of a body is not the end of a run."""
        self.outermost.assign(buffer, value, on)

    def _check_open(self) -> None:
        if not self.is_open:
            raise GraphError(
                f"a node of {self.name} was used outside of it, where it has no value; return it "
                "as a result"
            )

    def captured(self, node: Node, as_it_is: bool = False) -> Node:
        """Return the node of this body that stands for an outer node."""
        if node.graph is self:
            return node
        if node.op is CONSTANT:
            return self.constant(node.attrs["value"])
        if node.op is RUN_NUMBER and not as_it_is:
            return self.run_number
        outer = self.outer
        if isinstance(outer, BodyGraph):
            node = outer.captured(node)
        elif node.graph is not outer:
            raise foreign(node, outer)
        if node not in self.captures:
            self.captures[node] = leaf_of(self, node.name, node.type)
        return self.captures[node]


def leaf_of(graph: Graph, name: str, type_: Tensor) -> Node:
    """Add a placeholder of a type; a name that is taken gets a number."""
    number, free = 1, name
    while free in graph:
        number, free = number + 1, f"{name}_{number}"
    return graph.input(free, type_.shape, type_.dtype.name)


def is_float(type_: Tensor) -> bool:
    """Return whether values of the type have derivatives."""
    return dtype_of(str(type_.dtype)).kind in "fcV"


def innermost(graph: Graph) -> Graph:
    """Return the innermost body that is being traced in a graph, or the graph itself."""
    while graph.inside is not None:
        graph = graph.inside
    return graph


@final
class Body:
    """A graph with some nodes as its inputs and some as its results.

    Inputs may be any nodes; what they depend on is not part of it.  `nodes` are the nodes that the
    results depend on, without the inputs, in build order.
    """

    __slots__ = ("_hash", "_key", "inputs", "nodes", "results")

    def __init__(self, inputs: Iterable[Node], results: Iterable[Node]) -> None:
        self.inputs, self.results = tuple(inputs), tuple(results)
        numbers = {node: number for number, node in enumerate(self.inputs)}
        seen = between(self.inputs, self.results)
        self.nodes = tuple([node for node in seen if node not in numbers])
        numbers.update({node: number for number, node in enumerate(self.nodes, len(numbers))})
        # In build order, which decides the order of sums of cotangents, and so their bits.
        self._key: Hashable = (
            tuple([node.type for node in self.inputs]),
            tuple([
                (node.op, attrs_key(node.attrs), *[numbers[part] for part in node.inputs])
                for node in self.nodes
            ]),
            tuple([numbers[node] for node in self.results]),
        )  # fmt: skip
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Body) and self._hash == other._hash and self._key == other._key

    def __repr__(self) -> str:
        return f"<body of {len(self.nodes)} nodes>"

    def predicted_us(self, symbols: Mapping[str, int], walked: bool = False) -> float:
        """Return the predicted microseconds of a call."""
        steps = [node for node in self.nodes if node.op is not CONSTANT]
        return sum([predicted_us(node, symbols, walked) for node in steps])

    def heavy_us(self, symbols: Mapping[str, int]) -> float:
        """Return the predicted microseconds of the steps that are worth another worker."""
        total_us = 0.0
        for node in self.nodes:
            us = predicted_us(node, symbols)
            inner = [body for one in node.attrs.values() for _, body in getattr(one, "titles", ())]
            if inner:
                inner_us = sum([body.predicted_us(symbols) for body in inner])
                total_us += us * sum([body.heavy_us(symbols) for body in inner]) / (inner_us or 1.0)
            elif is_heavy(us):
                total_us += us
        return total_us

    def check_into(self, checks: Checks) -> None:
        """Add the nodes' checks of dims."""
        for node in self.nodes:
            checks.extend(node.checks)


def agreed(checks: Checks, one: Tensor, other: Tensor, text: str, *, cast: str, way: str) -> Tensor:
    """Return the type that two types are, or raise with the text and a way out."""
    if one.dtype != other.dtype:
        raise GraphTypeError(f"{text}; write {cast}")
    if len(one.shape) == len(other.shape):
        with suppress(ShapeError):
            return Tensor.of(str(one.dtype), tuple(map(checks.equal, one.shape, other.shape)))
    raise ShapeError(f"{text}; {way}")


def copied(body: Body, graph: Graph, inputs: Sequence[Node] | None = None) -> dict[Node, Node]:
    """Copy the nodes of a body into a graph, on these inputs or new ones; return each copy."""
    if inputs is None:
        inputs = [leaf_of(graph, node.name, node.type) for node in body.inputs]
    copies = dict(zip(body.inputs, inputs, strict=True))
    for node in body.nodes:
        copies[node] = graph.adopt(node, tuple([copies[part] for part in node.inputs]))
    return copies


def traced(
    function: Callable[..., Any], outer: Graph, what: str, types: Sequence[tuple[str, Tensor]],
    called: Callable[..., Any], indexed: bool = True,
) -> tuple[BodyGraph, list[Node], list[Node], Structure]:  # fmt: skip
    """Trace a function; return its graph, its placeholders, its results, and their structure.

    `what` is the body's name in errors; `types` are names and types of the placeholders;
    ``called(function, index, placeholders)`` calls the function.
    """
    if not callable(function):
        raise GraphTypeError(f"{what} has to be a function of nodes, got {shown(function)}")
    with BodyGraph(innermost(outer), what, indexed) as graph:
        given = [leaf_of(graph, name, type_) for name, type_ in types]
        leaves, structure = flatten(called(function, graph.index, given))
        return graph, given, lifted(graph, leaves, f"{what} returns", "return"), structure


def lifted(graph: Graph, leaves: Sequence[Any], which: str, do: str) -> list[Node]:
    """Return leaves as nodes, or raise for a Python scalar; `do` is what to do with an array."""
    for leaf in leaves:
        if is_weak(leaf) and not isinstance(leaf, np.generic):
            raise GraphTypeError(
                f"{which} the Python scalar {leaf!r}, which has no dtype; {do} an array, such as "
                f"np.array({leaf!r}, dtype='float32')"
            )
    return [graph.lift(leaf) for leaf in leaves]
