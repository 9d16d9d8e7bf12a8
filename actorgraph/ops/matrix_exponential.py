"""The exponential of matrices, by scaling, a rational approximation and squaring.

Source: N. J. Higham, The scaling and squaring method for the matrix exponential revisited, 2005.
The derivative along E is the corner of the exponential of the block matrix [[A, E], [0, A]].
"""

from __future__ import annotations

from math import factorial
from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Op
from actorgraph.ops._docs import NO_LAPACK, NOT_SQUARE, raises
from actorgraph.ops._matrix_rules import SQUARE_SAMPLES, adjoint, as_square, cubic_cost
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import zeros_like
from actorgraph.ops.indexing import getitem
from actorgraph.ops.shaping import concatenate

__all__ = ["matrix_exp"]

_DEGREE, _RADIUS = 13, 5.371920351148152
"""Degree of both polynomials, and up to which norm their quotient is exact in float64."""
_WEIGHTS = [
    factorial(2 * _DEGREE - k) // (factorial(k) * factorial(_DEGREE - k)) / factorial(_DEGREE)
    for k in range(_DEGREE + 1)
]


def _quotient(xp: Any, x: Any) -> Any:
    """Return the approximation for norms up to the radius."""
    unit, w = xp.eye(x.shape[-1], dtype=x.dtype), _WEIGHTS
    x2 = xp.matmul(x, x)
    x4 = xp.matmul(x2, x2)
    x6 = xp.matmul(x4, x2)
    high = xp.matmul(x6, w[13] * x6 + w[11] * x4 + w[9] * x2)
    odd = xp.matmul(x, high + w[7] * x6 + w[5] * x4 + w[3] * x2 + w[1] * unit)
    high = xp.matmul(x6, w[12] * x6 + w[10] * x4 + w[8] * x2)
    even = high + w[6] * x6 + w[4] * x4 + w[2] * x2 + w[0] * unit
    return xp.linalg.solve(even - odd, even + odd)


def _forward(xp: Any, x: Any) -> Any:
    if not x.size:
        return xp.zeros(x.shape, x.dtype)
    wide = x.astype(xp.result_type(x.dtype, xp.float64))  # squaring would lose float32's digits
    norm = xp.abs(wide).sum(axis=-2).max(axis=-1)[..., None, None]
    if not xp.isfinite(norm).all():
        return xp.full(x.shape, xp.nan, x.dtype)
    doublings = xp.maximum(xp.ceil(xp.log2(xp.maximum(norm, _RADIUS) / _RADIUS)), 0)
    result = _quotient(xp, wide * 2.0**-doublings)
    for step in range(int(doublings.max())):
        result = xp.where(step < doublings, xp.matmul(result, result), result)
    return result.astype(x.dtype, copy=False)


def _along(x: Node, direction: Node) -> Node:
    """Return the derivative along a direction."""
    above = concatenate([x, direction], axis=-1)
    below = concatenate([zeros_like(x), x], axis=-1)
    n = x.dims[-1]
    both = build(_EXP, concatenate([above, below], axis=-2))
    return getitem(both, (Ellipsis, slice(None, n), slice(n, None)))


_EXP: Op = declare(
    "matrix_exp", "x[*s, n, n] -> x[*s, n, n]", _forward,
    vjp=(lambda ct, y, x: _along(adjoint(x), ct),), jvp=lambda tans, y, x: _along(x, tans[0]),
    cost=cubic_cost(20), samples=SQUARE_SAMPLES, doc="Exponential of each matrix.",
)  # fmt: skip


@raises(types=NO_LAPACK, shapes=NOT_SQUARE)
def matrix_exp(x: Node) -> Node:
    """Return the exponential of square matrices, ``I + x + x @ x / 2 + ...``.

    As ``scipy.linalg.expm`` and ``torch.linalg.matrix_exp``; the gradient costs the exponential of
    a matrix of twice the size.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.

    Returns
    -------
    Node
        Of the shape and dtype of `x`; NaN where `x` is not finite.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> matrix_exp(Graph().input("x", ("batch", 3, 3), "float32")).shape
    (batch, 3, 3)
    """
    return build(_EXP, as_square(x, "matrix_exp"))
