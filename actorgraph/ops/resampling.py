"""Images: resizing, pixels for channels, grids of places, and the boxes of detectors.

Built of other ops; the op that resizes is in `_resampling`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.ops import _foreign
from actorgraph.ops._resampling import RESAMPLE, SHARPNESS, cubic_far, cubic_near
from actorgraph.ops._rules import raises, returns
from actorgraph.ops.activations import sigmoid
from actorgraph.ops.arithmetic import abs, mod, multiply
from actorgraph.ops.broadcasting import add, expand_dims
from actorgraph.ops.elementwise import astype, clip, exp, floor, where
from actorgraph.ops.elementwise import round as nearest
from actorgraph.ops.gathering import take_along_axis
from actorgraph.ops.indexing import getitem
from actorgraph.ops.linalg import matmul
from actorgraph.ops.reshaping import flatten, group_dim, reshape, ungroup_dims
from actorgraph.ops.shaping import concatenate, swap_last, swapaxes, transpose
from actorgraph.ops.windows import per_axis
from actorgraph.types import UNKNOWN, Dim, shape_from

__all__ = [
    "affine_grid", "channel_shuffle", "grid_sample", "interpolate", "pixel_shuffle",
    "pixel_unshuffle", "upsample", "yolo_decode",
]  # fmt: skip

# PyTorch's name, the number of axes (0: any) and the mode of the op.
_MODES = {
    "nearest": (0, "nearest"), "nearest-exact": (0, "nearest-exact"), "area": (0, "average"),
    "linear": (1, "linear"), "bilinear": (2, "linear"), "trilinear": (3, "linear"),
    "bicubic": (2, "cubic"),
}  # fmt: skip


def _scaled(dim: Any, factor: float) -> Any:
    if factor == int(factor):
        return dim * int(factor)
    if not isinstance(dim, int):
        raise ShapeError(f"interpolate: scale_factor {factor} needs a known size, got {dim}")
    return math.floor(dim * factor)


def _factors(given: Any, axes: int) -> tuple[float, ...]:
    factors = tuple(given) if isinstance(given, Iterable) else (given,) * axes
    fit = all(isinstance(one, (int, float)) and one > 0 for one in factors)
    if len(factors) != axes or not fit:
        raise ShapeError(
            f"interpolate: scale_factor is a number above 0 or {axes} of them, got {given!r}"
        )
    return factors


@returns("Node of shape (batch, channels, *size)")
@raises(
    types="`x` is no float, there is no such mode, not exactly one of `size` and `scale_factor` "
    "is given, or an option has no meaning for the mode.",
    shapes="Ranks do not fit, or only a run knows the size.",
)  # fmt: skip
def interpolate(
    x: Node, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Node:  # fmt: skip
    """Resize images, as ``torch.nn.functional.interpolate``; smaller sizes are allowed.

    Entry i of n stands at ``p = (i + 1/2) size / n - 1/2`` of the input, or with `align_corners` at
    ``i (size - 1) / (n - 1)``, so that the corners stay where they are.  Linear modes go along a
    line between the neighbours of p, bicubic along a cubic through four (R. Keys, 1981).
    "nearest-exact" takes the entry nearest to p, "nearest" the entry ``floor(i size / n)``, "area"
    the average of `adaptive_avg_pool2d`.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, *sizes).
    size : int or tuple of int or Dim, optional
        Sizes of the result.
    scale_factor : number or tuple of numbers, optional
        Instead of `size`: how many times the sizes of `x`, rounded down.  ``1 / scale_factor``
        stands for ``size / n`` then.
    mode : {"nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear", "bicubic"}
        Linear interpolation is named by the number of axes.
    recompute_scale_factor : bool, optional
        Keep ``size / n`` although `scale_factor` is given.
    antialias : bool
        Widen the filter where the result is smaller; for "bilinear" and "bicubic".

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", ("batch", 3, "h", "w"))
    >>> ag.ops.interpolate(x, scale_factor=2, mode="bilinear").shape
    (batch, 3, 2*h, 2*w)
    """
    axes = x.ndim - 2
    if mode not in _MODES or _MODES[mode][0] not in (0, axes) or axes < 1:
        raise GraphTypeError(
            f"mode {mode!r} does not fit {x!r}; modes are 'nearest', 'nearest-exact' "
            "and 'area', and 'linear', 'bilinear' or 'bicubic', and 'trilinear' for one, two and "
            "three axes behind the channels"
        )
    kind = _MODES[mode][1]
    if align_corners and kind not in ("linear", "cubic"):
        raise GraphTypeError(f"align_corners has no meaning for mode {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise GraphTypeError(f"antialias has no meaning for mode {mode!r}")
    if (size is None) == (scale_factor is None):
        raise GraphTypeError("takes one of size and scale_factor")
    ratios = None
    if size is None:
        factors = _factors(scale_factor, axes)
        sizes = tuple(_scaled(dim, one) for dim, one in zip(x.dims[2:], factors, strict=True))
        own = not (recompute_scale_factor or align_corners or mode == "area")
        if own and any(one != int(one) for one in factors):
            ratios = tuple(1 / one for one in factors)
    else:
        sizes = shape_from(size if isinstance(size, Iterable) else (size,) * axes)
    if len(sizes) != axes or any(dim is UNKNOWN or dim == 0 for dim in sizes):
        raise ShapeError(f"{axes} sizes above 0 have to be known, got {sizes}")
    name = ("smooth " if antialias else "") + kind + (" of corners" if align_corners else "")
    return build(RESAMPLE, x, size=sizes, mode=name, ratios=ratios)


upsample = interpolate


def _check_blocks(x: Node, factor: Any) -> int:
    if x.ndim < 3:
        raise ShapeError(f"takes rank 3 or more, got {x!r}")
    return per_axis(factor, 1, "factor")[0]


@raises(shapes="The rank is below 3, or the channels are no multiple of the square.")
def pixel_shuffle(x: Node, upscale_factor: int) -> Node:
    """Turn channels into pixels: (..., c r^2, h, w) to (..., c, h r, w r), as PyTorch does.

    Source: W. Shi et al., Real-time single image and video super-resolution, 2016.

    Parameters
    ----------
    x : node
        Rank 3 or more, any dtype.
    upscale_factor : int
        r; its square divides the channels.
    """
    factor = _check_blocks(x, upscale_factor)
    lead = x.ndim - 3
    channels = x.dims[lead]
    if isinstance(channels, Dim) or channels % factor**2:
        raise ShapeError(f"channels {channels} are no known multiple of {factor**2}")
    # (..., c, r, r, h, w)
    x = group_dim(group_dim(x, lead, size=factor), lead, size=factor)
    x = transpose(x, (*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2))
    return ungroup_dims(ungroup_dims(x, lead + 1), lead + 2)


@raises(shapes="The rank is below 3, or height or width are no known multiples of the factor.")
def pixel_unshuffle(x: Node, downscale_factor: int) -> Node:
    """Turn pixels into channels: the inverse of `pixel_shuffle`.

    Parameters
    ----------
    x : node
        Rank 3 or more, any dtype.
    downscale_factor : int
        Divides height and width, which have to be known.
    """
    factor = _check_blocks(x, downscale_factor)
    lead = x.ndim - 3
    for dim in x.dims[lead + 1 :]:
        if isinstance(dim, Dim) or dim % factor:
            raise ShapeError(f"size {dim} is no known multiple of {factor}")
    # (..., c, h, r, w, r)
    x = group_dim(group_dim(x, lead + 2, size=factor), lead + 1, size=factor)
    x = transpose(x, (*range(lead + 1), lead + 2, lead + 4, lead + 1, lead + 3))
    return ungroup_dims(ungroup_dims(x, lead), lead)


@raises(shapes="There are no channels, or `groups` does not divide them.")
def channel_shuffle(x: Node, groups: int) -> Node:
    """Interleave groups of channels: channel j of group i becomes channel i of group j.

    As ``torch.nn.functional.channel_shuffle``.  Source: X. Zhang et al., ShuffleNet, 2018.

    Parameters
    ----------
    x : node
        Shape (batch, channels, ...), any dtype.
    groups : int
        Divides the channels.
    """
    parts = per_axis(groups, 1, "groups")[0]
    if x.ndim < 3 or isinstance(x.dims[1], Dim) or x.dims[1] % parts:
        raise ShapeError(f"the channels of {x!r} are no known multiple of {parts}")
    return ungroup_dims(swapaxes(group_dim(x, 1, parts), 1, 2), 1)


@returns("Node of shape (batch, height, width, 2), or (batch, depth, height, width, 3)")
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
    """
    sizes, axes = tuple(size)[2:], len(size) - 2
    if axes not in (2, 3) or theta.ndim != 3 or theta.dims[1:] != (axes, axes + 1):
        raise ShapeError(f"{theta!r} does not fit images of size {tuple(size)}")
    along = [np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in sizes]
    if not align_corners:
        along = [line * ((n - 1) / n) for line, n in zip(along, sizes, strict=True)]
    places = np.stack([*np.meshgrid(*along, indexing="ij")[::-1], np.ones(sizes)], -1)
    base = theta.graph.constant(places.reshape(-1, axes + 1), dtype=theta.dtype)
    return reshape(matmul(base, swap_last(theta)), (theta.dims[0], *sizes, axes))


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
    """Return the positions along an axis that contribute to a place, each with its weight."""
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


