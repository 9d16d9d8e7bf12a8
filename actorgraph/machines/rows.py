"""`Rows`: how the outputs of a batch follow from those of its slices.

A batch is cut along one symbolic dim.  A node that depends on this dim is one of these:

- It has the dim: its rows are those of the slices, one after the other.
- It is a *whole*: it does not have the dim, and depends on feeds alone, such as the number of rows,
  or the sum of a mask.  It is computed for the whole batch before the slices start, and is the same
  for all of them.
- It is computed from rows in another way.  Then it has to be linear in sums and means over rows,
  and is split into `Terms`: a node that is a sum over rows, one that is a mean, and one that is the
  same for all slices.  Nothing else can be joined; the root of a mean, for instance, does not
  follow from the roots of the slices' means.

So ``(m * l).sum() / m.sum()`` is a sum over rows, whose divisor is a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from actorgraph import ops
from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, topological_order
from actorgraph.op import CONSTANT, INPUT
from actorgraph.ops.elementwise import ASTYPE
from actorgraph.ops.reductions import DIVIDE_BY_SIZE
from actorgraph.types import UNKNOWN, Dim, Record, Shape, size_of

Reduce: TypeAlias = Literal["mean", "sum"]
"""How an op that reduces rows combines them."""

Kind: TypeAlias = Literal["rows", "mean", "sum", "once"]
"""How slices join: concatenated, weighted by their share of rows, added, or only the first."""

_UNLIKE = (
    "depends on what a slice computes differently from the batch: pairs of rows, more or fewer "
    "rows, or shares of their number; so it is no mean or sum over"
)
_WAY_OUT = (
    " the rows; write it with .sum() or .mean() of single rows, or say "
    "reduce='mean' or 'sum' if it is one"
)

Terms: TypeAlias = dict[Kind, Node]
"""Nodes whose sum is a given node, each of its type: what slices compute for it."""


class Rows:
    """Classifies nodes along a dim.

    `active` are the nodes that are differentiated by; what depends on these is no whole.  `reduce`
    says how ops reduce rows whose declarations do not tell.  The attribute `whole` has the wholes
    that slices need, each with the node that computes it from feeds.
    """

    def __init__(
        self, wanted: Iterable[Node], dim: str, *, active: Iterable[Node] = (),
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        self.dim, self._reduce = dim, reduce
        self._word = re.compile(rf"\b{re.escape(dim)}\b")
        self._active = set(active)
        self._closed = False
        self._noted: set[Node] = set()
        self._having: set[Node] = set()  # nodes with the dim
        self._fed: dict[Node, Node] = {}  # nodes of feeds alone, and what computes them
        self._whole: set[Node] = set()
        self._varying: set[Node] = set()
        self._altered: set[Node] = set()  # rows differ in a slice
        self._counted: dict[Shape, bool] = {}
        self.whole: dict[Node, Node] = {}
        wanted = dict.fromkeys(wanted)
        order = topological_order(wanted)
        self._note(order)
        used = {part for node in order if node not in self._whole for part in node.inputs}
        self.whole = {
            node: self._fed[node] for node in order
            if node in self._whole and (node in used or node in wanted)
        }  # fmt: skip
        # Slices get no others: for nodes asked for later, these follow from the slice's rows.
        self._varying |= self._whole.difference(self.whole)
        self._closed = True

    def has(self, node: Node) -> bool:
        """Return whether the dim is in the node's dims."""
        self._note(topological_order([node]))
        return node in self._having

    def varies(self, node: Node) -> bool:
        """Return whether the node may differ from slice to slice."""
        self._note(topological_order([node]))
        return node in self._varying

    def terms(self, output: Node) -> Terms:
        """Return what slices compute for a node, or raise if that does not determine its value."""
        if self.has(output):
            if output in self._altered and self._reduce is None:
                raise self._refusal(output, output, _UNLIKE)
            return {"rows": output}
        if not self.varies(output):
            return {"once": output}
        terms: dict[Node, Terms] = {}
        for node in self._between(output):
            terms[node] = self._terms(output, node, terms)
        return terms[output]

    # -- classification ---------------------------------------------------------------------------

    def _note(self, order: Sequence[Node]) -> None:
        for node in order:
            if node in self._noted:
                continue
            self._noted.add(node)
            having = any(self._mentioned(shape) for shape in shapes_of(node))
            sized = having or self._is_sized(node)
            fed = self._computed_of_feeds(node)
            if fed is not None:
                self._fed[node] = fed
            if having:
                self._having.add(node)
            if fed is not None and not having:
                if sized or any(p in self._whole or p in self._varying for p in node.inputs):
                    self._whole.add(node)
                continue
            if sized or any(part in self._varying for part in node.inputs):
                self._varying.add(node)
            if self._alters(node, sized) or any(part in self._altered for part in node.inputs):
                self._altered.add(node)

    def _alters(self, node: Node, sized: bool) -> bool:
        """Return whether a slice has other rows than the batch: shares, pairs, fewer or more."""
        if node in self._having and not all(
            self._counts_rows(shape) for shape in shapes_of(node) if self._mentioned(shape)
        ):
            return True
        return sized and (
            node.op is DIVIDE_BY_SIZE
            or (node in self._having and node.attrs.get("reduction") == "mean")
        )

    def _computed_of_feeds(self, node: Node) -> Node | None:
        """Return the node that computes this one from feeds alone, None if it needs more."""
        if node in self._active or self._closed:
            return None
        if node.is_leaf:
            return node if node.op in (CONSTANT, INPUT) else None
        if node.op.checked:
            return None  # ops of users run only as a part of the run
        like = node.inputs[0] if node.inputs else node
        if 0 in node.op.shape_only and like not in self._fed and UNKNOWN not in like.dims:
            empty = node.graph.constant(np.zeros((), like.dtype))
            return _rebuilt(node, [ops.broadcast_to(empty, like.dims)])
        parts = [self._fed.get(part) for part in node.inputs]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        same = all(one is other for one, other in zip(known, node.inputs, strict=True))
        return node if same else _rebuilt(node, known)

    def _mentioned(self, dims: Iterable[object]) -> bool:
        return any(isinstance(dim, Dim) and self._word.search(str(dim)) for dim in dims)

    def _is_sized(self, node: Node) -> bool:
        """Return whether an attribute of the node has the dim."""
        return any(
            self._mentioned(value if isinstance(value, tuple) else (value,))
            for value in node.attrs.values()
        )

    # -- terms ------------------------------------------------------------------------------------

    def _between(self, output: Node) -> list[Node]:
        """Return the nodes from those that reduce rows to an output, inputs first."""

        def inputs_of(node: Node) -> list[Node]:
            if any(part in self._having for part in node.inputs):
                return []
            return [part for part in node.inputs if part in self._varying]

        return [*topological_order([output], inputs_of)]

    def _terms(self, output: Node, node: Node, known: Mapping[Node, Terms]) -> Terms:
        if any(part in self._having for part in node.inputs):
            return {self._reduction(output, node): node}
        varying = [place for place, part in enumerate(node.inputs) if part in known]
        fixed = node.op.jointly
        if fixed is not None and not any(place in varying for place in fixed):
            return self._joined(node, fixed, known)
        if len(varying) == 1 and varying[0] in node.op.linear:
            (place,) = varying
            terms = known[node.inputs[place]]
            if self._is_sized(node):
                if node.op is DIVIDE_BY_SIZE and terms.keys() == {"sum"}:
                    return {"mean": _with(node, {place: terms["sum"]})}
            elif not _truncates(node):
                return {kind: _with(node, {place: term}) for kind, term in terms.items()}
        if node.op.checked and self._reduce is not None:
            return {self._reduce: node}
        raise self._refusal(output, node, self._why(node, varying))

    def _reduction(self, output: Node, node: Node) -> Reduce:
        """Return whether a node that reduces rows is a sum or a mean over them."""
        inputs, total = node.inputs, node.op.total
        plain = not any(part in self._altered for part in inputs)
        if plain and total is not None and all(self._counts_rows(one.dims) for one in inputs):
            total_kind: Reduce = node.attrs["reduction"] if total == "reduction" else total
            return total_kind
        if self._reduce is None or any(dim is UNKNOWN for dim in node.dims):
            altered = any(part in self._altered for part in inputs)
            why = _UNLIKE if altered else "does not show whether it is a mean or a sum over"
            raise self._refusal(output, node, why + _WAY_OUT)
        if node.dtype.kind not in ("fcV" if self._reduce == "mean" else "fcViu"):
            why = f"has no {self._reduce} of {node.dtype}; convert it with .astype"
            raise self._refusal(output, node, why)
        return self._reduce

    def _counts_rows(self, shape: Shape) -> bool:
        """Return whether arrays of a shape have the same number of entries for each row."""
        counts = self._counted.get(shape)
        if counts is None:
            size = size_of(tuple(dim for dim in shape if self._mentioned([dim])))
            products = size.terms if isinstance(size, Dim) else ()
            counts = self._counted[shape] = bool(products) and all(
                [str(atom) for atom in atoms if self._word.search(str(atom))] == [self.dim]
                for atoms, _ in products
            )
        return counts

    def _joined(self, node: Node, fixed: Sequence[int], known: Mapping[Node, Terms]) -> Terms:
        """Return the terms of an op that is linear in all operands together."""
        parts: dict[int, Terms] = {
            place: known.get(part, {"once": part})
            for place, part in enumerate(node.inputs) if place not in fixed
        }  # fmt: skip
        kinds = dict.fromkeys(kind for terms in parts.values() for kind in terms)
        return {
            kind: _only(node, {place: terms.get(kind) for place, terms in parts.items()})
            for kind in kinds
        }

    # -- refusals ---------------------------------------------------------------------------------

    def _why(self, node: Node, varying: Sequence[int]) -> str:
        divisor = node.op.ufunc == "divide" and 1 in varying
        if divisor or (node.op.ufunc == "multiply" and len(varying) == 2):
            what = "divides by" if divisor else "multiplies with"
            return (
                f"{what} {node.inputs[varying[-1]].name!r}, which differs from slice to slice; "
                "what rows are divided by or multiplied with can be computed of feeds alone, such "
                "as the sum of a mask, or without the rows: give numerator and denominator as "
                "outputs of their own"
            )
        return (
            "is not linear in them; make its operand the loss or output, and apply it to "
            "the result of the run: the gradient of f(loss) is that of the loss times f'(loss)"
        )

    def _refusal(self, output: Node, node: Node, why: str) -> GraphTypeError:
        place = "" if node is output else f" {node.name!r},"
        return GraphTypeError(
            f"{output!r} depends on {self.dim!r} without having that dim, and cannot be joined "
            f"from slices of a batch, which give sums and means over their rows:{place} "
            f"the op {node.op.name!r} built at {node.where_built()}, {why}"
        )


