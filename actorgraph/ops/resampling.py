"""Other sizes of an image: upsampling, adaptive pools, pixel shuffle.

Nearest and bilinear upsampling and adaptive average are linear along each axis: entry i of the
result is a weighted sum of few entries of the input.  `resample` applies that sparse matrix axis by
axis, and `resample_adjoint` its transpose; the matrices depend on the two sizes alone and are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample, register
from actorgraph.ops._half import through_float32
from actorgraph.ops._pooling import pool_put, pool_take
from actorgraph.ops.grouping import group_dim, ungroup_dims
from actorgraph.ops.shaping import transpose
from actorgraph.ops.windows import known, per_axis
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, shape_from

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "pixel_shuffle", "pixel_unshuffle", "upsample",
]  # fmt: skip

Sizes = tuple[Any, ...]


# -- sparse matrices along an axis ------------------------------------------------------------


class _Rows(NamedTuple):
    """A sparse matrix by rows: entries in order of their row."""

    columns: Any
    weights: Any
    starts: Any
    """Where each row that has entries starts."""
    filled: Any
    """The numbers of those rows, or None where all rows have entries."""
    layers: tuple[tuple[Any, Any], ...]
    """The first entries of all rows, the second ones, ...: which, and of which rows (None: all)."""


Entries = tuple[Any, Any, Any]
"""Rows, columns and weights (None: all 1) of the entries of a matrix."""


def _nearest(size: int, out: int) -> Entries:
    return np.arange(out), np.arange(out) * size // out, None


def _between(places: Any, size: int, out: int) -> Entries:
    """Return linear interpolation at `places` between the entries of the input."""
    low = np.minimum(np.floor(places).astype(np.int64), size - 1)
    share = places - low
    rows = np.repeat(np.arange(out), 2)
    columns = np.stack([low, np.minimum(low + 1, size - 1)], 1).reshape(-1)
    return rows, columns, np.stack([1 - share, share], 1).reshape(-1)


def _linear(size: int, out: int) -> Entries:
    return _between(np.maximum((np.arange(out) + 0.5) * size / out - 0.5, 0), size, out)


def _linear_of_corners(size: int, out: int) -> Entries:
    return _between(np.arange(out) * ((size - 1) / (out - 1) if out > 1 else 0.0), size, out)


def _bounds(size: int, out: int) -> tuple[Any, Any]:
    """Return where each window of an adaptive pool starts and stops."""
    index = np.arange(out)
    return index * size // out, -((-(index + 1) * size) // out)


def _average(size: int, out: int) -> Entries:
    starts, stops = _bounds(size, out)
    counts = stops - starts
    rows = np.repeat(np.arange(out), counts)
    columns = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
    return rows, columns, np.repeat(1 / counts, counts)


_MODES: dict[str, Callable[[int, int], Entries]] = {
    "nearest": _nearest,
    "linear": _linear,
    "linear of corners": _linear_of_corners,
    "average": _average,
}


# Up to so many entries a row, one call per entry is several times faster than reduceat.
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
def _matrix(mode: str, size: int, out: int, transposed: bool) -> _Rows:
    if not size or not out:
        raise ShapeError(f"cannot resample size {size} to {out}: there are no entries")
    rows, columns, weights = _MODES[mode](size, out)
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


@through_float32
def _resample_forward(xp: Any, x: Any, size: Sizes, mode: str) -> Any:
    for axis, out in enumerate(size, x.ndim - len(size)):
        if mode != "nearest" and x.shape[axis] == out:
            continue
        x = _apply(xp, x, axis, _matrix(mode, x.shape[axis], out, False), out)
    return x


@through_float32
def _adjoint_forward(xp: Any, ct: Any, *like: Any, size: Any, axes: int, mode: str) -> Any:
    sizes = like[0].shape[like[0].ndim - axes :] if like else size
    for axis, count in enumerate(sizes, ct.ndim - axes):
        if mode != "nearest" and ct.shape[axis] == count:
            continue
        ct = _apply(xp, ct, axis, _matrix(mode, count, ct.shape[axis], True), count)
    return ct


def _resample_vjp(ct: Node, y: Node, x: Node, size: Sizes, mode: str) -> Node:
    axes = len(size)
    sizes = x.dims[x.ndim - axes :]
    if known(sizes):
        return build(_ADJOINT, ct, size=sizes, axes=axes, mode=mode)
    return build(_ADJOINT, ct, x, size=None, axes=axes, mode=mode)


def _adjoint_vjp(
    argnum: int, u: Node, y: Node, ct: Node, *like: Node, size: Any, axes: int, mode: str
) -> Node | None:
    return None if argnum else build(_RESAMPLE, u, size=ct.dims[ct.ndim - axes :], mode=mode)


def _adjoint_jvp(tans: Any, y: Node, ct: Node, *like: Node, **attrs: Any) -> Node | None:
    return None if tans[0] is None else build(_ADJOINT, tans[0], *like, **attrs)


def _adjoint_shape(
    checks: Checks, ct: Shape, *like: Shape, size: Any, axes: int, mode: str
) -> Shape:
    return (*ct[: len(ct) - axes], *(like[0][len(like[0]) - axes :] if like else size))


_RESAMPLE: Op = register(
    Op(
        "resample",
        "f[*s] -> f[*out]",
        _resample_forward,
        shape=lambda checks, x, size, mode: (*x[: len(x) - len(size)], *size),
        vjp=(_resample_vjp,),
        jvp=lambda tans, y, x, **attrs: build(_RESAMPLE, tans[0], **attrs),
        cost=lambda shapes, result, attrs: 4 * len(attrs["size"]) * prod(result),
        samples=(
            Sample(((2, 3, 4),), {"size": (5, 2), "mode": "nearest"}),
            Sample(((2, 3, 4),), {"size": (5, 2), "mode": "linear"}),
            Sample(((2, 4),), {"size": (7,), "mode": "linear of corners"}),
            Sample(((2, 5, 4),), {"size": (3, 6), "mode": "average"}),
            Sample(((0, 4),), {"size": (2,), "mode": "average"}),
        ),
        doc="Weighted sums of entries along trailing axes, to other sizes.",
    )
)

_ADJOINT: Op = register(
    Op(
        "resample_adjoint",
        lambda arity, attrs: f"f[*s] -> {'a[*t] -> ' if arity == 2 else ''}f[*out]",
        _adjoint_forward,
        shape=_adjoint_shape,
        vjp=_adjoint_vjp,
        jvp=_adjoint_jvp,
        cost=lambda shapes, result, attrs: 4 * attrs["axes"] * prod(shapes[0]),
        samples=(
            Sample(((2, 5, 2),), {"size": (3, 4), "axes": 2, "mode": "nearest"}),
            Sample(((2, 7), (2, 4)), {"size": None, "axes": 1, "mode": "linear"}),
        ),
        doc="The adjoint of resample.",
    )
)


# -- adaptive maximum -------------------------------------------------------------------------


def _adaptive_max_forward(xp: Any, x: Any, size: Sizes) -> Any:
    for axis, out in enumerate(size, x.ndim - len(size)):
        rows = _matrix("average", x.shape[axis], out, False)
        entries = x.take(xp.asarray(rows.columns), axis)
        x = xp.maximum.reduceat(entries, xp.asarray(rows.starts), axis)
    return x


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
        index = np.ix_(*along)
        entries = x[(..., *index)]
        xp.copyto(places, numbers[index], where=(entries == y) | (entries != entries))
    return places


def _adaptive_max_shape(checks: Checks, x: Shape, *, size: Sizes) -> Shape:
    sizes = x[len(x) - len(size) :]
    if 0 in sizes:
        raise ShapeError(f"no entries to choose from in {x}")
    return (*x[: len(x) - len(size)], *size)


_ADAPTIVE_PLACES: Op = register(
    Op(
        "adaptive_max_places",
        "r[*s] -> r[*t] -> int64[*t]",
        _adaptive_places_forward,
        samples=(Sample(((2, 5, 4), (2, 3, 2)), {"size": (3, 2)}),),
        doc="Number, within the last axes, of the entry that each adaptive maximum comes from.",
    )
)

_ADAPTIVE_MAX: Op = register(
    Op(
        "adaptive_max_pool",
        "r[*s] -> r[*out]",
        _adaptive_max_forward,
        shape=_adaptive_max_shape,
        vjp=(
            lambda ct, y, x, size: pool_put(
                ct, build(_ADAPTIVE_PLACES, x, y, size=size), x, len(size)
            ),
        ),
        jvp=lambda tans, y, x, size: pool_take(
            tans[0], build(_ADAPTIVE_PLACES, x, y, size=size), len(size)
        ),
        cost=lambda shapes, result, attrs: 4 * prod(shapes[0]),
        samples=(
            Sample(((2, 5, 4),), {"size": (3, 2)}),
            Sample(((2, 3),), {"size": (5,)}),
            Sample(((0, 3),), {"size": (2,)}),
        ),
        doc="Maximum over windows whose sizes follow from the result's.",
    )
)


# -- what users call --------------------------------------------------------------------------


def _adaptive_sizes(x: Node, output_size: Any, axes: int, what: str) -> Sizes:
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{what} takes rank {axes + 1} or {axes + 2}, got {x!r}")
    given = tuple(output_size) if isinstance(output_size, Iterable) else (output_size,) * axes
    if len(given) != axes:
        raise ShapeError(f"{what}: output_size is one int or {axes} of them, got {output_size!r}")
    sizes = []
    for one, dim in zip(given, x.dims[x.ndim - axes :], strict=True):
        kept = one is None
        size = dim if kept else per_axis(one, 1, f"{what}: output_size")[0]
        if size is UNKNOWN:
            raise ShapeError(f"{what}: only a run knows the dim of {x!r} that should stay")
        sizes.append(size)
    return tuple(sizes)


def adaptive_avg_pool1d(x: Node, output_size: Any) -> Node:
    """Average over windows of one axis; see `adaptive_avg_pool2d`."""
    sizes = _adaptive_sizes(x, output_size, 1, "adaptive_avg_pool1d")
    return build(_RESAMPLE, x, size=sizes, mode="average")


def adaptive_avg_pool2d(x: Node, output_size: Any) -> Node:
    """Average over windows that cover the image, as ``torch.nn.functional.adaptive_avg_pool2d``.

    Window i of n covers the entries from ``floor(i size / n)`` to ``ceil((i + 1) size / n)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width) or without the batch.
    output_size : int, or pair of int or None
        Sizes of the result; None keeps that of the input.

    Returns
    -------
    Node
        Shape (batch, channels, *output_size).

    Raises
    ------
    GraphTypeError
        `x` is no float.
    ShapeError
        Ranks do not fit, or a size is below 1.
    """
    sizes = _adaptive_sizes(x, output_size, 2, "adaptive_avg_pool2d")
    return build(_RESAMPLE, x, size=sizes, mode="average")


def adaptive_max_pool1d(x: Node, output_size: Any) -> Node:
    """Maximum over windows of one axis; see `adaptive_max_pool2d`."""
    return build(_ADAPTIVE_MAX, x, size=_adaptive_sizes(x, output_size, 1, "adaptive_max_pool1d"))


def adaptive_max_pool2d(x: Node, output_size: Any) -> Node:
    """Maximum over the windows of `adaptive_avg_pool2d`; the first of equal entries counts.

    Parameters and errors are those of `adaptive_avg_pool2d`; `x` is any real number.
    """
    return build(_ADAPTIVE_MAX, x, size=_adaptive_sizes(x, output_size, 2, "adaptive_max_pool2d"))


_UPSAMPLING = {"nearest": 0, "linear": 1, "bilinear": 2, "trilinear": 3}


def upsample(
    x: Node,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Node:
    """Resize images, as ``torch.nn.functional.interpolate``; smaller sizes are allowed.

    Nearest: entry i of n is entry ``floor(i size / n)``.  Linear, bilinear, trilinear: between the
    neighbours of ``(i + 1/2) size / n - 1/2``, or with `align_corners` of
    ``i (size - 1) / (n - 1)``, so that the corners stay where they are.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, *sizes).
    size : int or tuple of int or Dim, optional
        Sizes of the result.
    scale_factor : int or tuple of int, optional
        Instead of `size`: how many times the sizes of `x`.
    mode : {"nearest", "linear", "bilinear", "trilinear"}
        Linear interpolation is named by the number of axes.
    align_corners : bool

    Returns
    -------
    Node
        Shape (batch, channels, *size).

    Raises
    ------
    GraphTypeError
        `x` is no float, there is no such mode, not exactly one of `size` and `scale_factor` is
        given, or corners should be aligned for the nearest entries.
    ShapeError
        Ranks do not fit, or only a run knows the size.
    """
    axes = x.ndim - 2
    if mode not in _UPSAMPLING or _UPSAMPLING[mode] not in (0, axes) or axes < 1:
        raise GraphTypeError(
            f"upsample: mode {mode!r} does not fit {x!r}; modes are 'nearest', and 'linear', "
            "'bilinear' and 'trilinear' for one, two and three axes behind the channels"
        )
    if align_corners and mode == "nearest":
        raise GraphTypeError("upsample: align_corners has no meaning for the nearest entries")
    if (size is None) == (scale_factor is None):
        raise GraphTypeError("upsample takes one of size and scale_factor")
    if size is None:
        factors = per_axis(scale_factor, axes, "upsample: scale_factor")
        sizes = tuple(dim * factor for dim, factor in zip(x.dims[2:], factors, strict=True))
    else:
        sizes = shape_from(size if isinstance(size, Iterable) else (size,) * axes)
    if len(sizes) != axes or any(dim is UNKNOWN or dim == 0 for dim in sizes):
        raise ShapeError(f"upsample: {axes} sizes above 0 have to be known, got {sizes}")
    corners = " of corners" if align_corners else ""
    return build(
        _RESAMPLE, x, size=sizes, mode="nearest" if mode == "nearest" else "linear" + corners
    )


def _check_blocks(x: Node, factor: Any, what: str) -> int:
    if x.ndim < 3:
        raise ShapeError(f"{what} takes rank 3 or more, got {x!r}")
    return per_axis(factor, 1, f"{what}: factor")[0]


def pixel_shuffle(x: Node, upscale_factor: int) -> Node:
    """Turn channels into pixels: (..., c r^2, h, w) to (..., c, h r, w r), as PyTorch does.

    Source: W. Shi et al., Real-time single image and video super-resolution, 2016.

    Parameters
    ----------
    x : node
        Rank 3 or more, any dtype.
    upscale_factor : int
        r; its square divides the channels.

    Raises
    ------
    ShapeError
        The rank is below 3, or the channels are no multiple of the square.
    """
    factor = _check_blocks(x, upscale_factor, "pixel_shuffle")
    lead = x.ndim - 3
    channels = x.dims[lead]
    if isinstance(channels, Dim) or channels % factor**2:
        raise ShapeError(f"pixel_shuffle: channels {channels} are no known multiple of {factor**2}")
    # (..., c, r, r, h, w)
    x = group_dim(group_dim(x, lead, size=factor), lead, size=factor)
    x = transpose(x, (*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2))
    return ungroup_dims(ungroup_dims(x, lead + 1), lead + 2)


def pixel_unshuffle(x: Node, downscale_factor: int) -> Node:
    """Turn pixels into channels: the inverse of `pixel_shuffle`.

    Parameters
    ----------
    x : node
        Rank 3 or more, any dtype.
    downscale_factor : int
        Divides height and width, which have to be known.

    Raises
    ------
    ShapeError
        The rank is below 3, or height or width are no known multiples of the factor.
    """
    factor = _check_blocks(x, downscale_factor, "pixel_unshuffle")
    lead = x.ndim - 3
    for dim in x.dims[lead + 1 :]:
        if isinstance(dim, Dim) or dim % factor:
            raise ShapeError(f"pixel_unshuffle: size {dim} is no known multiple of {factor}")
    # (..., c, h, r, w, r)
    x = group_dim(group_dim(x, lead + 2, size=factor), lead + 1, size=factor)
    x = transpose(x, (*range(lead + 1), lead + 2, lead + 4, lead + 1, lead + 3))
    return ungroup_dims(ungroup_dims(x, lead), lead)
