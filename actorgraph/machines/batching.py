"""Cutting a batch into microbatches, and putting their results together.

What is cut is one symbolic dim.  Feeds that have it are sliced along it, without copying; others
go whole to every microbatch.  Of n rows, microbatch j gets n_j; sizes differ by one at most, the
larger come first.  With ``reduce="mean"`` the loss is a mean over the dim and microbatch j counts
n_j / n, with ``"sum"`` it counts 1.  Terms of the loss that do not depend on the dim, such as
weight decay, count once: they belong to the first microbatch.

Results are joined in the order of the microbatches, so the bits do not depend on which is ready
first.  An op that looks over the rows of a batch sees those of its microbatch: batch norm
normalises by the mean and variance of each microbatch, and its running statistics are updated once
for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from operator import add
from typing import Any, Literal, TypeAlias

import numpy as np

from actorgraph import ops
from actorgraph.errors import FeedError, GraphTypeError, ShapeError, near_names
from actorgraph.graph import Node, topological_order
from actorgraph.machines.feeds import bind_feeds, by_node
from actorgraph.op import INPUT
from actorgraph.types import Dim

__all__ = [
    "Batching", "Microbatch", "Reduce", "axis_of", "check_inputs", "depending_on", "reduction_of",
    "sliced", "stretches", "terms_of",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Reduce: TypeAlias = Literal["mean", "sum"]
"""How a value that has not the dim comes of the rows."""

_LINEAR = {"add", "subtract", "neg", "multiply", "divide"}
"""Ops through which terms of a loss are found."""


@dataclass(frozen=True, slots=True)
class Microbatch:
    """What one microbatch is given: its feeds, how many rows, and what its loss counts."""

    feeds: dict[Node, Array]
    rows: int
    weight: float


class Batching:
    """How the batches of one loss are cut and joined.

    Parameters
    ----------
    loss : Node
        A float scalar that depends on a feed with the dim.
    outputs : iterable of Node
        What else is wanted.  What has the dim is concatenated along it; what does not depend on
        it is taken once; anything else is reduced like the loss.
    split : str
        The symbolic dim.
    microbatches : int
        How many.
    reduce : str
        ``"mean"`` if the loss is a mean over the dim, ``"sum"`` if it is a sum.

    Attributes
    ----------
    batch_loss : Node
        The terms of the loss that every microbatch has.
    once_loss : Node or None
        The terms that count once.

    Raises
    ------
    GraphTypeError, ShapeError
        If the dim is not there, or cannot be cut or joined.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> g = Graph()
    >>> x = g.input("x", shape=("batch", 2))
    >>> batching = Batching((x * x).mean(), [x + 1], split="batch", microbatches=2, reduce="mean")
    >>> [part.rows for part in batching.cut({"x": np.zeros((5, 2), "float32")})]
    [3, 2]
    """

    def __init__(
        self,
        loss: Node,
        outputs: Iterable[Node] = (),
        *,
        split: str,
        microbatches: int,
        reduce: Literal["mean", "sum"],
    ) -> None:
        if reduce not in ("mean", "sum"):
            raise ValueError(f"reduce is {reduce!r}; it can be 'mean' or 'sum'")
        self.split, self.microbatches, self.reduce = split, microbatches, reduce
        self.outputs = tuple(outputs)
        nodes = topological_order([loss, *self.outputs])
        self.inputs = tuple(node for node in nodes if node.op is INPUT)
        self.axes = {node: axis_of(node, split) for node in self.inputs}
        self.depending = depending_on(nodes, split)
        check_inputs(self.inputs, split)
        if loss.ndim or loss.dtype.kind not in "fV":
            raise GraphTypeError(f"the loss has to be a float scalar, got {loss!r}")
        batch_loss, self.once_loss = terms_of(loss, self.depending)
        if batch_loss is None:
            raise ShapeError(f"the loss {loss!r} does not depend on an input with dim {split!r}")
        self.loss, self.batch_loss = loss, batch_loss
        self._joins = {node: self._way_to_join(node) for node in self.outputs}

    def cut(self, feeds: Mapping[Any, Any]) -> list[Microbatch]:
        """Return the microbatches of a batch.

        Parameters
        ----------
        feeds : mapping
            Node or name to array, for all inputs that are needed; others of the graph may stand
            there too.

        Raises
        ------
        FeedError
            If a feed does not fit its input, or there are fewer rows than microbatches.
        """
        symbols: dict[str, int] = {}
        given = by_node(feeds, {node.name: node for node in self.loss.graph.inputs}, "feed")
        # As in machines, what other outputs of the graph need may be fed too, and is checked.
        inputs = [*self.inputs, *(node for node in given if node not in self.axes)]
        arrays = dict(zip(self.inputs, bind_feeds(inputs, given, symbols)))
        rows, m = symbols[self.split], self.microbatches
        if rows < m:
            raise FeedError(
                f"{self.split} is {rows}: cannot be cut into {m} microbatches; feed at least as "
                "many rows, or take fewer microbatches"
            )
        parts = []
        for start, size in stretches(rows, m):
            part = {
                node: sliced(array, self.axes[node], start, size) for node, array in arrays.items()
            }
            weight = size / rows if self.reduce == "mean" else 1.0
            parts.append(Microbatch(part, size, weight))
        return parts

    def seeds(self, number: int, part: Microbatch) -> dict[Node, Array]:
        """Return what the backward pass of a microbatch starts with."""
        seeds = {self.batch_loss: np.asarray(part.weight, self.batch_loss.dtype)}
        if self.once_loss is not None:
            seeds[self.once_loss] = np.asarray(float(number == 0), self.once_loss.dtype)
        return seeds

    def join_loss(
        self, losses: Sequence[Array], parts: Sequence[Microbatch], once: Array | None
    ) -> Array:
        """Return the loss of the batch: those of microbatches in order, then what counts once."""
        found = self._reduced(losses, parts)
        return found if once is None else found + once

    def join(self, node: Node, values: Sequence[Array], parts: Sequence[Microbatch]) -> Array:
        """Return the value of an output for the batch, given those of its microbatches."""
        way = self._joins[node]
        if way == "same":
            return values[0]
        if way == "reduce":
            return self._reduced(values, parts)
        return np.concatenate(values, axis=way)

    def axis_of(self, node: Node) -> int | None:
        """Return along which axis an input or output is cut and joined, if it is."""
        way = self._joins.get(node, self.axes.get(node))
        return way if isinstance(way, int) else None

    def _reduced(self, values: Sequence[Array], parts: Sequence[Microbatch]) -> Array:
        if self.reduce == "mean":
            values = [
                value * np.asarray(part.weight, value.dtype) for value, part in zip(values, parts)
            ]
        return np.asarray(fold(add, values))

    def _way_to_join(self, node: Node) -> int | Literal["same", "reduce"]:
        axis = axis_of(node, self.split)
        if axis is not None:
            return axis
        if node not in self.depending:
            return "same"
        kinds = "fcV" if self.reduce == "mean" else "fcViu"
        if node.dtype.kind not in kinds:
            raise GraphTypeError(
                f"output {node!r} depends on {self.split!r} without having that dim, so its "
                f"microbatches are reduced to their {self.reduce}, which {node.dtype} does not "
                "have; convert it with .astype"
            )
        return "reduce"


def check_inputs(inputs: Iterable[Node], split: str) -> None:
    """Raise `ShapeError` where no input has the dim `split`."""
    dims = [dim for node in inputs for dim in node.dims]
    if not any(str(dim) == split for dim in dims):
        known = sorted({str(dim) for dim in dims if _is_symbol(dim)})
        there = f"symbolic dims are {', '.join(map(repr, known))}: name the one to split along"
        if not known:
            there = "symbolic dims are none: give the batch one, as in g.input('x', ('batch', 64))"
        raise ShapeError(f"no input has the dim {split!r}{near_names(split, known)}; {there}")


def stretches(rows: int, parts: int) -> list[tuple[int, int]]:
    """Return first row and number of rows of each part; the larger come first."""
    ends = [rows * (j + 1) // parts for j in range(parts)]
    sizes = sorted((end - start for start, end in zip([0, *ends], ends)), reverse=True)
    return [(sum(sizes[:j]), size) for j, size in enumerate(sizes)]


def sliced(array: Array, axis: int | None, start: int, size: int) -> Array:
    """Return a view of rows along an axis, or the whole where there is none."""
    return array if axis is None else array[(slice(None),) * axis + (slice(start, start + size),)]


def _is_symbol(dim: object) -> bool:
    return isinstance(dim, Dim) and str(dim).isidentifier()


def _mentions(node: Node, split: str) -> bool:
    return any(re.search(rf"\b{re.escape(split)}\b", str(dim)) for dim in node.dims)


def axis_of(node: Node, split: str) -> int | None:
    """Return the axis of a node that is the dim, or raise where it cannot be cut or joined."""
    if not _mentions(node, split):
        return None
    axes = [axis for axis, dim in enumerate(node.dims) if str(dim) == split]
    if len(axes) != 1 or sum(split in re.findall(r"\w+", str(dim)) for dim in node.dims) != 1:
        raise ShapeError(
            f"{node.name!r} has the shape {list(map(str, node.dims))}; a batch is cut and joined "
            f"along {split!r} only where that is one of the dims, once and by itself"
        )
    return axes[0]


def depending_on(nodes: Iterable[Node], split: str) -> set[Node]:
    """Return which of the nodes, given inputs first, differ from microbatch to microbatch."""
    word = re.compile(rf"\b{re.escape(split)}\b")
    found: set[Node] = set()
    for node in nodes:
        sizes = (part for value in node.attrs.values() for part in _dims_in(value))
        if (
            _mentions(node, split)
            or any(word.search(str(size)) for size in sizes)
            or any(part in found for part in node.inputs)
        ):
            found.add(node)
    return found


def _dims_in(value: Any) -> Iterable[Dim]:
    """Return the symbolic sizes in an attribute."""
    parts = value if isinstance(value, tuple) else (value,)
    return [part for part in parts if isinstance(part, Dim)]


def reduction_of(node: Node, split: str, depending: set[Node]) -> Reduce | None:
    """Return whether a node is a mean or a sum over the rows, None where its ops do not show it.

    They show it where a mean, a sum or a cross entropy takes the dim away, and what follows is
    linear: sums of such terms, products with what does not depend on the dim, other sums and means.
    """
    found: dict[Node, Reduce | None] = {}
    for part in topological_order([node]):
        if part in depending and not _mentions(part, split):
            found[part] = _reduction(part, split, depending, found)
    return found.get(node)


def _reduction(
    node: Node, split: str, depending: set[Node], found: Mapping[Node, Reduce | None]
) -> Reduce | None:
    name, first = node.op.name, node.inputs[0] if node.inputs else node
    kinds = [found.get(part) for part in node.inputs if part in depending]
    if name in ("sum", "mean", "cross_entropy") and _mentions(first, split):
        alone = [str(dim) for dim in first.dims].count(split) == 1
        how = node.attrs["reduction"] if name == "cross_entropy" else name
        return ("sum" if how == "sum" else "mean") if alone and how != "none" else None
    same = kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else None
    alone = len(kinds) == 1 < len(node.inputs)
    if name in ("add", "subtract"):
        return None if alone and same == "sum" else same
    if name in ("neg", "sum", "mean", "astype"):
        return same
    linear = name == "multiply" or (name == "divide" and first in depending)
    return same if linear and alone else None


def terms_of(loss: Node, depending: set[Node]) -> tuple[Node | None, Node | None]:
    """Return the terms of a loss that depend on the batch, and those that do not.

    Looks through sums, differences and products with what does not depend; anything else is one
    term.  New nodes are built only where a product has terms of both kinds.
    """
    parts: dict[Node, tuple[Node | None, Node | None]] = {}
    for node in _linear_part(loss, depending):
        if node not in depending:
            parts[node] = None, node
        elif node.op.name in _LINEAR and all(part in parts for part in node.inputs):
            parts[node] = _split_terms(node, [parts[part] for part in node.inputs])
        else:
            parts[node] = node, None
    return parts[loss]


def _linear_part(loss: Node, depending: set[Node]) -> tuple[Node, ...]:
    """Return the scalars between the loss and its terms, the terms included, inputs first."""
    found: dict[int, Node] = {}
    stack = [loss]
    while stack:
        node = stack.pop()
        if node.id not in found:
            found[node.id] = node
            if node.op.name in _LINEAR and node in depending:
                stack.extend(part for part in node.inputs if not part.ndim)
    return tuple(found[number] for number in sorted(found))


def _split_terms(
    node: Node, parts: list[tuple[Node | None, Node | None]]
) -> tuple[Node | None, Node | None]:
    name = node.op.name
    if all(once is None for _, once in parts):
        return node, None
    if name == "neg":
        return _applied(node, parts[0][0]), _applied(node, parts[0][1])
    (batch, once), (other_batch, other_once) = parts
    if name in ("add", "subtract"):
        return _combined(node, batch, other_batch), _combined(node, once, other_once)
    factor = other_once if other_batch is None else None
    if factor is not None:
        return _applied(node, batch, factor), _applied(node, once, factor)
    if name == "multiply" and batch is None and once is not None:
        return _applied(node, other_batch, once), _applied(node, other_once, once)
    return node, None


def _applied(node: Node, *inputs: Node | None) -> Node | None:
    """Return the node's op on other inputs, or nothing if one of them is nothing."""
    given = [part for part in inputs if part is not None]
    if len(given) < len(inputs):
        return None
    return node.graph.apply(node.op, given, node.attrs)


def _combined(node: Node, left: Node | None, right: Node | None) -> Node | None:
    """Return the sum or difference of what is there."""
    if left is None and right is not None and node.op.name == "subtract":
        return ops.neg(right)
    if left is None or right is None:
        return right if left is None else left
    return _applied(node, left, right)
