"""Reductions over axes, and running ones; `sum` is in `broadcasting`.  All keep the dtype.

No gradient of a product divides, so all are right where factors are zero.  With the product before
each element, ``L[0] = 1, L[i + 1] = L[i] * x[i]``, they follow from one linear recurrence,

    s[0] = 0,  s[i + 1] = b[i] + x[i] * s[i]        (the op ``scan_before``)

because ``dL = scan(L * dx, x)``, and the adjoint of the recurrence is the recurrence run backwards:
the family is closed under differentiation to any order.
"""

from __future__ import annotations

from math import e, inf, nan
from math import log as log_of
from math import prod as size_of_shape
from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import IN_PLACE, KEPT_OUT, MEAN, Along, LoopRule, Op
from actorgraph.ops._arrays import (
    accumulator,
    exp_without_warning,
    highest,
    holds,
    is_traced,
    on_host,
    one,
    row_sums,
    running,
    scalar,
    through_float32,
)
from actorgraph.ops._declare import Binary, Reduction, binary, reduction
from actorgraph.ops._rules import NO_AXIS, add_all, as_of, declare, each, on, raises
from actorgraph.ops.activations import sigmoid
from actorgraph.ops.arithmetic import is_complex, real
from actorgraph.ops.broadcasting import (
    REDUCTION_SAMPLES,
    along_axis,
    axes_of,
    broadcast_like,
    conj,
    expand_dims,
    reduced_shape,
    spread,
    sum,
    zeros_like,
)
from actorgraph.ops.elementwise import astype, clip, exp, isnan, log1p, maximum, where
from actorgraph.ops.gathering import gather
from actorgraph.ops.linalg import lifted_pair
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import concatenate
from actorgraph.types import UNKNOWN, Checks, Shape, size_of

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "logaddexp", "logaddexp2", "logcumsumexp", "logsumexp",
    "max", "mean", "min", "nanmax", "nanmin", "prod",
]  # fmt: skip


def _accumulate(xp: Any, ufunc: Any, x: Any, axis: int, reverse: bool) -> Any:
    total = ufunc.accumulate(
        _along(xp, x, axis, reverse), axis=axis, dtype=accumulator(x.dtype)
    ).astype(x.dtype, copy=False)
    return _along(xp, total, axis, reverse)


_ALONG = tuple(
    on(shape, axis=axis, reverse=reverse)
    for shape, axis in (((3, 4), 1), ((4, 2), 0), ((0, 2), 0), ((2, 0), 0))
    for reverse in (False, True)
)


_CUMSUM: Op = declare(
    "cumsum", "n[*s] -> n[*s]",
    lambda xp, x, axis, reverse: _accumulate(xp, xp.add, x, axis, reverse),
    vjp=(lambda ct, y, x, axis, reverse: build(_CUMSUM, ct, axis=axis, reverse=not reverse),),
    linear=(0,), samples=_ALONG,
)  # fmt: skip


