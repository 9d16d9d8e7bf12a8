"""Order and search: sort, argsort, topk, mode, searchsorted, unique, nonzero, isin.

Sorting is stable, and NaN counts as the largest value, as in NumPy and PyTorch; the gradient of a
sorted value goes to the element that it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample
from actorgraph.operands import as_node
from actorgraph.ops._arrays import running
from actorgraph.ops._rules import as_of, declare, each, on, raises, returns
from actorgraph.ops.arithmetic import floor_divide, mod
from actorgraph.ops.assignment import index_put, scatter_add
from actorgraph.ops.broadcasting import along_axis, broadcast_like, squeeze, zeros_like
from actorgraph.ops.creation import full_like
from actorgraph.ops.elementwise import astype, minimum
from actorgraph.ops.gathering import gather, size_of
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.reductions import cumsum
from actorgraph.ops.reshaping import positions_where, ravel, reshape_like
from actorgraph.ops.shaping import one_axis, stack
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, shape_from

__all__ = [
    "argsort", "argwhere", "flatnonzero", "isin", "masked_scatter", "mode", "nonzero",
    "searchsorted", "sort", "topk", "unique",
]  # fmt: skip


_cost = each(20, 0)


def _stable_order(xp: Any, x: Any, axis: int) -> Any:
    """Return ``argsort(x, kind="stable")``.

    Any algorithm gives rows without ties and NaN the same order, and NumPy's default one is several
    times faster for floats, even with the check for ties.
    """
    if x.dtype.kind != "f" or xp is not np:  # CuPy has no other
        return xp.argsort(x, axis=axis, kind="stable")
    rows = xp.moveaxis(x, axis, -1)
    order = xp.argsort(rows, axis=-1)
    ordered = xp.take_along_axis(rows, order, -1)
    tied = xp.logical_not((ordered[..., :-1] < ordered[..., 1:]).all(axis=-1))
    if tied.any():
        order[tied] = xp.argsort(rows[tied], axis=-1, kind="stable")
    return xp.moveaxis(order, -1, axis)


def _argsort_forward(xp: Any, x: Any, axis: int, descending: bool) -> Any:
    if not descending:
        return _stable_order(xp, x, axis).astype(xp.int64, copy=False)
    # Reversed before and after, so that ties keep their order.
    order = _stable_order(xp, xp.flip(x, axis), axis)
    return (x.shape[axis] - 1 - xp.flip(order, axis)).astype(xp.int64, copy=False)


_SORT_SAMPLES = (
    on((3, 4), axis=1, descending=False), on((3, 4), axis=0, descending=True),
    on((0, 2), axis=0, descending=False),
)  # fmt: skip

_ARGSORT: Op = declare(
    "argsort", "r[*s] -> int64[*s]", _argsort_forward, cost=_cost, samples=_SORT_SAMPLES,
)  # fmt: skip


_SORT: Op = declare(
    "sort", "r[*s] -> r[*s]",
    lambda xp, x, axis, descending: (
        xp.flip(xp.sort(x, axis=axis), axis) if descending else xp.sort(x, axis=axis)
    ),
    cost=_cost, samples=_SORT_SAMPLES,
    vjp=(lambda ct, y, x, axis, descending: scatter_add(
        zeros_like(x), axis, build(_ARGSORT, x, axis=axis, descending=descending), ct),),
    jvp=lambda tans, y, x, axis, descending: gather(
        tans[0], axis, build(_ARGSORT, x, axis=axis, descending=descending)),
)  # fmt: skip


@raises(types="`x` is bool or complex.", shapes="There is no such axis.")
@along_axis("x")
def sort(x: Node, axis: int | None = -1, descending: bool = False) -> Node:
    """Sort along an axis; the gradient of each value goes to the element that it was.

    Parameters
    ----------
    x : node
        Real numbers.
    axis : int or None
        None sorts the flattened array.
    descending : bool
        The largest first; NaN counts as the largest.
    """
    if axis is None:
        x, axis = ravel(x), 0
    return build(_SORT, x, axis=one_axis(axis, x.ndim), descending=bool(descending))


@returns("Node without a gradient")
@as_of(sort)
@along_axis("x")
def argsort(x: Node, axis: int | None = -1, descending: bool = False) -> Node:
    """Return the int64 positions that `sort` along an axis; equal values keep their order."""
    if axis is None:
        x, axis = ravel(x), 0
    return build(_ARGSORT, x, axis=one_axis(axis, x.ndim), descending=bool(descending))


def _topk_shape(checks: Checks, x: Shape, *, k: int, axis: int, largest: bool) -> Shape:
    dim = x[axis]
    if isinstance(dim, int) and isinstance(k, int) and k > dim:
        raise ShapeError(f"k {k} exceeds dim {dim} at axis {axis}")
    return (*x[:axis], k, *x[axis + 1 :])


def _topk_forward(xp: Any, x: Any, k: int, axis: int, largest: bool) -> Any:
    if k > x.shape[axis]:
        raise ValueError(f"k {k} exceeds dim {x.shape[axis]} at axis {axis}")
    order = _argsort_forward(xp, x, axis, largest)
    return order[(*[slice(None)] * axis, slice(k))]


_TOPK: Op = declare(
    "topk_indices", "r[*s] -> int64[*out]", _topk_forward, shape=_topk_shape, cost=_cost,
    samples=(on((3, 4), k=2, axis=1, largest=True), on((3, 4), k=0, axis=0, largest=False)),
    doc="Positions of the k largest or smallest entries along an axis, in order.",
)  # fmt: skip


@raises("`x` is bool or complex, or `k` is no int.", "`k` does not fit, or there is no such axis.")
@along_axis("x")
def topk(x: Node, k: Any, axis: int = -1, largest: bool = True) -> tuple[Node, Node]:
    """Return the k largest (or smallest) entries along an axis, in order, and their positions.

    As ``torch.topk`` with ``sorted=True``; of equal entries the one at the smaller position comes
    first.

    Parameters
    ----------
    x : node
        Real numbers; NaN counts as the largest.
    k : int or dim
        At most the dim, which the run checks where it is not known earlier.

    Returns
    -------
    values, indices : Node
        The gradient of the values goes to the entries that they were; the int64 indices have
        none.
    """
    place = one_axis(axis, x.ndim)
    if not isinstance(k, (int, np.integer, Dim)) or isinstance(k, bool):
        raise GraphTypeError(f"k is an int or a dim, got {k!r}")
    (count,) = shape_from((k,))
    indices = build(_TOPK, x, k=count, axis=place, largest=bool(largest))
    return gather(x, place, indices), indices


def _mode_shape(checks: Checks, x: Shape, *, axis: int) -> Shape:
    if x[axis] == 0:
        raise ShapeError(f"no elements to choose from along axis {axis} of {x}")
    return (*x[:axis], 1, *x[axis + 1 :])


def _mode_forward(xp: Any, x: Any, axis: int) -> Any:
    rows = xp.moveaxis(x, axis, -1)
    order = xp.argsort(rows, axis=-1, kind="stable")
    ordered = xp.take_along_axis(rows, order, -1)
    places = xp.broadcast_to(xp.arange(rows.shape[-1]), rows.shape)
    begins = xp.ones(rows.shape, bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    length = places - running(xp, "maximum", xp.where(begins, places, 0), places.ndim - 1)
    # The first of the longest runs is the smallest value; its end is its last entry.
    found = xp.take_along_axis(order, length.argmax(axis=-1)[..., None], -1)
    return xp.moveaxis(found, -1, axis).astype(xp.int64, copy=False)


_MODE: Op = declare(
    "mode_indices", "r[*s] -> int64[*out]", _mode_forward, shape=_mode_shape, cost=_cost,
    samples=(Sample(((3, 4),), {"axis": 1}, ints={0: 3}), on((4, 2), axis=0)),
    doc="Position of the most frequent value along an axis.",
)  # fmt: skip


@raises(types="`x` is bool or complex.", shapes="There is no such axis, or it has no entries.")
@along_axis("x")
def mode(x: Node, axis: int = -1, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the most frequent value along an axis and its last position, as ``torch.mode``.

    Parameters
    ----------
    x : node
        Real numbers; each NaN is a value of its own.

    Returns
    -------
    values, indices : Node
        The smallest of equally frequent values.  Its gradient goes to the entry at its position;
        the int64 indices have none.
    """
    place = one_axis(axis, x.ndim)
    positions = build(_MODE, x, axis=place)
    values = gather(x, place, positions)
    if keepdims:
        return values, positions
    return squeeze(values, place), squeeze(positions, place)