def shapes_of(node: Node) -> list[Shape]:
    """Return the shapes of a node's values: several if it is a record."""
    if isinstance(node.type, Record):
        return [field.shape for field in node.type.fields]
    return [node.dims]


def _truncates(node: Node) -> bool:
    """Return whether this is a cast that is not linear."""
    before = node.inputs[0].dtype.kind
    return node.op is ASTYPE and node.dtype.kind not in "fcV" and before not in "iu"


def _rebuilt(node: Node, inputs: Sequence[Node]) -> Node:
    with node.graph.building(node.line):
        return node.graph.apply(node.op, inputs, node.attrs)


def _with(node: Node, changed: Mapping[int, Node]) -> Node:
    """Return the node's op on changed operands, or the node itself if none differs."""
    inputs = [changed.get(place, part) for place, part in enumerate(node.inputs)]
    same = all(one is other for one, other in zip(inputs, node.inputs, strict=True))
    return node if same else _rebuilt(node, inputs)


def _only(node: Node, terms: Mapping[int, Node | None]) -> Node:
    """Return the node with these terms as its operands; None is zero."""
    there = {place: term for place, term in terms.items() if term is not None}
    with node.graph.building(node.line):
        if node.op.ufunc in ("add", "subtract") and len(there) == 1:
            ((place, result),) = there.items()
            result = ops.neg(result) if place and node.op.ufunc == "subtract" else result
        else:
            zeros: dict[int, Any] = {
                place: ops.zeros_like(node.inputs[place]) for place in terms if place not in there
            }
            result = _with(node, there | zeros)
        return ops.broadcast_like(result, node)
