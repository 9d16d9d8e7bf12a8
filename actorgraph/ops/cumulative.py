"""Running sums, products, maxima and minima, and the product over axes.

No gradient here divides, so that all are right where factors are zero.  With the product before
each element, ``L[0] = 1, L[i + 1] = L[i] * x[i]``, everything follows from one linear recurrence,

    s[0] = 0,  s[i + 1] = b[i] + x[i] * s[i]        (the op ``scan_before``)

for ``L`` depends on x by ``dL = scan(L * dx, x)``, and the adjoint of the recurrence is the same
recurrence run backwards: a family closed under differentiation to any order.
"""

from __future__ import annotations

from math import prod as size_of_shape
from typing import Any

import numpy as np

from actorgraph.graph import Node, build
from actorgraph.op import Op
from actorgraph.ops._arrays import accumulator, highest, running
from actorgraph.ops._declare import Reduction, reduction
from actorgraph.ops._rules import NO_AXIS, add_all, declare, each, on, raises
from actorgraph.ops.broadcasting import (
    REDUCTION_SAMPLES,
    along_axis,
    axes_of,
    broadcast_like,
    conj,
    zeros_like,
)
from actorgraph.ops.elementwise import maximum, where
from actorgraph.ops.exponential import exp
from actorgraph.ops.gathering import gather
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import concatenate

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "prod"]


def _cost(shapes: Any, result: Any, attrs: Any) -> float:
    return float(2 * size_of_shape(shapes[0]))


def _accumulate(xp: Any, ufunc: Any, x: Any, axis: int, reverse: bool) -> Any:
    x = xp.flip(x, axis) if reverse else x
    total = ufunc.accumulate(x, axis=axis, dtype=accumulator(x.dtype))
    total = total.astype(x.dtype, copy=False)
    return xp.flip(total, axis) if reverse else total


_ALONG = tuple(
    on(shape, axis=axis, reverse=reverse)
    for shape, axis in (((3, 4), 1), ((4, 2), 0), ((0, 2), 0), ((2, 0), 0))
    for reverse in (False, True)
)

# -- cumsum -----------------------------------------------------------------------------------

_CUMSUM: Op = declare(
    "cumsum", "n[*s] -> n[*s]",
    lambda xp, x, axis, reverse: _accumulate(xp, xp.add, x, axis, reverse),
    vjp=(lambda ct, y, x, axis, reverse: build(_CUMSUM, ct, axis=axis, reverse=not reverse),),
    linear=(0,), samples=_ALONG, doc="Running sum along an axis; the dtype is kept.",
)  # fmt: skip

# -- products before each element, and the recurrence -----------------------------------------


def _before_forward(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    total = xp.ones(x.shape, accumulator(x.dtype))
    ours, theirs = _shifted(axis, reverse)
    xp.multiply.accumulate(_along(xp, x[theirs], axis, reverse), axis=axis, dtype=total.dtype,
                           out=_along(xp, total[ours], axis, reverse))  # fmt: skip
    return total.astype(x.dtype, copy=False)


def _along(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    return xp.flip(x, axis) if reverse else x


def _shifted(axis: int, reverse: bool) -> tuple[Any, Any]:
    """Return the places after the first, and before the last, in the order of the recurrence."""
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
    jvp=lambda tans, y, x, axis, reverse: _scan(y * tans[0], x, axis, reverse), cost=_cost,
    samples=_ALONG, doc="Product of the elements before each one along an axis.",
)  # fmt: skip


def _before(x: Node, axis: int, reverse: bool) -> Node:
    return build(_BEFORE, x, axis=axis, reverse=reverse)


def products_before(x: Node, groups: Node) -> Node:
    """Return the product of the elements before each one that belong to its group.

    Both have one dim; neighbours whose entries in `groups` are equal are a group.
    """
    same = groups[1:] == groups[:-1]
    none = x.graph.constant(np.zeros(1), x.dtype)
    starts = concatenate([none + 1, where(same, none, none + 1), none])
    factors = concatenate([none, where(same, x[:-1], 0), none])
    return _scan(starts, factors, 0, False)[1:]


# -- cumprod ----------------------------------------------------------------------------------


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
    vjp=(_cumprod_vjp,), jvp=_cumprod_jvp, cost=_cost, samples=_ALONG,
    doc="Running product along an axis; the dtype is kept.",
)  # fmt: skip


def _run(op: Op, x: Node, axis: Any) -> Node:
    if axis is None:
        x, axis = (x if x.ndim == 1 else reshape(x, (-1,))), 0
    (one,) = axes_of((axis,), x.ndim, op.name)
    return build(op, x, axis=one, reverse=False)


