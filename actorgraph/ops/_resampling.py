"""The ops that resize images; `resampling` and `pooling` hold the functions that users call.

Interpolation and adaptive average are linear along each axis: entry i of the result is a weighted
sum of few entries of the input.  `resample` applies that sparse matrix axis by axis, and
`resample_adjoint` its transpose; the matrices depend on the two sizes alone and are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import build
from actorgraph.op import Op
from actorgraph.ops._arrays import through_float32
from actorgraph.ops._pooling import pool_put, pool_take
from actorgraph.ops._rules import declare, each, on
from actorgraph.ops.windows import build_sized
from actorgraph.types import Checks, Shape

SHARPNESS = -0.75
"""Parameter of the cubic, as in PyTorch."""

Sizes = tuple[Any, ...]


class _Rows(NamedTuple):
    """A sparse matrix: its entries, in order of their row."""

    columns: Any
    weights: Any
    starts: Any
    """Where each row that has entries starts."""
    filled: Any
    """The numbers of those rows, or None where all rows have entries."""
    layers: tuple[tuple[Any, Any], ...]
    """The first entries of rows, then the second, ...: which entries, of which rows (None: all)."""


Entries = tuple[Any, Any, Any]
"""Rows, columns and weights (None: all 1) of the entries of a matrix."""


def _nearest(size: int, out: int, ratio: float | None) -> Entries:
    index = np.arange(out)
    if ratio is None:
        return index, index * size // out, None
    return index, np.minimum((index * ratio).astype(np.int64), size - 1), None


def _nearest_exact(size: int, out: int, ratio: float | None) -> Entries:
    places = _centres(size, out, ratio) + 0.5
    return np.arange(out), np.minimum(places.astype(np.int64), size - 1), None


def _centres(size: int, out: int, ratio: float | None) -> Any:
    return (np.arange(out) + 0.5) * (size / out if ratio is None else ratio) - 0.5


def _corners(size: int, out: int) -> float:
    return (size - 1) / (out - 1) if out > 1 else 0.0


def _linear_at(places: Any, size: int) -> Entries:
    """Return linear interpolation at `places` between the entries of the input."""
    low = np.minimum(np.floor(places).astype(np.int64), size - 1)
    share = places - low
    columns = np.stack([low, np.minimum(low + 1, size - 1)], 1)
    return _by_rows(columns, np.stack([1 - share, share], 1))


def _cubic_at(places: Any, size: int) -> Entries:
    """Return cubic interpolation at `places`; beyond its ends the input goes on as it ends."""
    low = np.floor(places).astype(np.int64)
    taps = low[:, None] + np.arange(-1, 3)
    weights = _cubic(np.abs(places[:, None] - taps), SHARPNESS)
    return _by_rows(np.clip(taps, 0, size - 1), weights)


def _by_rows(columns: Any, weights: Any) -> Entries:
    rows = np.repeat(np.arange(len(columns)), columns.shape[1])
    return rows, columns.reshape(-1), weights.reshape(-1)


def cubic_near(x: Any, a: float) -> Any:
    """Return the weight of an entry at distance `x` up to 1; source: R. Keys, 1981."""
    return ((a + 2) * x - (a + 3)) * x * x + 1.0


def cubic_far(x: Any, a: float) -> Any:
    """Return the weight of an entry at distance `x` from 1 to 2."""
    return ((x - 5.0) * x + 8.0) * x * a - 4 * a


def _cubic(x: Any, a: float) -> Any:
    return np.where(x <= 1, cubic_near(x, a), np.where(x < 2, cubic_far(x, a), 0.0))


def _smooth(weigh: Callable[[Any], Any], reach: int, size: int, out: int, step: float) -> Entries:
    """Return a filter that is widened where the result is smaller, against aliasing, as in PIL."""
    wide = max(step, 1.0)
    centres = step * (np.arange(out) + 0.5)
    starts = np.maximum((centres - reach * wide + 0.5).astype(np.int64), 0)
    stops = np.minimum((centres + reach * wide + 0.5).astype(np.int64), size)
    rows, columns = _ranges(starts, stops)
    weights = weigh(np.abs((columns - centres[rows] + 0.5) / wide))
    return rows, columns, weights / np.bincount(rows, weights, out)[rows]


def _ranges(starts: Any, stops: Any) -> tuple[Any, Any]:
    columns = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
    return np.repeat(np.arange(len(starts)), stops - starts), columns


def _bounds(size: int, out: int) -> tuple[Any, Any]:
    """Return where each window of an adaptive pool starts and stops."""
    index = np.arange(out)
    return index * size // out, -((-(index + 1) * size) // out)


def _average(size: int, out: int, ratio: float | None) -> Entries:
    starts, stops = _bounds(size, out)
    rows, columns = _ranges(starts, stops)
    return rows, columns, (1 / (stops - starts))[rows]


def _tent(x: Any) -> Any:
    return np.maximum(1 - x, 0)


_smooth_linear = partial(_smooth, _tent, 1)
_smooth_cubic = partial(_smooth, partial(_cubic, a=-0.5), 2)

# Arguments are both sizes, and the distance in the input between two entries of the result, or None
# for the quotient of the sizes.
_MODES: dict[str, Callable[[int, int, float | None], Entries]] = {
    "nearest": _nearest, "nearest-exact": _nearest_exact, "average": _average,
    "linear": lambda n, out, ratio: _linear_at(np.maximum(_centres(n, out, ratio), 0), n),
    "linear of corners": lambda n, out, ratio: _linear_at(np.arange(out) * _corners(n, out), n),
    "cubic": lambda n, out, ratio: _cubic_at(_centres(n, out, ratio), n),
    "cubic of corners": lambda n, out, ratio: _cubic_at(np.arange(out) * _corners(n, out), n),
    "smooth linear": lambda n, out, ratio: _smooth_linear(n, out, ratio or n / out),
    "smooth linear of corners": lambda n, out, ratio: _smooth_linear(n, out, _corners(n, out)),
    "smooth cubic": lambda n, out, ratio: _smooth_cubic(n, out, ratio or n / out),
    "smooth cubic of corners": lambda n, out, ratio: _smooth_cubic(n, out, _corners(n, out)),
}  # fmt: skip


# Up to so many entries per row, one call for each is several times faster than reduceat.
_FEW = 8


def _layers(starts: Any, count: int) -> tuple[tuple[Any, Any], ...]:
    widths = np.diff(starts, append=count)
    if widths.max() > _FEW:
        return ()
    layers = []
    for place in range(widths.max()):
        rows = np.flatnonzero(widths > place)
        layers.append((starts[rows] + place, None if len(rows) == len(starts) else rows))
    return tuple(layers)


@lru_cache(maxsize=256)
def _matrix(mode: str, size: int, out: int, ratio: float | None, transposed: bool) -> _Rows:
    if not size or not out:
        raise ShapeError(f"cannot resample size {size} to {out}: there are no entries")
    rows, columns, weights = _MODES[mode](size, out, ratio)
    count = out
    if transposed:
        order = np.argsort(columns, kind="stable")
        rows, columns, count = columns[order], rows[order], size
        weights = None if weights is None else weights[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    filled = None if len(starts) == count else rows[starts]
    return _Rows(columns, weights, starts, filled, _layers(starts, len(rows)))


def _apply(xp: Any, x: Any, axis: int, matrix: _Rows, count: int) -> Any:
    if matrix.layers:
        y = _weighted(xp, x, axis, matrix, matrix.layers[0][0])
        for part, rows in matrix.layers[1:]:
            place = (slice(None),) * axis + (slice(None) if rows is None else xp.asarray(rows),)
            y[place] += _weighted(xp, x, axis, matrix, part)
    else:
        y = _weighted(xp, x, axis, matrix, slice(None))
        y = xp.add.reduceat(y, xp.asarray(matrix.starts), axis, dtype=x.dtype)
    if matrix.filled is None:
        return y
    out = xp.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
    out[(slice(None),) * axis + (xp.asarray(matrix.filled),)] = y
    return out


def _weighted(xp: Any, x: Any, axis: int, matrix: _Rows, part: Any) -> Any:
    """Return some of the matrix's entries times the entries of x that they meet."""
    y = x.take(xp.asarray(matrix.columns[part]), axis)
    if matrix.weights is not None:
        shape = (-1,) + (1,) * (x.ndim - axis - 1)
        y *= xp.asarray(matrix.weights[part], x.dtype).reshape(shape)
    return y


