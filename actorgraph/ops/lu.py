"""LU decompositions of batches of matrices, and equations whose unknowns are arrays.

The op stores both factors in one matrix, with the order of the rows as another column.

Sources: S. Toledo, Locality of reference in LU decomposition with partial pivoting, 1997; S. F.
Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions, 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op
from actorgraph.ops._rules import MIXED_LAPACK, NO_LAPACK, as_of, declare, on, raises, returns
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze, zeros_like
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.creation import eye
from actorgraph.ops.decompositions import solve_triangular, triangular_solution
from actorgraph.ops.elementwise import real_part
from actorgraph.ops.gathering import take_along_axis
from actorgraph.ops.indexing import getitem, one_hot
from actorgraph.ops.inverses import inv, matrix_rank, pinv, solve
from actorgraph.ops.linalg import lifted_pair, matmul
from actorgraph.ops.matrices import (
    SQUARE_SAMPLES,
    as_matrices,
    cubic_cost,
    known,
    read_rows,
    real_like,
    tril,
    triu,
)
from actorgraph.ops.matrices import adjoint as across
from actorgraph.ops.rearranging import moveaxis
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import concatenate, swap_last
from actorgraph.ops.sorting import argsort
from actorgraph.ops.spectral import svdvals

__all__ = ["lstsq", "lu", "lu_factor", "lu_solve", "tensorinv", "tensorsolve"]

_PANEL = 16
"""Up to so many columns are eliminated one by one."""


class LUResult(NamedTuple):
    """A permutation matrix, and the lower and the upper factor."""

    P: Node
    L: Node
    U: Node


class LUFactorResult(NamedTuple):
    """Both factors in one matrix, and which row of the argument is which of theirs."""

    LU: Node
    permutation: Node


def _rows(xp: Any, x: Any, order: Any) -> Any:
    return xp.take_along_axis(x, order[..., None], axis=-2)


def _exchange(xp: Any, x: Any, one: int, others: Any) -> None:
    """Exchange a row of each matrix with another, in place."""
    batch = xp.arange(len(x))
    kept = x[:, one].copy()
    x[:, one] = x[batch, others]
    x[batch, others] = kept


def _panel(xp: Any, x: Any, order: Any) -> None:
    """Decompose matrices of few columns in place, and exchange the entries of `order` likewise."""
    for k in range(min(x.shape[-2:])):
        column = x[:, k:, k]  # pivots are chosen as in LAPACK, so the rows are in its order
        pivots = (xp.abs(xp.real(column)) + xp.abs(xp.imag(column))).argmax(axis=-1) + k
        _exchange(xp, x, k, pivots)
        _exchange(xp, order, k, pivots)
        pivot = x[:, k, k, None]
        # A column of zeros stays as it is.
        x[:, k + 1 :, k] /= xp.where(pivot == 0, xp.ones((), x.dtype), pivot)
        x[:, k + 1 :, k + 1 :] -= x[:, k + 1 :, k, None] * x[:, k, None, k + 1 :]


def _eliminate(xp: Any, x: Any, order: Any) -> None:
    """Decompose a stack of matrices in place: the left half, then the remainder of the right."""
    rows, columns = x.shape[-2:]
    half = min(rows, columns) // 2
    if columns <= _PANEL or half == 0:
        return _panel(xp, x, order)
    moved = xp.broadcast_to(xp.arange(rows), x.shape[:-1]).copy()
    _eliminate(xp, x[..., :half], moved)
    right = _rows(xp, x[..., half:], moved)
    top = triangular_solution(xp, x[:, :half, :half], right[:, :half], False, True)
    x[:, :half, half:] = top
    x[:, half:, half:] = right[:, half:] - xp.matmul(x[:, half:, :half], top)
    order[...] = xp.take_along_axis(order, moved, axis=-1)
    below = xp.broadcast_to(xp.arange(rows - half), (len(x), rows - half)).copy()
    _eliminate(xp, x[:, half:, half:], below)
    x[:, half:, :half] = _rows(xp, x[:, half:, :half], below)
    order[:, half:] = xp.take_along_axis(order[:, half:], below, axis=-1)
    return None


def _forward(xp: Any, x: Any) -> Any:
    stack = x.reshape(prod(x.shape[:-2]), *x.shape[-2:]).copy()
    order = xp.broadcast_to(xp.arange(x.shape[-2]), stack.shape[:-1]).copy()
    _eliminate(xp, stack, order)
    both = xp.concatenate([stack, order[..., None].astype(x.dtype)], axis=-1)
    return both.reshape(*x.shape[:-1], x.shape[-1] + 1)


def _columns(x: Node, start: Any, stop: Any) -> Node:
    return getitem(x, (Ellipsis, slice(start, stop)))


def _factors(stacked: Node) -> tuple[Node, Node]:
    """Return both factors in one matrix, and the order of the rows."""
    column = getitem(stacked, (Ellipsis, -1))
    return _columns(stacked, None, -1), real_part(column, "int64")


def _sides(x: Node) -> Any:
    """Return the numbers of rows and columns: the same dim, or ints."""
    return x.dims[-2:]


def _unit_lower(factors: Node, x: Node) -> Node:
    return solve_triangular(factors, x, upper=False, unitriangular=True)


def _by_upper(x: Node, factors: Node) -> Node:
    """Return ``x @ U^-1``."""
    return solve_triangular(factors, x, upper=True, left=False)


def _by_adjoint_upper(x: Node, factors: Node) -> Node:
    """Return ``x @ U^-H``."""
    return across(solve_triangular(factors, across(x), upper=True))


def _square_vjp(factors: Node, ct: Node) -> Node:
    """Return the cotangent of a matrix that needs no exchange of rows."""
    lower, upper, ct_lower = tril(factors, -1), triu(factors), tril(ct, -1)
    below = tril(ct_lower + across(lower) @ ct_lower, -1)
    inner = below + triu(triu(ct) @ across(upper))
    back = solve_triangular(across(factors), inner, upper=True, unitriangular=True)
    return _by_adjoint_upper(back, factors)


def _vjp(ct: Node, y: Node, x: Node) -> Node:
    (factors, order), ct = _factors(y), _columns(ct, None, -1)
    rows, columns = _sides(x)
    if rows == columns:
        moved = _square_vjp(factors, ct)
    elif rows > columns:
        square, below = read_rows(factors, None, columns), read_rows(factors, columns, None)
        rest = _by_adjoint_upper(read_rows(ct, columns, None), square)
        inner = read_rows(ct, None, columns) - triu(across(below) @ rest)
        moved = concatenate([_square_vjp(square, inner), rest], axis=-2)
    else:
        square, right = _columns(factors, None, rows), _columns(factors, rows, None)
        turned = across(square)
        rest = solve_triangular(turned, _columns(ct, rows, None), upper=True, unitriangular=True)
        inner = _columns(ct, None, rows) - tril(rest @ across(right), -1)
        moved = concatenate([_square_vjp(square, inner), rest], axis=-1)
    return _reordered(moved, argsort(order))


def _square_jvp(factors: Node, tan: Node) -> Node:
    inner = _by_upper(_unit_lower(factors, tan), factors)
    below = tril(inner, -1)
    return below + tril(factors, -1) @ below + triu(inner) @ triu(factors)


def _jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    factors, order = _factors(y)
    tan, (rows, columns) = _reordered(tans[0], order), _sides(x)
    if rows == columns:
        moved = _square_jvp(factors, tan)
    elif rows > columns:
        square, below = read_rows(factors, None, columns), read_rows(factors, columns, None)
        above = _square_jvp(square, read_rows(tan, None, columns))
        rest = read_rows(tan, columns, None) - below @ triu(above)
        moved = concatenate([above, _by_upper(rest, square)], axis=-2)
    else:
        square, right = _columns(factors, None, rows), _columns(factors, rows, None)
        left = _square_jvp(square, _columns(tan, None, rows))
        rest = _columns(tan, rows, None) - tril(left, -1) @ right
        moved = concatenate([left, _unit_lower(square, rest)], axis=-1)
    return concatenate([moved, zeros_like(_columns(y, -1, None))], axis=-1)


_LU: Op = declare(
    "lu", "x[*s, m, n] -> x[*out]", _forward, shape=lambda checks, x: (*x[:-1], x[-1] + 1),
    vjp=(_vjp,), jvp=_jvp, cost=cubic_cost(2 / 3),
    samples=(*SQUARE_SAMPLES, on((4, 2)), on((2, 2, 3)), on((0, 3))),
)  # fmt: skip


def _decomposed(x: Node) -> tuple[Node, Node]:
    rows, columns = (known(as_matrices(x), axis) for axis in (-2, -1))
    if rows != columns and not (isinstance(rows, int) and isinstance(columns, int)):
        raise ShapeError(f"takes square matrices or dims that are ints, got {x!r}")
    return _factors(build(_LU, x))


@raises(types=NO_LAPACK, shapes="`x` has fewer than two dims, or these are not known.")
def lu(x: Node) -> LUResult:
    """Decompose each matrix as ``P @ L @ U``, as ``scipy.linalg.lu``.

    Rows are exchanged so that no part of an entry of L is larger than 1.  There is no derivative
    where two pivots are equally large, or the first columns are dependent.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number; m and n are ints, or the
        same dim.

    Returns
    -------
    LUResult
        With k = min(m, n): the permutation `P` of shape (..., m, m), `L` of shape (..., m, k) with
        a diagonal of ones, and `U` of shape (..., k, n).
    """
    factors, order = _decomposed(x)
    rows, columns = _sides(x)
    least = columns if rows == columns else min(rows, columns)
    lower = tril(_columns(factors, None, least), -1) + eye(x, rows, least, dtype=x.dtype)
    upper = triu(read_rows(factors, None, least))
    return LUResult(swap_last(one_hot(order, rows, x.dtype)), lower, upper)


@as_of(lu)
def lu_factor(x: Node) -> LUFactorResult:
    """Decompose matrices for `lu_solve`: with ``L, U`` as of `lu`, ``x[permutation] = L @ U``.

    Returns
    -------
    LUFactorResult
        `LU` of the shape of `x`: U, and L below its diagonal; and `permutation`, int64, shape
        (..., m), where SciPy and PyTorch return the exchanges that make it.
    """
    return LUFactorResult(*_decomposed(x))


@returns("Node of the shape of `b`, broadcast")
@raises(both="As `solve`.")
def lu_solve(factors: LUFactorResult, b: Any, *, left: bool = True, adjoint: bool = False) -> Node:
    """Solve ``a @ x = b`` with the factors of `a`, which serve any number of right sides.

    Parameters
    ----------
    factors : LUFactorResult
        What `lu_factor` gives for square matrices.
    b : node or array
        Shape (n,), (..., n, k), or (..., k, n) without `left`, of the dtype of the factors;
        leading dims broadcast.
    left : bool
        False solves ``x @ a = b``.
    adjoint : bool
        Take ``a^H`` for a.
    """
    matrix, b = lifted_pair(factors[0], b)
    columns = expand_dims(b, -1) if b.ndim == 1 else b if left else across(b)
    if columns.dims[-2] != matrix.dims[-1]:
        raise ShapeError(f"{b!r} has not as many entries as the matrix {matrix!r}")
    if left == adjoint:
        inner = solve_triangular(across(matrix), columns, upper=False)
        inner = solve_triangular(across(matrix), inner, upper=True, unitriangular=True)
        result = _reordered(inner, argsort(factors[1]))
    else:
        inner = _unit_lower(matrix, _reordered(columns, factors[1]))
        result = solve_triangular(matrix, inner, upper=True)
    if b.ndim == 1:
        return squeeze(result, -1)
    return result if left else across(result)


def _reordered(x: Node, order: Node) -> Node:
    """Return the rows in an order; the leading dims of both broadcast."""
    order = expand_dims(order, -1)
    missing = order.ndim - x.ndim
    x = expand_dims(x, tuple(range(missing))) if missing > 0 else x
    order = expand_dims(order, tuple(range(-missing))) if missing < 0 else order
    return take_along_axis(x, order, -2)


def _sizes(dims: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(dim, int) for dim in dims):
        raise ShapeError(f"the dims have to be ints, got {tuple(dims)}")
    return tuple(dims)


@returns("Node of shape ``a.shape[b.ndim:]``")
@raises(MIXED_LAPACK, "The dims are not ints, or do not fit.")
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Node:
    """Solve ``tensordot(a, x, x.ndim) = b``, as ``numpy.linalg.tensorsolve``.

    Parameters
    ----------
    a : node or array
        Shape ``b.shape + x.shape``, of which both parts have as many entries.
    b : node or array
    axes : sequence of int, optional
        Axes of `a` to move to its end before.
    """
    a, b = lifted_pair(a, b)
    if axes is not None:
        a = moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    result = _sizes(a.dims[b.ndim :])
    flat = reshape(b, (prod(result),)) if b.ndim else b
    matrix = reshape(a, (prod(_sizes(b.dims)), prod(result)))
    return reshape(solve(matrix, flat), result)


@returns("Node of shape ``a.shape[ind:] + a.shape[:ind]``")
@raises(types=NO_LAPACK, shapes="The dims are not ints, or do not fit.")
def tensorinv(a: Node, ind: int = 2) -> Node:
    """Return the inverse of `a` for `tensordot` over `ind` axes, as ``numpy.linalg.tensorinv``.

    Parameters
    ----------
    a : node
        The dims before and from axis `ind` on have as many entries.
    """
    if not 0 < ind <= a.ndim:
        raise ShapeError(f"ind has to be from 1 to {a.ndim}, got {ind!r}")
    dims = _sizes(a.dims)
    matrix = reshape(a, (prod(dims[:ind]), prod(dims[ind:])))
    return reshape(inv(matrix), (*dims[ind:], *dims[:ind]))


class LstsqResult(NamedTuple):
    """What least squares give, in NumPy's order."""

    solution: Node
    residuals: Node
    rank: Node
    singular_values: Node


