"""Pools over one, two and three axes for arrays (batch, channels, ...), and what undoes them.

The gradient of a maximum goes to the first largest entry of its window in row-major order, as in
PyTorch; where the maximum is NaN, to the first NaN.  An average divides by the entries of its own
window, whatever the size of the input.  The ops stand in `_pooling` and `_resampling`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.ops import _foreign
from actorgraph.ops._declare import over_axes
from actorgraph.ops._pooling import AVERAGE, MAX, PLACES, pool_take
from actorgraph.ops._resampling import ADAPTIVE_MAX, ADAPTIVE_PLACES, RESAMPLE
from actorgraph.ops._rules import NO_FLOAT, as_of, raises, returns
from actorgraph.ops.arithmetic import power
from actorgraph.ops.assignment import scatter
from actorgraph.ops.broadcasting import broadcast_to
from actorgraph.ops.counting import argmax
from actorgraph.ops.elementwise import astype, floor, where
from actorgraph.ops.gathering import take_along_axis
from actorgraph.ops.random import uniform
from actorgraph.ops.reductions import max as maximum_over
from actorgraph.ops.reductions import mean
from actorgraph.ops.reshaping import flatten, reshape
from actorgraph.ops.windows import per_axis, read_padding
from actorgraph.types import UNKNOWN, shape_from, size_of

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "fractional_max_pool2d", "fractional_max_pool3d", "global_avg_pool", "global_max_pool",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d",
]  # fmt: skip


class MaxPool(NamedTuple):
    """What a maximum pool returns with ``return_indices``."""

    y: Node
    indices: Node
    """Of each maximum, its number among the entries of its channel in row-major order: int64."""


def _check_rank(x: Node, axes: int) -> None:
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"takes rank {axes + 1} or {axes + 2}, got {x!r}")


def _steps(kernel_size: Any, stride: Any, axes: int) -> tuple[Any, Any]:
    kernel = per_axis(kernel_size, axes, "kernel_size")
    # PyTorch takes an empty tuple for None.
    given = stride is not None and stride != ()
    return kernel, per_axis(stride, axes, "stride") if given else kernel


def _geometry(
    axes: int, x: Node, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> dict[str, Any]:  # fmt: skip
    _check_rank(x, axes)
    kernel, steps = _steps(kernel_size, stride, axes)
    gaps = per_axis(dilation, axes, "dilation")
    pads = read_padding(padding, kernel, steps, gaps)
    for width, gap, pair in zip(kernel, gaps, pads, strict=False):
        if not isinstance(pads, str) and max(pair) > (gap * (width - 1) + 1) // 2:
            raise ShapeError(
                f"padding {pair} is more than half of the kernel ({width} entries, {gap} "
                "apart), so that a window could lie outside of the input"
            )
    ceil = bool(ceil_mode)
    return {"kernel": kernel, "stride": steps, "padding": pads, "dilation": gaps, "ceil": ceil}


_NO_SIZE = "Ranks do not fit, or a size is below 1."
_NO_WINDOW = "Ranks do not fit, the padding is too large, or no window fits."


@returns("Node, or MaxPool with ``return_indices``; shape (batch, channels, *windows)")
@raises(shapes=_NO_WINDOW)
def _max_pool(
    axes: int, x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Maximum over windows of {axes}, as ``torch.nn.functional.max_pool{n}d``.

    The gradient goes to the first largest entry of a window in row-major order.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, {places}) or without the batch.
    kernel_size, dilation : {ints}
    stride : {ints}, optional
        Default: the kernel's size.
    padding : {ints}, pairs of int, "same" or "valid"
        Before and after each axis, at most half of the kernel; never chosen.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool{n}d` takes it.

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", ("batch", 3, 8, 8))
    >>> y, indices = ag.ops.max_pool2d(x, 2, return_indices=True)
    >>> ag.ops.max_unpool2d(y, indices, 2).shape
    (batch, 3, 8, 8)
    """
    geometry = _geometry(axes, x, kernel_size, stride, padding, dilation, ceil_mode)
    y = build(MAX, x, **geometry)
    return MaxPool(y, build(PLACES, x, y, **geometry)) if return_indices else y


