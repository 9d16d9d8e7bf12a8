"""Sparsemax: the Euclidean projection on the simplex, softmax with exact zeros.

Source: A. Martins, R. Astudillo, From softmax to sparsemax, 2016.
"""

from __future__ import annotations

from math import prod
from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Sample
from actorgraph.ops._docs import NO_AXIS, NO_FLOAT, raises
from actorgraph.ops._half import through_float32
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import (
    along_axis,
    sum,  # noqa: A004
)
from actorgraph.ops.casting import astype
from actorgraph.ops.selection import maximum
from actorgraph.ops.shaping import one_axis

__all__ = ["sparsemax"]


@through_float32
def _forward(xp: Any, x: Any, axis: int) -> Any:
    if not x.size:
        return x.copy()
    # The result does not change where all entries move alike; this way sums stay small.
    x = xp.subtract(x, xp.maximum.reduce(x, axis=axis, keepdims=True))
    ordered = xp.flip(xp.sort(x, axis=axis), axis)
    totals = xp.cumsum(ordered, axis=axis, dtype=x.dtype)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    rank = xp.arange(1, x.shape[axis] + 1).astype(x.dtype).reshape(shape)
    count = (1 + rank * ordered > totals).sum(axis=axis, keepdims=True)
    total = xp.take_along_axis(totals, xp.maximum(count - 1, 0), axis)
    x -= (total - 1) / xp.maximum(count, 1).astype(x.dtype)
    return xp.maximum(x, x.dtype.type(0), out=x)


def _derivative(t: Node, y: Node, axis: int) -> Node:
    """Apply the Jacobian, which is symmetric: minus the mean over the support, on the support."""
    support = astype(y > 0, y.dtype)
    chosen = support * t
    count = maximum(sum(support, axis, keepdims=True), 1)
    return chosen - support * (sum(chosen, axis, keepdims=True) / count)


_SPARSEMAX = declare(
    "sparsemax", "f[*s] -> f[*s]", _forward, vjp=(lambda ct, y, x, axis: _derivative(ct, y, axis),),
    jvp=lambda tans, y, x, axis: _derivative(tans[0], y, axis),
    cost=lambda shapes, result, attrs: 60 * prod(result),
    samples=(
        Sample(((3, 4),), {"axis": 1}, -0.6, 0.6), Sample(((2, 4, 3),), {"axis": 1}),
        Sample(((3, 4),), {"axis": 0}), Sample(((0, 2),), {"axis": 1}),
        Sample(((2, 0),), {"axis": 1}),
    ),
    doc="Euclidean projection on the simplex along an axis.",
)  # fmt: skip


@raises(types=NO_FLOAT, shapes=NO_AXIS)
@along_axis("x")
def sparsemax(x: Node, axis: int = -1) -> Node:
    """Return the probabilities nearest to `x` along an axis, small ones exactly 0.

    ``max(x - tau, 0)`` with the tau that makes them sum to 1.  The gradient is that of the support:
    ``ct`` minus its mean over the entries above 0, there, and 0 elsewhere.

    Parameters
    ----------
    x : node
        Float, rank 1 or more.
    axis : int
        Along which the result sums to 1.

    Returns
    -------
    Node
        Of the shape of `x`.
    """
    return build(_SPARSEMAX, x, axis=one_axis(axis, x.ndim, "sparsemax"))