@returns("Node of shape (batch, channels, rows, columns), or with planes before the rows")
@raises("Dtypes differ, or there is no such mode.", "Shapes do not fit, or only a run knows sizes.")
def grid_sample(
    x: Node, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Node:  # fmt: skip
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
    """
    grid, axes = x.graph.lift(grid), x.ndim - 2
    modes = ("bilinear", "nearest", "bicubic")[: 3 if axes == 2 else 2]
    if mode not in modes or padding_mode not in ("zeros", "border", "reflection"):
        raise GraphTypeError(
            f"mode is one of {modes} and padding_mode 'zeros', 'border' or "
            f"'reflection', got {mode!r} and {padding_mode!r}"
        )
    if axes not in (2, 3) or grid.ndim != x.ndim or grid.dims[-1] != axes:
        raise ShapeError(f"a grid {grid!r} does not fit {x!r}")
    sizes = [dim for dim in x.dims[2:] if isinstance(dim, int) and dim > 0]
    if len(sizes) < axes or UNKNOWN in grid.dims:
        raise ShapeError(f"sizes above 0 have to be known, got {x!r} and {grid!r}")
    along = []
    for axis, size in enumerate(sizes):
        place = expand_dims(flatten(getitem(grid, (..., axes - 1 - axis)), 1), 1)
        place = (place + 1.0) * ((size - 1 if align_corners else size) / 2)
        place = place if align_corners else place - 0.5
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


@returns(
    "Node of shape (batch, height * width * anchors, 5 + classes)\n"
    "    Cells row by row, the anchors of a cell side by side."
)
@raises(
    types="`anchors` are no pairs, or the mask names one that is not there.",
    shapes="The channels do not fit, or only a run knows the cells.",
)  # fmt: skip
def yolo_decode(
    x: Node, anchors: Any, net_size: Any, classes: int, mask: Sequence[int] | None = None
) -> Node:
    """Turn the output of a YOLO v3 head into boxes in pixels of the network's input.

    Per cell and anchor: the centre ``(sigmoid(t) + cell) stride``, the size ``exp(t) anchor``, then
    the sigmoids of objectness and classes.  Source: J. Redmon, A. Farhadi, YOLOv3, 2018.

    Parameters
    ----------
    x : node
        Float, shape (batch, anchors * (5 + classes), height, width); per anchor the channels are
        x, y, width, height, objectness and the classes.
    anchors : array
        Shape (count, 2): width and height in pixels.
    net_size : int or pair of int
        Height and width of the network's input in pixels; a stride is that over the cells.
    mask : sequence of int, optional
        Which anchors this head uses, in the order of its channels; default: all.
    """
    boxes = np.asarray(anchors, np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 2:
        raise GraphTypeError(f"anchors are pairs (width, height), got {anchors!r}")
    chosen = range(len(boxes)) if mask is None else mask
    if any(not 0 <= index < len(boxes) for index in chosen):
        raise GraphTypeError(f"mask {mask!r} names none of {len(boxes)} anchors")
    boxes = boxes[list(chosen)]
    if x.ndim != 4 or any(isinstance(dim, Dim) for dim in x.dims[1:]):
        raise ShapeError(
            f"takes (batch, channels, height, width), all but the batch known; got {x!r}"
        )
    channels, needed = x.dims[1], len(boxes) * (5 + classes)
    if channels != needed:
        raise ShapeError(
            f"{len(boxes)} anchors and {classes} classes need {needed} channels, got {channels}"
        )
    cells, strides, areas = _constants(boxes, x.dims[2:], per_axis(net_size, 2, "net_size"))
    cells, strides, areas = (one.astype(x.dtype) for one in (cells, strides, areas))
    # (batch, anchor, entry, height, width) to (batch, height, width, anchor, entry)
    t = transpose(group_dim(x, 1, len(boxes)), (0, 3, 4, 1, 2))
    t = ungroup_dims(ungroup_dims(t, 1), 1)
    centre = (sigmoid(t[:, :, :2]) + cells) * strides
    return concatenate([centre, exp(t[:, :, 2:4]) * areas, sigmoid(t[:, :, 4:])], -1)


def _constants(boxes: Any, cells: Any, sizes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return each row's cell, the strides, and each row's anchor; x before y."""
    height, width = cells
    rows, columns = np.divmod(np.arange(height * width), width)
    places = np.repeat(np.stack([columns, rows], 1), len(boxes), 0)
    strides = np.array([sizes[1] / width, sizes[0] / height])
    return places, strides, np.tile(boxes, (height * width, 1))


_foreign.install_late(sys.modules[__name__])