def _along(sizes: Sizes, first: int, ratios: Sizes | None) -> Any:
    """Return each axis with its new size and its ratio."""
    return zip(range(first, first + len(sizes)), sizes, ratios or (None,) * len(sizes), strict=True)


def _stays(mode: str, size: int, out: int, ratio: float | None) -> bool:
    return mode != "nearest" and size == out and ratio is None


@through_float32
def _resample_forward(xp: Any, x: Any, size: Sizes, mode: str, ratios: Sizes | None) -> Any:
    for axis, out, ratio in _along(size, x.ndim - len(size), ratios):
        if not _stays(mode, x.shape[axis], out, ratio):
            x = _apply(xp, x, axis, _matrix(mode, x.shape[axis], out, ratio, False), out)
    return x


@through_float32
def _adjoint_forward(
    xp: Any, ct: Any, *like: Any, size: Any, axes: int, mode: str, ratios: Sizes | None
) -> Any:
    sizes = like[0].shape[like[0].ndim - axes :] if like else size
    for axis, count, ratio in _along(sizes, ct.ndim - axes, ratios):
        if not _stays(mode, ct.shape[axis], count, ratio):
            matrix = _matrix(mode, count, ct.shape[axis], ratio, True)
            ct = _apply(xp, ct, axis, matrix, count)
    return ct