@raises(MIXED_LAPACK, "The dims do not fit, or one of the last two of `a` is None.")
def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """Return the least-squares solution of ``a @ x = b`` of least norm, as ``numpy.linalg.lstsq``.

    The solution is ``pinv(a) @ b``, with gradients as of `pinv`, for any rank that is constant.
    Parts of the result that are not used are not computed.

    Parameters
    ----------
    a : node or array
        Shape (..., m, n), float or complex of at least 32 bits a number.
    b : node or array
        Shape (m,) or (..., m, k), of the dtype of `a`.
    rcond : float, optional
        As `rtol` in `pinv`.

    Returns
    -------
    LstsqResult
        `solution` of shape (..., n) where `b` is a vector, else (..., n, k); `residuals`, the
        sums of squares of ``b - a @ x``, of shape (..., 1) or (..., k), and of shape (0,) where
        m <= n; `rank`, int64, of shape (...); and `singular_values` of shape (..., min(m, n)).
        NumPy's residuals are empty, too, where a run finds a rank below n: a shape in a graph
        does not depend on values.
    """
    a, b = lifted_pair(a, b)
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    x = matmul(pinv(as_matrices(a), rcond), columns)
    rows, unknowns = a.dims[-2:]
    if isinstance(rows, int) and isinstance(unknowns, int) and rows <= unknowns:
        residuals = real_like(a.graph.constant(np.zeros(0, a.dtype)))
    else:
        rest = columns - matmul(a, x)
        residuals = sum_over(real_like(rest * conj(rest)), -2)
    solution = squeeze(x, -1) if b.ndim == 1 else x
    return LstsqResult(solution, residuals, matrix_rank(a, rcond), svdvals(a))
