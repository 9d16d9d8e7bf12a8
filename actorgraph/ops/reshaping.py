"""Reshape, ravel, flatten: the same elements in another shape."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Memory, Op, Sample
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, shape_from, size_of

__all__ = ["flatten", "ravel", "reshape"]


def _reshaped(checks: Checks, x: Shape, *, shape: Shape) -> Shape:
    if -1 not in shape:
        if not any(dim is UNKNOWN for dim in (*x, *shape)):
            checks.equal(size_of(x), size_of(shape), f"sizes of {x} and {shape}")
        return shape
    known = size_of(tuple(dim for dim in shape if dim != -1))
    missing = size_of(x) // known if known != 0 else 0
    if UNKNOWN not in (missing, known) and missing * known - size_of(x) != 0:
        checks.equal(missing * known, size_of(x), f"sizes of {x} and {shape}")
    return tuple(missing if dim == -1 else dim for dim in shape)


_RESHAPE: Op = declare(
    "reshape", "a[*s] -> a[*out]", lambda xp, x, shape: xp.reshape(x, shape), shape=_reshaped,
    vjp=(lambda ct, y, x, shape: reshape_like(ct, x),), linear=(0,),
    samples=(
        Sample(((3, 4),), {"shape": (2, 6)}), Sample(((3, 4),), {"shape": (-1, 2)}),
        Sample(((),), {"shape": (1, 1)}),
    ),
    memory=Memory("ordered"), doc="The same elements in another shape.",
)  # fmt: skip

_RESHAPE_LIKE: Op = declare(
    "reshape_like", "a[*s] -> a1[*t] -> a[*t]", lambda xp, x, like: xp.reshape(x, xp.shape(like)),
    vjp=(lambda ct, y, x, like: reshape_like(ct, x), None), linear=(0,),
    samples=(Sample(((3, 4), (6, 2))),), memory=Memory("ordered"),
    doc="The same elements in the shape of another array.",
)  # fmt: skip


@raises(shapes="The sizes can be shown to differ, or -1 stands twice or beside a 0.")
def reshape(x: Node, *shape: Any) -> Node:
    """Give the elements another shape, as ``reshape(x, 3, 4)`` or ``reshape(x, (3, 4))``.

    Type ``a[*s] -> a[*out]``; a view where NumPy gives one.

    Parameters
    ----------
    x : node
    *shape : int, str or Dim, or one tuple of them
        One dim may be -1, dims may be symbols of the graph.

    Returns
    -------
    Node
        The node itself where it has that shape.
    """
    given = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, str, Dim)) else shape
    given = tuple(given)
    if len([dim for dim in given if isinstance(dim, int) and dim == -1]) > 1:
        raise ShapeError(f"reshape: only one dim of {given} may be -1")
    dims = tuple(-1 if isinstance(d, int) and d == -1 else shape_from((d,))[0] for d in given)
    dims = _resolved(dims, x.dims)
    return x if dims == x.dims and UNKNOWN not in dims else build(_RESHAPE, x, shape=dims)


def _resolved(dims: Shape, shape: Shape) -> Shape:
    """Return `dims` with the number that -1 stands for where it is known before a run.

    So an empty array, where NumPy could not tell it, has its shape in the run too.
    """
    known = size_of(tuple(dim for dim in dims if dim != -1))
    if -1 not in dims or known is UNKNOWN:
        return dims
    if known == 0:
        raise ShapeError(f"reshape: -1 in {dims} could be any size beside a 0; write its size")
    missing = size_of(shape) // known
    if not isinstance(missing, int) or missing * known - size_of(shape) != 0:
        return dims  # the run finds it, or the shape rule what does not fit
    return tuple(missing if dim == -1 else dim for dim in dims)


def reshape_like(x: Node, like: Node) -> Node:
    """Reshape `x` to the shape of `like`, with as little left to the run as possible."""
    if x.dims == like.dims and not any(dim is UNKNOWN for dim in x.dims):
        return x
    open_dims = [i for i, dim in enumerate(like.dims) if isinstance(dim, Dim)]
    if any(dim is UNKNOWN for dim in like.dims) and len(open_dims) > 1:
        return build(_RESHAPE_LIKE, x, like)
    if len(open_dims) == 1 and 0 not in like.dims:
        # One -1 does what binding the symbol would do, without a plan per shape.
        return build(
            _RESHAPE, x, shape=tuple(-1 if i in open_dims else d for i, d in enumerate(like.dims))
        )
    return (
        build(_RESHAPE_LIKE, x, like)
        if UNKNOWN in like.dims
        else build(_RESHAPE, x, shape=like.dims)
    )


# -- ravel and flatten ------------------------------------------------------------------------


def ravel(x: Node) -> Node:
    """Return all elements in one dim, in C order, as ``numpy.ravel``.

    Parameters
    ----------
    x : node
        Any shape and dtype; a scalar gives one element.

    Returns
    -------
    Node
        ``reshape(x, -1)``: a view where NumPy gives one.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.ravel(ag.Graph().input("x", ("n", 3))).shape
    (3*n,)
    """
    return reshape(x, (-1,))


def _flat_shape(checks: Checks, x: Shape, *, start: int, stop: int) -> Shape:
    return (*x[:start], size_of(x[start:stop]), *x[stop:])


def _flat_forward(xp: Any, x: Any, start: int, stop: int) -> Any:
    return xp.reshape(x, (*x.shape[:start], prod(x.shape[start:stop]), *x.shape[stop:]))


_FLATTEN: Op = declare(
    "flatten", "a[*s] -> a[*out]", _flat_forward, shape=_flat_shape,
    vjp=(lambda ct, y, x, start, stop: reshape_like(ct, x),), linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(
        Sample(((2, 3, 4),), {"start": 1, "stop": 3}),
        Sample(((0, 3, 4),), {"start": 0, "stop": 2}),
    ),
    memory=Memory("ordered"),
    doc="Neighbouring dims merged, where only the run knows the other dims.",
)  # fmt: skip


@raises(shapes="An axis is out of range, or `start_axis` stands behind `end_axis`.")
def flatten(x: Node, start_axis: int = 0, end_axis: int = -1) -> Node:
    """Merge the dims from `start_axis` to `end_axis`, both included, as ``torch.flatten``.

    Parameters
    ----------
    x : node
        Any shape and dtype; a scalar gives one element.
    start_axis, end_axis : int
        Negative ones count from the end.

    Returns
    -------
    Node
        A view where NumPy gives one; the node itself for a single axis.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.flatten(ag.Graph().input("x", ("batch", 3, 4)), 1).shape
    (batch, 12)
    """
    if not x.ndim:
        return reshape(x, (1,))
    start, end = (_axis(axis, x.ndim) for axis in (start_axis, end_axis))
    if start > end:
        raise ShapeError(f"flatten: start_axis {start_axis} stands behind end_axis {end_axis}")
    if start == end:
        return x
    if UNKNOWN in x.dims:
        return build(_FLATTEN, x, start=start, stop=end + 1)
    return reshape(x, (*x.dims[:start], size_of(x.dims[start : end + 1]), *x.dims[end + 1 :]))


def _axis(axis: Any, ndim: int) -> int:
    if not isinstance(axis, (int, np.integer)) or not -ndim <= axis < ndim:
        raise ShapeError(f"flatten: axis {axis!r} is not an int in [-{ndim}, {ndim})")
    return int(axis) % ndim
