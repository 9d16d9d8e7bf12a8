"""Sampled signals: short-time spectra and back, interpolation, integrals, convolution."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphError, ShapeError
from actorgraph.graph import Node
from actorgraph.ops._numpy_names import nodes_of
from actorgraph.ops._rules import as_of, raises, returns
from actorgraph.ops.arithmetic import is_complex, mod, real
from actorgraph.ops.assignment import index_add
from actorgraph.ops.broadcasting import broadcast_to, expand_dims
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.convolution import conv1d
from actorgraph.ops.creation import zeros
from actorgraph.ops.elementwise import astype, clip, maximum, where
from actorgraph.ops.fourier import fft, ifft, irfft, rfft
from actorgraph.ops.gathering import size_of
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.linalg import matmul
from actorgraph.ops.rearranging import flip, pad
from actorgraph.ops.reductions import cumsum
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import concatenate, one_axis, swap_last
from actorgraph.ops.sorting import argsort, searchsorted

__all__ = ["convolve", "cumulative_trapezoid", "interp", "istft", "stft", "trapezoid"]


_NO_SIDES = "A number is out of range, or a complex signal is given or asked for with one side."


class _Frames(NamedTuple):
    """How a signal is cut: points of a frame, points from one frame to the next, and the window."""

    points: int
    hop: int
    window: Node | None

    def positions(self, length: int) -> Any:
        """Return the positions of each frame in a signal."""
        if length < self.points:
            raise ShapeError(f"{length} points are fewer than n_fft={self.points}")
        starts = np.arange(0, length - self.points + 1, self.hop)
        return starts[:, None] + np.arange(self.points)


def _frames(
    x: Node, n_fft: int, hop_length: int | None, win_length: int | None, window: Any
) -> _Frames:
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if not (n_fft > 0 and hop > 0 and 0 < width <= n_fft):
        raise GraphError(
            f"n_fft and hop_length are at least 1 and win_length at most n_fft, got "
            f"{n_fft}, {hop} and {width}"
        )
    if window is None and width == n_fft:
        return _Frames(n_fft, hop, None)
    node = x.graph.lift(np.ones(width, x.dtype) if window is None else window)
    if node.dims != (width,):
        raise ShapeError(f"the window has {width} points, got {node!r}")
    before = (n_fft - width) // 2
    return _Frames(n_fft, hop, pad(node, (before, n_fft - width - before)))


@raises(shapes="The number of points is not known, or too small.", other=_NO_SIDES)
@returns("Node: complex, shape (..., frequencies, frames)")
def stft(
    x: Node, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Any = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
    onesided: bool | None = None,
) -> Node:  # fmt: skip
    """Short-time Fourier transform, as ``torch.stft`` with complex results.

    Parameters
    ----------
    x : node
        Signals along the last axis, float or complex, of a known number of points.
    n_fft : int
        Points of a frame.
    hop_length : int, optional
        Points from one frame to the next; a quarter of a frame by default.
    win_length : int, optional
        Points of the window, in the middle of the frame; all by default.
    window : node or array, optional
        Factors, shape (win_length,); ones by default.
    center : bool
        Let frame t have its middle at ``t * hop_length``: the signal is padded by half a frame.
    pad_mode : str
        How, as in `pad`.
    normalized : bool
        Divide by the square root of `n_fft`.
    onesided : bool, optional
        Give the frequencies up to ``n_fft // 2`` only; the default for real signals.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.stft(ag.Graph().input("x", ("batch", 100)), 16).shape
    (batch, 9, 26)
    """
    cut = _frames(x, n_fft, hop_length, win_length, window)
    half = not is_complex(x) if onesided is None else onesided
    if half and is_complex(x):
        raise GraphError("the spectrum of a complex signal has two sides")
    if center:
        x = pad(x, ((0, 0),) * (x.ndim - 1) + ((n_fft // 2, n_fft // 2),), pad_mode)
    if not x.ndim or not isinstance(x.dims[-1], int):
        raise ShapeError(f"the number of points has to be a known int, got {x!r}")
    frames = take(x, cut.positions(x.dims[-1]), -1)
    frames = frames if cut.window is None else frames * astype(cut.window, x.dtype)
    transform = rfft if half else fft
    return swap_last(transform(frames, norm="ortho" if normalized else None))


@raises(shapes="The dims are not known, or not those of such a transform.", other=_NO_SIDES)
@returns("Node: float, or complex, shape (..., points)")
@as_of(stft)
def istft(
    x: Node, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Any = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
    length: int | None = None, return_complex: bool = False,
) -> Node:  # fmt: skip
    """Undo `stft` by least squares, as ``torch.istft``.

    Frames are multiplied by the window and added where they overlap, and the sum is divided by
    that of the squares of the window, which must not be 0.

    Parameters
    ----------
    x : node
        Complex, shape (..., frequencies, frames), the last two known.
    onesided : bool, optional
        Whether `x` has the frequencies up to ``n_fft // 2`` only; default: by their number.
    length : int, optional
        Points of the result, cut off or filled up with zeros.
    return_complex : bool
        Return complex signals from both sides of the spectrum; else only frequencies up to
        ``n_fft // 2`` count.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.istft(ag.Graph().input("x", ("batch", 9, 26), "complex64"), 16).shape
    (batch, 100)
    """
    cut = _frames(x, n_fft, hop_length, win_length, window)
    onesided = x.dims[-2:-1] != (n_fft,) if onesided is None else onesided
    wanted = n_fft // 2 + 1 if onesided else n_fft
    if x.ndim < 2 or x.dims[-2] != wanted or not isinstance(x.dims[-1], int):
        raise ShapeError(f"takes (..., {wanted}, frames) with a known number, got {x!r}")
    if return_complex and onesided:
        raise GraphError("a complex signal has a spectrum of two sides")
    rows, norm = swap_last(x), "ortho" if normalized else None
    half = getitem(rows, (Ellipsis, slice(None, n_fft // 2 + 1)))
    frames = ifft(rows, norm=norm) if return_complex else irfft(half, n_fft, norm=norm)
    total = n_fft + cut.hop * (x.dims[-1] - 1)
    ends = (n_fft // 2 if center else 0), total - (n_fft // 2 if center else 0)
    if length is not None:
        ends = ends[0], min(total, ends[0] + length)
    inside = (Ellipsis, slice(*ends))
    weights = x.graph.lift(np.ones(n_fft, frames.dtype)) if cut.window is None else cut.window
    if weights.dtype != frames.dtype:
        weights = real(weights) if is_complex(weights) else astype(weights, frames.dtype)
    places = cut.positions(total)
    squares = broadcast_to(weights * weights, places.shape)
    result = getitem(_added(frames * weights, places, total), inside)
    result = result / getitem(_added(squares, places, total), inside)
    if length is None or length <= ends[1] - ends[0]:
        return result
    return pad(result, ((0, 0),) * (result.ndim - 1) + ((0, length - ends[1] + ends[0]),))


def _added(frames: Node, places: Any, total: int) -> Node:
    """Add frames to zeros at their places along the last axis."""
    lead = frames.dims[:-2]
    empty = zeros(frames, (*lead, total), frames.dtype)
    return index_add(empty, -1, places.ravel(), reshape(frames, (*lead, places.size)))


@returns("Node: in the shape of `x`; with gradients by `x`, `xp` and `fp`")
@raises(other="The period is 0.", shapes="`xp` and `fp` are not of one dim and size, or are empty.")
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Node:
    """Interpolate linearly between points, as ``numpy.interp``.

    Parameters
    ----------
    x : node or array
        Where.
    xp, fp : node or array of one dim
        Places in rising order (any order with a period) and values of the points.
    left, right : scalar or node, optional
        Values below and above all points; default the first and the last value.
    period : float, optional
        The function repeats; `left` and `right` then have no meaning.
    """
    x, xp, fp = nodes_of((x, xp, fp))
    if xp.ndim != 1 or fp.ndim != 1 or xp.dims[0] == 0:
        raise ShapeError(f"the points have one dim and at least one entry, got {xp!r}, {fp!r}")
    if period is not None:
        if not period:
            raise GraphError("the period is not 0")
        left = right = None
        x, xp = mod(x, abs(period)), mod(xp, abs(period))
        order = argsort(xp)
        xp, fp = take(xp, order), take(fp, order)
        xp = concatenate([xp[-1:] - abs(period), xp, xp[:1] + abs(period)])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    last = size_of(xp) - 1
    begin = clip(searchsorted(xp, x, "right") - 1, 0, maximum(last - 1, 0))
    end = clip(begin + 1, 0, last)
    low, value = take(xp, begin), take(fp, begin)
    width = take(xp, end) - low
    share = (x - low) / where(width == 0, 1, width)
    share = astype(share, fp.dtype) if fp.dtype.kind == "c" else share
    found = value + (take(fp, end) - value) * share
    found = where(x < xp[0], fp[0] if left is None else left, found)
    return where(x > xp[-1], fp[-1] if right is None else right, found)


@raises(shapes="There is no such axis, or the shapes do not fit.")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """Integrate along an axis by the trapezoidal rule, as ``numpy.trapezoid``.

    Parameters
    ----------
    y : node or array
    x : node or array, optional
        Places of the values: of one dim, or a shape that broadcasts to that of `y`.
    dx : scalar or node
        Distance of neighbours where no places are given.
    """
    return sum_of(_areas(y, x, dx, axis), axis)


@as_of(trapezoid)
def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """Running integral by the rule of `trapezoid`, one shorter than `y`."""
    return cumsum(_areas(y, x, dx, axis), axis)


def _areas(y: Any, x: Any, dx: Any, axis: int) -> Node:
    """Return the integral between each two neighbours along an axis."""
    y, *given = nodes_of((y, dx if x is None else x))
    lead = (slice(None),) * one_axis(axis, y.ndim)
    later, earlier = (*lead, slice(1, None)), (*lead, slice(None, -1))
    width = given[0]
    if x is not None and width.ndim == 1:
        width = expand_dims(width[1:] - width[:-1], tuple(range(1, y.ndim - len(lead))))
    elif x is not None:
        width = width[later] - width[earlier]
    area: Node = (y[later] + y[earlier]) * 0.5 * width
    return area


@raises(shapes="An argument has not one dim of known size above 0.", other="No such mode.")
def convolve(a: Any, v: Any, mode: str = "full") -> Node:
    """Convolve two vectors, as ``numpy.convolve``.

    Parameters
    ----------
    a, v : node or array of one dim
        Numbers, of known sizes.
    mode : {"full", "same", "valid"}
        All places of overlap, as many as the longer one has, or only those of full overlap.
    """
    if mode not in ("full", "same", "valid"):
        raise GraphError(f"mode is 'full', 'same' or 'valid', got {mode!r}")
    long, short = nodes_of((a, v))
    sizes = [x.dims[0] for x in (long, short) if x.ndim == 1]
    known = [size for size in sizes if isinstance(size, int) and size]
    if len(known) != 2:
        raise ShapeError(f"the arguments have one dim of known size, got {long!r} and {short!r}")
    size, width = known
    if size < width:
        long, short, size, width = short, long, width, size
    margin = {"full": width - 1, "same": width - 1, "valid": 0}[mode]
    if long.dtype.kind in "fV":
        rows = conv1d(long[None, None], flip(short)[None, None], padding=margin)[0, 0]
    else:
        places = np.arange(size + 2 * margin - width + 1)[:, None] + np.arange(width)
        rows = matmul(take(pad(long, margin), places), flip(short))
    start = (width - 1) // 2
    return rows[start : start + size] if mode == "same" else rows
