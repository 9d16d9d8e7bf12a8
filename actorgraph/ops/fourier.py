"""Complex Fourier transforms, as ``numpy.fft`` has them.

All are linear over the reals, so a tangent is transformed like the value, and a cotangent by the
adjoint: the transform in the other direction with the other norm.  The cotangent of a complex z is
``dL/d(Re z) + i dL/d(Im z)``; that of a real argument is real.
"""

from __future__ import annotations

from math import log2, prod
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample
from actorgraph.ops._declare import public
from actorgraph.ops._rules import NO_NORM, NO_POINTS, as_of, declare, on, raises, returns
from actorgraph.ops.broadcasting import conj
from actorgraph.ops.elementwise import astype, real_part
from actorgraph.ops.rearranging import roll
from actorgraph.ops.shaping import one_axis
from actorgraph.types import UNKNOWN, shape_from

__all__ = [
    "fft", "fft2", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn",
    "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftn",
]  # fmt: skip

_NORMS = ("backward", "ortho", "forward")
OTHER_NORM = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The norm with which the transform in the other direction is the adjoint."""


def to_dtype(arity: int, attrs: Attrs) -> str:
    """Type scheme of a transform whose result has the dtype that its attribute names."""
    return f"x[*s] -> {attrs['dtype']}[*out]"


def like_dtype(node: Node, x: Node) -> Node:
    """Convert to the dtype of `x`, where that is real by the real part."""
    if x.dtype.kind == "f" and node.dtype.kind == "c":
        return real_part(node, x.dtype.name)
    return astype(node, x.dtype)


def flops_of(shapes: Any, result: tuple[int, ...], attrs: Attrs) -> float:
    """Cost of a fast transform, in additions and multiplications."""
    size = max(prod(result), prod(shapes[0]))
    return float(5 * size * log2(size + 1))


def sized(xp: Any, x: Any, axis: int, size: int) -> Any:
    """Cut an axis, or extend it with zeros."""
    have = x.shape[axis]
    part = x[(*[slice(None)] * axis, slice(0, size))]
    if size <= have:
        return part
    result = xp.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    result[(*[slice(None)] * axis, slice(0, have))] = part
    return result


_RESIZE: Op = declare(
    "resize_axis", "a[*s] -> a[*out]", lambda xp, x, axis, size: sized(xp, x, axis, size),
    shape=lambda checks, x, *, axis, size: (*x[:axis], size, *x[axis + 1 :]),
    vjp=(lambda ct, y, x, axis, size: build(_RESIZE_LIKE, ct, x, axis=axis),),
    linear=(0,),
    samples=(on((3, 4), axis=1, size=6), on((3, 4), axis=0, size=2), on((3, 4), axis=0, size=3)),
    doc="Cut an axis, or extend it with zeros.",
)  # fmt: skip

_RESIZE_LIKE: Op = declare(
    "resize_axis_like", "a[*s] -> a1[*t] -> a[*t]",
    lambda xp, x, like, axis: sized(xp, x, axis, like.shape[axis]),
    vjp=(lambda ct, y, x, like, axis: build(_RESIZE_LIKE, ct, x, axis=axis), None), linear=(0,),
    samples=(on((3, 6), (3, 4), axis=1), on((2, 4), (3, 4), axis=0)),
    doc="Cut an axis, or extend it with zeros, to the length in another array.",
)  # fmt: skip


def resize(x: Node, axis: int, size: Any) -> Node:
    """Return `x` with so many entries along an axis; None keeps those it has."""
    if size is None:
        return x
    (dim,) = shape_from((size,))
    if dim == 0:
        raise ShapeError(f"the number of points along axis {axis} has to be at least 1")
    return x if dim == x.dims[axis] else build(_RESIZE, x, axis=axis, size=dim)


def _fft_vjp(ct: Node, y: Node, x: Node, **attrs: Any) -> Node:
    back = {"inverse": not attrs["inverse"], "norm": OTHER_NORM[attrs["norm"]]}
    return like_dtype(build(_FFT, ct, **{**attrs, **back}), x)


def _sample(shape: tuple[int, ...], axes: tuple[int, ...], inverse: bool, norm: str) -> Sample:
    return on(shape, axes=axes, inverse=inverse, norm=norm, dtype="complex128")


_FFT: Op = declare(
    "fft", to_dtype,
    lambda xp, x, axes, inverse, norm, dtype: (
        (xp.fft.ifftn if inverse else xp.fft.fftn)(x, None, axes, norm).astype(dtype, copy=False)
    ),
    shape=lambda checks, x, **attrs: x, vjp=(_fft_vjp,), linear=(0,), cost=flops_of,
    samples=(
        _sample((5,), (0,), False, "backward"), _sample((2, 4), (1,), True, "backward"),
        _sample((3, 4), (0, 1), False, "ortho"), _sample((3, 2), (0,), True, "forward"),
        _sample((3, 2), (1, 0), False, "forward"),
    ),
)  # fmt: skip


def complex_of(dtype: np.dtype[Any]) -> str:
    """Return the name of the complex dtype of a precision."""
    return np.result_type(dtype, np.complex64).name


def checked(x: Node, norm: str | None) -> str:
    """Return the norm by its name, or raise where dtype or norm do not suit."""
    if x.dtype.kind not in "fc":
        raise GraphTypeError(
            f"takes floats and complex numbers, got {x!r}; convert with .astype('float64')"
        )
    if norm is not None and norm not in _NORMS:
        raise GraphTypeError(f"norm is one of {', '.join(_NORMS)}, got {norm!r}")
    return norm or "backward"


def places_and_sizes(x: Node, s: Any, axes: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the axes of a transform over several, and the number of points of each or None."""
    if axes is None:
        count = x.ndim if s is None else len(tuple(s))
        axes = range(x.ndim - count, x.ndim)
    axes = (axes,) if isinstance(axes, int) else axes
    places = tuple(one_axis(axis, x.ndim) for axis in axes)
    if len(set(places)) != len(places):
        raise ShapeError(f"axes {tuple(axes)} name a dim twice")
    sizes = [None] * len(places) if s is None else list(s)
    if len(sizes) != len(places):
        raise ShapeError(f"got {len(sizes)} sizes for {len(places)} axes")
    # As in NumPy, -1 keeps what an axis has.
    return places, [None if isinstance(size, int) and size == -1 else size for size in sizes]


