"""Reductions to ints or bools, counts in bins, and masked reductions.

`reduce_where` is NumPy's ``where=`` and ``initial=``: it reduces the elements where a mask holds,
and replaces the others by the identity of the reduction, so that they get no gradient.  The nan
functions use the mask ``~isnan(x)``; `nanmax` and `nanmin` stand with `max`, `nanmedian` and
`nanquantile` with `median`.
"""

from __future__ import annotations

from math import nan
from typing import Any, Protocol

import numpy as np

from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import KEPT, Op, Sample
from actorgraph.operands import as_node
from actorgraph.ops._declare import Reduction, documented, public, reduction
from actorgraph.ops._rules import as_of, declare, on, raises, returns
from actorgraph.ops.arithmetic import abs as size_of_each
from actorgraph.ops.arithmetic import add, is_complex, multiply, sqrt, square
from actorgraph.ops.assignment import index_add
from actorgraph.ops.broadcasting import axes_of, broadcast_like, reduced_shape
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.creation import full, linspace, ones_like, zeros
from actorgraph.ops.elementwise import astype, isnan, maximum, minimum, where
from actorgraph.ops.elementwise import where as choose
from actorgraph.ops.indexing import take
from actorgraph.ops.reductions import cumprod, cumsum, mean, nanmax, nanmin, prod
from actorgraph.ops.reductions import max as max_of
from actorgraph.ops.reductions import min as min_of
from actorgraph.ops.reshaping import ravel
from actorgraph.ops.sorting import searchsorted
from actorgraph.ops.statistics import std, var
from actorgraph.types import UNKNOWN, Checks, Shape

__all__ = [
    "all", "any", "argmax", "argmin", "bincount", "count_nonzero", "digitize", "histogram",
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmean", "nanprod", "nanstd", "nansum",
    "nanvar",
]  # fmt: skip

any = reduction(
    "any", "a[*s] -> bool[*out]", lambda xp, x, **axes: xp.any(x, **axes),
    "Whether an element over axes is not zero.", notes="Of no elements False; no gradient.",
)  # fmt: skip
all = reduction(
    "all", "a[*s] -> bool[*out]", lambda xp, x, **axes: xp.all(x, **axes),
    "Whether no element over axes is zero.", notes="Of no elements True; no gradient.",
)  # fmt: skip
count_nonzero = reduction(
    "count_nonzero", "a[*s] -> int64[*out]",
    lambda xp, x, **axes: xp.add.reduce(x != x.dtype.type(0), dtype=xp.int64, **axes),
    "Number of elements over axes that are not zero.", notes="NaN is not zero; no gradient.",
)  # fmt: skip


def _position_shape(checks: Checks, x: Shape, *, axis: int | None, keepdims: bool) -> Shape:
    axes = tuple(range(len(x))) if axis is None else (axis,)
    if [i for i in axes if x[i] == 0]:
        raise ShapeError(f"no elements to choose from along axis {axis} of {x}")
    return reduced_shape(checks, x, axis=axes, keepdims=keepdims)


_POSITIONS = (
    on((3, 4), axis=None, keepdims=False),
    on((2, 3, 4), axis=1, keepdims=True),
    on((), axis=None, keepdims=False),
)


def _position(name: str, doc: str) -> Reduction:
    """Declare a position along one axis, or in the flattened array."""

    def forward(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims).astype(xp.int64, copy=False)

    op = declare(
        name, "r[*s] -> int64[*out]", forward, shape=_position_shape, samples=_POSITIONS,
        memory=KEPT, doc=doc,
    )  # fmt: skip

    def function(x: Any, axis: int | None = None, keepdims: bool = False) -> Node:
        if axis is not None:
            if not isinstance(axis, int):
                raise ShapeError(f"{name} takes one axis or None, got {axis!r}")
            (axis,) = axes_of(axis, x.ndim) or (None,)
        return build(op, x, axis=axis, keepdims=bool(keepdims))

    notes = (
        "Of equal elements the first; NaN counts as the one looked for, as in NumPy.  No gradient."
    )
    parameters = "x : node\naxis : int, optional\n    Default: of the flattened array."
    return documented(function, op, parameters, notes)