_SEARCH: Op = declare(
    "searchsorted", "r[n] -> r[*s] -> int64[*s]",
    lambda xp, ordered, x, side: xp.asarray(xp.searchsorted(ordered, x, side), xp.int64),
    cost=each(10),
    samples=(
        Sample(((4,), (2, 3)), {"side": "left"}, ints={0: 5, 1: 5}), on((0,), (3,), side="right"),
    ),
)  # fmt: skip


@returns("Node: int64, of the shape of `x`, without a gradient")
@raises(
    types="The dtypes differ or are not real, or `side` is neither \"left\" nor \"right\".",
    both="`ordered` has not one dim.",
)  # fmt: skip
def searchsorted(ordered: Any, x: Any, side: str = "left") -> Node:
    """Return where each value would be inserted into a sorted array, as ``numpy.searchsorted``.

    Parameters
    ----------
    ordered : node or array
        One dim, in ascending order, which is not checked.
    x : node, array or scalar
        Any shape; at least one of the two is a node.
    side : {"left", "right"}
        Before or behind equal entries.
    """
    if side not in ("left", "right"):
        raise GraphTypeError(f"side is 'left' or 'right', got {side!r}")
    return build(_SEARCH, ordered, x, side=side)


_WHICH = {"values": None, "index": "return_index", "inverse": "return_inverse",
          "counts": "return_counts"}  # fmt: skip


