"""Norms of vectors and matrices, condition numbers, and the exponential of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, inf
from typing import Any

from actorgraph.errors import GraphError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op
from actorgraph.ops._rules import NO_LAPACK, NO_ORDER, as_of, declare, raises, returns
from actorgraph.ops.arithmetic import abs as size_of_each
from actorgraph.ops.broadcasting import expand_dims, zeros_like
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.indexing import getitem
from actorgraph.ops.inverses import inv
from actorgraph.ops.matrices import SQUARE_SAMPLES, adjoint, as_matrices, as_square, cubic_cost
from actorgraph.ops.rearranging import moveaxis
from actorgraph.ops.reductions import max as largest
from actorgraph.ops.reductions import min as least
from actorgraph.ops.shaping import concatenate, one_axis
from actorgraph.ops.spectral import svdvals
from actorgraph.ops.statistics import norm

__all__ = ["cond", "matrix_exp", "matrix_norm", "vector_norm"]


def vector_norm(x: Node, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Node:
    """Norm of the elements over `axis`, as ``numpy.linalg.vector_norm``: `norm` of order `ord`."""
    return norm(x, ord, axis, keepdims)


def _sums(x: Node, axis: int) -> Node:
    return sum_over(size_of_each(x), axis)


_NORMS: dict[Any, Callable[[Node], Node]] = {
    "fro": lambda x: norm(x, 2, (-2, -1)), "nuc": lambda x: sum_over(svdvals(x), -1),
    1: lambda x: largest(_sums(x, -2), -1), -1: lambda x: least(_sums(x, -2), -1),
    inf: lambda x: largest(_sums(x, -1), -1), -inf: lambda x: least(_sums(x, -1), -1),
    2: lambda x: largest(svdvals(x), -1), -2: lambda x: least(svdvals(x), -1),
}  # fmt: skip


def _norm_of(ord: Any) -> Callable[[Node], Node]:
    found = None if isinstance(ord, bool) else _NORMS.get(ord)
    if found is None:
        raise GraphError(f"the order is one of {', '.join(map(repr, _NORMS))}, got {ord!r}")
    return found


@returns("Node: real")
@raises(NO_LAPACK, "There are no two such axes.", other=NO_ORDER)
def matrix_norm(
    x: Node, ord: Any = "fro", axis: tuple[int, int] = (-2, -1), keepdims: bool = False
) -> Node:
    """Norm of matrices, as ``numpy.linalg.matrix_norm``.

    Parameters
    ----------
    x : node
        Float or complex, at least two dims.
    ord : {"fro", "nuc", 1, -1, 2, -2, inf, -inf}
        The root of the sum of squares; the sum of the singular values; the largest or smallest sum
        of a column; singular value; or sum of a row.
    axis : pair of int
        Those of the rows and of the columns.
    """
    one = _norm_of(ord)
    as_matrices(x)
    rows, columns = (one_axis(place, x.ndim) for place in axis)
    if rows == columns:
        raise ShapeError(f"the axes {tuple(axis)} are one axis")
    result = one(moveaxis(x, (rows, columns), (-2, -1)))
    return expand_dims(result, tuple(sorted((rows, columns)))) if keepdims else result


@returns("Node: real, shape (...)")
@raises(NO_LAPACK, "The matrices are not square, where they have to be.", other=NO_ORDER)
@as_of(svdvals)
def cond(x: Node, p: Any = None) -> Node:
    """Condition number of matrices, as ``numpy.linalg.cond``.

    Parameters
    ----------
    p : optional
        An order of `matrix_norm`: the norm of `x` times that of its inverse, which raises in the
        run for a singular matrix.  None, 2 and -2 are the quotient of the largest and smallest of
        `svdvals`, of matrices of any shape.
    """
    if p is None or p in (2, -2):
        values = svdvals(x)
        ends = getitem(values, (Ellipsis, 0)), getitem(values, (Ellipsis, -1))
        return ends[1] / ends[0] if p == -2 else ends[0] / ends[1]
    one = _norm_of(p)
    return one(x) * one(inv(x))


_DEGREE, _RADIUS = 13, 5.371920351148152
"""Degree of both polynomials, and the norm up to which their quotient is exact in float64."""
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
    cost=cubic_cost(20), samples=SQUARE_SAMPLES,
)  # fmt: skip


@returns("Node of the shape and dtype of `x`; NaN where `x` is not finite")
@as_of(inv)
def matrix_exp(x: Node) -> Node:
    """Return the exponential of square matrices, ``I + x + x @ x / 2 + ...``.

    As ``scipy.linalg.expm`` and ``torch.linalg.matrix_exp``, of what `inv` takes; the gradient
    costs the exponential of a matrix of twice the size.
    """
    return build(_EXP, as_square(x))
