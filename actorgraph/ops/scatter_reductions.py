"""Reductions of values that are written to one place, and PyTorch's other functions of indices.

Sums and means use the op that adds at an index; products, maxima and minima the op
`index_put_reduce`.  No gradient divides: that of a product is the product of the other factors,
also where some are zero.  The other functions are a line or two of ops, and raise as these do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf, nan
from typing import Any

import numpy as np

from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import CONSTANT, FRESH, Op, Sample
from actorgraph.operands import as_node
from actorgraph.ops import _foreign
from actorgraph.ops._arrays import combine_at, through_float32
from actorgraph.ops._rules import NO_FIT, NO_INDEX, as_of, declare, raises, returns
from actorgraph.ops.arithmetic import floor_divide
from actorgraph.ops.assignment import (
    INDEX_ADD,
    INDEX_PUT,
    WRITES,
    along,
    check_values,
    index_add,
    index_put,
    of_slices,
    scatter_add,
    writing_scheme,
    written_shape,
)
from actorgraph.ops.broadcasting import along_axis, broadcast_like, conj, expand_dims, squeeze
from actorgraph.ops.counting import histogram
from actorgraph.ops.creation import full, full_like, meshgrid, ones_like
from actorgraph.ops.elementwise import astype, isnan, where
from actorgraph.ops.gathering import gather, positions_of, size_of
from actorgraph.ops.indexing import Index, flat_places, getitem, take, take_index
from actorgraph.ops.rearranging import flip, pad
from actorgraph.ops.reductions import cumsum, products_before
from actorgraph.ops.reductions import max as max_of
from actorgraph.ops.reductions import min as min_of
from actorgraph.ops.reshaping import ravel, reshape_like
from actorgraph.ops.shaping import concatenate, one_axis, stack
from actorgraph.ops.sorting import argsort, searchsorted
from actorgraph.ops.statistics import norm
from actorgraph.types import UNKNOWN

__all__ = [
    "aminmax", "block_diag", "bucketize", "cartesian_prod", "dist", "histc", "index_copy",
    "index_fill", "index_reduce", "index_select", "kthvalue", "lerp", "masked_fill",
    "masked_select", "narrow", "renorm", "scatter_reduce", "segment_reduce", "select_scatter",
    "slice_scatter",
]  # fmt: skip

_UFUNCS = {"prod": "multiply", "amax": "maximum", "amin": "minimum"}
_REDUCTIONS = ("sum", "mean", *_UFUNCS)


@through_float32
def _reduce_forward(xp: Any, x: Any, values: Any, *arrays: Any, index: Index, reduce: str) -> Any:
    out = xp.array(x, order="C")
    check_values(values, x.shape, arrays, index)
    places = flat_places(xp, x.shape, arrays, index).reshape(-1)
    combine_at(xp, _UFUNCS[reduce], out.reshape(-1), places, values.reshape(-1))
    return out


def _same(x: Node, y: Node) -> Node:
    return astype((x == y) | (isnan(x) & isnan(y)), x.dtype)


def _rates(
    y: Node, x: Node, values: Node, arrays: Sequence[Node], index: Index, reduce: str
) -> tuple[Node, Node]:
    """Return the derivatives of the result by the old entries and by the values."""
    if reduce == "prod":
        return _others(x, values, arrays, index)
    # As for `max`, entries that tie share the gradient equally.
    kept, taken = _same(x, y), _same(values, take_index(y, index, arrays))
    count = build(INDEX_ADD, kept, taken, *arrays, index=index)
    return kept / count, taken / take_index(count, index, arrays)


def _numbers(x: Node) -> Node:
    """Return the number of each element in C order, in the shape of `x`."""
    return reshape_like(cumsum(ones_like(ravel(x), "int64")) - 1, x)


def _others(x: Node, values: Node, arrays: Sequence[Node], index: Index) -> tuple[Node, Node]:
    """Return for each element the product of all others of its place."""
    home = _numbers(x)
    places = concatenate([ravel(home), ravel(take_index(home, index, arrays))])
    order = argsort(places)
    ordered = take(places, order)
    factors = take(concatenate([ravel(x), ravel(values)]), order)
    behind = flip(products_before(flip(factors), flip(ordered)))
    others, now = products_before(factors, ordered) * behind, argsort(order)
    of_x = take(others, take(now, home))
    return of_x, take(others, take(now, _numbers(values) + size_of(x)))


def _reduce_vjp(
    argnum: int, ct: Node, y: Node, x: Node, values: Node, *arrays: Node, **attrs: Any
) -> Node | None:
    if argnum > 1:
        return None
    rate = _rates(y, x, values, arrays, **attrs)[argnum]
    ct = take_index(ct, attrs["index"], arrays) if argnum else ct
    return ct * conj(rate)


def _reduce_jvp(
    tans: tuple[Node | None, ...], y: Node, x: Node, values: Node, *arrays: Node, **attrs: Any
) -> Node | None:
    if tans[0] is None and tans[1] is None:
        return None
    of_x, of_values = _rates(y, x, values, arrays, **attrs)
    moved = of_x * 0 if tans[0] is None else tans[0] * of_x
    if tans[1] is None:
        return moved
    return build(INDEX_ADD, moved, tans[1] * of_values, *arrays, index=attrs["index"])


_INDEX_REDUCE: Op = declare(
    "index_put_reduce",
    lambda arity, attrs: writing_scheme("n" if attrs["reduce"] == "prod" else "r")(arity, attrs),
    _reduce_forward, shape=written_shape, vjp=_reduce_vjp, jvp=_reduce_jvp,
    samples=tuple(
        Sample(s.shapes, {**s.attrs, "reduce": reduce}, ints=s.ints)
        for s in WRITES
        for reduce in _UFUNCS
    ),
    memory=FRESH,
    doc="An array with values multiplied, or the largest or smallest taken, at an index.",
)  # fmt: skip


def _identity(dtype: np.dtype[Any], reduce: str) -> Any:
    """Return the number with which a reduction begins."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if reduce == "amax" else limits.max
    return -inf if reduce == "amax" else inf