def _transform(x: Node, s: Any, axes: Any, norm: str | None, inverse: bool) -> Node:
    norm = checked(x, norm)
    places, sizes = places_and_sizes(x, s, axes)
    for axis, size in zip(places, sizes, strict=True):
        x = resize(x, axis, size)
        if x.dims[axis] == 0:
            raise ShapeError(f"{x!r} has no points along axis {axis}")
    dtype = complex_of(x.dtype)
    if not places:
        return astype(x, dtype)
    return build(_FFT, x, axes=places, inverse=inverse, norm=norm, dtype=dtype)


@returns("Node: complex")
@raises(NO_NORM, NO_POINTS)
def fft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Discrete Fourier transform along an axis, as ``numpy.fft.fft``.

    Parameters
    ----------
    x : node
        Float or complex; float32 gives complex64.
    n : int, str or Dim, optional
        Number of points: the axis is cut, or extended with zeros.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """
    return _transform(x, None if n is None else (n,), (axis,), norm, False)


@returns("Node: complex")
@as_of(fft)
def ifft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Inverse of `fft`, as ``numpy.fft.ifft``."""
    return _transform(x, None if n is None else (n,), (axis,), norm, True)


_NO_AXES = "An axis is given twice or does not exist, or there are no points along it."


@returns("Node: complex")
@raises(NO_NORM, _NO_AXES)
@as_of(fft)
def fftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """`fft` over several axes, as ``numpy.fft.fftn``.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    """
    return _transform(x, s, axes, norm, False)


