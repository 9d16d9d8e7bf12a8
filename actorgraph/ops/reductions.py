"""Reductions over axes: mean, max, min, logsumexp and its kin; `sum` stands with broadcasting.

`nanmax` and `nanmin` are max and min that pass over NaN.

Each takes ``axis`` (an int, a tuple of ints, or None for all) and ``keepdims``, and keeps the
dtype.
"""

from __future__ import annotations

from math import e, inf, nan, prod
from math import log as log_of
from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import IN_PLACE, KEPT, KEPT_OUT, Factoring, LoopRule, Memory, Op
from actorgraph.ops._arrays import (
    accumulator,
    exp_without_warning,
    highest,
    one,
    row_sums,
    scalar,
    through_float32,
)
from actorgraph.ops._declare import Binary, Derivative, Reduction, binary, reduction
from actorgraph.ops._rules import add_all, declare, each, on, raises
from actorgraph.ops.activations import sigmoid
from actorgraph.ops.arithmetic import is_complex, real
from actorgraph.ops.broadcasting import (
    REDUCTION_SAMPLES,
    expand_dims,
    expanded,
    reduced_shape,
    spread,
    sum,
)
from actorgraph.ops.elementwise import astype, clip, isnan, maximum, where
from actorgraph.ops.exponential import EXPONENTIALS, exp, log1p
from actorgraph.ops.linalg import lifted_pair
from actorgraph.types import UNKNOWN, Checks, Shape, size_of

__all__ = ["logaddexp", "logaddexp2", "logsumexp", "max", "mean", "min", "nanmax", "nanmin"]

Axes = tuple[int, ...]
_SAMPLES = (*REDUCTION_SAMPLES, on((0, 2), axis=(1,), keepdims=False))


def _kept(reduced: Node, axis: Axes, keepdims: bool) -> Node:
    """Return what was reduced with its axes as dims of size 1."""
    return reduced if keepdims else expand_dims(reduced, axis)


# -- mean -------------------------------------------------------------------------------------


@through_float32  # float16 ends at 65504
def _divide_forward(xp: Any, x: Any, size: int, out: Any = None) -> Any:
    # A mean over nothing has no elements to send a gradient to.
    return xp.divide(x, scalar(x, size or 1), out=out)


DIVIDE_BY_SIZE: Op = declare(
    "divide_by_size", "x[*s] -> x[*s]", _divide_forward,
    vjp=(lambda ct, y, x, size: build(DIVIDE_BY_SIZE, ct, size=size),), linear=(0,),
    samples=(on((3, 4), size=12), on((), size=0)), memory=IN_PLACE,
    loop=LoopRule("value", "divide(x, size)"),
    doc="Divide by a number of elements that the run knows.",
)  # fmt: skip

_SIZE_ALONG: Op = declare(
    "size_along", "x[*s] -> x[]",
    lambda xp, x, axis: xp.asarray(prod(x.shape[i] for i in axis) or 1, x.dtype), vjp=(None,),
    jvp=lambda tans, y, x, axis: None, samples=(on((3, 4), axis=(0, 1)),),
    shape_only=(0,), doc="Number of elements along axes, at least 1.",
)  # fmt: skip


def divide_by_size(node: Node, x: Node, axis: Axes) -> Node:
    """Divide `node` by the number of elements of `x` along `axis`, also where a run decides it."""
    size = size_of(tuple(x.dims[i] for i in axis))
    if size is UNKNOWN:
        return node / build(_SIZE_ALONG, x, axis=axis)
    return build(DIVIDE_BY_SIZE, node, size=size)


def _mean_forward(xp: Any, x: Any, axis: Axes, keepdims: bool, out: Any = None) -> Any:
    dtype = accumulator(x.dtype)
    total = xp.add.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims, out=out)
    # 0 / NaN is NaN without the warning of 0 / 0.
    total /= dtype.type(prod([x.shape[i] for i in axis]) or nan)
    return total if dtype is x.dtype else total.astype(x.dtype, copy=False)


def _mean_vjp(ct: Node, y: Node, x: Node, axis: Axes, keepdims: bool) -> Node:
    return spread(divide_by_size(ct, x, axis), x, axis, keepdims)


mean: Reduction = reduction(
    "mean", "x[*s] -> x[*out]", _mean_forward, "Arithmetic mean over axes.", vjp=(_mean_vjp,),
    total="mean", linear=(0,), samples=_SAMPLES, memory=KEPT_OUT,
    notes="Integers have to be converted with ``.astype`` first.  The mean of no elements is NaN.",
)  # fmt: skip


# -- max and min ------------------------------------------------------------------------------


def _extremum_shape(checks: Checks, x: Shape, *, axis: Axes, keepdims: bool) -> Shape:
    if any(x[i] == 0 for i in axis):
        raise ShapeError(f"no elements to choose from along axis {axis} of {x}")
    return reduced_shape(checks, x, axis=axis, keepdims=keepdims)


