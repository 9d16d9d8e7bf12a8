"""Variance, standard deviation, norms, covariance and quantiles."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, prod
from typing import Any

import numpy as np

from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import KEPT, KEPT_OUT, MEAN, SPREAD, Along, Op, Sample
from actorgraph.operands import as_node
from actorgraph.ops._arrays import (
    accumulator,
    all_finite,
    holds,
    largest,
    on_host,
    row_squares,
    smallest,
)
from actorgraph.ops._declare import Binary, binary, reduction_op
from actorgraph.ops._rules import WRONG_AXIS, as_of, declare, each, on, raises, returns
from actorgraph.ops.arithmetic import abs as size_of_each
from actorgraph.ops.arithmetic import imag, is_complex, power, real, sign, sqrt
from actorgraph.ops.broadcasting import (
    REDUCTION_SAMPLES,
    add,
    axes_of,
    broadcast_like,
    conj,
    expand_dims,
    spread,
    squeeze,
    zeros_like,
)
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.elementwise import astype, ceil, clip, floor, isnan, maximum, where
from actorgraph.ops.elementwise import round as nearest
from actorgraph.ops.gathering import size_of, take_along_axis
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.linalg import matmul
from actorgraph.ops.matrices import diagonal
from actorgraph.ops.reductions import mean
from actorgraph.ops.reshaping import merge_dims, reshape
from actorgraph.ops.shaping import concatenate, transpose
from actorgraph.ops.sorting import sort
from actorgraph.ops.special import hypot

__all__ = [
    "average", "corrcoef", "cov", "median", "nanmedian", "nanpercentile", "nanquantile", "norm",
    "percentile", "quantile", "std", "var",
]  # fmt: skip

Axes = tuple[int, ...]


def _with(attrs: dict[str, Any]) -> tuple[Sample, ...]:
    return tuple(on(*s.shapes, **s.attrs, **attrs) for s in REDUCTION_SAMPLES[:3])


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
    # Without degrees of freedom there is no variance: NaN, without the warning of 0 / 0.
    return accumulator(x.dtype).type(left if left > 0 else nan)


def _variance(xp: Any, x: Any, axis: Axes, keepdims: bool, ddof: float) -> Any:
    """Return the variance in the dtype of sums."""
    off = _centered(xp, x, axis)
    total = xp.add.reduce(xp.square(off), axis=axis, keepdims=keepdims)
    return total / _freedom(x, axis, ddof)


# A symmetric linear map: it is its own adjoint.
_DEVIATION: Op = declare(
    "deviation", "f[*s] -> f[*s]",
    lambda xp, x, axis, ddof: (
        (_centered(xp, x, axis) / _freedom(x, axis, ddof)).astype(x.dtype, copy=False)
    ),
    vjp=(lambda ct, y, x, **attrs: build(_DEVIATION, ct, **attrs),), linear=(0,), cost=each(4),
    samples=(on((3, 4), axis=(0, 1), ddof=1), on((2, 3), axis=(1,), ddof=0)),
    memory=KEPT, traced=True, doc="(x - mean(x)) / (n - ddof) over axes.",
)  # fmt: skip


def _std_slope(y: Node, x: Node, axis: Axes, keepdims: bool, ddof: float) -> Node:
    rate = 1 / where(y == 0, inf, y)
    return build(_DEVIATION, x, axis=axis, ddof=ddof) * spread(rate, x, axis, keepdims)


_SPREADS = (*_with({"ddof": 0}), *_with({"ddof": 1})[:2])
_VAR = reduction_op(
    "var", "f[*s] -> f[*out]",
    lambda xp, x, **attrs: _variance(xp, x, **attrs).astype(x.dtype, copy=False),
    lambda y, x, axis, keepdims, ddof: build(_DEVIATION, x, axis=axis, ddof=ddof) * 2,
    samples=_SPREADS, cost=each(5, 0), traced=True,
    along=Along((MEAN, (SPREAD, ())), "multiply(v, f)", (False, True)),
)  # fmt: skip
_STD = reduction_op(
    "std", "f[*s] -> f[*out]",
    lambda xp, x, **attrs: xp.sqrt(_variance(xp, x, **attrs)).astype(x.dtype, copy=False),
    _std_slope, samples=_SPREADS, cost=each(5, 0), traced=True,
)  # fmt: skip


@raises(types="`x` is an int or bool.", shapes=WRONG_AXIS)
def var(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """Variance over `axis`: ``sum(abs(x - mean(x)) ** 2) / (n - ddof)``.

    Type ``f[*s] -> f[*out]``; of complex numbers the sum of the variances of their parts, real.
    NaN, without a warning, where n is not above `ddof`.

    Parameters
    ----------
    ddof : int
        Degrees of freedom to subtract; 0 as in NumPy, where PyTorch takes 1.
    """
    return _spread_of(_VAR, add, x, axis, keepdims, ddof)


@as_of(var)
def std(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """Standard deviation over `axis`: the square root of `var`.

    Type ``f[*s] -> f[*out]``.  Its gradient is 0 where it is 0 (all elements equal), where the
    square root has none.  NaN, without a warning, where n is not above `ddof`.
    """
    return _spread_of(_STD, hypot, x, axis, keepdims, ddof)


def _spread_of(op: Op, join: Binary, x: Node, axis: Any, keepdims: bool, ddof: float) -> Node:
    """Apply the op, or join its results for the parts of complex numbers."""
    attrs: Any = {"axis": axes_of(axis, x.ndim), "keepdims": bool(keepdims), "ddof": ddof}
    if is_complex(x):
        return join(*[build(op, part, **attrs) for part in (real(x), imag(x))])
    return build(op, x, **attrs)


# Sums of squares above this have lost nothing to underflow.
_SMALL = {np.dtype(code): np.finfo(code).tiny / np.finfo(code).eps ** 2 for code in "fd"}


def _divide_or_zero_forward(xp: Any, x: Any, y: Any, out: Any = None) -> Any:
    if xp is not np or not y.all():
        # x / inf is 0, and so are all its derivatives.
        y = xp.where(y == 0, x.dtype.type(inf), y)
    return xp.divide(x, y, out=out)


_divide_or_zero: Binary = binary(
    "divide_or_zero",
    (lambda t, z, x, y: _divide_or_zero(t, y), lambda t, z, x, y: -_divide_or_zero(t * z, y)),
    "x / y, 0 where y is 0 and x finite.", forward=_divide_or_zero_forward,
    scheme="f[*s] -> f[*t] -> f[*s|t]", memory=KEPT_OUT,
)  # fmt: skip

_squares_without_warning = np.errstate(over="ignore")(row_squares)


def _norm_forward(xp: Any, x: Any, axis: Axes, keepdims: bool, p: float) -> Any:
    if p == 2 and on_host(xp) and x.dtype in _SMALL:
        total = _squares_without_warning(x, axis, keepdims)
        least = np.minimum.reduce(total, axis=None, initial=inf)
        if holds(xp, least > _SMALL[x.dtype]) and all_finite(xp, total):
            return np.sqrt(total)
    size = xp.absolute(x)
    if p == inf:
        return largest(xp, size, axis, keepdims, 0)
    if p == -inf:
        return smallest(xp, size, axis, keepdims, inf)
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
    top = largest(xp, size, axis, True, 0)
    plain = (top == 0) | (top == inf)
    scale = xp.where(plain, size.dtype.type(1), top)
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
        count = sum_of(chosen, axis, keepdims=True)
        return sign(x) * (chosen / (count + astype(count == 0, x.dtype)))
    unit = _divide_or_zero(x, y)
    if p == 2:
        return unit
    # |u| ** (p - 1) at u = 0 would be infinite for p < 1, and its derivative for p < 2.
    return sign(unit) * power(where(unit == 0, 1, size_of_each(unit)), p - 1)


_NORM = reduction_op(
    "norm", "f[*s] -> f[*out]", _norm_forward, _norm_slope, cost=each(8, 0),
    samples=(
        *_with({"p": 2.0}), *(_with({"p": p})[1] for p in (0.0, 1.0, 1.5, 3.0, -2.0, inf, -inf)),
    ), traced=lambda step: bool(step.attrs["p"]),
)  # fmt: skip


@raises(other="`p` is no number.", types="`x` is an int or bool.", shapes=WRONG_AXIS)
def norm(x: Node, p: float = 2, axis: Any = None, keepdims: bool = False) -> Node:
    """Norm of the elements over `axis` as of one vector: ``sum(abs(x) ** p) ** (1 / p)``.

    Type ``f[*s] -> f[*out]``; for complex numbers the norm of their lengths.  For a Frobenius norm
    name the two axes of the matrices.  Scaled, so that no power overflows.  The norm of no elements
    is 0.

    The gradient is finite everywhere: 0 at the origin, and 0 for an element that is 0; elements
    that tie for p = inf share it equally.  Higher derivatives at the origin have no limit (the
    Hessian for p = 2, ``(I - u u^T) / norm(x)``, grows without bound); they are 0, as for `abs`.

    Parameters
    ----------
    p : float
        Any order; 0 counts what is not zero, inf takes the largest, -inf the smallest size.
    """
    if isinstance(p, (str, bool)) or not isinstance(p, (int, float, np.number)) or p != p:
        raise GraphError(f"p is a number such as 1, 2 or inf, got {p!r}")
    x = size_of_each(x) if is_complex(x) else x
    axes = axes_of(axis, x.ndim)
    return build(_NORM, x, axis=axes, keepdims=bool(keepdims), p=float(p))


@returns("Node, or pair of Node; weights that sum to 0 divide by 0, as in NumPy")
@raises(types="`x` is an int.", shapes="The weights fit neither `x` nor the axes.")
def average(
    x: Node, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Average over `axis` by weights: ``sum(x * weights) / sum(weights)``, as ``numpy.average``.

    Parameters
    ----------
    weights : node or array, optional
        Of the shape of `x`, or of its dims along the axes in their order; default equal.
    returned : bool
        Return the sum of the weights too.
    """
    axes = axes_of(axis, x.ndim)
    if weights is None:
        found = mean(x, axis, keepdims)
        total = astype(size_of(x), x.dtype) / astype(size_of(found), x.dtype)
        return (found, broadcast_like(total, found)) if returned else found
    share = as_node(weights, x)
    if share.dims != x.dims:
        if axis is None or share.ndim != len(axes):
            raise ShapeError(f"weights of shape {share.shape} fit neither {x!r} nor axis {axis}")
        named = [int(one) % x.ndim for one in np.atleast_1d(axis)]
        share = transpose(share, sorted(range(len(named)), key=named.__getitem__))
        share = expand_dims(share, tuple(i for i in range(x.ndim) if i not in axes))
    total = sum_of(broadcast_like(share, x), axis, keepdims)
    found = sum_of(x * share, axis, keepdims) / total
    return (found, total) if returned else found