@returns("Node: complex")
@as_of(fftn)
def ifftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Inverse of `fftn`, as ``numpy.fft.ifftn``."""
    return _transform(x, s, axes, norm, True)


def _weights(xp: Any, points: int, n: int, inner: float, dtype: Any) -> Any:
    """Return `inner` for the entries of a half spectrum that stand for two, else 1."""
    k = xp.arange(points)
    return xp.where((k > 0) & (2 * k != n), inner, 1.0).astype(dtype)


def _along(weights: Any, axis: int, ndim: int) -> Any:
    return weights.reshape((-1, *[1] * (ndim - axis - 1)))


def _rfft_adjoint(xp: Any, ct: Any, like: Any, axis: int, norm: str) -> Any:
    n = like.shape[axis]
    weights = _weights(xp, ct.shape[axis], n, 0.5, like.dtype)
    halved = ct * _along(weights, axis, ct.ndim)
    back = xp.fft.irfft(halved, n, axis, OTHER_NORM[norm])
    return back.astype(like.dtype, copy=False)


def _rfft_of(x: Node, axis: int, norm: str) -> Node:
    return build(_RFFT, x, axis=axis, norm=norm, dtype=complex_of(x.dtype))


_RFFT: Op = declare(
    "rfft", lambda arity, attrs: f"f[*s] -> {attrs['dtype']}[*out]",
    lambda xp, x, axis, norm, dtype: xp.fft.rfft(x, None, axis, norm).astype(dtype, copy=False),
    shape=lambda checks, x, *, axis, norm, dtype: (*x[:axis], x[axis] // 2 + 1, *x[axis + 1 :]),
    vjp=(lambda ct, y, x, axis, norm, dtype: build(_RFFT_ADJOINT, ct, x, axis=axis, norm=norm),),
    linear=(0,), cost=flops_of,
    samples=(
        on((6,), axis=0, norm="backward", dtype="complex128"),
        on((5, 2), axis=0, norm="ortho", dtype="complex128"),
        on((2, 1), axis=1, norm="forward", dtype="complex128"),
    ),
)  # fmt: skip

_RFFT_ADJOINT: Op = declare(
    "rfft_adjoint", "x[*s] -> f1[*t] -> f1[*t]", _rfft_adjoint,
    vjp=(lambda ct, y, z, like, axis, norm: like_dtype(_rfft_of(ct, axis, norm), z), None),
    linear=(0,), cost=flops_of,
    samples=(on((4,), (6,), axis=0, norm="backward"), on((3, 2), (5, 2), axis=0, norm="ortho")),
    doc="Adjoint of rfft: real signals from cotangents of half spectra.",
)  # fmt: skip


_NO_REAL = "The dtype is no float, or there is no such norm."
_HALF = "Node: complex, with ``n // 2 + 1`` entries along the last axis"
_WHOLE = "Node: float; along the last axis by default twice the entries less 2"


@returns("Node: complex, with ``n // 2 + 1`` entries along the axis")
@raises(_NO_REAL, NO_POINTS)
@as_of(fft)
def rfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Half of the `fft` of real signals, as ``numpy.fft.rfft``.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.rfft(ag.Graph().input("x", ("batch", 8), "float32")).shape
    (batch, 5)
    """
    norm = checked(x, norm)
    place = one_axis(axis, x.ndim)
    x = resize(x, place, n)
    if x.dims[place] == 0:
        raise ShapeError(f"{x!r} has no points along axis {axis}")
    return _rfft_of(x, place, norm)


def _irfft_adjoint(xp: Any, ct: Any, like: Any, axis: int, n: int | None, norm: str) -> Any:
    n = ct.shape[axis]
    half = xp.fft.rfft(ct, None, axis, OTHER_NORM[norm])
    half *= _along(_weights(xp, half.shape[axis], n, 2.0, ct.dtype), axis, ct.ndim)
    half = sized(xp, half, axis, like.shape[axis])
    half = half if like.dtype.kind == "c" else xp.real(half)
    return half.astype(like.dtype, copy=False)


_IRFFT: Op = declare(
    "irfft", to_dtype,
    lambda xp, x, axis, n, norm, dtype: xp.fft.irfft(x, n, axis, norm).astype(dtype, copy=False),
    shape=lambda checks, x, *, axis, n, norm, dtype: (
        *x[:axis], (x[axis] - 1) * 2 if n is None else n, *x[axis + 1 :],
    ),
    vjp=(lambda ct, y, x, dtype, **attrs: build(_IRFFT_ADJOINT, ct, x, **attrs),),
    linear=(0,), cost=flops_of,
    samples=(
        on((4,), axis=0, n=None, norm="backward", dtype="float64"),
        on((2, 3), axis=1, n=5, norm="ortho", dtype="float64"),
        on((3, 2), axis=0, n=8, norm="forward", dtype="float64"),
        on((5,), axis=0, n=4, norm="backward", dtype="float64"),
    ),
)  # fmt: skip

_IRFFT_ADJOINT: Op = declare(
    "irfft_adjoint", "f[*s] -> x1[*t] -> x1[*t]", _irfft_adjoint,
    vjp=(lambda ct, y, z, like, **attrs: build(_IRFFT, ct, dtype=z.dtype.name, **attrs), None),
    linear=(0,), cost=flops_of,
    samples=(
        on((6,), (4,), axis=0, n=None, norm="backward"),
        on((2, 5), (2, 3), axis=1, n=5, norm="ortho"),
    ),
    doc="Adjoint of irfft: half spectra from cotangents of real signals.",
)  # fmt: skip


