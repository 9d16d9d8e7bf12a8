"""Where elements stand and which they are: nonzero, argwhere, isin, masked_scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import as_node, naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops.arithmetic import floor_divide, mod
from actorgraph.ops.assignment import index_put
from actorgraph.ops.broadcasting import broadcast_like
from actorgraph.ops.casting import astype
from actorgraph.ops.creation import full_like
from actorgraph.ops.cumulative import cumsum
from actorgraph.ops.gathering import size_of
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.masking import positions_where
from actorgraph.ops.reshaping import ravel, reshape_like
from actorgraph.ops.selection import minimum
from actorgraph.ops.shaping import stack
from actorgraph.ops.sorting import searchsorted, sort

__all__ = ["argwhere", "flatnonzero", "isin", "masked_scatter", "nonzero"]


@naming_itself
def flatnonzero(x: Node) -> Node:
    """Return the positions in the flattened array of what is not zero, as ``numpy.flatnonzero``.

    Parameters
    ----------
    x : node
        Any shape and dtype; NaN is not zero.

    Returns
    -------
    Node
        Of int64 and one dim, whose size only a run knows (None); it has no gradient.
    """
    flat = ravel(x)
    return positions_where(flat if flat.dtype.kind == "b" else flat != 0, flat)


@raises(shapes="`x` is a scalar.")
@naming_itself
def nonzero(x: Node) -> tuple[Node, ...]:
    """Return where elements are not zero, as ``numpy.nonzero``: ``x[nonzero(x)]`` are these.

    Parameters
    ----------
    x : node
        Any dtype, at least one dim; NaN is not zero.

    Returns
    -------
    tuple of Node
        For each axis the positions, in C order: of int64 and one dim, whose size only a run knows
        (None).  They have no gradient; ``x[nonzero(x)]`` has one.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> rows, columns = nonzero(Graph().input("x", ("n", 3)))
    >>> rows.shape, columns.dtype
    ((None,), dtype('int64'))
    """
    if not x.ndim:
        raise ShapeError(f"nonzero: {x!r} has no axes; use ag.ops.ravel(x) first")
    left = flatnonzero(x)
    places = []
    for axis in range(x.ndim - 1, 0, -1):
        size = size_of(x, axis)
        places.append(mod(left, size))
        left = floor_divide(left, size)
    return (left, *reversed(places))


@naming_itself
def argwhere(x: Node) -> Node:
    """Return where elements are not zero, one row for each, as ``numpy.argwhere``.

    Parameters as those of `nonzero`.

    Returns
    -------
    Node
        Of int64 and shape ``(None, x.ndim)``; it has no gradient.
    """
    return stack(nonzero(x), 1)


@raises(types="The dtypes differ, or are bool or complex.")
@naming_itself
def isin(x: Node, test: Any, *, invert: bool = False) -> Node:
    """Whether each element of `x` is among those of `test`, as ``numpy.isin``; no gradient.

    Parameters
    ----------
    x : node
        Real numbers; NaN is among nothing.
    test : node or array
        Of any shape, and the dtype of `x`.
    invert : bool
        Whether each is not.

    Returns
    -------
    Node
        Of bools, in the shape of `x`.
    """
    ordered = sort(ravel(as_node(test, x)))
    if ordered.dims[0] == 0:
        found = full_like(x, False, "bool")
    else:
        place = minimum(searchsorted(ordered, x), size_of(ordered) - 1)
        found = take(ordered, place) == x
    return ~found if invert else found


@raises(
    types="The mask is not of bools, or the dtypes differ.",
    shapes="The mask does not broadcast to `x`.",
)  # fmt: skip
@naming_itself
def masked_scatter(x: Node, mask: Any, source: Any) -> Node:
    """Return `x` with the elements of `source`, in order, where a mask holds.

    As ``torch.Tensor.masked_scatter``.

    Parameters
    ----------
    x : node
        Any dtype.
    mask : bool array or node
        Broadcasts to `x`.
    source : node or array
        At least as many elements as the mask has; the others are left out.

    Returns
    -------
    Node
        Of the type of `x`; what is left out and what is replaced get no gradient.
    """
    held = x.graph.lift(mask if isinstance(mask, Node) else np.asarray(mask))
    if held.dtype.kind != "b":
        raise GraphTypeError(f"masked_scatter: the mask holds bools, got {held!r}")
    flat, held = ravel(x), ravel(broadcast_like(held, x))
    values = ravel(as_node(source, x))
    places = positions_where(held, flat)
    numbers = getitem(cumsum(astype(held, "int64")) - 1, places)
    return reshape_like(index_put(flat, places, take(values, numbers)), x)
