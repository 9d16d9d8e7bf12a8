"""Cutting a batch into slices, and joining their results.

A batch is cut along one symbolic dim.  Feeds with that dim are sliced without copying; other feeds
go to every slice.  Sizes of slices differ by at most one row, the larger ones first.  `rows` tells
how outputs are joined, and which cannot be: sums over rows are added, means are weighted by the
share of rows, and what is the same for all slices is taken from the first.  Values without the dim
that depend on feeds alone, such as the sum of a mask, are computed for the whole batch before
anything starts, in the calling thread.

Results are joined in the order of slices, so the bits do not depend on which slice ends first.  An
op across the rows of a batch sees those of its slice: batch norm normalises by the mean and the
variance of each slice, unless these are fed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from operator import add, attrgetter
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError, near_names
from actorgraph.graph import Node, topological_order
from actorgraph.lower.joint import Joint, Mode, join
from actorgraph.lower.kernels import kernel
from actorgraph.machines.feeds import bind_feeds, check_dims
from actorgraph.machines.rows import Kind, Reduce, Rows, Terms
from actorgraph.node import Parameter
from actorgraph.node_actor import blamed
from actorgraph.op import CONSTANT, INPUT
from actorgraph.types import Dim

Array = np.ndarray[Any, Any]

_USE = "a batch is cut and joined"


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """The inputs of a slice of a batch."""

    number: int
    feeds: dict[Node, Array]
    start: int
    rows: int
    share: float  # of the rows of the batch
    whole: dict[Node, Array]  # values computed for the whole batch


class Batching:
    """Cuts batches along a symbolic dim, and joins values and gradients of their slices.

    `reduce` says whether ops whose declarations do not tell reduce the dim by a mean or by a sum;
    `tangents` are the nodes that tangents are given for.  Raises `GraphTypeError` or `ShapeError`
    for what cannot be cut or joined.

    - `inputs`: the feeds that outputs and wrt depend on
    - `whole`: the nodes that are computed for the whole batch, and passed to every slice
    """

    def __init__(
        self, outputs: Iterable[Node], wrt: Iterable[Node], *, dim: str,
        reduce: Reduce | None = None, tangents: Iterable[Node] = (),
    ) -> None:  # fmt: skip
        outputs, wrt = tuple(outputs), tuple(wrt)
        self.dim = dim
        nodes = dict.fromkeys((*outputs, *wrt))
        _refuse_steps(nodes)
        self.inputs = tuple(node for node in topological_order(nodes) if node.op is INPUT)
        _check_inputs(self.inputs, dim)
        self.rows = Rows(nodes, dim, active=(*wrt, *tangents), reduce=reduce)
        self._axes = {node: axis_in(node, dim, _USE) for node in self.inputs}
        for node in nodes:
            self.axis_of(node)  # raises if it cannot be cut
        for node in wrt:
            if self._axes[node] is None and self.rows.varies(node):
                raise GraphTypeError(
                    f"wrt {node!r} depends on {dim!r} without having that dim, so slices have no "
                    "gradient of it to join; leave it out of wrt, or run the whole batch"
                )
        self._terms: dict[Node, Terms] = {node: self.rows.terms(node) for node in nodes}
        self.whole = tuple(self.rows.whole)
        self._before: Joint | None = None  # computes what the whole batch needs
        if self.whole:
            self._before = join(list(self.rows.whole.values()), (), Mode())

    def terms(self, node: Node) -> Terms:
        """Return what slices compute for an output or wrt."""
        return self._terms[node]

    def axis_of(self, node: Node) -> int | None:
        """Return the axis along which a node is cut and joined, or None."""
        if node not in self._axes:
            self._axes[node] = axis_in(node, self.dim, _USE)
        return self._axes[node]

    def mode(self, mode: Mode) -> Mode:
        """Return the mode of slices, in which the terms of seeded nodes are seeded."""
        nodes = mode.nodes
        if mode.kind == "backward":
            terms = {term for node in nodes for term in self._terms[node].values()}
            nodes = tuple(sorted(terms, key=attrgetter("id")))
        return Mode(mode.kind, nodes, self.whole, mode.fetch)

    # -- cutting ----------------------------------------------------------------------------------

    def bind(self, feeds: Mapping[Node, Any]) -> tuple[dict[Node, Array], dict[str, int]]:
        """Return the feeds of a batch as arrays, and the sizes that they bind.

        Feeds that no output depends on are checked, too.
        """
        symbols: dict[str, int] = {}
        inputs = list(dict.fromkeys((*self.inputs, *feeds)))
        return dict(zip(inputs, bind_feeds(inputs, feeds, symbols), strict=True)), symbols

    def cut(
        self, arrays: Mapping[Node, Array], symbols: Mapping[str, int], count: int
    ) -> list[BatchSlice]:
        """Return at most `count` slices of a batch, each with at least one row."""
        rows = symbols[self.dim]
        whole = self._of_the_batch(arrays, symbols)
        slices = []
        for number, (start, size) in enumerate(_stretches(rows, max(1, min(count, rows)))):
            feeds = {
                node: _sliced(array, self.axis_of(node), start, size)
                for node, array in arrays.items()
            }
            share = size / rows if rows else 1.0
            slices.append(BatchSlice(number, feeds, start, size, share, whole))
        return slices

    def _of_the_batch(
        self, arrays: Mapping[Node, Array], symbols: Mapping[str, int]
    ) -> dict[Node, Array]:
        joint = self._before
        if joint is None:
            return {}
        check_dims(joint.order, symbols)
        held = {leaf.node: arrays[leaf.source] for leaf in joint.leaves}
        for step in joint.order:
            operands = [
                part.attrs["value"] if part.op is CONSTANT else held[part] for part in step.inputs
            ]
            try:
                held[step] = kernel(step, np, symbols)(*operands)
            except Exception as error:
                raise blamed(joint, None, (step, operands), error) from error
        return {
            node: np.asarray(held[joint.values[computed]])
            for node, computed in self.rows.whole.items()
        }

    def seeds(self, seeds: Mapping[Node, Array], one: BatchSlice) -> dict[Node, Array]:
        """Return the seeds of the backward pass of a slice."""
        by_term: dict[Node, Array] = {}
        for node, seed in seeds.items():
            for kind, term in self._terms[node].items():
                part = self._of_slice(kind, node, seed, one)
                by_term[term] = by_term[term] + part if term in by_term else part
        return by_term

    def _of_slice(self, kind: Kind, node: Node, seed: Array, one: BatchSlice) -> Array:
        if kind == "rows":
            return _sliced(seed, self.axis_of(node), one.start, one.rows)
        if kind == "once":
            return seed if one.number == 0 else np.zeros_like(seed)
        return _weighted(seed, one.share) if kind == "mean" else seed

    def tangents(self, tangents: Mapping[Node, Array], one: BatchSlice) -> dict[Node, Array]:
        """Return the tangents of a slice."""
        sliced = {}
        for node, tangent in tangents.items():
            axis = self.axis_of(node)
            if axis is None and self.rows.varies(node):
                raise GraphTypeError(
                    f"the tangent of {node!r}, which depends on {self.dim!r} without having that "
                    "dim, cannot be given to slices; run the whole batch"
                )
            sliced[node] = _sliced(tangent, axis, one.start, one.rows)
        return sliced

    # -- joining ----------------------------------------------------------------------------------

    def joined(
        self, node: Node, read: Callable[[Node], Sequence[Any]], slices: Sequence[BatchSlice]
    ) -> Any:
        """Return a value, or tangent, of an output or wrt for the batch.

        `read` returns for a term of the node the results of the slices, or None each.
        """
        total: Any = None
        for kind, term in self._terms[node].items():
            values = read(term)
            if values[0] is None:
                continue
            if kind == "rows":
                return self.concatenated(node, values)
            if kind == "mean":
                values = [_weighted(one, part.share) for one, part in zip(values, slices)]
            found = values[0] if kind == "once" else fold(add, values)
            total = found if total is None else total + found
        return total if total is None else np.asarray(total)

    def concatenated(self, node: Node, arrays: Sequence[Array]) -> Array:
        """Return the concatenated rows of slices."""
        return np.concatenate(arrays, self.axis_of(node) or 0)


def _refuse_steps(nodes: Mapping[Node, Any]) -> None:
    """Raise if a slice would update a parameter."""
    computed = set(topological_order(nodes))
    for one, _, on in next(iter(computed)).graph.assignments if computed else ():
        if isinstance(one, Parameter) and on in computed:
            raise GraphTypeError(
                f"{on!r} steps {one.name!r} once a run, and parts of a batch are runs of their own;"
                " step after the whole batch: machine.compile_step(solver)"
            )


def _check_inputs(inputs: Iterable[Node], split: str) -> None:
    """Raise `ShapeError` if no input has the dim `split`."""
    dims = [dim for node in inputs for dim in node.dims]
    if not any(str(dim) == split for dim in dims):
        symbols = [str(dim) for dim in dims if isinstance(dim, Dim)]
        known = sorted({name for name in symbols if name.isidentifier()})
        there = f"symbolic dims are {', '.join(map(repr, known))}: name the one to split along"
        if not known:
            there = "no dim is symbolic: give the batch one, as in g.input('x', ('batch', 64))"
        raise ShapeError(f"no input has the dim {split!r}{near_names(split, known)}; {there}")


def axis_in(node: Node, dim: str, use: str) -> int | None:
    """Return the axis of a node that has a dim, or None; `use` says in errors what it is for."""
    words = [re.findall(r"\w+", str(one)) for one in node.dims]
    axes = [axis for axis, one in enumerate(node.dims) if str(one) == dim]
    if len(axes) > 1 or sum(dim in one for one in words) > len(axes):
        raise ShapeError(
            f"{node.name!r} has the shape {list(map(str, node.dims))}; {use} along {dim!r} only "
            "where that is one of the dims, once and by itself"
        )
    return axes[0] if axes else None


def _stretches(rows: int, parts: int) -> list[tuple[int, int]]:
    """Return the first row and the number of rows of each part, the larger parts first."""
    ends = [rows * (j + 1) // parts for j in range(parts)]
    sizes = sorted((end - start for start, end in zip([0, *ends], ends)), reverse=True)
    return [(sum(sizes[:j]), size) for j, size in enumerate(sizes)]


def _sliced(array: Array, axis: int | None, start: int, size: int) -> Array:
    """Return a view of rows along an axis, or the whole array if the axis is None."""
    return array if axis is None else array[(slice(None),) * axis + (slice(start, start + size),)]


def _weighted(value: Array, share: float) -> Array:
    return np.asarray(value * np.asarray(share, value.dtype))
