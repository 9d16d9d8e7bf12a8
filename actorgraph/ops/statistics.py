"""Variance, standard deviation and norms."""

from __future__ import annotations

from math import inf, nan, prod
from typing import Any

import numpy as np

from actorgraph.errors import GraphError
from actorgraph.graph import Node, build
from actorgraph.op import KEPT_OUT, Op, Sample
from actorgraph.ops._declare import Binary, binary, reduction_op
from actorgraph.ops._docs import WRONG_AXIS, raises
from actorgraph.ops._quick import all_finite, row_squares
from actorgraph.ops._rules import declare
from actorgraph.ops._scalars import accumulator, zero
from actorgraph.ops.arithmetic import abs as size_of_each
from actorgraph.ops.arithmetic import power, sign
from actorgraph.ops.broadcasting import (
    REDUCTION_SAMPLES,
    axes_of,
    expand_dims,
    spread,
    sum,  # noqa: A004 - NumPy's name
    zeros_like,
)
from actorgraph.ops.casting import astype
from actorgraph.ops.complex import imag, is_complex, real
from actorgraph.ops.selection import where
from actorgraph.ops.trigonometric import hypot

__all__ = ["norm", "std", "var"]

Axes = tuple[int, ...]


def _with(attrs: dict[str, Any]) -> tuple[Sample, ...]:
    return tuple(Sample(s.shapes, {**s.attrs, **attrs}) for s in REDUCTION_SAMPLES[:3])


# -- var and std ------------------------------------------------------------------------------


def _centered(xp: Any, x: Any, axis: Axes) -> Any:
    """Return x minus its mean, in the dtype of sums."""
    dtype = accumulator(x.dtype)
    mean = xp.add.reduce(x, axis=axis, dtype=dtype, keepdims=True)
    mean = mean / dtype.type(_count(x, axis) or 1)
    return xp.subtract(x, mean, dtype=dtype)


def _count(x: Any, axis: Axes) -> int:
    return prod([x.shape[i] for i in axis])


def _freedom(x: Any, axis: Axes, ddof: float) -> Any:
    left = _count(x, axis) - ddof
    # Nothing that is left to vary has no variance: NaN, without the warning of 0 / 0.
    return accumulator(x.dtype).type(left if left > 0 else nan)


def _var_forward(xp: Any, x: Any, axis: Axes, keepdims: bool, ddof: float) -> Any:
    off = _centered(xp, x, axis)
    total = xp.add.reduce(xp.square(off), axis=axis, keepdims=keepdims)
    return (total / _freedom(x, axis, ddof)).astype(x.dtype, copy=False)


def _std_forward(xp: Any, x: Any, axis: Axes, keepdims: bool, ddof: float) -> Any:
    off = _centered(xp, x, axis)
    total = xp.add.reduce(xp.square(off), axis=axis, keepdims=keepdims)
    return xp.sqrt(total / _freedom(x, axis, ddof)).astype(x.dtype, copy=False)


def _deviation_forward(xp: Any, x: Any, axis: Axes, ddof: float) -> Any:
    return (_centered(xp, x, axis) / _freedom(x, axis, ddof)).astype(x.dtype, copy=False)


# A symmetric linear map: it is its own adjoint.
_DEVIATION: Op = declare(
    "deviation", "f[*s] -> f[*s]", _deviation_forward,
    vjp=(lambda ct, y, x, **attrs: build(_DEVIATION, ct, **attrs),), linear=(0,),
    cost=lambda shapes, result, attrs: 4 * prod(result),
    samples=(
        Sample(((3, 4),), {"axis": (0, 1), "ddof": 1}),
        Sample(((2, 3),), {"axis": (1,), "ddof": 0}),
    ),
    doc="(x - mean(x)) / (n - ddof) over axes.",
)  # fmt: skip


def _var_slope(y: Node, x: Node, axis: Axes, keepdims: bool, ddof: float) -> Node:
    return build(_DEVIATION, x, axis=axis, ddof=ddof) * 2


def _std_slope(y: Node, x: Node, axis: Axes, keepdims: bool, ddof: float) -> Node:
    rate = 1 / where(y == 0, inf, y)
    return build(_DEVIATION, x, axis=axis, ddof=ddof) * spread(rate, x, axis, keepdims)


