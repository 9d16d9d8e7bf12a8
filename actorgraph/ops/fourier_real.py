"""Fourier transforms between real signals and half of their spectra, as ``numpy.fft`` has them.

Each is linear over the reals; its adjoint is an op, so that each order of derivative is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.fourier import (
    OTHER_NORM,
    checked,
    complex_of,
    flops_of,
    like_dtype,
    resize,
    sized,
    to_dtype,
)
from actorgraph.ops.shaping import one_axis
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, shape_from

__all__ = ["irfft", "rfft"]


def _weights(xp: Any, points: int, n: int, inner: float, dtype: Any) -> Any:
    """Return `inner` for the entries of a half spectrum that stand for two, else 1."""
    k = xp.arange(points)
    return xp.where((k > 0) & (2 * k != n), inner, 1.0).astype(dtype)


def _along(weights: Any, axis: int, ndim: int) -> Any:
    return weights.reshape((-1, *[1] * (ndim - axis - 1)))


def _rfft_shape(checks: Checks, x: Shape, *, axis: int, norm: str, dtype: str) -> Shape:
    return (*x[:axis], x[axis] // 2 + 1, *x[axis + 1 :])


def _rfft_forward(xp: Any, x: Any, axis: int, norm: str, dtype: str) -> Any:
    return xp.fft.rfft(x, None, axis, norm).astype(dtype, copy=False)


def _rfft_adjoint(xp: Any, ct: Any, like: Any, axis: int, norm: str) -> Any:
    n = like.shape[axis]
    weights = _weights(xp, ct.shape[axis], n, 0.5, like.dtype)
    halved = ct * _along(weights, axis, ct.ndim)
    back = xp.fft.irfft(halved, n, axis, OTHER_NORM[norm])
    return back.astype(like.dtype, copy=False)


def _rfft_of(x: Node, like: Node, axis: int, norm: str) -> Node:
    return like_dtype(build(_RFFT, x, axis=axis, norm=norm, dtype=complex_of(x.dtype)), like)


def _rfft_adjoint_of(ct: Node, x: Node, axis: int, norm: str) -> Node:
    return build(_RFFT_ADJOINT, ct, x, axis=axis, norm=norm)


_RFFT: Op = declare(
    "rfft", lambda arity, attrs: f"f[*s] -> {attrs['dtype']}[*out]", _rfft_forward,
    shape=_rfft_shape,
    vjp=(lambda ct, y, x, axis, norm, dtype: _rfft_adjoint_of(ct, x, axis, norm),),
    linear=(0,), cost=flops_of,
    samples=(
        Sample(((6,),), {"axis": 0, "norm": "backward", "dtype": "complex128"}),
        Sample(((5, 2),), {"axis": 0, "norm": "ortho", "dtype": "complex128"}),
        Sample(((2, 1),), {"axis": 1, "norm": "forward", "dtype": "complex128"}),
    ),
    doc="Half spectrum of real signals along an axis.",
)  # fmt: skip

_RFFT_ADJOINT: Op = declare(
    "rfft_adjoint", "x[*s] -> f1[*t] -> f1[*t]", _rfft_adjoint,
    vjp=(lambda ct, y, z, like, axis, norm: _rfft_of(ct, z, axis, norm), None),
    linear=(0,), cost=flops_of,
    samples=(
        Sample(((4,), (6,)), {"axis": 0, "norm": "backward"}),
        Sample(((3, 2), (5, 2)), {"axis": 0, "norm": "ortho"}),
    ),
    doc="Adjoint of rfft: real signals from cotangents of half spectra.",
)  # fmt: skip


@raises(
    types="The dtype is no float, or there is no such norm.",
    shapes="There is no such axis, or no points along it.",
)  # fmt: skip
def rfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Half of the spectrum of real signals, as ``numpy.fft.rfft``.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.
    n : int, str or Dim, optional
        Number of points: the axis is cut, or extended with zeros.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        As in `fft`.

    Returns
    -------
    Node
        Complex, with ``n // 2 + 1`` entries along the axis.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> rfft(Graph().input("x", ("batch", 8), "float32")).shape
    (batch, 5)
    """
    norm = checked(x, norm, "rfft")
    place = one_axis(axis, x.ndim, "rfft")
    x = resize(x, place, n, "rfft")
    if x.dims[place] == 0:
        raise ShapeError(f"rfft: {x!r} has no points along axis {axis}")
    return build(_RFFT, x, axis=place, norm=norm, dtype=complex_of(x.dtype))