argmax = _position("argmax", "Position of the maximum along an axis.")
argmin = _position("argmin", "Position of the minimum along an axis.")


def _bincount_forward(xp: Any, x: Any, *weights: Any, minlength: int) -> Any:
    x = x.astype(xp.int64, copy=False)
    if not weights:
        return xp.bincount(x, minlength=minlength)
    found = xp.bincount(x, weights[0].astype(xp.float64), minlength)
    return found.astype(weights[0].dtype)


_BINCOUNT: Op = declare(
    "bincount",
    lambda arity, attrs: "i[n] -> int64[*out]" if arity == 1 else "i[n] -> f[n] -> f[*out]",
    _bincount_forward,
    shape=lambda checks, x, *weights, minlength: (UNKNOWN,),
    vjp=(None, lambda ct, y, x, weights, minlength: take(ct, x)),
    jvp=lambda tans, y, x, *weights, minlength: build(_BINCOUNT, x, tans[1], minlength=minlength)
    if weights else None,
    samples=(
        Sample(((5,), (5,)), {"minlength": 0}, ints={0: 4}),
        Sample(((5,),), {"minlength": 6}, ints={0: 4}),
    ),
)  # fmt: skip


@returns("Node of one dim, whose size only a run knows (None); for a known size use `index_add`")
@raises(
    other="`minlength` is no number from 0 on.",
    types="`x` is not of integers, or the weights are not floats.",
    shapes="`x` has not one dim, or the weights another.",
)  # fmt: skip
def bincount(x: Node, weights: Any = None, minlength: int = 0) -> Node:
    """Count how often each number from 0 on occurs, as ``numpy.bincount``.

    Parameters
    ----------
    x : node
        Integers of one dim; a negative one raises in the run.
    weights : node or array, optional
        Floats that are added up in place of ones; they have a gradient.
    minlength : int
        The least length of the result.
    """
    if not isinstance(minlength, (int, np.integer)) or minlength < 0:
        raise GraphError(f"minlength is an int from 0 on, got {minlength!r}")
    operands = [x] if weights is None else [x, weights]
    return build(_BINCOUNT, *operands, minlength=int(minlength))


def _sorted_edges(x: Node, bins: Any) -> tuple[Node, Node]:
    """Return edges in rising order and `x` in one dtype; arrays are checked."""
    if isinstance(bins, Node):
        return bins, x
    edges = np.asarray(bins)
    if edges.ndim != 1 or (edges[1:] < edges[:-1]).any():
        raise ShapeError(f"bins are edges of one dim in rising order, got {bins!r}")
    if edges.dtype.kind == "f" and x.dtype.kind in "iu":
        x = astype(x, "float64")
    return as_node(bins, x), x


@returns("Node of int64, in the shape of `x`")
@raises(shapes="The edges have not one dim, or are in no order.")
def digitize(x: Node, bins: Any, right: bool = False) -> Node:
    """Tell in which bin each element lies, as ``numpy.digitize``; no gradient.

    Bin i is ``bins[i - 1] <= x < bins[i]``; 0 is below all of them, ``len(bins)`` above.

    Parameters
    ----------
    x : node
        Real numbers.
    bins : node or array of one dim
        Edges in order, which may fall where it is an array.
    right : bool
        Whether a bin holds its right edge instead of its left one.
    """
    falling = not isinstance(bins, Node) and np.ndim(bins) == 1 and len(bins) and bins[0] > bins[-1]
    edges, x = _sorted_edges(x, bins[::-1] if falling else bins)
    place = searchsorted(edges, x, "left" if right else "right")
    return len(bins) - place if falling else place


def _edges(x: Node, bins: Any, limits: Any) -> tuple[Node, Node]:
    if isinstance(bins, (str, bool)):
        raise GraphTypeError(f"histogram: bins is a number of bins or their edges, got {bins!r}")
    if not isinstance(bins, (int, np.integer)):
        return _sorted_edges(x, bins)
    if bins < 1:
        raise GraphError(f"histogram: there is at least 1 bin, got {bins}")
    x = astype(x, "float64") if x.dtype.kind in "iu" else x
    if limits is None:
        low, high = min_of(x), max_of(x)
        low, high = where(low == high, low - 0.5, low), where(low == high, high + 0.5, high)
        return linspace(x, low, high, int(bins) + 1), x
    first, last = (float(limit) for limit in limits)
    if not first <= last:
        raise GraphError(f"histogram: range is (lowest, highest), got {limits!r}")
    if first == last:
        first, last = first - 0.5, last + 0.5
    return x.graph.constant(np.linspace(first, last, int(bins) + 1), x.dtype), x


