"""Functions given by samples: interp, trapezoid, convolve."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import GraphError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import as_node, naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops.arithmetic import mod
from actorgraph.ops.broadcasting import expand_dims
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.convolution import conv1d
from actorgraph.ops.cumulative import cumsum
from actorgraph.ops.gathering import size_of
from actorgraph.ops.indexing import take
from actorgraph.ops.linalg import matmul
from actorgraph.ops.padding import pad
from actorgraph.ops.rearranging import flip
from actorgraph.ops.selection import clip, maximum, where
from actorgraph.ops.shaping import concatenate, one_axis
from actorgraph.ops.sorting import argsort, searchsorted

__all__ = ["convolve", "cumulative_trapezoid", "interp", "trapezoid"]


def _lifted(*values: Any) -> list[Node]:
    """Return the values as nodes of one graph."""
    home = next((value for value in values if isinstance(value, Node)), None)
    if home is None:
        raise GraphError("at least one argument has to be a node")
    return [as_node(value, home) for value in values]


# -- interp -----------------------------------------------------------------------------------


@raises(other="The period is 0.", shapes="`xp` and `fp` are not of one dim and size, or are empty.")
@naming_itself
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Node:
    """Interpolate linearly between points, as ``numpy.interp``.

    Parameters
    ----------
    x : node or array
        Where.
    xp, fp : node or array of one dim
        Places in rising order (any order with a period) and values of the points.
    left, right : scalar or node, optional
        Values below and above all points; default the first and the last value.
    period : float, optional
        The function repeats; `left` and `right` then have no meaning.

    Returns
    -------
    Node
        In the shape of `x`; with gradients by `x`, `xp` and `fp`.
    """
    x, xp, fp = _lifted(x, xp, fp)
    if xp.ndim != 1 or fp.ndim != 1 or xp.dims[0] == 0:
        raise ShapeError(f"the points have one dim and at least one entry, got {xp!r}, {fp!r}")
    if period is not None:
        if not period:
            raise GraphError("the period is not 0")
        left = right = None
        x, xp = mod(x, abs(period)), mod(xp, abs(period))
        order = argsort(xp)
        xp, fp = take(xp, order), take(fp, order)
        xp = concatenate([xp[-1:] - abs(period), xp, xp[:1] + abs(period)])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    last = size_of(xp) - 1
    begin = clip(searchsorted(xp, x, "right") - 1, 0, maximum(last - 1, 0))
    end = clip(begin + 1, 0, last)
    low, value = take(xp, begin), take(fp, begin)
    width = take(xp, end) - low
    share = (x - low) / where(width == 0, 1, width)
    found = value + (take(fp, end) - value) * share
    found = where(x < xp[0], fp[0] if left is None else left, found)
    return where(x > xp[-1], fp[-1] if right is None else right, found)


# -- trapezoid --------------------------------------------------------------------------------


@raises(shapes="There is no such axis, or the shapes do not fit.")
@naming_itself
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """Integrate along an axis by the trapezoidal rule, as ``numpy.trapezoid``.

    Parameters
    ----------
    y : node or array
    x : node or array, optional
        Places of the values: of one dim, or a shape that broadcasts to that of `y`.
    dx : scalar or node
        Distance of neighbours where no places are given.
    axis : int
    """
    return sum_of(_areas(y, x, dx, axis), axis)


@naming_itself
def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """Running integral by the trapezoidal rule, one shorter than `y`; otherwise as `trapezoid`."""
    area = _areas(y, x, dx, axis)
    return cumsum(area, axis)


def _areas(y: Any, x: Any, dx: Any, axis: int) -> Node:
    """Return the integral between each two neighbours along an axis."""
    y, *given = _lifted(y, dx if x is None else x)
    lead = (slice(None),) * one_axis(axis, y.ndim, "trapezoid")
    later, earlier = (*lead, slice(1, None)), (*lead, slice(None, -1))
    width = given[0]
    if x is not None and width.ndim == 1:
        width = expand_dims(width[1:] - width[:-1], tuple(range(1, y.ndim - len(lead))))
    elif x is not None:
        width = width[later] - width[earlier]
    area: Node = (y[later] + y[earlier]) * 0.5 * width
    return area


# -- convolve ---------------------------------------------------------------------------------


@raises(
    other="There is no such mode.",
    shapes="The arguments have not one dim of a known size of 1 or more.",
)  # fmt: skip
@naming_itself
def convolve(a: Any, v: Any, mode: str = "full") -> Node:
    """Convolve two vectors, as ``numpy.convolve``.

    Parameters
    ----------
    a, v : node or array of one dim
        Numbers, of known sizes.
    mode : {"full", "same", "valid"}
        All places where they overlap, as many as the longer one has, or those of full overlap.
    """
    if mode not in ("full", "same", "valid"):
        raise GraphError(f"mode is 'full', 'same' or 'valid', got {mode!r}")
    long, short = _lifted(a, v)
    sizes = [x.dims[0] for x in (long, short) if x.ndim == 1]
    known = [size for size in sizes if isinstance(size, int) and size]
    if len(known) != 2:
        raise ShapeError(f"the arguments have one dim of known size, got {long!r} and {short!r}")
    size, width = known
    if size < width:
        long, short, size, width = short, long, width, size
    margin = {"full": width - 1, "same": width - 1, "valid": 0}[mode]
    if long.dtype.kind in "fV":
        rows = conv1d(long[None, None], flip(short)[None, None], padding=margin)[0, 0]
    else:
        places = np.arange(size + 2 * margin - width + 1)[:, None] + np.arange(width)
        rows = matmul(take(pad(long, margin), places), flip(short))
    start = (width - 1) // 2
    return rows[start : start + size] if mode == "same" else rows