def _shares(y: Node, x: Node, axis: Axes, keepdims: bool) -> Node:
    """Return each element's share of the gradient: 1 for the extremum, split equally by ties."""
    y = _kept(y, axis, keepdims)
    # NaN equals nothing; where it is the result, the elements that are NaN are what it was.
    chosen = astype((x == y) | (isnan(x) & isnan(y)), x.dtype)
    return chosen / sum(chosen, axis, keepdims=True)


def _extremum(name: str, doc: str, notes: str) -> Reduction:
    passing_over_nan = {"nanmax": "fmax", "nanmin": "fmin"}.get(name)

    def forward(xp: Any, x: Any, axis: Axes, keepdims: bool) -> Any:
        if passing_over_nan is None:
            return getattr(x, name)(axis=axis, keepdims=keepdims)
        if xp is np:
            return getattr(np, passing_over_nan).reduce(x, axis=axis, keepdims=keepdims)
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    return reduction(
        name, "r[*s] -> r[*out]", forward, doc, shape=_extremum_shape, slope=_shares,
        samples=_SAMPLES,
        notes=f"Elements that tie share the gradient equally.  {notes}",
    )  # fmt: skip


_NAN_WINS = "NaN where a value is NaN, which then gets the gradient."
_NAN_LOSES = "NaN where all values are."
max = _extremum("max", "Maximum over axes.", _NAN_WINS)
min = _extremum("min", "Minimum over axes.", _NAN_WINS)
nanmax = _extremum("nanmax", "Maximum over axes of what is not NaN.", _NAN_LOSES)
nanmin = _extremum("nanmin", "Minimum over axes of what is not NaN.", _NAN_LOSES)


# -- logsumexp --------------------------------------------------------------------------------


# Of logarithms of sums between these nothing was lost to overflow or underflow, nor is it from
# cotangents of 1e-25 to 1e25 times exp(-y), of float32.
_NEAR = 30


def _is_near(y: Any) -> bool:
    # Of few rows one product tells it in half of the time of two reductions.
    return bool(np.vdot(y, y) < _NEAR**2 or (y.size and y.min() > -_NEAR and y.max() < _NEAR))


def _logsumexp_forward(xp: Any, x: Any, e: Any = None, *, axis: Axes, keepdims: bool) -> Any:
    """Return logsumexp, by the exponentials where they are given: some may be inf."""
    if xp is np and x.dtype.char in "fd":
        e = exp_without_warning(np, x) if e is None else e
        result = _log_of_rows(e, axis, keepdims)
        if _is_near(result):
            return result
    return _shifted_logsumexp(xp, x, axis, keepdims)


@np.errstate(over="ignore", divide="ignore")
def _log_of_rows(e: Any, axis: Axes, keepdims: bool) -> Any:
    return np.log(row_sums(e, axis, keepdims))


def _shifted_logsumexp(xp: Any, x: Any, axis: Axes, keepdims: bool) -> Any:
    if not x.size:
        return xp.full_like(xp.add.reduce(x, axis=axis, keepdims=keepdims), -xp.inf)
    largest, lowest = x.max(axis=axis, keepdims=True), x.dtype.type(_lowest(x))
    # Of an infinite row only finite numbers are subtracted: inf - inf would be NaN.
    finite = xp.minimum(xp.maximum(largest, lowest), -lowest)
    weights = xp.subtract(x, finite)
    weights = xp.exp(weights, out=weights if weights.ndim else None)
    total = xp.add.reduce(weights, axis=axis, dtype=accumulator(x.dtype), keepdims=True)
    # The sum holds exp(0), so it is below 1 in a row of -inf only; there log(1) - inf is right.
    result = (xp.log(xp.maximum(total, one(xp, total))) + largest).astype(x.dtype, copy=False)
    return result if keepdims else xp.squeeze(result, axis)


def _lowest(x: Any) -> Any:
    return -highest(x.dtype)


def _softmax(y: Node, x: Node, axis: Axes, keepdims: bool) -> Node:
    """Return exp(x - y), which is 0 in a row of -inf."""
    return exp(x - maximum(_kept(y, axis, keepdims), _lowest(x)))


def _pull_forward(
    xp: Any, ct: Any, y: Any, x: Any, e: Any = None, *, axis: Axes, keepdims: bool, out: Any = None
) -> Any:
    """Return ct * exp(x - y), by the exponentials of x where they are given: some may be inf."""
    if xp is np and x.dtype.char in "fd" and _is_near(y):
        e = exp_without_warning(np, x) if e is None else e
        rates = np.exp(-y) * ct
        return np.multiply(e, rates if keepdims else expanded(np, rates, axis), out=out)
    if not keepdims:
        ct, y = expanded(xp, ct, axis), expanded(xp, y, axis)
    e = xp.exp(x - xp.maximum(y, scalar(y, _lowest(y))))
    return xp.multiply(e, ct, out=out)


