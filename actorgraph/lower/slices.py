"""Sums of adjoints of disjoint slices, as one array into which each slice is written once.

A graph that reads an array slice by slice, such as a recurrent net its projected inputs, has an
adjoint for each slice: an array of zeros except for the slice.  Their sum adds mostly zeros.  If no
two slices share an element, an element of the sum is ``x + 0`` for the one ``x`` written there, and
0 elsewhere.  `SLICES` computes just that, with the same bits, -0 turning into 0 included.  The
chain of additions is left to right, so the same holds for every prefix of it.

This is the last pass over the steps of a task: adjoints of other tasks arrive in messages and are
not part of a chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.op import FRESH_OUT, REGISTRY, Op
from actorgraph.rewrite.exact import restated
from actorgraph.types import Dim

_FULL = slice(None)


def _forward(xp: Any, *slices: Any, indices: Any, covered: bool, dims: Any, out: Any = None) -> Any:
    if out is None:
        out = xp.empty(dims, slices[0].dtype)
    if not covered:
        out.fill(0)
    zero = xp.zeros((), out.dtype)
    for index, values in zip(indices, slices, strict=True):
        xp.add(values, zero, out[(*index, ...)])  # the ellipsis makes a single element an array
    return out


SLICES = Op(
    "slices", lambda arity, attrs: "a[*s] -> a[*out]", _forward, memory=FRESH_OUT,
    doc="An array with slices written to it, and zeros elsewhere.", traced=True,
)  # fmt: skip
"""The op of such sums; it has no derivative, as it is made after differentiation."""

_ADD, _ADJOINT = REGISTRY["add"], REGISTRY["getitem_adjoint"]


def with_slices_written_once(
    parts: Sequence[Sequence[Node]], kept: Collection[int]
) -> Sequence[Sequence[Node]]:
    """Return the steps of each task with such sums replaced; nodes with ids in `kept` stay."""
    slices = [{n.id for n in steps if n.op is _ADJOINT and len(n.inputs) == 1} for steps in parts]
    if max(map(len, slices), default=0) < 2:
        return parts
    uses = Counter([part.id for steps in parts for step in steps for part in step.inputs])
    uses.update(kept)
    return [
        _written(steps, _chains(steps, own, uses)) if len(own) > 1 else steps
        for steps, own in zip(parts, slices, strict=True)
    ]


def _chains(
    steps: Sequence[Node], slices: Collection[int], uses: Counter[int]
) -> dict[int, list[Node]]:
    """Return, by the id of a sum, the adjoints that it adds from left to right."""
    chains: dict[int, list[Node]] = {}
    for step in steps:
        if step.op is _ADD:
            first, last = step.inputs
            if uses[first.id] == uses[last.id] == 1 and last.id in slices:
                before = chains.pop(first.id, [first] if first.id in slices else [])
                if before:
                    before.append(last)
                    chains[step.id] = before
    return chains


def _written(steps: Sequence[Node], chains: dict[int, list[Node]]) -> list[Node]:
    """Return the steps, with each chain of disjoint slices as one step."""
    replaced: set[int] = set()
    sums: dict[int, Node] = {}
    for step in steps:
        terms = chains.get(step.id)
        covered = None if terms is None else _covers(terms)
        if terms is None or covered is None:
            continue
        sums[step.id] = restated(
            step, SLICES, tuple([term.inputs[0] for term in terms]),
            {
                "indices": tuple([term.attrs["index"] for term in terms]),
                "covered": covered,
                "dims": step.dims,
            },
        )  # fmt: skip
        replaced.update([term.id for term in terms])
        inner = step.inputs[0]
        while inner.id not in replaced:  # the additions before the last
            replaced.add(inner.id)
            inner = inner.inputs[0]
    return [sums.get(step.id, step) for step in steps if step.id not in replaced]


def _covers(terms: Sequence[Node]) -> bool | None:
    """Return whether disjoint slices cover the array, None if they may share an element.

    Slices are taken for disjoint if they are so along one axis.
    """
    dims = terms[0].dims
    spans = [_spans(term) for term in terms]
    for axis, dim in enumerate(dims):
        along = [one[axis] for one in spans if isinstance(one[axis], range)]
        if not isinstance(dim, int) or len(along) < len(terms) or sum(map(len, along)) > dim:
            continue
        seen = np.zeros(dim, np.int8)
        for one in along:
            seen[one.start : one.stop : one.step] += 1
        if seen.max(initial=0) <= 1:
            full_spans = [_span(_FULL, other) for other in dims]
            return bool(seen.all()) and all(
                one[other] == full_spans[other]
                for one in spans
                for other in range(len(dims))
                if other != axis
            )
    return None


def _spans(term: Node) -> list[Any]:
    """Return the span of a slice along each axis."""
    parts = [part for part in term.attrs["index"] if part is not None]
    parts += [_FULL] * (term.ndim - len(parts))
    return [_span(part, dim) for part, dim in zip(parts, term.dims, strict=True)]


def _span(part: Any, dim: int | Dim) -> Any:
    """Return a range of places; for a symbolic dim Ellipsis if it is all of it, else None."""
    if not isinstance(dim, int):
        return ... if isinstance(part, slice) and part == _FULL else None
    if isinstance(part, int):
        return range(part, part + 1)
    if isinstance(part, Dim) or isinstance(part.start, Dim) or isinstance(part.stop, Dim):
        return None
    span = range(*part.indices(dim))
    return span if span.step > 0 else span[::-1]
