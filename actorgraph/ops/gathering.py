"""Reading by arrays of positions: gather, take_along_axis, gather_nd, at; and size_of.

They are index expressions of `getitem`, whose gradient adds into zeros: an entry that is taken
several times gets the sum.  Negative positions count from the end; positions out of range raise
`IndexError` in the run.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, Op, Sample
from actorgraph.ops._rules import NO_INTS, declare, on, raises, returns
from actorgraph.ops.broadcasting import along_axis, broadcast_to
from actorgraph.ops.indexing import ALONG, check_classes, getitem, take_index
from actorgraph.ops.reshaping import ravel
from actorgraph.ops.shaping import one_axis, transpose
from actorgraph.types import UNKNOWN, Dim, Shape
from actorgraph.types import size_of as dims_product

__all__ = ["at", "gather", "gather_nd", "pick", "size_of", "take_along_axis"]


def positions_of(x: Node, given: Any) -> Node:
    """Return an array of positions as a node, or raise `GraphTypeError` where it holds none."""
    node = x.graph.lift(np.asarray(given) if not isinstance(given, Node) else given)
    if node.dtype.kind not in "iu":
        raise GraphTypeError(f"positions are integers, got {node.dtype}")
    return node


def check_along(x: Node, index: Node, axis: int) -> None:
    """Raise `ShapeError` where an index does not fit the other axes of `x`."""
    if index.ndim != x.ndim:
        raise ShapeError(
            f"the index has rank {index.ndim}, but {x!r} has rank {x.ndim}; "
            "the ranks have to be equal (ag.ops.take takes an index of any rank)"
        )
    for i, (dim, limit) in enumerate(zip(index.dims, x.dims, strict=True)):
        if i != axis and isinstance(dim, int) and isinstance(limit, int) and dim > limit:
            raise ShapeError(f"dim {dim} of the index at axis {i} exceeds {limit} of {x!r}")


@returns("Node of the shape of `index`: gradients of an entry that is taken several times add up")
@raises(NO_INTS, "Ranks differ, another axis of the index is too long, or there is no such axis.")
@along_axis("index")
def gather(x: Node, axis: int, index: Any) -> Node:
    """Take for each place of `index` one entry along an axis, as ``torch.gather``.

    For axis 1 of a matrix ``result[i, j] = x[i, index[i, j]]``.

    Parameters
    ----------
    index : integer array or node
        Of the rank of `x`; along the other axes it may be shorter than `x`, and does not broadcast
        (`take_along_axis` does).  Negative positions count from the end, unlike in PyTorch.
    """
    place = one_axis(axis, x.ndim)
    node = positions_of(x, index)
    check_along(x, node, place)
    return take_index(x, (ALONG, place), [node])


@raises(NO_INTS, "Ranks differ, other axes do not broadcast, or there is no such axis.")
@along_axis("indices")
def take_along_axis(x: Node, indices: Any, axis: int | None = -1) -> Node:
    """Take for each place of `indices` one entry along an axis, as ``numpy.take_along_axis``.

    Parameters
    ----------
    indices : integer array or node
        Of the rank of `x`; the other axes broadcast against those of `x`.
    axis : int or None
        None flattens `x`.
    """
    node = positions_of(x, indices)
    if axis is None:
        x, axis = ravel(x), 0
    place = one_axis(axis, x.ndim)
    if node.ndim != x.ndim:
        check_along(x, node, place)
    x, node = _stretched(x, node.dims, place), _stretched(node, x.dims, place)
    for i, (mine, other) in enumerate(zip(x.dims, node.dims, strict=True)):
        known = UNKNOWN not in (mine, other) and isinstance(mine - other, int)
        if i != place and known and mine != other:
            raise ShapeError(f"dims {mine} and {other} at axis {i} do not broadcast")
    return take_index(x, (ALONG, place), [node])


def _stretched(node: Node, wanted: Shape, axis: int) -> Node:
    """Return the node with dims of 1 broadcast to the wanted ones, but for `axis`."""
    dims = tuple(
        other if i != axis and mine == 1 and other is not UNKNOWN else mine
        for i, (mine, other) in enumerate(zip(node.dims, wanted, strict=True))
    )
    return node if dims == node.dims else broadcast_to(node, dims)


@raises(NO_INTS, "The last dim of the indices is not known, or larger than the rank of `x`.")
@returns("Node of shape ``indices.shape[:-1] + x.shape[indices.shape[-1]:]``")
def gather_nd(x: Node, indices: Any) -> Node:
    """Take ``x[indices[..., 0], indices[..., 1], ...]``, as TensorFlow's and ONNX's GatherND.

    Parameters
    ----------
    indices : integer array or node
        Its last dim is a known int, at most the rank of `x`: a position for each of as many axes.
    """
    node = positions_of(x, indices)
    depth = node.dims[-1] if node.ndim else None
    if not isinstance(depth, int) or depth > x.ndim:
        raise ShapeError(
            f"the last dim of the indices has to be an int of at most {x.ndim}, "
            f"the rank of {x!r}, got {node!r}"
        )
    if depth == 0:
        return broadcast_to(x, (*node.dims[:-1], *x.dims))
    return getitem(x, tuple(getitem(node, (..., i)) for i in range(depth)))


@raises(shapes="There are not as many coordinates as axes, or one is known to be out of range.")
@returns("Node: a scalar; its gradient is zeros with one entry")
def at(x: Node, *coords: Any) -> Node:
    """Read one element, as ``x[i, j, ...]`` with a position for every axis.

    To write use `index_put`.

    Parameters
    ----------
    *coords : int, dim or 0-d integer node
    """
    if len(coords) != x.ndim:
        raise ShapeError(f"{len(coords)} coordinates for {x!r} of rank {x.ndim}")
    for coord in coords:
        whole = isinstance(coord, (int, np.integer, Dim)) and not isinstance(coord, bool)
        node = isinstance(coord, Node) and not coord.ndim and coord.dtype.kind in "iu"
        if not (whole or node):
            raise GraphTypeError(f"a coordinate is an int or a 0-d integer node, got {coord!r}")
    return getitem(x, coords)


_SIZE_OF: Op = declare(
    "size_of", "a[*s] -> int64[]",
    lambda xp, x, axis: xp.asarray(x.size if axis is None else x.shape[axis], xp.int64),
    cost=lambda shapes, result, attrs: 1, samples=(on((3, 4), axis=1), on((0, 2), axis=None)),
    shape_only=(0,),
)  # fmt: skip


@raises(shapes="There is no such axis.")
@returns("Node: a constant where the dims are known ints; it has no gradient")
def size_of(x: Node, axis: int | None = None) -> Node:
    """Return the number of entries along an axis, or of all, as an int64 scalar node.

    ``x.shape`` gives the same outside the graph where it is known.
    """
    place = None if axis is None else one_axis(axis, x.ndim)
    dims: Shape = x.dims if place is None else (x.dims[place],)
    size = dims_product(dims)
    if isinstance(size, int):
        return x.graph.constant(np.int64(size))
    return build(_SIZE_OF, x, axis=place)


def places_in_rows(xp: Any, index: Any, size: int) -> Any:
    """Return the positions, in the flattened array, of one entry in each row; checked."""
    check_classes(xp, index, size)
    few = xp is np and index.size <= _MANY_ROWS
    starts = _row_starts(index.size, size) if few else xp.arange(index.size) * size
    return starts + index.reshape(-1).astype(xp.int64, copy=False)


_MANY_ROWS = 4096


@lru_cache(maxsize=64)
def _row_starts(rows: int, size: int) -> Any:
    """Return the start of each row; computing it takes 1.5 us, three times the sum with it."""
    starts = np.arange(rows) * size
    starts.flags.writeable = False
    return starts


def _put_forward(xp: Any, ct: Any, index: Any, *like: Any, size: Any) -> Any:
    classes = like[0].shape[-1] if like else size
    out = xp.zeros((*index.shape, classes), ct.dtype)
    out.reshape(-1)[places_in_rows(xp, index, classes)] = ct.reshape(-1)
    return out


def _pick_vjp(ct: Node, y: Node, x: Node, index: Node) -> Node:
    if x.dims[-1] is UNKNOWN:
        return build(_PUT, ct, index, x, size=None)
    return build(_PUT, ct, index, size=x.dims[-1])


_PICK: Op = declare(
    "pick", "a[*s, c] -> i[*s] -> a[*s]",
    lambda xp, x, index: (
        x.reshape(-1).take(places_in_rows(xp, index, x.shape[-1])).reshape(index.shape)
    ),
    vjp=(_pick_vjp, None), linear=(0,), memory=FRESH, traced=True,
    samples=(
        Sample(((3, 4), (3,)), ints={1: 4}), Sample(((2, 3, 4), (2, 3)), ints={1: 4}),
        Sample(((4,), ()), ints={1: 4}), Sample(((0, 4), (0,)), ints={1: 4}),
    ),
)  # fmt: skip

_PUT: Op = declare(
    "pick_adjoint",
    lambda arity, attrs: f"a[*s] -> i[*s] -> {'a1[*s, c] -> ' if arity == 3 else ''}a[*out]",
    _put_forward, shape=lambda checks, ct, index, *like, size: (*ct, like[0][-1] if like else size),
    vjp=lambda argnum, u, y, ct, index, *like, size: None if argnum else build(_PICK, u, index),
    linear=(0,),
    samples=(
        Sample(((3,), (3,)), {"size": 4}, ints={1: 4}),
        Sample(((2, 3), (2, 3), (2, 3, 4)), {"size": None}, ints={1: 4}),
    ),
    memory=FRESH, doc="Rows of zeros with a value where an index says.", traced=True,
)  # fmt: skip


@returns("Node of the shape of `index`")
@raises(NO_INTS, "`index` has not the shape of `x` without `axis`, or there is no such axis.")
def pick(x: Node, index: Any, axis: int = -1) -> Node:
    """Return, along an axis, the entry that the index of each row names.

    ``pick(x, i)[r] = x[r, i[r]]``; Ginn's `Pick`, and ``take_along_axis`` with one index a row.

    Parameters
    ----------
    index : node or array
        Integers in ``[0, size of the axis)``, of the shape of `x` without `axis`; others raise in
        the run.
    """
    place = one_axis(axis, x.ndim)
    order = [i for i in range(x.ndim) if i != place] + [place]
    return build(_PICK, transpose(x, order), index)