@raises(other="The bins, their range or the weights are none.")
def histogram(
    x: Node, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Node, Node]:
    """Count the elements in bins, as ``numpy.histogram``.

    Each bin holds its left edge, the last one also its right edge; NaN is in none.

    Parameters
    ----------
    x : node
        Real numbers of any shape.
    bins : int, array or node
        How many bins of one width, or the edges in rising order.
    range : pair of float, optional
        Where bins of one width begin and end; default the smallest and the largest element.
    density : bool
        Divide so that the integral is 1.
    weights : node or array, optional
        Of the shape of `x`; added up in place of ones.

    Returns
    -------
    counts, edges : Node
        The counts are int64 without weights and density.  They have a gradient by the weights,
        and a density by the edges; by `x` it is 0.
    """
    edges, x = _edges(x, bins, range)
    size = edges.dims[0]
    if not isinstance(size, int) or size < 2:
        raise ShapeError(f"the number of edges is a known int from 2 on, got {edges!r}")
    flat = ravel(x)
    place = where(flat == edges[-1], size - 1, searchsorted(edges, flat, "right"))
    if weights is None:
        values = ones_like(flat, edges.dtype if density else "int64")
    else:
        values = ravel(broadcast_like(as_node(weights, x), x))
    # The first and the last count are those of elements outside of all bins.
    counts = index_add(zeros(x, (size + 1,), values.dtype), 0, place, values)[1:-1]
    if density:
        counts = counts / (edges[1:] - edges[:-1]) / counts.sum()
    return counts, edges


# The reduction, its identity, and the op that joins a result with an initial value.
_JOINS: dict[str, tuple[Reduction, Any, Any]] = {
    "sum": (sum_of, 0, add), "prod": (prod, 1, multiply),
    "max": (max_of, None, maximum), "min": (min_of, None, minimum),
    "any": (any, False, None), "all": (all, True, None),
}  # fmt: skip


def reduce_where(
    name: str, x: Node, axis: Any = None, keepdims: bool = False, initial: Any = None,
    where: Any = True, **ddof: int,
) -> Node:  # fmt: skip
    """Reduce over `axis` the elements where a mask holds, joined with `initial`, as NumPy does.

    Parameters
    ----------
    name : str
        sum, prod, max, min, any, all, mean, var or std; a "nan" before it leaves out NaN.
    axis, keepdims
        As of the reduction.
    initial : scalar or node, optional
        `max` and `min` need it where a mask is given.
    where : bool, array or node
        Broadcasts to `x`.
    **ddof : int
        Of var and std.
    """
    mask = None if where is True else _mask_of(x, where, name)
    if name.startswith("nan"):
        mask = ~isnan(x) if mask is None else mask & ~isnan(x)
        name = name.removeprefix("nan")
    if name in _MOMENTS:
        if x.dtype.kind in "biu":
            raise GraphTypeError(f"{name} of {x!r}: convert it first, .astype('float64')")
        plain, masked = _MOMENTS[name]
        found: Node = (
            plain(x, axis, keepdims, **ddof) if mask is None
            else masked(x, mask, axis, keepdims, **ddof)
        )  # fmt: skip
        return found
    plain, identity, join = _JOINS[name]
    identity = initial if identity is None else identity
    if mask is not None:
        if identity is None:
            raise GraphTypeError(f"{name} with where= takes initial= too: no entry may be left")
        x = choose(mask, x, identity)
    axes = axes_of(axis, x.ndim)
    if initial is not None and 0 in [x.dims[i] for i in axes]:
        kept = [1 if i in axes else dim for i, dim in enumerate(x.dims)]
        dims = kept if keepdims else [dim for i, dim in enumerate(kept) if i not in axes]
        return full(x.graph, dims, initial, x.dtype)
    found = plain(x, axis, keepdims)
    if initial is not None:
        found = join(found, initial)
    return found


