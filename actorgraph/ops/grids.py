"""Images read at any places: grids of an affine map, and sampling at a grid.

Places are normalised: -1 and 1 are the outer edges of an image, or with `align_corners` the middles
of its outermost entries.  Built of other ops, so that every derivative is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.ops._docs import raises
from actorgraph.ops._resampling import SHARPNESS, cubic_far, cubic_near
from actorgraph.ops.arithmetic import abs, mod, multiply  # noqa: A004 - NumPy's name
from actorgraph.ops.broadcasting import add, expand_dims
from actorgraph.ops.casting import astype
from actorgraph.ops.gathering import take_along_axis
from actorgraph.ops.indexing import getitem
from actorgraph.ops.linalg import matmul
from actorgraph.ops.reshaping import flatten, reshape
from actorgraph.ops.rounding import floor
from actorgraph.ops.rounding import round as nearest
from actorgraph.ops.selection import clip, where
from actorgraph.ops.shaping import swap_last
from actorgraph.types import UNKNOWN

__all__ = ["affine_grid", "grid_sample"]


@raises(shapes="The shapes do not fit.")
def affine_grid(theta: Node, size: Sequence[int], align_corners: bool = False) -> Node:
    """Return where an affine map puts the entries of an image, as PyTorch's function of that name.

    Parameters
    ----------
    theta : node
        Float, shape (batch, 2, 3) for images, (batch, 3, 4) for volumes.
    size : sequence of int
        Shape of the images that `grid_sample` shall give: (batch, channels, height, width), or
        with a depth before the height.
    align_corners : bool

    Returns
    -------
    Node
        Shape (batch, height, width, 2), or (batch, depth, height, width, 3).
    """
    sizes, axes = tuple(size)[2:], len(size) - 2
    if axes not in (2, 3) or theta.ndim != 3 or theta.dims[1:] != (axes, axes + 1):
        raise ShapeError(f"affine_grid: {theta!r} does not fit images of size {tuple(size)}")
    along = [np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in sizes]
    if not align_corners:
        along = [line * ((n - 1) / n) for line, n in zip(along, sizes, strict=True)]
    places = np.stack([*np.meshgrid(*along, indexing="ij")[::-1], np.ones(sizes)], -1)
    base = theta.graph.constant(places.reshape(-1, axes + 1), dtype=theta.dtype)
    return reshape(matmul(base, swap_last(theta)), (theta.dims[0], *sizes, axes))


# -- one axis ---------------------------------------------------------------------------------


def _reflected(place: Node, low: float, span: float) -> Node:
    if not span:
        return place * 0.0
    place = abs(place - low)
    turns = floor(place / span)
    rest = place - turns * span
    return where(mod(turns, 2.0) == 0, rest, span - rest) + low


def _padded(place: Node, size: int, padding_mode: str, align_corners: bool) -> Node:
    """Return a place inside of the image, or as it is where beyond are zeros."""
    if padding_mode == "reflection":
        place = _reflected(place, *((0.0, size - 1.0) if align_corners else (-0.5, float(size))))
    return place if padding_mode == "zeros" else clip(place, 0.0, size - 1.0)


def _taps(place: Node, size: int, mode: str, padding_mode: str, align_corners: bool) -> Any:
    """Return the positions that a place is made of along an axis, each with its weight."""
    if mode != "bicubic":
        place = _padded(place, size, padding_mode, align_corners)
    if mode == "nearest":
        taps: list[tuple[Node, Node | None]] = [(nearest(place), None)]
    else:
        low = floor(place)
        share = place - low
        rest = 1.0 - share
        if mode == "bilinear":
            taps = [(low, rest), (low + 1.0, share)]
        else:
            rules = (cubic_far, cubic_near, cubic_near, cubic_far)
            distances = (share + 1.0, share, rest, rest + 1.0)
            taps = [
                (_padded(low + (i - 1.0), size, padding_mode, align_corners), rule(x, SHARPNESS))
                for i, (rule, x) in enumerate(zip(rules, distances, strict=True))
            ]
    return [_inside(*tap, size, padding_mode) for tap in taps]


def _inside(place: Node, weight: Node | None, size: int, padding_mode: str) -> Any:
    index = astype(clip(place, 0.0, size - 1.0), "int64")
    if padding_mode == "zeros":
        inside = (place >= 0) & (place <= size - 1)
        weight = astype(inside, place.dtype) if weight is None else where(inside, weight, 0)
    return index, weight


@raises(
    types="There is no such mode, or the dtypes differ.",
    shapes="The shapes do not fit, or only a run knows the sizes.",
)  # fmt: skip
def grid_sample(
    x: Node,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Node:
    """Read images at the places of a grid, as ``torch.nn.functional.grid_sample``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width), or with a depth before the height; all but
        the batch known.
    grid : node or array
        Of the same dtype, shape (batch, rows, columns, 2), or (batch, planes, rows, columns, 3):
        along the width, the height and the depth.
    mode : {"bilinear", "nearest", "bicubic"}
        "bilinear" is trilinear in volumes, "bicubic" for images only.  "nearest" has no gradient
        by the grid.
    padding_mode : {"zeros", "border", "reflection"}
        What stands beyond the edges.
    align_corners : bool
        Whether -1 and 1 are the middles of the outermost entries, not the outer edges.

    Returns
    -------
    Node
        Shape (batch, channels, rows, columns), or with planes before the rows.

    Examples
    --------
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x, theta = g.input("x", ("batch", 3, 8, 8)), g.input("theta", ("batch", 2, 3))
    >>> ag.ops.grid_sample(x, ag.ops.affine_grid(theta, (1, 3, 4, 4))).shape
    (batch, 3, 4, 4)
    """
    grid, axes = x.graph.lift(grid), x.ndim - 2
    modes = ("bilinear", "nearest", "bicubic")[: 3 if axes == 2 else 2]
    if mode not in modes or padding_mode not in ("zeros", "border", "reflection"):
        raise GraphTypeError(
            f"grid_sample: mode is one of {modes} and padding_mode 'zeros', 'border' or "
            f"'reflection', got {mode!r} and {padding_mode!r}"
        )
    if axes not in (2, 3) or grid.ndim != x.ndim or grid.dims[-1] != axes:
        raise ShapeError(f"grid_sample: a grid {grid!r} does not fit {x!r}")
    sizes = [dim for dim in x.dims[2:] if isinstance(dim, int) and dim > 0]
    if len(sizes) < axes or UNKNOWN in grid.dims:
        raise ShapeError(f"grid_sample: sizes above 0 have to be known, got {x!r} and {grid!r}")
    along = []
    for axis, size in enumerate(sizes):
        place = expand_dims(flatten(getitem(grid, (..., axes - 1 - axis)), 1), 1)
        place = (place + 1.0) * ((size - 1) / 2) if align_corners else (
            (place + 1.0) * (size / 2) - 0.5
        )  # fmt: skip
        along.append(_taps(place, size, mode, padding_mode, align_corners))
    flat, parts = flatten(x, 2), []
    for taps in product(*along):
        index = reduce(_row_major, zip([tap for tap, _ in taps], sizes, strict=True))[0]
        entries = take_along_axis(flat, index, -1)
        weights = [weight for _, weight in taps if weight is not None]
        parts.append(entries * reduce(multiply, weights) if weights else entries)
    return reshape(reduce(add, parts), (*x.dims[:2], *grid.dims[1:-1]))


def _row_major(left: Any, right: Any) -> Any:
    """Return the number of a position within two axes, with the size of the second."""
    return left[0] * right[1] + right[0], right[1]
