"""Interpolation: images in other sizes.  The op stands in `_resampling`."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.ops._docs import raises
from actorgraph.ops._resampling import RESAMPLE
from actorgraph.ops.grouping import group_dim, ungroup_dims
from actorgraph.ops.shaping import swapaxes, transpose
from actorgraph.ops.windows import per_axis
from actorgraph.types import UNKNOWN, Dim, shape_from

__all__ = [
    "channel_shuffle", "interpolate", "pixel_shuffle", "pixel_unshuffle", "upsample",
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
    return floor(dim * factor)


def _factors(given: Any, axes: int) -> tuple[float, ...]:
    factors = tuple(given) if isinstance(given, Iterable) else (given,) * axes
    fit = all(isinstance(one, (int, float)) and one > 0 for one in factors)
    if len(factors) != axes or not fit:
        raise ShapeError(
            f"interpolate: scale_factor is a number above 0 or {axes} of them, got {given!r}"
        )
    return factors


@raises(
    types="`x` is no float, there is no such mode, not exactly one of `size` and `scale_factor` "
    "is given, or an option has no meaning for the mode.",
    shapes="Ranks do not fit, or only a run knows the size.",
)  # fmt: skip
def interpolate(
    x: Node,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Node:
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
    align_corners : bool, optional
    recompute_scale_factor : bool, optional
        Stay at ``size / n``, although `scale_factor` was given.
    antialias : bool
        Widen the filter where the result is smaller; for "bilinear" and "bicubic".

    Returns
    -------
    Node
        Shape (batch, channels, *size).

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
            f"interpolate: mode {mode!r} does not fit {x!r}; modes are 'nearest', 'nearest-exact' "
            "and 'area', and 'linear', 'bilinear' or 'bicubic', and 'trilinear' for one, two and "
            "three axes behind the channels"
        )
    kind = _MODES[mode][1]
    if align_corners and kind not in ("linear", "cubic"):
        raise GraphTypeError(f"interpolate: align_corners has no meaning for mode {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise GraphTypeError(f"interpolate: antialias has no meaning for mode {mode!r}")
    if (size is None) == (scale_factor is None):
        raise GraphTypeError("interpolate takes one of size and scale_factor")
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
        raise ShapeError(f"interpolate: {axes} sizes above 0 have to be known, got {sizes}")
    name = ("smooth " if antialias else "") + kind + (" of corners" if align_corners else "")
    return build(RESAMPLE, x, size=sizes, mode=name, ratios=ratios)


upsample = interpolate


# -- pixels -----------------------------------------------------------------------------------


def _check_blocks(x: Node, factor: Any, what: str) -> int:
    if x.ndim < 3:
        raise ShapeError(f"{what} takes rank 3 or more, got {x!r}")
    return per_axis(factor, 1, f"{what}: factor")[0]


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
    factor = _check_blocks(x, upscale_factor, "pixel_shuffle")
    lead = x.ndim - 3
    channels = x.dims[lead]
    if isinstance(channels, Dim) or channels % factor**2:
        raise ShapeError(f"pixel_shuffle: channels {channels} are no known multiple of {factor**2}")
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
    factor = _check_blocks(x, downscale_factor, "pixel_unshuffle")
    lead = x.ndim - 3
    for dim in x.dims[lead + 1 :]:
        if isinstance(dim, Dim) or dim % factor:
            raise ShapeError(f"pixel_unshuffle: size {dim} is no known multiple of {factor}")
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
    parts = per_axis(groups, 1, "channel_shuffle: groups")[0]
    if x.ndim < 3 or isinstance(x.dims[1], Dim) or x.dims[1] % parts:
        raise ShapeError(f"channel_shuffle: the channels of {x!r} are no known multiple of {parts}")
    return ungroup_dims(swapaxes(group_dim(x, 1, parts), 1, 2), 1)