def _mask_of(x: Node, where: Any, name: str) -> Node:
    mask = x.graph.lift(where if isinstance(where, Node) else np.asarray(where))
    if mask.dtype.kind != "b":
        raise GraphTypeError(f"{name}: where= is a mask of bools, got {mask!r}")
    return broadcast_like(mask, x)


def _count(mask: Node, like: Node, axis: Any, keepdims: bool, ddof: float = 0) -> Node:
    """Return how many elements count, less `ddof`, or NaN instead of 0, to divide by."""
    real = size_of_each(like) if is_complex(like) else like
    left = sum_of(astype(mask, real.dtype), axis, keepdims) - ddof
    return choose(left > 0, left, nan)


def _mean(x: Node, mask: Node, axis: Any, keepdims: bool) -> Node:
    total = sum_of(choose(mask, x, 0), axis, keepdims)
    count = _count(mask, x, axis, keepdims)
    # A complex number that is divided by NaN warns; its product with NaN does not.
    return total * astype(1 / count, x.dtype) if is_complex(x) else total / count


def _var(x: Node, mask: Node, axis: Any, keepdims: bool, ddof: float = 0) -> Node:
    off = choose(mask, x - _mean(x, mask, axis, keepdims=True), 0)
    total = sum_of(square(size_of_each(off) if is_complex(x) else off), axis, keepdims)
    return total / _count(mask, x, axis, keepdims, ddof)


def _std(x: Node, mask: Node, axis: Any, keepdims: bool, ddof: float = 0) -> Node:
    spread = _var(x, mask, axis, keepdims, ddof)
    # As of `std`, the gradient is 0 where all elements are equal.
    return choose(spread == 0, 0, sqrt(choose(spread == 0, 1, spread)))


_MOMENTS: dict[str, tuple[Any, Any]] = {
    "mean": (mean, _mean), "var": (var, _var), "std": (std, _std),
}  # fmt: skip


class _Spread(Protocol):
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, ddof: int = 0
    ) -> Node: ...


def _over_numbers(name: str, of_none: str, spread: bool = False) -> Any:
    """Return the reduction of a name over the elements that are not NaN."""

    def function(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
        return reduce_where(f"nan{name}", x, axis, keepdims)

    def spread_function(
        x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0
    ) -> Node:
        return reduce_where(f"nan{name}", x, axis, keepdims, ddof=ddof)

    made: Any = spread_function if spread else function
    text = f"`{name}` over axes of what is not NaN, as ``numpy.nan{name}``; {of_none}."
    found = public(made, f"nan{name}", f"{text}\n\nNaN gets no gradient.")
    return returns("Node")(raises(both=f"As `{name}` does.")(as_of(var)(found)))


nansum: Reduction = _over_numbers("sum", "0 of none")
nanprod: Reduction = _over_numbers("prod", "1 of none")
nanmean: Reduction = _over_numbers("mean", "NaN of none, without a warning")
nanvar: _Spread = _over_numbers("var", "NaN of no more than `ddof`", spread=True)
nanstd: _Spread = _over_numbers("std", "NaN of no more than `ddof`", spread=True)


@as_of(cumsum)
def nancumsum(x: Node, axis: int | None = None) -> Node:
    """`cumsum` with NaN as 0, as ``numpy.nancumsum``."""
    return cumsum(choose(isnan(x), 0, x), axis)


@as_of(cumprod)
def nancumprod(x: Node, axis: int | None = None) -> Node:
    """`cumprod` with NaN as 1, as ``numpy.nancumprod``."""
    return cumprod(choose(isnan(x), 1, x), axis)


def _position_of(x: Node, extremum: Reduction, axis: int | None, keepdims: bool) -> Node:
    return argmax(astype(x == extremum(x, axis, keepdims=True), "int8"), axis, keepdims)


@as_of(argmax)
def nanargmax(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """`argmax` of the elements that are not NaN; 0 where all are NaN, where NumPy raises."""
    return _position_of(x, nanmax, axis, keepdims)


@as_of(argmin)
def nanargmin(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """`argmin` of the elements that are not NaN; 0 where all are NaN, where NumPy raises."""
    return _position_of(x, nanmin, axis, keepdims)