@returns("Node: float; complex64 gives float32")
@as_of(fft)
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

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.irfft(ag.Graph().input("x", ("batch", 5), "complex64")).shape
    (batch, 8)
    """
    norm = checked(x, norm)
    place = one_axis(axis, x.ndim)
    points = None if n is None else shape_from((n,))[0]
    dim = x.dims[place]
    if points == 0 or dim == 0 or (points is None and dim == 1):
        raise ShapeError(f"no points along axis {axis} of the result for {x!r}")
    if points is UNKNOWN:
        raise ShapeError("n has to be an int or a symbol")
    dtype = np.dtype(complex_of(x.dtype)).type(0).real.dtype.name
    return build(_IRFFT, x, axis=place, n=points, norm=norm, dtype=dtype)


def _split(x: Node, s: Any, axes: Any) -> tuple[Any, Any, int, Any]:
    """Return the axes and sizes but for the last, and the last."""
    places, sizes = places_and_sizes(x, s, axes)
    if not places:
        raise ShapeError("takes at least one axis")
    return places[:-1], sizes[:-1], places[-1], sizes[-1]


@returns(_HALF)
@raises(_NO_REAL, _NO_AXES)
@as_of(fftn)
@as_of(rfft)
def rfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """`fftn` with the last axis transformed by `rfft`, as ``numpy.fft.rfftn``."""
    places, sizes, last, size = _split(x, s, axes)
    half = rfft(x, size, last, norm)
    return fftn(half, sizes, places, norm) if places else half


@returns(_WHOLE)
@as_of(fftn)
def irfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Undo `rfftn`, as ``numpy.fft.irfftn``: a real `ifftn`."""
    places, sizes, last, size = _split(x, s, axes)
    return irfft(ifftn(x, sizes, places, norm) if places else x, size, last, norm)


# Errors of these begin with the name of the function that calls them.
_rfft, _irfft, _rfftn, _irfftn = rfft, irfft, rfftn, irfftn


@returns(_WHOLE)
@as_of(irfftn)
def hfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Transform signals with real spectra, given by half, as ``torch.fft.hfftn`` and `irfftn`."""
    return _irfftn(conj(x), s, axes, OTHER_NORM[checked(x, norm)])


@returns(_HALF)
@as_of(rfftn)
def ihfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Undo `hfftn`, as ``torch.fft.ihfftn``; otherwise as `rfftn`."""
    return conj(_rfftn(x, s, axes, OTHER_NORM[checked(x, norm)]))


@returns("Node: float; complex64 gives float32")
@as_of(irfft)
def hfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Transform signals with a real spectrum, given by half, as ``numpy.fft.hfft`` and `irfft`."""
    return _irfft(conj(x), n, axis, OTHER_NORM[checked(x, norm)])


@returns("Node: complex, with ``n // 2 + 1`` entries along the axis")
@as_of(rfft)
def ihfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Undo `hfft`, as ``numpy.fft.ihfft``; otherwise as `rfft`."""
    return conj(_rfft(x, n, axis, OTHER_NORM[checked(x, norm)]))


def _last_two(over_axes: Any, kind: str = "complex") -> Any:
    def transform(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
        result: Node = over_axes(x, s, axes, norm)
        return result

    name = over_axes.__name__
    text = f"Transform over the last two axes by `{name}`, as ``numpy.fft`` names it."
    entry = "Parameters\n----------\naxes : sequence of int\n    The last two by default."
    made = public(transform, name.replace("n", "2"), f"{text}\n\n{entry}")
    return returns(f"Node: {kind}")(as_of(over_axes)(made))


fft2, ifft2, rfft2, ihfft2 = map(_last_two, (fftn, ifftn, rfftn, ihfftn))
irfft2, hfft2 = _last_two(irfftn, "float"), _last_two(hfftn, "float")


def _shifted(x: Node, axes: Any, back: bool) -> Node:
    given = range(x.ndim) if axes is None else axes if isinstance(axes, tuple) else (axes,)
    places = tuple(one_axis(place, x.ndim) for place in given)
    sizes = [x.dims[place] for place in places]
    if not all(isinstance(size, int) for size in sizes):
        raise ShapeError(f"the dims of {x!r} have to be known ints")
    return roll(x, [-(size // 2) if back else size // 2 for size in sizes], places)


def fftshift(x: Node, axes: Any = None) -> Node:
    """Put the frequency 0 into the middle, as ``numpy.fft.fftshift``."""
    return _shifted(x, axes, False)


def ifftshift(x: Node, axes: Any = None) -> Node:
    """Undo `fftshift`, as ``numpy.fft.ifftshift``."""
    return _shifted(x, axes, True)
