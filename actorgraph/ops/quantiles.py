"""Quantiles of all values, or of those that are not NaN: sorting, then reading one or two entries.

Of n values in order a quantile stands at the position ``(n + 1 - a - b) * q + a - 1``, where a and
b are those of the method, as Hyndman and Fan (1996) name them.  Every function is built of ops; the
gradient goes to the entries that it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops.broadcasting import axes_of, expand_dims
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.casting import astype
from actorgraph.ops.gathering import size_of, take_along_axis
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.merging import merge_dims
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.rounding import ceil, floor, isnan
from actorgraph.ops.rounding import round as nearest
from actorgraph.ops.selection import clip, maximum, where
from actorgraph.ops.shaping import transpose
from actorgraph.ops.sorting import sort

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

Ends = Callable[[Node], tuple[Node, Node]]


def _around(position: Node) -> tuple[Node, Node]:
    return floor(position), ceil(position)


def _one(function: Callable[[Node], Node]) -> Ends:
    def ends(position: Node) -> tuple[Node, Node]:
        return (function(position),) * 2

    return ends


_METHODS: dict[str, tuple[float, float, Ends]] = {
    "linear": (1, 1, _around), "lower": (1, 1, _one(floor)), "higher": (1, 1, _one(ceil)),
    "nearest": (1, 1, _one(nearest)), "midpoint": (1, 1, _around),
    "inverted_cdf": (0, 1, _one(ceil)),
    "averaged_inverted_cdf": (0, 1, lambda position: (ceil(position), floor(position + 1))),
    "closest_observation": (0, 1, _one(lambda position: nearest(position + 1) - 1)),
    "interpolated_inverted_cdf": (0, 1, _around), "hazen": (0.5, 0.5, _around),
    "weibull": (0, 0, _around), "median_unbiased": (1 / 3, 1 / 3, _around),
    "normal_unbiased": (3 / 8, 3 / 8, _around),
}  # fmt: skip
"""Of each method a, b and the two positions that it reads, which may be one."""
_PICKS = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
_HALVES = ("midpoint", "averaged_inverted_cdf")


def _rows(x: Node, axes: tuple[int, ...], what: str) -> Node:
    """Return the node with its axes merged into the first."""
    if any(x.dims[i] == 0 for i in axes):
        raise ShapeError(f"{what}: no elements to choose from along axis {axes} of {x!r}")
    rest = [i for i in range(x.ndim) if i not in axes]
    return merge_dims(transpose(x, (*axes, *rest)), (len(axes), *[1] * len(rest)))


def _fractions(x: Node, q: Any, whole: float, what: str) -> Node:
    """Return q as a node of fractions; what is no node is checked."""
    if not isinstance(q, Node):
        array = np.asarray(q, "float64")
        if not ((array >= 0) & (array <= whole)).all():
            raise GraphError(f"{what}: q is between 0 and {whole:g}, got {q!r}")
        q = x.graph.constant(array)
    if q.ndim > 1:
        raise ShapeError(f"{what}: q is a number or has one dim, got shape {q.shape}")
    return astype(q, "float64") / whole


def _quantile(
    what: str, x: Node, q: Any, axis: Any, method: str, keepdims: bool, whole: float = 1
) -> Node:
    if method not in _METHODS:
        raise GraphError(f"{what}: no method {method!r}; there are {', '.join(_METHODS)}")
    if x.dtype.kind in "biu" and method not in _PICKS:
        raise GraphTypeError(
            f"{what}: {x!r} holds no numbers between its values; convert it first, "
            f".astype('float64'), or choose one with method='lower'"
        )
    axes = axes_of(axis, x.ndim, what)
    q = _fractions(x, q, whole, what)
    ordered = sort(_rows(x, axes, what), 0)
    if what.startswith("nan"):
        y = _of_numbers(ordered, q, method)
    else:
        y = _read(ordered, size_of(ordered, 0), q, method, take)
        last = getitem(ordered, -1)  # NaN counts as the largest
        y = where(isnan(last), last, y)
    return expand_dims(y, tuple(i + q.ndim for i in sorted(axes))) if keepdims else y


def _of_numbers(ordered: Node, q: Node, method: str) -> Node:
    """Return the quantiles of what is not NaN in each row."""
    count = sum_of(astype(~isnan(ordered), "int64"), 0)
    rows = reshape(q, (-1, *[1] * count.ndim))
    y = _read(ordered, count, rows, method, take_along_axis)
    return y if q.ndim else getitem(y, 0)


def _read(ordered: Node, count: Node, q: Node, method: str, take_at: Callable[..., Node]) -> Node:
    """Return the quantiles of rows with so many entries."""
    a, b, ends_of = _METHODS[method]
    size = astype(count, "float64")
    last = maximum(size - 1, 0)
    position = (size + (1 - a - b)) * q + (a - 1)
    low, high = (clip(end, 0, last) for end in ends_of(position))
    lower = take_at(ordered, astype(low, "int64"), 0)
    if low is high or method in _PICKS:
        return lower
    upper = take_at(ordered, astype(high, "int64"), 0)
    # An entry that is both ends counts by halves: inf * 0 would be NaN.
    share = 0.5 if method in _HALVES else where(low == high, 0.5, position - low)
    if isinstance(share, Node):
        share = astype(share, ordered.dtype)
        if share.ndim < lower.ndim:
            share = expand_dims(share, tuple(range(share.ndim, lower.ndim)))
    return lower * (1 - share) + upper * share


@raises(
    other="`q` is out of range, or there is no such method.",
    types="`x` is an int, and the method takes numbers between its values.",
    shapes="There is no such axis, it has no elements, or `q` has more than one dim.",
)  # fmt: skip
@naming_itself
def quantile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """The value below which a share `q` of the values lies, as ``numpy.quantile``.

    The gradient goes to the one or two entries that are read, by their weights.  NaN where a value
    is NaN.

    Parameters
    ----------
    x : node
        Real numbers; ints only for methods that choose a value.
    q : float, sequence of float, or node
        Between 0 and 1; a number or of one dim.
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    method : str
        One of the 13 of ``numpy.quantile``.

    Returns
    -------
    Node
        Of several `q` the first dim counts them.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> quantile(Graph().input("x", ("batch", 3)), [0.25, 0.75], axis=0).shape
    (2, 3)
    """
    return _quantile("quantile", x, q, axis, method, keepdims)


@naming_itself
def percentile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """`quantile` with `q` between 0 and 100, as ``numpy.percentile``."""
    return _quantile("percentile", x, q, axis, method, keepdims, whole=100)


@naming_itself
def median(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """The value in the middle, or the mean of the two, as ``numpy.median``.

    PyTorch's takes the lower of the two: ``quantile(x, 0.5, method="lower")``.  Otherwise as
    `quantile`.
    """
    return _quantile("median", x, 0.5, axis, "linear", keepdims)


@naming_itself
def nanquantile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """`quantile` of what is not NaN, as ``numpy.nanquantile``; NaN of none, without a warning."""
    return _quantile("nanquantile", x, q, axis, method, keepdims)


@naming_itself
def nanpercentile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """`percentile` of what is not NaN, as ``numpy.nanpercentile``."""
    return _quantile("nanpercentile", x, q, axis, method, keepdims, whole=100)


@naming_itself
def nanmedian(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`median` of what is not NaN, as ``numpy.nanmedian``; NaN of none, without a warning."""
    return _quantile("nanmedian", x, 0.5, axis, "linear", keepdims)