def _irfft_shape(
    checks: Checks, x: Shape, *, axis: int, n: int | Dim | None, norm: str, dtype: str
) -> Shape:
    return (*x[:axis], (x[axis] - 1) * 2 if n is None else n, *x[axis + 1 :])


def _irfft_forward(xp: Any, x: Any, axis: int, n: int | None, norm: str, dtype: str) -> Any:
    return xp.fft.irfft(x, n, axis, norm).astype(dtype, copy=False)


def _irfft_adjoint(xp: Any, ct: Any, like: Any, axis: int, n: int | None, norm: str) -> Any:
    n = ct.shape[axis]
    half = xp.fft.rfft(ct, None, axis, OTHER_NORM[norm])
    half *= _along(_weights(xp, half.shape[axis], n, 2.0, ct.dtype), axis, ct.ndim)
    half = sized(xp, half, axis, like.shape[axis])
    half = half if like.dtype.kind == "c" else xp.real(half)
    return half.astype(like.dtype, copy=False)


def _irfft_adjoint_vjp(ct: Node, y: Node, z: Node, like: Node, **attrs: Any) -> Node:
    return build(_IRFFT, ct, dtype=z.dtype.name, **attrs)


def _irfft_vjp(ct: Node, y: Node, x: Node, dtype: str, **attrs: Any) -> Node:
    return build(_IRFFT_ADJOINT, ct, x, **attrs)


_IRFFT: Op = declare(
    "irfft", to_dtype, _irfft_forward, shape=_irfft_shape, vjp=(_irfft_vjp,),
    linear=(0,), cost=flops_of,
    samples=(
        Sample(((4,),), {"axis": 0, "n": None, "norm": "backward", "dtype": "float64"}),
        Sample(((2, 3),), {"axis": 1, "n": 5, "norm": "ortho", "dtype": "float64"}),
        Sample(((3, 2),), {"axis": 0, "n": 8, "norm": "forward", "dtype": "float64"}),
        Sample(((5,),), {"axis": 0, "n": 4, "norm": "backward", "dtype": "float64"}),
    ),
    doc="Real signals from half spectra along an axis.",
)  # fmt: skip

_IRFFT_ADJOINT: Op = declare(
    "irfft_adjoint", "f[*s] -> x1[*t] -> x1[*t]", _irfft_adjoint, vjp=(_irfft_adjoint_vjp, None),
    linear=(0,), cost=flops_of,
    samples=(
        Sample(((6,), (4,)), {"axis": 0, "n": None, "norm": "backward"}),
        Sample(((2, 5), (2, 3)), {"axis": 1, "n": 5, "norm": "ortho"}),
    ),
    doc="Adjoint of irfft: half spectra from cotangents of real signals.",
)  # fmt: skip


@raises(
    types="The dtype is neither float nor complex, or there is no such norm.",
    shapes="There is no such axis, or no points along it.",
)  # fmt: skip
def irfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Inverse of `rfft`, as ``numpy.fft.irfft``.

    The imaginary parts of the entries for frequency 0 and, where n is even, n / 2 do not count
    and get no gradient.

    Parameters
    ----------
    x : node
        Float or complex.
    n : int, str or Dim, optional
        Number of points of the result; default twice the entries less 2.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        As in `fft`.

    Returns
    -------
    Node
        Float; complex64 gives float32.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> irfft(Graph().input("x", ("batch", 5), "complex64")).shape
    (batch, 8)
    """
    norm = checked(x, norm, "irfft")
    place = one_axis(axis, x.ndim, "irfft")
    points = None if n is None else shape_from((n,))[0]
    dim = x.dims[place]
    if points == 0 or dim == 0 or (points is None and dim == 1):
        raise ShapeError(f"irfft: no points along axis {axis} of the result for {x!r}")
    if points is UNKNOWN:
        raise ShapeError("irfft: n has to be an int or a symbol")
    dtype = np.dtype(complex_of(x.dtype)).type(0).real.dtype.name
    return build(_IRFFT, x, axis=place, n=points, norm=norm, dtype=dtype)