@returns("Node: a matrix, or a scalar for one variable; NaN where the divisor is not positive")
@raises(types="`x` is an int.", shapes="More than two dims, or weights that do not fit.")
def cov(
    x: Node, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, *,
    fweights: Any = None, aweights: Any = None,
) -> Node:  # fmt: skip
    """Covariances of variables, as ``numpy.cov``.

    Parameters
    ----------
    x : node
        One or two dims; each row is a variable, each column an observation.
    y : node or array, optional
        More variables.
    rowvar : bool
        False where each column is a variable.
    bias : bool
        Divide by the number of observations instead of one less.
    ddof : int, optional
        What is subtracted from the number of observations in place of 1 or 0.
    fweights, aweights : node or array of one dim, optional
        How often each observation counts, and how much it weighs.
    """
    rows = _variables(x, rowvar)
    if y is not None:
        rows = concatenate([rows, _variables(as_node(y, x), rowvar)], 0)
    ddof = int(not bias) if ddof is None else ddof
    given = [_weights(x, one) for one in (fweights, aweights) if one is not None]
    if given:
        weights = given[0] if len(given) == 1 else given[0] * given[1]
        total = sum_of(weights)
        off = rows - expand_dims(sum_of(rows * weights, 1) / total, 1)
        scaled = off * weights
        lost = sum_of(weights * given[-1]) / total if aweights is not None else 1
        count = total - lost * ddof
    else:
        off = scaled = rows - mean(rows, 1, keepdims=True)
        count = astype(size_of(rows, 1), x.dtype) - ddof
    divisor = real(count)
    # A complex number that is divided by NaN warns; its product with NaN does not.
    rate = astype(1 / where(divisor > 0, divisor, nan), x.dtype)
    found = matmul(off, conj(transpose(scaled))) * rate
    return squeeze(found) if found.dims == (1, 1) else found