def _check(reduce: str) -> None:
    if reduce not in _REDUCTIONS:
        raise GraphError(f"reduce is one of {', '.join(_REDUCTIONS)}, got {reduce!r}")


def _reduced(
    x: Node, values: Node, arrays: Sequence[Node], index: Index, reduce: str, include_self: bool
) -> Node:
    def begun(start: Node, value: Any) -> Node:
        if include_self:
            return start
        return build(INDEX_PUT, start, full_like(values, value, start.dtype), *arrays, index=index)

    start = begun(x, _identity(x.dtype, reduce))
    if reduce in _UFUNCS:
        return build(_INDEX_REDUCE, start, values, *arrays, index=index, reduce=reduce)
    total = build(INDEX_ADD, start, values, *arrays, index=index)
    if reduce == "sum":
        return total
    count = build(INDEX_ADD, begun(ones_like(x), 0), ones_like(values), *arrays, index=index)
    return total / count if x.dtype.kind in "fcV" else floor_divide(total, count)


@raises(other="There is no such reduction.", types=NO_INDEX, shapes=NO_FIT)
@returns("Node of the type of `x`")
@as_of(scatter_add)
@along_axis("x")
def scatter_reduce(
    x: Node, axis: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Node:
    """Return `x` with `src` reduced into it along an axis, as ``torch.scatter_reduce``.

    For axis 1 of a matrix and "prod" ``result[i, index[i, j]] *= src[i, j]``; `scatter_add` is
    "sum".  Entries that tie for "amax" and "amin" share the gradient equally.

    Parameters
    ----------
    index : integer array or node
        Of the rank of `x`, along the other axes at most as long as it.
    src : node, array or scalar
        Broadcasts to the shape of the index; entries beyond it are left out.
    reduce : str
        "sum", "mean" (of integers rounded down), "prod", "amax" or "amin".
    include_self : bool
        Whether the entry of `x` counts too where something is written.
    """
    _check(reduce)
    return _reduced(x, *along(x, axis, index, src), reduce, include_self)


@returns("Node of the type of `x`")
@raises(NO_INDEX, NO_FIT, other="There is no such reduction.")
@as_of(scatter_reduce)
@as_of(index_add)
@along_axis("x")
def index_reduce(
    x: Node, axis: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Node:
    """Return `x` with slices of `source` reduced into an axis, as ``torch.index_reduce``.

    For axis 0 and "amax" ``result[index[i]] = maximum(result[index[i]], source[i])``; `index_add`
    is "sum", `scatter_reduce` takes a position for each entry.
    """
    _check(reduce)
    return _reduced(x, *of_slices(x, axis, index, source), reduce, include_self)


@returns("Node: a segment of no entries is `initial`, or 0, NaN, 1, -inf, inf")
@raises(
    other="There is no such reduction, or not one of `lengths` and `offsets`.",
    shapes="The lengths have not one dim, the segments are not the axis, or a dim of `x` is None.",
)  # fmt: skip
def segment_reduce(
    x: Node, reduce: str, *, lengths: Any = None, offsets: Any = None, axis: int = 0,
    initial: Any = None,
) -> Node:  # fmt: skip
    """Reduce neighbours along an axis, as ``torch.segment_reduce`` of ``lengths`` of one dim.

    Parameters
    ----------
    x : node
        Dims other than the axis are not None.
    reduce : str
        "sum", "mean", "prod", "max" or "min" ("amax" and "amin" are the same).
    lengths : integer array or node, optional
        How many entries each segment has.
    offsets : integer array or node, optional
        In place of `lengths` where each segment begins, and at last where the last one ends.
    initial : scalar, optional
        The value with which each segment begins; not for "mean".
    """
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    _check(reduce)
    if (lengths is None) == (offsets is None) or (reduce == "mean" and initial is not None):
        raise GraphError("takes either lengths= or offsets=, and initial= but for a mean")
    if reduce == "mean" and x.dtype.kind in "iu":
        raise GraphTypeError(f"mean of {x!r}: convert it first, .astype('float64')")
    place = one_axis(axis, x.ndim)
    counts, ends = _segments(x.dims[place], x, lengths, offsets)
    dims = (*x.dims[:place], counts.dims[0], *x.dims[place + 1 :])
    if UNKNOWN in dims:
        raise ShapeError(f"every dim has to be an int or a symbol, got {dims}")
    row = getitem(x, (*[0] * place, slice(None), *[0] * (x.ndim - place - 1)))
    segment = searchsorted(ends, _numbers(row), side="right")
    begin = _identity(x.dtype, reduce) if initial is None else initial
    base = full(x.graph, dims, begin, x.dtype)
    total = index_reduce(base, place, segment, x, "sum" if reduce == "mean" else reduce)
    if reduce != "mean":
        return total
    # NaN for no entries; a product with it does not warn, also of complex numbers.
    rate = astype(1 / where(counts == 0, nan, astype(counts, "float64")), x.dtype)
    mean: Node = total * expand_dims(rate, tuple(range(1, x.ndim - place)))
    return mean


def _segments(dim: Any, x: Node, lengths: Any, offsets: Any) -> tuple[Node, Node]:
    """Return how many entries each segment has, and where it ends; constants are checked."""
    given = positions_of(x, lengths if offsets is None else offsets)
    if given.ndim != 1:
        raise ShapeError(f"segment_reduce: lengths and offsets have one dim, got {given!r}")
    if given.op is CONSTANT and isinstance(dim, int):
        value = given.attrs["value"]
        bounds = (0, value.sum()) if offsets is None else (value[0], value[-1])
        if bounds != (0, dim):
            raise ShapeError(f"segment_reduce: the segments are not all of dim {dim} of {x!r}")
    if offsets is None:
        return given, cumsum(given)
    return given[1:] - given[:-1], given[1:]


def _at(x: Node, axis: int, part: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * one_axis(axis, x.ndim), part)


def masked_fill(x: Node, mask: Any, value: Any) -> Node:
    """Return `x` with a value where a mask, which broadcasts to `x`, holds."""
    return where(mask, value, x)


def _with_slices(x: Node, axis: int, index: Any, source: Any) -> Node:
    values, arrays, static = of_slices(x, axis, index, source)
    return build(INDEX_PUT, x, values, *arrays, index=static)


@along_axis("x")
def index_fill(x: Node, axis: int, index: Any, value: Any) -> Node:
    """Return `x` with a value in the slices along an axis that an index of one dim names."""
    return _with_slices(x, axis, index, value)


@along_axis("x")
def index_copy(x: Node, axis: int, index: Any, source: Any) -> Node:
    """Return `x` with the slices of `source` written along an axis; the last write stays."""
    return _with_slices(x, axis, index, source)


def select_scatter(x: Node, src: Any, axis: int, index: int) -> Node:
    """Return `x` with `src` as its slice at one place along an axis."""
    return index_put(x, _at(x, axis, index), src)


def slice_scatter(
    x: Node, src: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Node:
    """Return `x` with `src` in place of ``x[start:end:step]`` along an axis."""
    return index_put(x, _at(x, axis, slice(start, end, step)), src)


def masked_select(x: Node, mask: Any) -> Node:
    """Return the elements where a mask holds, in one dim; the two broadcast."""
    held = as_node(mask, x)
    whole = full_like(x, True, "bool") & held
    return getitem(ravel(broadcast_like(x, whole)), ravel(whole))


@along_axis("x")
def index_select(x: Node, axis: int, index: Any) -> Node:
    """Return the slices along an axis that an index of one dim names."""
    return take(x, index, axis)


def narrow(x: Node, axis: int, start: int, length: int) -> Node:
    """Return so many entries along an axis from a place on."""
    dim, stop = x.dims[one_axis(axis, x.ndim)], start + length
    if length < 0 or (isinstance(dim, int) and not -dim <= start <= stop <= dim * (start >= 0)):
        raise ShapeError(f"{length} entries from {start} on are not all in dim {dim} of {x!r}")
    return getitem(x, _at(x, axis, slice(start, None if start < 0 == stop else stop)))


@along_axis("x")
def kthvalue(x: Node, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the k-th smallest value along an axis, from 1 on, and its position."""
    place = one_axis(axis, x.ndim)
    dim = x.dims[place]
    if k < 1 or (isinstance(dim, int) and k > dim):
        raise ShapeError(f"k is between 1 and the dim {dim} of {x!r}, got {k}")
    position = getitem(argsort(x, place), _at(x, place, slice(k - 1, k)))
    found = gather(x, place, position), position
    return found if keepdims else (squeeze(found[0], place), squeeze(position, place))


def aminmax(x: Node, axis: Any = None, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the minimum and the maximum over axes."""
    return min_of(x, axis, keepdims), max_of(x, axis, keepdims)


def block_diag(*nodes: Node) -> Node:
    """Return the matrix with matrices, or rows, as its diagonal blocks, and zeros elsewhere."""
    blocks = [expand_dims(x, tuple(range(2 - x.ndim))) if x.ndim < 2 else x for x in nodes]
    widths = [x.dims[1] for x in blocks]
    if not all(isinstance(width, int) for width in widths):
        raise ShapeError(f"the number of columns of each block is a known int, got {widths}")
    ends: Any = np.cumsum([0, *widths]).tolist()
    places = zip(blocks, ends, ends[1:], strict=False)
    return concatenate([pad(x, ((0, 0), (a, ends[-1] - b))) for x, a, b in places], 0)


def cartesian_prod(*nodes: Node) -> Node:
    """Return all tuples of an entry of each vector, as rows; of one vector that vector."""
    if len(nodes) == 1:
        return nodes[0]
    return stack([ravel(grid) for grid in meshgrid(*nodes, indexing="ij")], 1)


def dist(x: Node, y: Any, p: float = 2) -> Node:
    """Return the p-norm of all elements of ``x - y``."""
    return norm(x - y, p)


def renorm(x: Node, p: float, axis: int, maxnorm: float) -> Node:
    """Return `x` with its slices along an axis scaled down to a p-norm of at most `maxnorm`."""
    place = one_axis(axis, x.ndim)
    others = tuple(i for i in range(x.ndim) if i != place)
    size = norm(x, p, others, keepdims=True)
    return x * astype(where(size > maxnorm, maxnorm / (size + 1e-7), 1), x.dtype)


def lerp(x: Node, end: Any, weight: Any) -> Node:
    """Return ``x + weight * (end - x)``."""
    moved: Node = x + weight * (end - x)
    return moved


def bucketize(x: Node, boundaries: Any, *, right: bool = False) -> Node:
    """Tell where each element would be inserted in sorted boundaries; `right`: behind equals."""
    return searchsorted(as_node(boundaries, x), x, "right" if right else "left")


def histc(x: Node, bins: int = 100, low: float = 0, high: float = 0) -> Node:
    """Count in bins of one width, in the dtype of `x`; of all elements where low == high."""
    limits = None if low == high else (low, high)
    return histogram(x, bins, limits)[0].astype(x.dtype)


_foreign.install_late(sys.modules[__name__])
