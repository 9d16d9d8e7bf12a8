"""Short-time Fourier transforms and back, built of ops, with PyTorch's parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops.assignment import index_add
from actorgraph.ops.broadcasting import broadcast_to
from actorgraph.ops.casting import astype
from actorgraph.ops.complex import is_complex, real
from actorgraph.ops.creation import zeros
from actorgraph.ops.fourier import fft, ifft
from actorgraph.ops.fourier_real import irfft, rfft
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.padding import pad
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import swap_last

__all__ = ["istft", "stft"]


class _Frames(NamedTuple):
    """How a signal is cut: points of a frame and from one to the next, and a window or None."""

    points: int
    hop: int
    window: Node | None

    def positions(self, length: int, what: str) -> Any:
        """Return the positions of each frame in a signal."""
        if length < self.points:
            raise ShapeError(f"{what}: {length} points are fewer than n_fft={self.points}")
        starts = np.arange(0, length - self.points + 1, self.hop)
        return starts[:, None] + np.arange(self.points)


def _frames(
    x: Node, n_fft: int, hop_length: int | None, win_length: int | None, window: Any, what: str
) -> _Frames:
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if not (n_fft > 0 and hop > 0 and 0 < width <= n_fft):
        raise GraphError(
            f"{what}: n_fft and hop_length are at least 1 and win_length at most n_fft, got "
            f"{n_fft}, {hop} and {width}"
        )
    if window is None and width == n_fft:
        return _Frames(n_fft, hop, None)
    node = x.graph.lift(np.ones(width, x.dtype) if window is None else window)
    if node.dims != (width,):
        raise ShapeError(f"{what}: the window has {width} points, got {node!r}")
    before = (n_fft - width) // 2
    return _Frames(n_fft, hop, pad(node, (before, n_fft - width - before)))


@naming_itself
def stft(
    x: Node,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
) -> Node:
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

    Returns
    -------
    Node
        Complex, shape (..., frequencies, frames).

    Raises
    ------
    GraphError
        A number is out of range, or one side is asked for of a complex signal.
    ShapeError
        The number of points is not known, or too small.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> stft(Graph().input("x", ("batch", 100)), 16).shape
    (batch, 9, 26)
    """
    cut = _frames(x, n_fft, hop_length, win_length, window, "stft")
    half = not is_complex(x) if onesided is None else onesided
    if half and is_complex(x):
        raise GraphError("stft: the spectrum of a complex signal has two sides")
    if center:
        x = pad(x, ((0, 0),) * (x.ndim - 1) + ((n_fft // 2, n_fft // 2),), pad_mode)
    if not x.ndim or not isinstance(x.dims[-1], int):
        raise ShapeError(f"stft: the number of points has to be a known int, got {x!r}")
    frames = take(x, cut.positions(x.dims[-1], "stft"), -1)
    frames = frames if cut.window is None else frames * astype(cut.window, x.dtype)
    transform = rfft if half else fft
    return swap_last(transform(frames, norm="ortho" if normalized else None))


@naming_itself
def istft(
    x: Node,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Node:
    """Undo `stft` by least squares, as ``torch.istft``.

    Frames are multiplied by the window and added where they overlap, and the sum is divided by
    that of the squares of the window, which must not be 0.

    Parameters
    ----------
    x : node
        Complex, shape (..., frequencies, frames), of known dims; the last two of them.
    n_fft, hop_length, win_length, window, center, normalized
        As in `stft`.
    onesided : bool, optional
        Whether `x` has the frequencies up to ``n_fft // 2`` only; by default their number tells.
    length : int, optional
        Points of the result, cut off or filled up with zeros.
    return_complex : bool
        Give complex signals, of both sides of the spectrum; else that of a real signal counts
        up to ``n_fft // 2``.

    Returns
    -------
    Node
        Float, or complex, shape (..., points).

    Raises
    ------
    GraphError
        A number is out of range, or complex signals are asked for of one side.
    ShapeError
        The dims are not known, or not those of such a transform.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> istft(Graph().input("x", ("batch", 9, 26), "complex64"), 16).shape
    (batch, 100)
    """
    cut = _frames(x, n_fft, hop_length, win_length, window, "istft")
    onesided = x.dims[-2:-1] != (n_fft,) if onesided is None else onesided
    wanted = n_fft // 2 + 1 if onesided else n_fft
    if x.ndim < 2 or x.dims[-2] != wanted or not isinstance(x.dims[-1], int):
        raise ShapeError(f"istft takes (..., {wanted}, frames) with a known number, got {x!r}")
    if return_complex and onesided:
        raise GraphError("istft: a complex signal has a spectrum of two sides")
    rows, norm = swap_last(x), "ortho" if normalized else None
    half = getitem(rows, (Ellipsis, slice(None, n_fft // 2 + 1)))
    frames = ifft(rows, norm=norm) if return_complex else irfft(half, n_fft, norm=norm)
    total = n_fft + cut.hop * (x.dims[-1] - 1)
    ends = (n_fft // 2 if center else 0), total - (n_fft // 2 if center else 0)
    if length is not None:
        ends = ends[0], min(total, ends[0] + length)
    inside = (Ellipsis, slice(*ends))
    weights = cut.window
    if weights is None:
        weights = x.graph.lift(np.ones(n_fft, frames.dtype))
    weights = weights if weights.dtype == frames.dtype else _like(weights, frames)
    places = cut.positions(total, "istft")
    squares = broadcast_to(weights * weights, places.shape)
    result = getitem(_added(frames * weights, places, total), inside)
    result = result / getitem(_added(squares, places, total), inside)
    if length is None or length <= ends[1] - ends[0]:
        return result
    return pad(result, ((0, 0),) * (result.ndim - 1) + ((0, length - ends[1] + ends[0]),))


def _like(window: Node, frames: Node) -> Node:
    return real(window) if is_complex(window) else astype(window, frames.dtype)


def _added(frames: Node, places: Any, total: int) -> Node:
    """Add frames to zeros at their places along the last axis."""
    lead = frames.dims[:-2]
    empty = zeros(frames, (*lead, total), frames.dtype)
    return index_add(empty, -1, places.ravel(), reshape(frames, (*lead, places.size)))