def _before_forward(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    total = xp.ones(x.shape, accumulator(x.dtype))
    ours, theirs = _shifted(axis, reverse)
    xp.multiply.accumulate(_along(xp, x[theirs], axis, reverse), axis=axis, dtype=total.dtype,
                           out=_along(xp, total[ours], axis, reverse))  # fmt: skip
    return total.astype(x.dtype, copy=False)


def _along(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    return xp.flip(x, axis) if reverse else x


def _shifted(axis: int, reverse: bool) -> tuple[Any, Any]:
    """Return the slices after the first, and before the last, in the order of the recurrence."""
    lead = (slice(None),) * axis
    later, earlier = (*lead, slice(1, None)), (*lead, slice(None, -1))
    return (earlier, later) if reverse else (later, earlier)


def _scan_forward(xp: Any, b: Any, x: Any, axis: int, reverse: bool) -> Any:
    dtype = accumulator(x.dtype)
    b, x = xp.moveaxis(b, axis, 0), xp.moveaxis(x, axis, 0)
    result = xp.zeros(x.shape, dtype)
    order = range(len(x) - 1, 0, -1) if reverse else range(len(x) - 1)
    for i in order:
        after = result[i - 1 if reverse else i + 1, ...]
        xp.multiply(x[i], result[i], out=after, dtype=dtype)
        after += b[i]
    return xp.moveaxis(result, 0, axis).astype(x.dtype, copy=False)


def _scan(b: Node, x: Node, axis: int, reverse: bool) -> Node:
    return build(_SCAN, b, x, axis=axis, reverse=reverse)


def _scan_jvp(
    tans: tuple[Node | None, ...], s: Node, b: Node, x: Node, axis: int, reverse: bool
) -> Node:
    parts = [] if tans[0] is None else [tans[0]]
    if tans[1] is not None:
        parts.append(tans[1] * s)
    total = add_all(parts)
    assert total is not None
    return _scan(total, x, axis, reverse)


_SCAN: Op = declare(
    "scan_before", "x[*s] -> x[*s] -> x[*s]", _scan_forward,
    vjp=(
        lambda ct, s, b, x, axis, reverse: _scan(ct, conj(x), axis, not reverse),
        lambda ct, s, b, x, axis, reverse: _scan(ct, conj(x), axis, not reverse) * conj(s),
    ),
    jvp=_scan_jvp, cost=each(10, 0),
    samples=tuple(on(s.shapes[0], s.shapes[0], **s.attrs) for s in _ALONG),
    doc="s[i + 1] = b[i] + x[i] * s[i] from s[0] = 0.",
)  # fmt: skip

_BEFORE: Op = declare(
    "cumprod_before", "x[*s] -> x[*s]", _before_forward,
    vjp=(lambda ct, y, x, axis, reverse: _scan(ct, conj(x), axis, not reverse) * conj(y),),
    jvp=lambda tans, y, x, axis, reverse: _scan(y * tans[0], x, axis, reverse), cost=each(2, 0),
    samples=_ALONG, doc="Product of the elements before each one along an axis.",
)  # fmt: skip


def _before(x: Node, axis: int, reverse: bool) -> Node:
    return build(_BEFORE, x, axis=axis, reverse=reverse)


def products_before(x: Node, groups: Node) -> Node:
    """Return, in one dim, the product of the elements before each one within its group.

    Neighbours whose entries in `groups` are equal are one group.
    """
    same = groups[1:] == groups[:-1]
    none = x.graph.constant(np.zeros(1), x.dtype)
    starts = concatenate([none + 1, where(same, none, none + 1), none])
    factors = concatenate([none, where(same, x[:-1], 0), none])
    return _scan(starts, factors, 0, False)[1:]


def _cumprod_vjp(ct: Node, y: Node, x: Node, axis: int, reverse: bool) -> Node:
    reached = ct + _scan(ct * conj(x), conj(x), axis, not reverse)
    return reached * conj(_before(x, axis, reverse))


def _cumprod_jvp(tans: tuple[Node, ...], y: Node, x: Node, axis: int, reverse: bool) -> Node:
    before = _before(x, axis, reverse)
    moved = before * tans[0]
    return moved + x * _scan(moved, x, axis, reverse)


_CUMPROD: Op = declare(
    "cumprod", "n[*s] -> n[*s]",
    lambda xp, x, axis, reverse: _accumulate(xp, xp.multiply, x, axis, reverse),
    vjp=(_cumprod_vjp,), jvp=_cumprod_jvp, cost=each(2, 0), samples=_ALONG,
)  # fmt: skip


def _run(op: Op, x: Node, axis: Any) -> Node:
    if axis is None:
        x, axis = (x if x.ndim == 1 else reshape(x, (-1,))), 0
    (one,) = axes_of((axis,), x.ndim)
    return build(op, x, axis=one, reverse=False)


@raises(shapes="The axis is out of range.")
@along_axis("x")
def cumsum(x: Node, axis: int | None = None) -> Node:
    """Running sum along `axis`; the dtype is kept, also of integers.

    Type ``n[*s] -> n[*s]``.

    Parameters
    ----------
    axis : int, optional
        Default: of the flattened array.
    """
    return _run(_CUMSUM, x, axis)


@as_of(cumsum)
@along_axis("x")
def cumprod(x: Node, axis: int | None = None) -> Node:
    """Running product along `axis`, otherwise as `cumsum`.

    Type ``n[*s] -> n[*s]``.  The gradient is a linear recurrence that never divides: it is right
    where factors are zero.
    """
    return _run(_CUMPROD, x, axis)


def _extreme_forward(xp: Any, x: Any, axis: int, largest: bool) -> Any:
    extremes = running(xp, "maximum" if largest else "minimum", x, axis)
    reached = (x == extremes) | (x != x)
    shape = (-1, *[1] * (x.ndim - axis - 1))
    places = xp.where(reached, xp.arange(x.shape[axis]).reshape(shape), 0)
    return running(xp, "maximum", places, axis).astype(xp.int64, copy=False)


_EXTREME: Op = declare(
    "running_extreme", "r[*s] -> int64[*s]", _extreme_forward, cost=each(2, 0),
    samples=tuple(
        on(shape, axis=axis, largest=largest)
        for shape, axis in (((3, 4), 1), ((4, 2), 0), ((0, 2), 0))
        for largest in (False, True)
    ),
    doc="Position of the largest or smallest entry so far along an axis, the last of equals.",
)  # fmt: skip


def _running(x: Node, axis: int, largest: bool) -> tuple[Node, Node]:
    (place,) = axes_of((axis,), x.ndim)
    positions = build(_EXTREME, x, axis=place, largest=largest)
    return gather(x, place, positions), positions


@raises(types="`x` is bool or complex.", shapes=NO_AXIS)
@along_axis("x")
def cummax(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """Return the largest entry so far along an axis, and its position, as ``torch.cummax``.

    Parameters
    ----------
    x : node
        Real numbers; all results from a NaN on are NaN.

    Returns
    -------
    values, indices : Node
        The gradient of the values goes to the entries that they were; of equal entries to the
        last, as in PyTorch.  The int64 indices have none.
    """
    return _running(x, axis, largest=True)


@as_of(cummax)
@along_axis("x")
def cummin(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """Return the smallest entry so far along an axis, and its position; otherwise as `cummax`."""
    return _running(x, axis, largest=False)


def _log_rates(y: Node, x: Node, axis: int) -> tuple[Node, Node]:
    """Return exp(x - y), and exp(y[i - 1] - y[i]) with 0 in front: the shares of both in y."""
    y = maximum(y, -highest(y.dtype))  # a row of -inf keeps nothing, and is no NaN
    lead = (slice(None),) * axis
    earlier, later = y[(*lead, slice(None, -1))], y[(*lead, slice(1, None))]
    first = zeros_like(y[(*lead, slice(0, 1))])
    return exp(x - y), concatenate([first, exp(earlier - later)], axis)


def _log_vjp(ct: Node, y: Node, x: Node, axis: int) -> Node:
    taken, kept = _log_rates(y, x, axis)
    lead = (slice(None),) * axis
    after = concatenate([kept[(*lead, slice(1, None))], kept[(*lead, slice(0, 1))]], axis)
    return (ct + after * _scan(ct, after, axis, True)) * taken


def _log_jvp(tans: tuple[Node, ...], y: Node, x: Node, axis: int) -> Node:
    taken, kept = _log_rates(y, x, axis)
    moved = taken * tans[0]
    return moved + kept * _scan(moved, kept, axis, False)


_LOGCUMSUMEXP: Op = declare(
    "logcumsumexp", "f[*s] -> f[*s]",
    lambda xp, x, axis: (
        running(xp, "logaddexp", x, axis, accumulator(x.dtype)).astype(x.dtype, copy=False)
    ),
    vjp=(_log_vjp,), jvp=_log_jvp, cost=each(40),
    samples=tuple(on(*s.shapes, axis=s.attrs["axis"]) for s in _ALONG[::2]),
)  # fmt: skip


@raises(types="`x` is not of floats.", shapes=NO_AXIS)
@along_axis("x")
def logcumsumexp(x: Node, axis: int = -1) -> Node:
    """Return ``log(cumsum(exp(x)))`` along an axis without overflow, as ``torch.logcumsumexp``.

    Type ``f[*s] -> f[*s]``.
    """
    (place,) = axes_of((axis,), x.ndim)
    return build(_LOGCUMSUMEXP, x, axis=place)


def _prod_forward(xp: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    dtype = accumulator(x.dtype)
    total = xp.multiply.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims)
    return total if dtype == x.dtype else total.astype(x.dtype)


def _others(x: Node, axis: tuple[int, ...]) -> Node | None:
    """Return for each element the product of all others over the axes; None for no axes."""
    if not axis:
        return None
    *rest, last = axis
    here = _before(x, last, False) * _before(x, last, True)
    more = _others(prod(x, last, keepdims=True), tuple(rest))
    return here if more is None else here * broadcast_like(more, x)


prod: Reduction = reduction(
    "prod", "n[*s] -> n[*out]", _prod_forward, "Product over axes; the dtype is kept.",
    slope=lambda y, x, axis, keepdims: _others(x, axis),
    samples=(*REDUCTION_SAMPLES, on((0, 2), axis=(0,), keepdims=False)),
    notes="The product of no elements is 1.  The gradient of an element is the product of the "
    "others, taken without a division: it is right where one or several factors are zero.",
)  # fmt: skip


Axes = tuple[int, ...]
_SAMPLES = (*REDUCTION_SAMPLES, on((0, 2), axis=(1,), keepdims=False))


def _kept(reduced: Node, axis: Axes, keepdims: bool) -> Node:
    """Return the result of a reduction with its axes as dims of size 1."""
    return reduced if keepdims else expand_dims(reduced, axis)


# In float32, since float16 ends at 65504.  A mean over nothing has no elements to give gradients.
DIVIDE_BY_SIZE: Op = declare(
    "divide_by_size", "x[*s] -> x[*s]",
    through_float32(
        lambda xp, x, size, out=None: xp.divide(x, scalar(x, size or 1), out=out)
    ),
    vjp=(lambda ct, y, x, size: build(DIVIDE_BY_SIZE, ct, size=size),), linear=(0,),
    samples=(on((3, 4), size=12), on((), size=0)), memory=IN_PLACE,
    loop=LoopRule("value", "divide(x, size)"),
    doc="Divide by a number of elements that the run knows.", traced=True,
)  # fmt: skip

_SIZE_ALONG: Op = declare(
    "size_along", "x[*s] -> x[]",
    lambda xp, x, axis: xp.asarray(size_of_shape([x.shape[i] for i in axis]) or 1, x.dtype),
    vjp=(None,), jvp=lambda tans, y, x, axis: None, samples=(on((3, 4), axis=(0, 1)),),
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
    total /= dtype.type(size_of_shape([x.shape[i] for i in axis]) or nan)
    return total if dtype is x.dtype else total.astype(x.dtype, copy=False)


mean: Reduction = reduction(
    "mean", "x[*s] -> x[*out]", _mean_forward, "Arithmetic mean over axes.",
    vjp=(lambda ct, y, x, axis, keepdims: spread(divide_by_size(ct, x, axis), x, axis, keepdims),),
    total="mean", linear=(0,), samples=_SAMPLES, memory=KEPT_OUT, traced=True,
    along=Along((MEAN,), "m", (False, True)),
    notes="Integers have to be converted with ``.astype`` first.  The mean of no elements is NaN.",
)  # fmt: skip


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


def _extremum(name: str, ufunc: str, doc: str, notes: str, traced: Any = False) -> Reduction:
    def forward(xp: Any, x: Any, axis: Axes, keepdims: bool) -> Any:
        if not ufunc:
            return getattr(x, name)(axis=axis, keepdims=keepdims)
        if xp is np:
            return getattr(np, ufunc).reduce(x, axis=axis, keepdims=keepdims)
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    return reduction(
        name, "r[*s] -> r[*out]", forward, doc, shape=_extremum_shape, slope=_shares,
        samples=_SAMPLES, traced=traced,
        notes=f"Elements that tie share the gradient equally.  {notes}",
    )  # fmt: skip


def _has_one_axis(step: Node) -> bool:
    return len(step.attrs["axis"]) == 1


_NAN_WINS = "NaN where a value is NaN, which then gets the gradient."
_NAN_LOSES = "NaN where all values are."
max = _extremum("max", "", "Maximum over axes.", _NAN_WINS, _has_one_axis)
min = _extremum("min", "", "Minimum over axes.", _NAN_WINS, _has_one_axis)
nanmax = _extremum("nanmax", "fmax", "Maximum over axes of what is not NaN.", _NAN_LOSES)
nanmin = _extremum("nanmin", "fmin", "Minimum over axes of what is not NaN.", _NAN_LOSES)


# If the logarithm of a sum is between -30 and 30, nothing was lost to overflow or underflow.
_NEAR = 30


def _is_near(xp: Any, y: Any) -> bool:
    if is_traced(xp):
        y = y.reshape(-1)
        return holds(xp, (y.min() > -_NEAR) & (y.max() < _NEAR))
    # For few rows one product decides in half the time of two reductions.
    return bool(np.vdot(y, y) < _NEAR**2 or (y.size and y.min() > -_NEAR and y.max() < _NEAR))


def _logsumexp_forward(xp: Any, x: Any, axis: Axes, keepdims: bool) -> Any:
    if on_host(xp) and x.dtype.char in "fd":
        result = _log_of_rows(exp_without_warning(np, x), axis, keepdims)
        if _is_near(xp, result):
            return result
    return _shifted_logsumexp(xp, x, axis, keepdims)


@np.errstate(over="ignore", divide="ignore")
def _log_of_rows(e: Any, axis: Axes, keepdims: bool) -> Any:
    return np.log(row_sums(e, axis, keepdims))


def _shifted_logsumexp(xp: Any, x: Any, axis: Axes, keepdims: bool) -> Any:
    if not x.size:
        return xp.full_like(xp.add.reduce(x, axis=axis, keepdims=keepdims), -xp.inf)
    largest, lowest = x.max(axis=axis, keepdims=True), x.dtype.type(-highest(x.dtype))
    # Only finite numbers are subtracted from an infinite row: inf - inf would be NaN.
    finite = xp.minimum(xp.maximum(largest, lowest), -lowest)
    weights = xp.subtract(x, finite)
    weights = xp.exp(weights, out=weights if weights.ndim else None)
    total = xp.add.reduce(weights, axis=axis, dtype=accumulator(x.dtype), keepdims=True)
    # The sum contains exp(0), so it is below 1 only in a row of -inf, where log(1) - inf is right.
    result = (xp.log(xp.maximum(total, one(xp, total))) + largest).astype(x.dtype, copy=False)
    return result if keepdims else xp.squeeze(result, axis)


def _softmax(y: Node, x: Node, axis: Axes, keepdims: bool) -> Node:
    """Return exp(x - y), which is 0 in a row of -inf."""
    return exp(x - maximum(_kept(y, axis, keepdims), -highest(x.dtype)))


logsumexp = reduction(
    "logsumexp", "f[*s] -> f[*out]", _logsumexp_forward,
    "log(sum(exp(x))) over axes, without overflow.", shape=_extremum_shape,
    slope=_softmax, samples=_SAMPLES, cost=each(6, 0),
    notes="Computed as ``max(x) + log(sum(exp(x - max(x))))`` where the sum would overflow or "
    "vanish.  A row of -inf gives -inf, with gradient 0, and so does an empty axis.", traced=True,
)  # fmt: skip


# Beyond this a share is exactly 0 or 1 in every dtype.
_FAR = 2000


def _pair(name: str, base: float, doc: str) -> Binary:
    def share(t: Node, z: Node, x: Node, y: Node) -> Node:
        """Return t times the part of the sum that is due to x; of two equal numbers a half."""
        top = highest(x.dtype)
        # Halves, because the difference of two numbers may overflow; infinite ones are equal.
        apart = clip(x, -top, top) * 0.5 - clip(y, -top, top) * 0.5
        part = sigmoid(clip(apart, -_FAR, _FAR) * (2 * log_of(base)))
        return t * where(z == -inf, 0, part)

    return binary(
        name, (share, lambda t, z, x, y: share(t, z, y, x)), doc, flops=15,
        scheme="f[*s] -> f[*t] -> f[*s|t]", notes="Two of -inf give -inf, with gradient 0.",
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
    x, y = lifted_pair(x, y)
    first = real(x) >= real(y)
    larger, smaller = where(first, x, y), where(first, y, x)
    return larger + log1p(exp(smaller - larger))


logaddexp2 = _pair("logaddexp2", 2, "log2(2**x + 2**y), without overflow.")