def _pull_vjp(argnum: int) -> Any:
    def vjp(g: Node, z: Node, ct: Node, y: Node, x: Node, axis: Axes, keepdims: bool) -> Node:
        if argnum == 0:
            return sum(g * _softmax(y, x, axis, keepdims), axis, keepdims)
        return -sum(g * z, axis, keepdims) if argnum == 1 else g * z

    return vjp


def _pull_jvp(
    tans: tuple[Node | None, ...], z: Node, ct: Node, y: Node, x: Node, axis: Axes, keepdims: bool
) -> Node | None:
    of_ct, of_y, of_x = tans
    parts = []
    if of_ct is not None:
        parts.append(build(_PULL, of_ct, y, x, axis=axis, keepdims=keepdims))
    if of_y is not None:
        parts.append(z * -_kept(of_y, axis, keepdims))
    if of_x is not None:
        parts.append(z * of_x)
    return add_all(parts)


_REST_OF_PULL = Op(
    "logsumexp_pull_of_exponentials", "f[*r] -> f[*r] -> f[*s] -> f[*s] -> f[*s]", _pull_forward,
    cost=each(2), memory=Memory("kept", takes_out=True, in_place=(3,)),
)  # fmt: skip
_PULL: Op = declare(
    "logsumexp_pull", "f[*r] -> f[*r] -> f[*s] -> f[*s]", _pull_forward,
    vjp=tuple(map(_pull_vjp, range(3))), jvp=_pull_jvp, cost=each(6),
    samples=(
        on((3,), (3,), (3, 4), axis=(1,), keepdims=False),
        on((3, 1), (3, 1), (3, 4), axis=(1,), keepdims=True),
        on((), (), (2, 3), axis=(0, 1), keepdims=False), on((), (), (), axis=(), keepdims=False),
    ),
    memory=KEPT, split=Factoring(EXPONENTIALS, {}, (2,), _REST_OF_PULL, beside=True),
    doc="Gradient of logsumexp: ct * exp(x - y), where y is its result; 0 in a row of -inf.",
)  # fmt: skip


def _logsumexp_vjp(ct: Node, y: Node, x: Node, axis: Axes, keepdims: bool) -> Node:
    return build(_PULL, ct, y, x, axis=axis, keepdims=keepdims)


_REST_OF_LOGSUMEXP = Op(
    "logsumexp_of_exponentials", "f[*s] -> f[*s] -> f[*out]", _logsumexp_forward,
    shape=lambda checks, x, e, **attrs: reduced_shape(checks, x, **attrs),
    cost=each(2, 0), memory=KEPT,
)  # fmt: skip

logsumexp = reduction(
    "logsumexp", "f[*s] -> f[*out]", _logsumexp_forward,
    "log(sum(exp(x))) over axes, without overflow.", shape=_extremum_shape, vjp=(_logsumexp_vjp,),
    slope=_softmax, samples=_SAMPLES, cost=each(6, 0),
    memory=KEPT, split=Factoring(EXPONENTIALS, {}, (0,), _REST_OF_LOGSUMEXP, beside=True),
    notes="Computed as ``max(x) + log(sum(exp(x - max(x))))`` where the sum would overflow or "
    "vanish.  A row of -inf gives -inf, with gradient 0, and so does an empty axis.",
)  # fmt: skip


# -- log sums ---------------------------------------------------------------------------------


# Beyond this a share is exactly 0 or 1 in every dtype.
_FAR = 2000


def _pair(name: str, base: float, doc: str) -> Binary:
    def share(t: Node, z: Node, x: Node, y: Node) -> Node:
        """Return t times the part of the sum that is due to x; of two equal numbers a half."""
        top = highest(x.dtype)
        # Halves, for the difference of two numbers may overflow; infinite ones are equal.
        apart = clip(x, -top, top) * 0.5 - clip(y, -top, top) * 0.5
        part = sigmoid(clip(apart, -_FAR, _FAR) * (2 * log_of(base)))
        return t * where(z == -inf, 0, part)

    def other(t: Node, z: Node, x: Node, y: Node) -> Node:
        return share(t, z, y, x)

    rules: tuple[Derivative, Derivative] = (share, other)
    return binary(
        name, name, rules, doc, scheme="f[*s] -> f[*t] -> f[*s|t]", flops=15,
        notes="Two of -inf give -inf, with gradient 0.",
    )  # fmt: skip


_logaddexp = _pair("logaddexp", e, "log(exp(x) + exp(y)), without overflow.")


@raises(both="The operands do not fit the type.")
def logaddexp(x: Any, y: Any) -> Node:
    """Return ``log(exp(x) + exp(y))`` without overflow, of complex numbers too.

    Type ``x[*s] -> x[*t] -> x[*s|t]``.  Two of -inf give -inf, with gradient 0.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """
    if not (is_complex(x) or is_complex(y)):
        return _logaddexp(x, y)
    x, y = lifted_pair(x, y, "logaddexp")
    first = real(x) >= real(y)
    larger, smaller = where(first, x, y), where(first, y, x)
    return larger + log1p(exp(smaller - larger))


logaddexp2 = _pair("logaddexp2", 2, "log2(2**x + 2**y), without overflow.")
