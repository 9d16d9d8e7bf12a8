"""Complex Fourier transforms, as ``numpy.fft`` has them.

All are linear over the reals, so that a tangent is transformed as the value is, and a cotangent by
the adjoint: the transform the other way with the other norm.  The cotangent of a complex z is
``dL/d(Re z) + i dL/d(Im z)``; that of a real argument is real.
"""

from __future__ import annotations

from math import log2, prod
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.casting import astype, real_part
from actorgraph.ops.shaping import one_axis
from actorgraph.types import Checks, Dim, Shape, shape_from

__all__ = ["fft", "fftn", "ifft", "ifftn"]

_NORMS = ("backward", "ortho", "forward")
OTHER_NORM = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""Which norm the adjoint of a transform has, for the transform the other way."""


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


# -- length of an axis ------------------------------------------------------------------------


def sized(xp: Any, x: Any, axis: int, size: int) -> Any:
    """Cut an axis, or extend it with zeros."""
    have = x.shape[axis]
    part = x[(*[slice(None)] * axis, slice(0, size))]
    if size <= have:
        return part
    result = xp.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    result[(*[slice(None)] * axis, slice(0, have))] = part
    return result


def _resized(checks: Checks, x: Shape, *, axis: int, size: int | Dim) -> Shape:
    return (*x[:axis], size, *x[axis + 1 :])


_RESIZE: Op = declare(
    "resize_axis", "a[*s] -> a[*out]", lambda xp, x, axis, size: sized(xp, x, axis, size),
    shape=_resized, vjp=(lambda ct, y, x, axis, size: build(_RESIZE_LIKE, ct, x, axis=axis),),
    linear=(0,),
    samples=(
        Sample(((3, 4),), {"axis": 1, "size": 6}), Sample(((3, 4),), {"axis": 0, "size": 2}),
        Sample(((3, 4),), {"axis": 0, "size": 3}),
    ),
    doc="Cut an axis, or extend it with zeros.",
)  # fmt: skip

_RESIZE_LIKE: Op = declare(
    "resize_axis_like", "a[*s] -> a1[*t] -> a[*t]",
    lambda xp, x, like, axis: sized(xp, x, axis, like.shape[axis]),
    vjp=(lambda ct, y, x, like, axis: build(_RESIZE_LIKE, ct, x, axis=axis), None), linear=(0,),
    samples=(Sample(((3, 6), (3, 4)), {"axis": 1}), Sample(((2, 4), (3, 4)), {"axis": 0})),
    doc="Cut an axis, or extend it with zeros, to the length in another array.",
)  # fmt: skip


def resize(x: Node, axis: int, size: Any, what: str) -> Node:
    """Return `x` with so many entries along an axis; None keeps those it has."""
    if size is None:
        return x
    (dim,) = shape_from((size,))
    if dim == 0:
        raise ShapeError(f"{what}: the number of points along axis {axis} has to be at least 1")
    return x if dim == x.dims[axis] else build(_RESIZE, x, axis=axis, size=dim)


# -- complex transforms -----------------------------------------------------------------------


def _fft_forward(
    xp: Any, x: Any, axes: tuple[int, ...], inverse: bool, norm: str, dtype: str
) -> Any:
    transform = xp.fft.ifftn if inverse else xp.fft.fftn
    return transform(x, None, axes, norm).astype(dtype, copy=False)


def _fft_vjp(ct: Node, y: Node, x: Node, **attrs: Any) -> Node:
    back = {"inverse": not attrs["inverse"], "norm": OTHER_NORM[attrs["norm"]]}
    return like_dtype(build(_FFT, ct, **{**attrs, **back}), x)


def _same_shape(checks: Checks, x: Shape, **attrs: Any) -> Shape:
    return x


def _sample(shape: tuple[int, ...], axes: tuple[int, ...], inverse: bool, norm: str) -> Sample:
    attrs = {"axes": axes, "inverse": inverse, "norm": norm, "dtype": "complex128"}
    return Sample((shape,), attrs)


_FFT: Op = declare(
    "fft", to_dtype, _fft_forward, shape=_same_shape, vjp=(_fft_vjp,), linear=(0,), cost=flops_of,
    samples=(
        _sample((5,), (0,), False, "backward"), _sample((2, 4), (1,), True, "backward"),
        _sample((3, 4), (0, 1), False, "ortho"), _sample((3, 2), (0,), True, "forward"),
        _sample((3, 2), (1, 0), False, "forward"),
    ),
    doc="Discrete Fourier transform over axes, forward or inverse.",
)  # fmt: skip


def complex_of(dtype: np.dtype[Any]) -> str:
    """Return the name of the complex dtype of a precision."""
    return np.result_type(dtype, np.complex64).name


def checked(x: Node, norm: str | None, what: str) -> str:
    """Return the norm by its name, or raise where dtype or norm do not suit."""
    if x.dtype.kind not in "fc":
        raise GraphTypeError(
            f"{what} takes floats and complex numbers, got {x!r}; convert with .astype('float64')"
        )
    if norm is not None and norm not in _NORMS:
        raise GraphTypeError(f"{what}: norm is one of {', '.join(_NORMS)}, got {norm!r}")
    return norm or "backward"


def places_and_sizes(x: Node, s: Any, axes: Any, what: str) -> tuple[tuple[int, ...], list[Any]]:
    """Return the axes of a transform over several, and the number of points of each or None."""
    if axes is None:
        count = x.ndim if s is None else len(tuple(s))
        axes = range(x.ndim - count, x.ndim)
    axes = (axes,) if isinstance(axes, int) else axes
    places = tuple(one_axis(axis, x.ndim, what) for axis in axes)
    if len(set(places)) != len(places):
        raise ShapeError(f"{what}: axes {tuple(axes)} name a dim twice")
    sizes = [None] * len(places) if s is None else list(s)
    if len(sizes) != len(places):
        raise ShapeError(f"{what}: got {len(sizes)} sizes for {len(places)} axes")
    # As in NumPy, -1 keeps what an axis has.
    return places, [None if isinstance(size, int) and size == -1 else size for size in sizes]


def _transform(x: Node, s: Any, axes: Any, norm: str | None, inverse: bool, what: str) -> Node:
    norm = checked(x, norm, what)
    places, sizes = places_and_sizes(x, s, axes, what)
    for axis, size in zip(places, sizes, strict=True):
        x = resize(x, axis, size, what)
        if x.dims[axis] == 0:
            raise ShapeError(f"{what}: {x!r} has no points along axis {axis}")
    dtype = complex_of(x.dtype)
    if not places:
        return astype(x, dtype)
    return build(_FFT, x, axes=places, inverse=inverse, norm=norm, dtype=dtype)


@raises(
    types="The dtype is neither float nor complex, or there is no such norm.",
    shapes="There is no such axis, or no points along it.",
)  # fmt: skip
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
        Which way the division by n, or half of it, belongs to; default "backward".

    Returns
    -------
    Node
        Complex.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> fft(Graph().input("x", ("batch", 8), "float32")).dtype
    dtype('complex64')
    """
    return _transform(x, None if n is None else (n,), (axis,), norm, False, "fft")


def ifft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Inverse of `fft`, as ``numpy.fft.ifft``; parameters and errors as those of `fft`."""
    return _transform(x, None if n is None else (n,), (axis,), norm, True, "ifft")


@raises(
    types="The dtype is neither float nor complex, or there is no such norm.",
    shapes="An axis is given twice or does not exist, or there are no points along it.",
)  # fmt: skip
def fftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Discrete Fourier transform over several axes, as ``numpy.fft.fftn``.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    norm : {"backward", "ortho", "forward"}, optional
        As in `fft`.

    Returns
    -------
    Node
        Complex.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> fftn(Graph().input("x", (4, 8), "float64"), axes=(0, 1)).shape
    (4, 8)
    """
    return _transform(x, s, axes, norm, False, "fftn")


def ifftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Inverse of `fftn`, as ``numpy.fft.ifftn``; parameters and errors as there."""
    return _transform(x, s, axes, norm, True, "ifftn")