def _variables(x: Node, rowvar: bool) -> Node:
    if x.ndim > 2:
        raise ShapeError(f"variables have at most two dims, got {x!r}")
    if x.ndim < 2:
        return expand_dims(x, tuple(range(2 - x.ndim)))
    return x if rowvar else transpose(x)


def _weights(x: Node, given: Any) -> Node:
    found = x.graph.lift(given if isinstance(given, Node) else np.asarray(given))
    if found.ndim != 1:
        raise ShapeError(f"weights of observations have one dim, got {found!r}")
    return astype(found, x.dtype)


@as_of(cov)
def corrcoef(x: Node, y: Any = None, rowvar: bool = True) -> Node:
    """Correlation coefficients: `cov` divided by standard deviations, as ``numpy.corrcoef``."""
    found = cov(x, y, rowvar)
    if not found.ndim:
        return found / found
    spread = astype(sqrt(real(diagonal(found))), found.dtype)
    scaled = found / expand_dims(spread, 1) / spread
    return scaled if is_complex(scaled) else clip(scaled, -1, 1)


def _nearest_observation(position: Node) -> Node:
    return nearest(position + 1) - 1


End = Callable[[Node], Node]
_METHODS: dict[str, tuple[float, float, End, End]] = {
    "linear": (1, 1, floor, ceil), "lower": (1, 1, floor, floor), "higher": (1, 1, ceil, ceil),
    "nearest": (1, 1, nearest, nearest), "midpoint": (1, 1, floor, ceil),
    "inverted_cdf": (0, 1, ceil, ceil),
    "averaged_inverted_cdf": (0, 1, ceil, lambda position: floor(position + 1)),
    "closest_observation": (0, 1, _nearest_observation, _nearest_observation),
    "interpolated_inverted_cdf": (0, 1, floor, ceil), "hazen": (0.5, 0.5, floor, ceil),
    "weibull": (0, 0, floor, ceil), "median_unbiased": (1 / 3, 1 / 3, floor, ceil),
    "normal_unbiased": (3 / 8, 3 / 8, floor, ceil),
}  # fmt: skip
"""For each method a, b and the two roundings of the position that it reads."""
_PICKS = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
_HALVES = ("midpoint", "averaged_inverted_cdf")