RESAMPLE: Op = declare(
    "resample", "f[*s] -> f[*out]", _resample_forward,
    shape=lambda checks, x, size, **attrs: (*x[: len(x) - len(size)], *size),
    vjp=(lambda ct, y, x, size, **at: (
        build_sized(_ADJOINT, (ct,), x, len(size), axes=len(size), **at)
    ),),
    linear=(0,), cost=lambda shapes, result, attrs: 4 * len(attrs["size"]) * prod(result),
    samples=(
        on((2, 3, 4), size=(5, 2), mode="nearest", ratios=None),
        on((2, 3, 4), size=(5, 2), mode="linear", ratios=(0.7, 1.9)),
        on((2, 4), size=(7,), mode="cubic of corners", ratios=None),
        on((2, 5, 4), size=(3, 6), mode="average", ratios=None),
        on((0, 4), size=(2,), mode="average", ratios=None),
    ),
    doc="Weighted sums of entries along trailing axes, to other sizes.",
)  # fmt: skip

_ADJOINT: Op = declare(
    "resample_adjoint", lambda arity, attrs: f"f[*s] -> {'a[*t] -> ' if arity == 2 else ''}f[*out]",
    _adjoint_forward,
    shape=lambda checks, ct, *like, size, axes, **attrs: (
        *ct[: len(ct) - axes], *(like[0][len(like[0]) - axes :] if like else size),
    ),
    vjp=lambda argnum, u, y, ct, *like, size, axes, **attrs: (
        None if argnum else build(RESAMPLE, u, size=ct.dims[ct.ndim - axes :], **attrs)
    ),
    linear=(0,),
    cost=lambda shapes, result, attrs: 4 * attrs["axes"] * prod(shapes[0]),
    samples=(
        on((2, 5, 2), size=(3, 4), axes=2, mode="nearest", ratios=None),
        on((2, 7), (2, 4), size=None, axes=1, mode="linear", ratios=(0.6,)),
    ),
    doc="The adjoint of resample.",
)  # fmt: skip


def _adaptive_max_forward(xp: Any, x: Any, size: Sizes) -> Any:
    for axis, out in enumerate(size, x.ndim - len(size)):
        rows = _matrix("average", x.shape[axis], out, None, False)
        entries = x.take(xp.asarray(rows.columns), axis)
        x = _largest_of_parts(xp, entries, rows.starts, axis)
    return x


def _largest_of_parts(xp: Any, x: Any, starts: Any, axis: int) -> Any:
    if xp is np:
        return np.maximum.reduceat(x, starts, axis)
    stops = np.append(starts[1:], x.shape[axis])
    top = x.take(xp.asarray(starts), axis)
    for offset in range(1, int((stops - starts).max())):
        top = xp.maximum(top, x.take(xp.asarray(np.minimum(starts + offset, stops - 1)), axis))
    return top


def _adaptive_places_forward(xp: Any, x: Any, y: Any, size: Sizes) -> Any:
    axes = len(size)
    sizes = x.shape[x.ndim - axes :]
    bounds = [_bounds(*pair) for pair in zip(sizes, size, strict=True)]
    numbers = xp.arange(prod(sizes)).reshape(sizes)
    places = xp.zeros(y.shape, xp.int64)
    widths = [int((stops - starts).max()) for starts, stops in bounds]
    # From the last entry of a window to the first, so that the first of equal ones stays.
    for offsets in product(*(reversed(range(width)) for width in widths)):
        along = [
            np.minimum(starts + offset, stops - 1)
            for (starts, stops), offset in zip(bounds, offsets, strict=True)
        ]
        index = xp.ix_(*map(xp.asarray, along))
        entries = x[(..., *index)]
        xp.copyto(places, numbers[index], where=(entries == y) | (entries != entries))
    return places


def _adaptive_max_shape(checks: Checks, x: Shape, *, size: Sizes) -> Shape:
    sizes = x[len(x) - len(size) :]
    if 0 in sizes:
        raise ShapeError(f"no entries to choose from in {x}")
    return (*x[: len(x) - len(size)], *size)


ADAPTIVE_PLACES: Op = declare(
    "adaptive_max_places", "r[*s] -> r[*t] -> int64[*t]", _adaptive_places_forward,
    samples=(on((2, 5, 4), (2, 3, 2), size=(3, 2)),),
    doc="Number, within the last axes, of the entry that each adaptive maximum comes from.",
)  # fmt: skip

ADAPTIVE_MAX: Op = declare(
    "adaptive_max_pool", "r[*s] -> r[*out]", _adaptive_max_forward, shape=_adaptive_max_shape,
    vjp=(
        lambda ct, y, x, size: pool_put(ct, build(ADAPTIVE_PLACES, x, y, size=size), x, len(size)),
    ),
    jvp=lambda tans, y, x, size: pool_take(
        tans[0], build(ADAPTIVE_PLACES, x, y, size=size), len(size)
    ),
    cost=each(4, 0),
    samples=(on((2, 5, 4), size=(3, 2)), on((2, 3), size=(5,)), on((0, 3), size=(2,))),
    doc="Maximum over windows whose sizes follow from the result's.",
)  # fmt: skip