@returns("Node of shape (batch, channels, *windows)")
@raises(types="`x` is no float, or the divisor is 0.", shapes=_NO_WINDOW)
@as_of(_max_pool)
def _avg_pool(
    axes: int, x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: float | None = None,
) -> Node:  # fmt: skip
    """Average over windows of {axes}, as ``torch.nn.functional.avg_pool{n}d``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, {places}) or without the batch.
    padding : {ints}, pairs of int, "same" or "valid"
        Zeros before and after each axis, at most half of the kernel.
    count_include_pad : bool
        Whether padding counts as entries; False divides by the entries of the input alone.
    divisor_override : float, optional
        What every sum is divided by, instead of a number of entries; 1 gives sums.
    """
    geometry = _geometry(axes, x, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is None:
        return build(AVERAGE, x, divisor="all" if count_include_pad else "inside", **geometry)
    if not divisor_override:
        raise GraphTypeError("divisor_override must not be 0")
    return build(AVERAGE, x, divisor=float(divisor_override), **geometry)


@returns("Node of shape (batch, channels, *windows)")
@as_of(_max_pool)
def _lp_pool(
    axes: int, x: Node, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Node:  # fmt: skip
    """Root of the sum of powers over windows, as ``torch.nn.functional.lp_pool{n}d``.

    ``(sum of x^p)^(1/p)`` for ``p = norm_type``; a negative sum has no root (NaN).  The sum over a
    window that is cut off is scaled as if it were whole.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, {places}) or without the batch.
    norm_type : float
        The power p, not 0.
    """
    geometry = _geometry(axes, x, kernel_size, stride, 0, 1, ceil_mode)
    average = build(AVERAGE, power(x, float(norm_type)), divisor="all", **geometry)
    return power(average * float(prod(geometry["kernel"])), 1 / float(norm_type))


@returns("Node of shape (batch, channels, *output_size)")
@raises(shapes="Ranks or sizes do not fit, or only a run knows them.")
def _max_unpool(
    axes: int, x: Node, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None,
) -> Node:  # fmt: skip
    """Write maxima where they stood, zeros elsewhere, as ``torch.nn.functional.max_unpool{n}d``.

    Parameters
    ----------
    x : node
        Maxima, shape (batch, channels, {places}) or without the batch.
    indices : node or array
        Of the shape of `x`, as ``max_pool{n}d(..., return_indices=True)`` gives them; of entries
        with one index the last stays.
    kernel_size, stride, padding
        As of the pool.
    output_size : sequence of int, optional
        Sizes of what was pooled, with or without batch and channels.  Default: the least sizes
        that the pool could have had.
    """
    _check_rank(x, axes)
    lead = x.ndim - axes
    kernel, steps = _steps(kernel_size, stride, axes)
    pads = per_axis(padding, axes, "padding", 0)
    along = zip(x.dims[lead:], kernel, steps, pads, strict=True)
    sizes: Any = tuple((dim - 1) * step - 2 * pad + width for dim, width, step, pad in along)
    if output_size is not None:
        sizes = shape_from(tuple(output_size)[-axes:])
    if len(sizes) != axes or UNKNOWN in (*x.dims[:lead], *sizes):
        raise ShapeError(f"{axes} sizes have to be known, got {sizes} for {x!r}")
    zeros = broadcast_to(x.graph.constant(0, dtype=x.dtype), (*x.dims[:lead], size_of(sizes)))
    places = flatten(x.graph.lift(indices), lead)
    return reshape(scatter(zeros, -1, places, flatten(x, lead)), (*x.dims[:lead], *sizes))


@returns("Node, or MaxPool with ``return_indices``; shape (batch, channels, *output_size)")
@raises(
    types="`output_size` and `output_ratio` are both given, or none.",
    shapes="Ranks do not fit, the windows do not, or only a run knows a size.",
)
@as_of(_max_pool)
def _fractional_max_pool(
    axes: int, x: Node, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Any = None,
) -> Any:  # fmt: skip
    """Maximum over windows at random places, as ``torch.nn.functional.fractional_max_pool{n}d``.

    Their distance along an axis is about ``(size - kernel_size) / (output_size - 1)``, which is no
    whole number.  Each channel has places of its own, and each run draws them anew.  The gradient
    goes to the first largest entry of a window.  Source: B. Graham, Fractional max-pooling, 2014.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, {places}) or without the batch; {places} are ints.
    kernel_size : {ints}
    output_size : {ints}, optional
    output_ratio : float or one per axis, optional
        In place of `output_size`: its share of the sizes of `x`.
    _random_samples : node or array, optional
        In place of what a run draws: floats in [0, 1), {n} for each channel of the batch.
    """
    _check_rank(x, axes)
    lead: tuple[Any, ...] = x.dims[: x.ndim - axes]
    sizes: tuple[Any, ...] = x.dims[x.ndim - axes :]
    if UNKNOWN in lead or not all(isinstance(size, int) for size in sizes):
        raise ShapeError(f"the last {axes} sizes have to be ints, got {x!r}")
    kernel = per_axis(kernel_size, axes, "kernel_size")
    if (output_size is None) == (output_ratio is None):
        raise GraphTypeError("give either output_size or output_ratio")
    if output_size is None:
        shares = output_ratio if isinstance(output_ratio, Iterable) else (output_ratio,) * axes
        output_size = [int(size * share) for size, share in zip(sizes, shares, strict=True)]
    outs = per_axis(output_size, axes, "output_size")
    if any(out + width - 1 > size for out, width, size in zip(outs, kernel, sizes, strict=True)):
        raise ShapeError(f"{outs} windows of {kernel} entries do not fit in {sizes}")
    if _random_samples is None:
        samples = uniform(x, (*lead, axes))
    else:
        samples = reshape(x.graph.lift(_random_samples), (*lead, axes))
    places: Any = None  # of entries within their channel, by (..., window, entry of the window)
    for axis, (size, out, width) in enumerate(zip(sizes, outs, kernel, strict=True)):
        # A channel's numbers are in the order of its axes in 3d, in 2d from the last, as PyTorch's.
        sample = samples[..., axis if axes == 3 else 1 - axis, None]
        step, numbers = (size - width) / max(out - 1, 1), np.arange(out)
        starts = floor((sample + numbers.astype(sample.dtype)) * step) - floor(sample * step)
        starts = astype(where(numbers < out - 1, starts, float(size - width)), "int64")
        along = starts[..., None] + np.arange(width)
        if places is not None:
            along = (places * size)[..., :, None, :, None] + along[..., None, :, None, :]
            along = flatten(flatten(along, -2), -3, -2)
        places = along
    entries = take_along_axis(flatten(x, len(lead)), flatten(places, len(lead)))
    first = argmax(reshape(entries, places.dims), -1, keepdims=True)
    indices = reshape(take_along_axis(places, first), (*lead, *outs))
    y = pool_take(x, indices, axes)
    return MaxPool(y, indices) if return_indices else y


def _adaptive_sizes(x: Node, output_size: Any, axes: int) -> tuple[Any, ...]:
    _check_rank(x, axes)
    given = tuple(output_size) if isinstance(output_size, Iterable) else (output_size,) * axes
    if len(given) != axes:
        raise ShapeError(f"output_size is one int or {axes} of them, got {output_size!r}")
    sizes = []
    for one, dim in zip(given, x.dims[x.ndim - axes :], strict=True):
        size = dim if one is None else per_axis(one, 1, "output_size")[0]
        if size is UNKNOWN:
            raise ShapeError(f"only a run knows the dim of {x!r} that should stay")
        sizes.append(size)
    return tuple(sizes)


@returns("Node of shape (batch, channels, *output_size)")
@raises(types=NO_FLOAT, shapes=_NO_SIZE)
def _adaptive_avg_pool(axes: int, x: Node, output_size: Any) -> Node:
    """Average over windows that cover {axes}, as ``torch.nn.functional.adaptive_avg_pool{n}d``.

    Window i of n covers the entries from ``floor(i size / n)`` to ``ceil((i + 1) size / n)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, {places}) or without the batch.
    output_size : {ints}
        Sizes of the result; None keeps that of the input.
    """
    sizes = _adaptive_sizes(x, output_size, axes)
    return build(RESAMPLE, x, size=sizes, mode="average", ratios=None)


@returns("Node, or MaxPool with ``return_indices``; shape (batch, channels, *output_size)")
@raises(shapes=_NO_SIZE)
@as_of(_adaptive_avg_pool)
@as_of(_max_pool)
def _adaptive_max_pool(axes: int, x: Node, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over the windows of `adaptive_avg_pool{n}d`; the first of equal entries counts."""
    sizes = _adaptive_sizes(x, output_size, axes)
    y = build(ADAPTIVE_MAX, x, size=sizes)
    return MaxPool(y, build(ADAPTIVE_PLACES, x, y, size=sizes)) if return_indices else y


# Functions over one, two and three axes.
max_pool1d, max_pool2d, max_pool3d = over_axes(_max_pool, "max_pool{n}d")
avg_pool1d, avg_pool2d, avg_pool3d = over_axes(_avg_pool, "avg_pool{n}d")
lp_pool1d, lp_pool2d, lp_pool3d = over_axes(_lp_pool, "lp_pool{n}d")
max_unpool1d, max_unpool2d, max_unpool3d = over_axes(_max_unpool, "max_unpool{n}d")
_, fractional_max_pool2d, fractional_max_pool3d = over_axes(
    _fractional_max_pool, "fractional_max_pool{n}d"
)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = over_axes(
    _adaptive_avg_pool, "adaptive_avg_pool{n}d"
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = over_axes(
    _adaptive_max_pool, "adaptive_max_pool{n}d"
)


def _all_places(x: Node) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ShapeError(f"takes (batch, channels, axes), got {x!r}")
    return tuple(range(2, x.ndim))


def global_avg_pool(x: Node) -> Node:
    """Mean over all axes behind batch and channels, which stay as dims of size 1."""
    return mean(x, _all_places(x), keepdims=True)


def global_max_pool(x: Node) -> Node:
    """Maximum over all axes behind batch and channels, which stay as dims of size 1.

    Entries that tie share the gradient equally, as in `max`.
    """
    return maximum_over(x, _all_places(x), keepdims=True)


_foreign.install_late(sys.modules[__name__])