def _rows(x: Node, axes: tuple[int, ...]) -> Node:
    """Return the node with its axes merged into the first."""
    if any(x.dims[i] == 0 for i in axes):
        raise ShapeError(f"no elements to choose from along axis {axes} of {x!r}")
    rest = [i for i in range(x.ndim) if i not in axes]
    return merge_dims(transpose(x, (*axes, *rest)), (len(axes), *[1] * len(rest)))


def _fractions(x: Node, q: Any, whole: float) -> Node:
    """Return q as a node of fractions; numbers and arrays are checked."""
    if not isinstance(q, Node):
        array = np.asarray(q, "float64")
        if not ((array >= 0) & (array <= whole)).all():
            raise GraphError(f"q is between 0 and {whole:g}, got {q!r}")
        q = x.graph.constant(array)
    if q.ndim > 1:
        raise ShapeError(f"q is a number or has one dim, got shape {q.shape}")
    return astype(q, "float64") / whole


def _quantile(
    x: Node, q: Any, axis: Any, method: str, keepdims: bool, whole: float = 1,
    skips_nan: bool = False,
) -> Node:  # fmt: skip
    if method not in _METHODS:
        raise GraphError(f"no method {method!r}; there are {', '.join(_METHODS)}")
    if x.dtype.kind in "biu" and method not in _PICKS:
        raise GraphTypeError(
            f"{x!r} holds no numbers between its values; convert it first, "
            f".astype('float64'), or choose one with method='lower'"
        )
    axes = axes_of(axis, x.ndim)
    q = _fractions(x, q, whole)
    ordered = sort(_rows(x, axes), 0)
    if skips_nan:
        y = _of_numbers(ordered, q, method)
    else:
        y = _read(ordered, size_of(ordered, 0), q, method, take)
        last = getitem(ordered, -1)  # NaN counts as the largest
        y = where(isnan(last), last, y)
    return expand_dims(y, tuple(i + q.ndim for i in sorted(axes))) if keepdims else y


