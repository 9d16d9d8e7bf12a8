"""Embedding: rows of a table by integers, and bags of them."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, KEPT, Op, Sample
from actorgraph.ops._arrays import through_float32
from actorgraph.ops._rules import declare, raises, returns
from actorgraph.ops.assignment import index_add
from actorgraph.ops.broadcasting import broadcast_to, expand_dims, sum
from actorgraph.ops.counting import any as any_of
from actorgraph.ops.creation import arange, full_like
from actorgraph.ops.elementwise import astype, maximum, where
from actorgraph.ops.indexing import ARRAY, add_at, check_classes
from actorgraph.ops.reductions import max as maximum_over
from actorgraph.ops.sorting import searchsorted
from actorgraph.types import UNKNOWN

__all__ = ["embedding", "embedding_bag"]


def _rows_forward(xp: Any, weight: Any, index: Any, padding: int | None) -> Any:
    check_classes(xp, index, weight.shape[0])
    return weight.take(index.astype(xp.int64, copy=False), 0)


@through_float32
def _add_forward(xp: Any, ct: Any, index: Any, *like: Any, size: Any, padding: int | None) -> Any:
    count = like[0].shape[0] if like else size
    check_classes(xp, index, count)
    out = xp.zeros((count, ct.shape[-1]), ct.dtype)
    add_at(xp, out, ct, [index], (ARRAY,))
    if padding is not None:
        out[padding] = 0
    return out


def _rows_vjp(ct: Node, y: Node, weight: Node, index: Node, padding: int | None) -> Node:
    if weight.dims[0] is UNKNOWN:
        return build(_ADD, ct, index, weight, size=None, padding=padding)
    return build(_ADD, ct, index, size=weight.dims[0], padding=padding)


def _moved(weight: Node, index: Node, padding: int | None) -> Node:
    """Return the rows of a table, zeros for padding: what the op does with a tangent."""
    rows = build(_ROWS, weight, index, padding=padding)
    return rows if padding is None else where(expand_dims(index == padding, -1), 0, rows)


_ROWS: Op = declare(
    "embedding", "x[v, d] -> i[*s] -> x[*s, d]", _rows_forward, vjp=(_rows_vjp, None),
    jvp=lambda tans, y, weight, index, padding: _moved(tans[0], index, padding),
    samples=tuple(
        Sample(((4, 3), shape), {"padding": None}, ints={1: 4}) for shape in ((5,), (2, 3), (0,))
    ),
    memory=FRESH, traced=True,
)  # fmt: skip

_ADD: Op = declare(
    "embedding_adjoint",
    lambda arity, attrs: f"x[*s, d] -> i[*s] -> {'a[v, e] -> ' if arity == 3 else ''}x[*out]",
    _add_forward,
    shape=lambda checks, ct, index, *like, size, padding: (like[0][0] if like else size, ct[-1]),
    vjp=lambda argnum, u, y, ct, index, *like, size, padding: (
        None if argnum else _moved(u, index, padding)
    ),
    linear=(0,), samples=(
        Sample(((5, 3), (5,)), {"size": 4, "padding": 2}, ints={1: 4}),
        Sample(((2, 2, 3), (2, 2), (4, 3)), {"size": None, "padding": None}, ints={1: 4}),
    ),
    memory=KEPT, doc="Rows added into a table of zeros.", traced=True,
)  # fmt: skip


def _entry(padding_idx: int, weight: Node) -> int:
    """Return the entry that is padding, counted from the start."""
    entries = weight.dims[0] if weight.ndim else 0
    if isinstance(entries, (int, np.integer)):
        if not -entries <= padding_idx < entries:
            raise ShapeError(f"embedding: padding_idx {padding_idx} is no entry of {weight!r}")
        return int(padding_idx) % entries
    if padding_idx < 0:
        raise ShapeError(f"embedding: padding_idx {padding_idx} counts from an end not known yet")
    return padding_idx


@returns("Node of shape (*index.shape, features)")
@raises("A dtype does not fit.", "`weight` is no matrix, or `padding_idx` is out of range.")
def embedding(index: Any, weight: Node, padding_idx: int | None = None) -> Node:
    """Return the rows of a table, as ``torch.nn.functional.embedding``.

    The gradient of the table is dense; rows that are taken more than once add up.

    Parameters
    ----------
    index : node or array
        Integers in ``[0, entries)``, any shape; others raise in the run.
    weight : node
        Float or complex, shape (entries, features).
    padding_idx : int, optional
        An entry whose row gets gradient 0; negative counts from the end.
    """
    padding = None if padding_idx is None else _entry(padding_idx, weight)
    return build(_ROWS, weight, index, padding=padding)


@returns("Node of shape (bags, features)")
@raises(
    types="There is no such mode, or it takes no weights; a dtype does not fit.",
    shapes="`index` is no matrix, or with `offsets` no vector.",
)  # fmt: skip
def embedding_bag(
    index: Any, weight: Node, offsets: Any = None, *, mode: str = "mean",
    per_sample_weights: Any = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Node:  # fmt: skip
    """Return sums, means or maxima of bags of rows, as ``torch.nn.functional.embedding_bag``.

    Maxima with `offsets` compare every row with every bag.

    Parameters
    ----------
    index : node or array
        Integers in ``[0, entries)``: a matrix with a bag in each row, or with `offsets` all bags
        one after the other.
    weight : node
        Float, shape (entries, features).
    offsets : node or array, optional
        Where each bag starts, ascending from 0.
    mode : {"mean", "sum", "max"}
        An empty bag gives zeros.
    per_sample_weights : node or array, optional
        A factor of each row, of the shape of `index`, for sums.
    include_last_offset : bool
        The last entry of `offsets` is where the last bag ends.
    padding_idx : int, optional
        An entry that belongs to no bag, and gets no gradient.
    """
    if mode not in ("mean", "sum", "max") or (per_sample_weights is not None and mode != "sum"):
        raise GraphTypeError(
            f"mode is 'mean', 'sum' or 'max', and 'sum' with weights, got {mode!r}"
        )
    lift = weight.graph.lift
    index = lift(index)
    if index.ndim != (2 if offsets is None else 1):
        raise ShapeError(f"takes a matrix, or a vector with offsets, of indices, got {index!r}")
    rows = embedding(index, weight, padding_idx)
    if per_sample_weights is not None:
        rows = rows * expand_dims(lift(per_sample_weights), -1)
    counted = full_like(index, True, dtype="bool")
    if padding_idx is not None:
        counted = index != _entry(padding_idx, weight)
    bags = None
    if offsets is not None:
        starts = lift(offsets)
        starts = starts[:-1] if include_last_offset else starts
        bags = searchsorted(starts, arange(weight.graph, index.dims[0]), "right") - 1
        if mode == "max":
            belongs = bags == expand_dims(arange(weight.graph, starts.dims[0]), -1)
            counted, rows = counted & belongs, expand_dims(rows, 0)
    kept = expand_dims(counted, -1)
    if mode == "max":
        top = maximum_over(where(kept, rows, -inf), 1)
        return where(any_of(counted, 1, keepdims=True), top, 0)
    parts = [where(kept, rows, 0)]
    if mode == "mean":
        parts.append(astype(kept, rows.dtype))
    if bags is None:
        sums = [sum(part, 1) for part in parts]
    else:
        zero = weight.graph.constant(0, dtype=rows.dtype)
        empty = [broadcast_to(zero, (starts.dims[0], part.dims[-1])) for part in parts]
        sums = [index_add(one, 0, bags, part) for one, part in zip(empty, parts, strict=True)]
    return sums[0] / maximum(sums[1], 1) if mode == "mean" else sums[0]