_SPREADS = (*_with({"ddof": 0}), *_with({"ddof": 1})[:2])
_VAR = reduction_op(
    "var", "f[*s] -> f[*out]", _var_forward, _var_slope, samples=_SPREADS,
    cost=lambda shapes, result, attrs: 5.0 * prod(shapes[0]), doc="Variance over axes.",
)  # fmt: skip
_STD = reduction_op(
    "std", "f[*s] -> f[*out]", _std_forward, _std_slope, samples=_SPREADS,
    cost=lambda shapes, result, attrs: 5.0 * prod(shapes[0]), doc="Standard deviation over axes.",
)  # fmt: skip


@raises(types="`x` is an int or bool.", shapes=WRONG_AXIS)
def var(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """Variance over `axis`: ``sum(abs(x - mean(x)) ** 2) / (n - ddof)``.

    Type ``f[*s] -> f[*out]``; of complex numbers the sum of the variances of their parts, real.
    NaN, without a warning, where n is not above `ddof`.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    ddof : int
        Degrees of freedom to subtract; 0 as in NumPy, where PyTorch takes 1.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> var(Graph().input("x", ("batch", 3)), axis=0, ddof=1)
    <var_1: float32[3]>
    """
    if is_complex(x):
        return _spread_of(_VAR, real(x), axis, keepdims, ddof) + _spread_of(
            _VAR, imag(x), axis, keepdims, ddof
        )
    return _spread_of(_VAR, x, axis, keepdims, ddof)


@raises(types="`x` is an int or bool.", shapes=WRONG_AXIS)
def std(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """Standard deviation over `axis`: the square root of `var`.

    Type ``f[*s] -> f[*out]``.  Its gradient is 0 where it is 0 (all elements equal), where the
    square root has none.  NaN, without a warning, where n is not above `ddof`.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    ddof : int
        Degrees of freedom to subtract; 0 as in NumPy, where PyTorch takes 1.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> std(Graph().input("x", ("batch", 3)), axis=0, keepdims=True)
    <std_1: float32[1, 3]>
    """
    if is_complex(x):
        parts = [_spread_of(_STD, part, axis, keepdims, ddof) for part in (real(x), imag(x))]
        return hypot(*parts)
    return _spread_of(_STD, x, axis, keepdims, ddof)


def _spread_of(op: Op, x: Node, axis: Any, keepdims: bool, ddof: float) -> Node:
    axes = axes_of(axis, x.ndim, op.name)
    return build(op, x, axis=axes, keepdims=bool(keepdims), ddof=ddof)


# -- norm -------------------------------------------------------------------------------------


# Sums of squares above this have lost nothing to underflow.
_SMALL = {np.dtype(code): np.finfo(code).tiny / np.finfo(code).eps ** 2 for code in "fd"}


def _divide_or_zero_forward(xp: Any, x: Any, y: Any, out: Any = None) -> Any:
    if xp is not np or not y.all():
        # x / inf is 0, and so are all its derivatives.
        y = xp.where(y == 0, x.dtype.type(inf), y)
    return xp.divide(x, y, out=out)


_divide_or_zero: Binary = binary(
    "divide_or_zero", _divide_or_zero_forward,
    (lambda t, z, x, y: _divide_or_zero(t, y), lambda t, z, x, y: -_divide_or_zero(t * z, y)),
    "x / y, 0 where y is 0 and x finite.", scheme="f[*s] -> f[*t] -> f[*s|t]", memory=KEPT_OUT,
)  # fmt: skip

_squares_without_warning = np.errstate(over="ignore")(row_squares)


def _norm_forward(xp: Any, x: Any, axis: Axes, keepdims: bool, p: float) -> Any:
    if p == 2 and xp is np and x.dtype in _SMALL:
        total = _squares_without_warning(x, axis, keepdims)
        smallest = np.minimum.reduce(total, axis=None, initial=inf)
        if smallest > _SMALL[x.dtype] and all_finite(total):
            return np.sqrt(total)
    size = xp.absolute(x)
    if p == inf:
        return size.max(axis=axis, keepdims=keepdims, initial=zero(xp, x))
    if p == -inf:
        return size.min(axis=axis, keepdims=keepdims, initial=x.dtype.type(inf))
    size = size.astype(accumulator(x.dtype), copy=False)
    if p == 0:
        total = xp.add.reduce(size != 0, axis=axis, dtype=size.dtype, keepdims=keepdims)
    elif p == 1:
        total = xp.add.reduce(size, axis=axis, keepdims=keepdims)
    else:
        total = _power_norm(xp, size, axis, keepdims, p)
    return total.astype(x.dtype, copy=False)


def _power_norm(xp: Any, size: Any, axis: Axes, keepdims: bool, p: float) -> Any:
    """Return sum(size ** p) ** (1 / p), of sizes that neither overflow nor vanish."""
    largest = size.max(axis=axis, keepdims=True, initial=zero(xp, size))
    plain = (largest == 0) | (largest == inf)
    scale = xp.where(plain, size.dtype.type(1), largest)
    # A zero to a negative power is infinite, and the norm then 0, which is its limit.
    with np.errstate(divide="ignore", over="ignore"):
        scaled = size / scale
        powers = xp.square(scaled) if p == 2 else scaled ** size.dtype.type(p)
        total = xp.add.reduce(powers, axis=axis, keepdims=True)
        total = xp.sqrt(total) if p == 2 else total ** size.dtype.type(1 / p)
    total = total * scale
    return total if keepdims else xp.squeeze(total, axis)


def _norm_slope(y: Node, x: Node, axis: Axes, keepdims: bool, p: float) -> Node:
    y = y if keepdims else expand_dims(y, axis)
    if p == 0:
        return zeros_like(x)
    if p == 1:
        return sign(x)
    if p in (inf, -inf):
        chosen = astype(size_of_each(x) == y, x.dtype)
        count = sum(chosen, axis, keepdims=True)
        return sign(x) * (chosen / (count + astype(count == 0, x.dtype)))
    unit = _divide_or_zero(x, y)
    if p == 2:
        return unit
    # |u| ** (p - 1) at u = 0 would be infinite for p < 1, and its derivative for p < 2.
    return sign(unit) * power(where(unit == 0, 1, size_of_each(unit)), p - 1)


_NORM = reduction_op(
    "norm", "f[*s] -> f[*out]", _norm_forward, _norm_slope,
    cost=lambda shapes, result, attrs: 8.0 * prod(shapes[0]),
    doc="(sum(abs(x) ** p)) ** (1 / p) over axes.",
    samples=(
        *_with({"p": 2.0}),
        *(_with({"p": p})[1] for p in (0.0, 1.0, 1.5, 3.0, -2.0, inf, -inf)),
    ),
)  # fmt: skip


@raises(other="`p` is no number.", types="`x` is an int or bool.", shapes=WRONG_AXIS)
def norm(x: Node, p: float = 2, axis: Any = None, keepdims: bool = False) -> Node:
    """Norm of the elements over `axis` as of one vector: ``sum(abs(x) ** p) ** (1 / p)``.

    Type ``f[*s] -> f[*out]``; of complex numbers that of their lengths.  For a Frobenius norm name
    the two axes of the matrices.  Scaled, so that no power overflows.  The norm of no elements
    is 0.

    The gradient is finite everywhere: 0 at the origin, and 0 for an element that is 0; elements
    that tie for p = inf share it equally.  Higher derivatives at the origin have no limit (the
    Hessian for p = 2, ``(I - u u^T) / norm(x)``, grows without bound); they are 0 like those of
    `abs` at 0, and like these follow the gradient that is chosen there.

    Parameters
    ----------
    x : node
    p : float
        Any order; 0 counts what is not zero, inf takes the largest, -inf the smallest size.
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> norm(Graph().input("x", ("batch", 3), "float32"), axis=1).shape
    (batch,)
    """
    if isinstance(p, (str, bool)) or not isinstance(p, (int, float, np.number)) or p != p:
        raise GraphError(f"norm: p is a number such as 1, 2 or inf, got {p!r}")
    x = size_of_each(x) if is_complex(x) else x
    axes = axes_of(axis, x.ndim, "norm")
    return build(_NORM, x, axis=axes, keepdims=bool(keepdims), p=float(p))
