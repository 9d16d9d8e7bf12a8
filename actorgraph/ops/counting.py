"""Reductions whose results are ints or bools and have no gradient."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample, register
from actorgraph.ops.broadcasting import axes_of, reduced_shape
from actorgraph.types import Checks, Shape

__all__ = ["all", "any", "argmax", "argmin", "count_nonzero"]

_SAMPLES = (
    Sample(((3, 4),), {"axis": (0, 1), "keepdims": False}),
    Sample(((2, 3, 4),), {"axis": (1,), "keepdims": True}),
    Sample(((),), {"axis": (), "keepdims": False}),
)


def _count_forward(xp: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return xp.add.reduce(x != x.dtype.type(0), axis=axis, dtype=xp.int64, keepdims=keepdims)


def _any_forward(xp: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return xp.any(x, axis=axis, keepdims=keepdims)


def _all_forward(xp: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return xp.all(x, axis=axis, keepdims=keepdims)


_ANY = register(
    Op("any", "a[*s] -> bool[*out]", _any_forward, shape=reduced_shape, samples=_SAMPLES,
       layout="kept", doc="Whether an element over axes is not zero.")
)  # fmt: skip
_ALL = register(
    Op("all", "a[*s] -> bool[*out]", _all_forward, shape=reduced_shape, samples=_SAMPLES,
       layout="kept", doc="Whether no element over axes is zero.")
)  # fmt: skip
_COUNT = register(
    Op("count_nonzero", "a[*s] -> int64[*out]", _count_forward, shape=reduced_shape,
       samples=_SAMPLES, doc="Number of elements over axes that are not zero.")
)  # fmt: skip


def any(x: Node, axis: Any = None, keepdims: bool = False) -> Node:  # noqa: A001 - NumPy's name
    """Whether any element over `axis` is true (not zero); of no elements False.

    Type ``a[*s] -> bool[*out]``, without gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.

    Returns
    -------
    Node

    Raises
    ------
    ShapeError
        An axis is out of range or given twice.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> any(Graph().input("x", ("batch", 3)), axis=0)
    <any_1: bool[3]>
    """
    return build(_ANY, x, axis=axes_of(axis, x.ndim, "any"), keepdims=bool(keepdims))


def all(x: Node, axis: Any = None, keepdims: bool = False) -> Node:  # noqa: A001 - NumPy's name
    """Whether all elements over `axis` are true (not zero); of no elements True.

    Type ``a[*s] -> bool[*out]``, without gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.

    Returns
    -------
    Node

    Raises
    ------
    ShapeError
        An axis is out of range or given twice.
    """
    return build(_ALL, x, axis=axes_of(axis, x.ndim, "all"), keepdims=bool(keepdims))


def count_nonzero(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """Count the elements over `axis` that are not zero; NaN is not zero.

    Type ``a[*s] -> int64[*out]``, without gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.

    Returns
    -------
    Node

    Raises
    ------
    ShapeError
        An axis is out of range or given twice.
    """
    axes = axes_of(axis, x.ndim, "count_nonzero")
    return build(_COUNT, x, axis=axes, keepdims=bool(keepdims))


# -- argmax and argmin ------------------------------------------------------------------------


def _position_shape(checks: Checks, x: Shape, *, axis: int | None, keepdims: bool) -> Shape:
    axes = tuple(range(len(x))) if axis is None else (axis,)
    if [i for i in axes if x[i] == 0]:
        raise ShapeError(f"no elements to choose from along axis {axis} of {x}")
    return reduced_shape(checks, x, axis=axes, keepdims=keepdims)


_POSITIONS = (
    Sample(((3, 4),), {"axis": None, "keepdims": False}),
    Sample(((2, 3, 4),), {"axis": 1, "keepdims": True}),
    Sample(((),), {"axis": None, "keepdims": False}),
)


def _argmax_forward(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    return xp.argmax(x, axis=axis, keepdims=keepdims).astype(xp.int64, copy=False)


def _argmin_forward(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    return xp.argmin(x, axis=axis, keepdims=keepdims).astype(xp.int64, copy=False)


_ARGMAX = register(
    Op("argmax", "r[*s] -> int64[*out]", _argmax_forward, shape=_position_shape,
       samples=_POSITIONS, layout="kept", doc="Position of the maximum along an axis.")
)  # fmt: skip
_ARGMIN = register(
    Op("argmin", "r[*s] -> int64[*out]", _argmin_forward, shape=_position_shape,
       samples=_POSITIONS, layout="kept", doc="Position of the minimum along an axis.")
)  # fmt: skip


def _positions(op: Op, x: Node, axis: int | None, keepdims: bool) -> Node:
    if axis is not None:
        if not isinstance(axis, int):
            raise ShapeError(f"{op.name} takes one axis or None, got {axis!r}")
        (axis,) = axes_of(axis, x.ndim, op.name)
    return build(op, x, axis=axis, keepdims=bool(keepdims))


def argmax(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the first maximum along `axis`; of the flattened array without one.

    Type ``r[*s] -> int64[*out]``, without gradient.  NaN counts as the maximum, as in NumPy.

    Parameters
    ----------
    x : node
    axis : int, optional
    keepdims : bool
        Keep the axes as dims of size 1.

    Returns
    -------
    Node

    Raises
    ------
    ShapeError
        There is nothing to choose from, or the axis is out of range or not one.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> argmax(Graph().input("x", ("batch", 3)), axis=1)
    <argmax_1: int64[batch]>
    """
    return _positions(_ARGMAX, x, axis, keepdims)


def argmin(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the first minimum along `axis`; of the flattened array without one.

    Type ``r[*s] -> int64[*out]``, without gradient.  NaN counts as the minimum, as in NumPy.

    Parameters
    ----------
    x : node
    axis : int, optional
    keepdims : bool
        Keep the axes as dims of size 1.

    Returns
    -------
    Node

    Raises
    ------
    ShapeError
        There is nothing to choose from, or the axis is out of range or not one.
    """
    return _positions(_ARGMIN, x, axis, keepdims)