def _unique_scheme(arity: int, attrs: Attrs) -> str:
    if attrs["which"] == "inverse":
        return "a[*s] -> int64[*s]"
    return "a[*s] -> a[*out]" if attrs["which"] == "values" else "a[*s] -> int64[*out]"


def _unique_forward(xp: Any, x: Any, which: str) -> Any:
    wanted = _WHICH[which]
    if wanted is None:
        return xp.unique(x)
    result = xp.unique(x, **{wanted: True})[1]
    return xp.asarray(result.reshape(x.shape) if which == "inverse" else result, xp.int64)


_UNIQUE: Op = declare(
    "unique", _unique_scheme, _unique_forward,
    shape=lambda checks, x, which: x if which == "inverse" else (UNKNOWN,), cost=_cost,
    samples=tuple(Sample(((3, 4),), {"which": which}, ints={0: 5}) for which in _WHICH),
)  # fmt: skip


def unique(
    x: Node, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    """Return the different values in ascending order, as ``numpy.unique`` of the whole array.

    Parameters
    ----------
    return_index, return_inverse, return_counts : bool
        Also the first position of each value in the flattened array, for each element the
        position of its value (in the shape of `x`), and how often each value stands there.

    Returns
    -------
    Node, or tuple of Node
        One dim, whose size only a run knows (None).  There is no gradient: a wrt that reaches an
        output through `unique` raises.  ``x[index]`` with the returned index has one.
    """
    flags = {"index": return_index, "inverse": return_inverse, "counts": return_counts}
    wanted = ["values", *(which for which, flag in flags.items() if flag)]
    nodes = tuple(build(_UNIQUE, x, which=which) for which in wanted)
    return nodes if len(nodes) > 1 else nodes[0]


@returns("Node of int64 and one dim, whose size only a run knows (None); it has no gradient")
def flatnonzero(x: Node) -> Node:
    """Return the positions in the flattened array of what is not zero, as ``numpy.flatnonzero``.

    Parameters
    ----------
    x : node
        Any shape and dtype; NaN is not zero.
    """
    flat = ravel(x)
    return positions_where(flat if flat.dtype.kind == "b" else flat != 0, flat)


@raises(shapes="`x` is a scalar.")
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
    >>> import actorgraph as ag
    >>> rows, columns = ag.ops.nonzero(ag.Graph().input("x", ("n", 3)))
    >>> rows.shape, columns.dtype
    ((None,), dtype('int64'))
    """
    if not x.ndim:
        raise ShapeError(f"{x!r} has no axes; use ag.ops.ravel(x) first")
    left = flatnonzero(x)
    places = []
    for axis in range(x.ndim - 1, 0, -1):
        size = size_of(x, axis)
        places.append(mod(left, size))
        left = floor_divide(left, size)
    return (left, *reversed(places))


@returns("Node of int64 and shape ``(None, x.ndim)``, without a gradient")
@as_of(nonzero)
def argwhere(x: Node) -> Node:
    """Return what `nonzero` does as one row for each element, as ``numpy.argwhere``."""
    return stack(nonzero(x), 1)


@returns("Node of bools, in the shape of `x`")
@raises(types="The dtypes differ, or are bool or complex.")
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
    """
    ordered = sort(ravel(as_node(test, x)))
    if ordered.dims[0] == 0:
        found = full_like(x, False, "bool")
    else:
        place = minimum(searchsorted(ordered, x), size_of(ordered) - 1)
        found = take(ordered, place) == x
    return ~found if invert else found


@returns("Node of the type of `x`; what is left out and what is replaced get no gradient")
@raises("The mask is not of bools, or the dtypes differ.", "The mask does not broadcast to `x`.")
def masked_scatter(x: Node, mask: Any, source: Any) -> Node:
    """Return `x` with the elements of `source`, in order, where a mask holds.

    As ``torch.Tensor.masked_scatter``.

    Parameters
    ----------
    mask : bool array or node
        Broadcasts to `x`.
    source : node or array
        At least as many elements as the mask has; the others are left out.
    """
    held = x.graph.lift(mask if isinstance(mask, Node) else np.asarray(mask))
    if held.dtype.kind != "b":
        raise GraphTypeError(f"the mask holds bools, got {held!r}")
    flat, held = ravel(x), ravel(broadcast_like(held, x))
    values = ravel(as_node(source, x))
    places = positions_where(held, flat)
    numbers = getitem(cumsum(astype(held, "int64")) - 1, places)
    return reshape_like(index_put(flat, places, take(values, numbers)), x)