@raises(shapes="The axis is out of range.")
@along_axis("x")
def cumsum(x: Node, axis: int | None = None) -> Node:
    """Running sum along `axis`; the dtype is kept, also of integers.

    Type ``n[*s] -> n[*s]``.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.cumsum(ag.Graph().input("x", ("batch", 3)), axis=0)
    <cumsum_1: float32[batch, 3]>
    """
    return _run(_CUMSUM, x, axis)


@raises(shapes="The axis is out of range.")
@along_axis("x")
def cumprod(x: Node, axis: int | None = None) -> Node:
    """Running product along `axis`; the dtype is kept, also of integers.

    Type ``n[*s] -> n[*s]``.  The gradient is a linear recurrence that never divides: it is right
    where factors are zero.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.cumprod(ag.Graph().input("x", (2, 3)))
    <cumprod_2: float32[6]>
    """
    return _run(_CUMPROD, x, axis)


# -- cummax and cummin ------------------------------------------------------------------------


def _extreme_forward(xp: Any, x: Any, axis: int, largest: bool) -> Any:
    extremes = running(xp, "maximum" if largest else "minimum", x, axis)
    reached = (x == extremes) | (x != x)
    shape = (-1, *[1] * (x.ndim - axis - 1))
    places = xp.where(reached, xp.arange(x.shape[axis]).reshape(shape), 0)
    return running(xp, "maximum", places, axis).astype(xp.int64, copy=False)


_EXTREME: Op = declare(
    "running_extreme", "r[*s] -> int64[*s]", _extreme_forward, cost=_cost,
    samples=tuple(
        on(shape, axis=axis, largest=largest)
        for shape, axis in (((3, 4), 1), ((4, 2), 0), ((0, 2), 0))
        for largest in (False, True)
    ),
    doc="Position of the largest or smallest entry so far along an axis, the last of equals.",
)  # fmt: skip


def _running(what: str, x: Node, axis: int, largest: bool) -> tuple[Node, Node]:
    (place,) = axes_of((axis,), x.ndim, what)
    positions = build(_EXTREME, x, axis=place, largest=largest)
    return gather(x, place, positions), positions


@raises(types="`x` is bool or complex.", shapes=NO_AXIS)
@along_axis("x")
def cummax(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """Return the largest entry so far along an axis, and its position, as ``torch.cummax``.

    Parameters
    ----------
    x : node
        Real numbers; from a NaN on all is NaN.
    axis : int

    Returns
    -------
    values, indices : Node
        The gradient of the values goes to the entries that they were; of equal entries to the
        last, as in PyTorch.  The int64 indices have none.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.cummax(ag.Graph().input("x", ("n", 3)), axis=0)[0].shape
    (n, 3)
    """
    return _running("cummax", x, axis, largest=True)


@along_axis("x")
def cummin(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """Return the smallest entry so far along an axis, and its position; otherwise as `cummax`."""
    return _running("cummin", x, axis, largest=False)


# -- logcumsumexp -----------------------------------------------------------------------------


def _log_forward(xp: Any, x: Any, axis: int) -> Any:
    total = running(xp, "logaddexp", x, axis, accumulator(x.dtype))
    return total.astype(x.dtype, copy=False)


def _log_rates(y: Node, x: Node, axis: int) -> tuple[Node, Node]:
    """Return exp(x - y), and exp(y[i - 1] - y[i]) with 0 before the first: what y keeps of each."""
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
    "logcumsumexp", "f[*s] -> f[*s]", _log_forward, vjp=(_log_vjp,), jvp=_log_jvp, cost=each(40),
    samples=tuple(on(*s.shapes, axis=s.attrs["axis"]) for s in _ALONG[::2]),
    doc="Logarithm of the running sum of exponentials along an axis, without overflow.",
)  # fmt: skip


@raises(types="`x` is not of floats.", shapes=NO_AXIS)
@along_axis("x")
def logcumsumexp(x: Node, axis: int = -1) -> Node:
    """Return ``log(cumsum(exp(x)))`` along an axis without overflow, as ``torch.logcumsumexp``.

    Type ``f[*s] -> f[*s]``.
    """
    (place,) = axes_of((axis,), x.ndim, "logcumsumexp")
    return build(_LOGCUMSUMEXP, x, axis=place)


# -- prod -------------------------------------------------------------------------------------


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


def _prod_slope(y: Node, x: Node, axis: tuple[int, ...], keepdims: bool) -> Node | None:
    return _others(x, axis)


prod: Reduction = reduction(
    "prod", "n[*s] -> n[*out]", _prod_forward, "Product over axes; the dtype is kept.",
    slope=_prod_slope, samples=(*REDUCTION_SAMPLES, on((0, 2), axis=(0,), keepdims=False)),
    notes="The product of no elements is 1.  The gradient of an element is the product of the "
    "others, taken without a division: it is right where one or several factors are zero.",
)  # fmt: skip