def _of_numbers(ordered: Node, q: Node, method: str) -> Node:
    """Return the quantiles of what is not NaN in each row."""
    count = sum_of(astype(~isnan(ordered), "int64"), 0)
    rows = reshape(q, (-1, *[1] * count.ndim))
    y = _read(ordered, count, rows, method, take_along_axis)
    return y if q.ndim else getitem(y, 0)


def _read(ordered: Node, count: Node, q: Node, method: str, take_at: Callable[..., Node]) -> Node:
    """Return the quantiles of rows with so many entries."""
    a, b, *roundings = _METHODS[method]
    size = astype(count, "float64")
    last = maximum(size - 1, 0)
    position = (size + (1 - a - b)) * q + (a - 1)
    low, high = (clip(rounded(position), 0, last) for rounded in roundings)
    lower = take_at(ordered, astype(low, "int64"), 0)
    if low is high or method in _PICKS:
        return lower
    upper = take_at(ordered, astype(high, "int64"), 0)
    # An entry that is both ends counts twice by a half: inf * 0 would be NaN.
    share = 0.5 if method in _HALVES else where(low == high, 0.5, position - low)
    if isinstance(share, Node):
        share = astype(share, ordered.dtype)
        if share.ndim < lower.ndim:
            share = expand_dims(share, tuple(range(share.ndim, lower.ndim)))
    return lower * (1 - share) + upper * share


@returns("Node: of several `q` the first dim counts them")
@raises(
    other="`q` is out of range, or there is no such method.",
    types="`x` is an int, and the method takes numbers between its values.",
    shapes="There is no such axis, it has no elements, or `q` has more than one dim.",
)  # fmt: skip
def quantile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """The value below which a share `q` of the values lies, as ``numpy.quantile``.

    The gradient goes to the one or two entries that are read, by their weights.  NaN where a value
    is NaN.

    Parameters
    ----------
    x : node
        Real numbers; ints only for methods that choose a value.
    q : float, sequence of float, or node
        Between 0 and 1; a number or of one dim.
    method : str
        One of the 13 of ``numpy.quantile``.
    """
    return _quantile(x, q, axis, method, keepdims)


@as_of(quantile)
def percentile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """`quantile` with `q` between 0 and 100, as ``numpy.percentile``.

    Parameters
    ----------
    q : float, sequence of float, or node
        Between 0 and 100; a number or of one dim.
    """
    return _quantile(x, q, axis, method, keepdims, whole=100)


def median(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """The value in the middle, or the mean of the two, as ``numpy.median``.

    PyTorch's takes the lower of the two: ``quantile(x, 0.5, method="lower")``.
    """
    return _quantile(x, 0.5, axis, "linear", keepdims)


@as_of(quantile)
def nanquantile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """`quantile` of what is not NaN, as ``numpy.nanquantile``; NaN of none, without a warning."""
    return _quantile(x, q, axis, method, keepdims, skips_nan=True)


@as_of(percentile)
def nanpercentile(
    x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear"
) -> Node:
    """`percentile` of what is not NaN, as ``numpy.nanpercentile``."""
    return _quantile(x, q, axis, method, keepdims, whole=100, skips_nan=True)


def nanmedian(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`median` of what is not NaN, as ``numpy.nanmedian``; NaN of none, without a warning."""
    return _quantile(x, 0.5, axis, "linear", keepdims, skips_nan=True)
