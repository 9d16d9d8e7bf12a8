"""Systems of equations whose unknowns are arrays, and those of least squares."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import NO_LAPACK, raises
from actorgraph.ops._matrix_rules import as_matrices, real_like
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.inverses import inv, solve
from actorgraph.ops.linalg import lifted_pair, matmul
from actorgraph.ops.pseudo_inverse import matrix_rank, pinv
from actorgraph.ops.rearranging import moveaxis
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.spectral import svdvals

__all__ = [
    "lstsq", "tensorinv", "tensorsolve",
]  # fmt: skip


def _sizes(dims: Sequence[Any], what: str) -> tuple[int, ...]:
    if not all(isinstance(dim, int) for dim in dims):
        raise ShapeError(f"{what}: the dims have to be ints, got {tuple(dims)}")
    return tuple(dims)


@raises(
    types="The dtypes differ or are none that LAPACK takes.",
    shapes="The dims are not ints, or do not fit.",
)  # fmt: skip
@naming_itself
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Node:
    """Solve ``tensordot(a, x, x.ndim) = b``, as ``numpy.linalg.tensorsolve``.

    Parameters
    ----------
    a : node or array
        Shape ``b.shape + x.shape``, of which both parts have as many entries.
    b : node or array
    axes : sequence of int, optional
        Axes of `a` to move to its end before.

    Returns
    -------
    Node
        Shape ``a.shape[b.ndim:]``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> a = ag.Graph().input("a", (6, 2, 3), "float64")
    >>> ag.ops.tensorsolve(a, a[:, 0, 0]).shape
    (2, 3)
    """
    a, b = lifted_pair(a, b, "tensorsolve")
    if axes is not None:
        a = moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    result = _sizes(a.dims[b.ndim :], "tensorsolve")
    flat = reshape(b, (prod(result),)) if b.ndim else b
    matrix = reshape(a, (prod(_sizes(b.dims, "tensorsolve")), prod(result)))
    return reshape(solve(matrix, flat), result)


@raises(types=NO_LAPACK, shapes="The dims are not ints, or do not fit.")
@naming_itself
def tensorinv(a: Node, ind: int = 2) -> Node:
    """Return the inverse of `a` for `tensordot` over `ind` axes, as ``numpy.linalg.tensorinv``.

    Parameters
    ----------
    a : node
        The dims before and from axis `ind` on have as many entries.
    ind : int

    Returns
    -------
    Node
        Shape ``a.shape[ind:] + a.shape[:ind]``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.tensorinv(ag.Graph().input("a", (6, 2, 3), "float64"), ind=1).shape
    (2, 3, 6)
    """
    if not 0 < ind <= a.ndim:
        raise ShapeError(f"tensorinv: ind has to be from 1 to {a.ndim}, got {ind!r}")
    dims = _sizes(a.dims, "tensorinv")
    matrix = reshape(a, (prod(dims[:ind]), prod(dims[ind:])))
    return reshape(inv(matrix), (*dims[ind:], *dims[:ind]))


# -- least squares ----------------------------------------------------------------------------


class LstsqResult(NamedTuple):
    """What least squares give, in NumPy's order."""

    solution: Node
    residuals: Node
    rank: Node
    singular_values: Node


@raises(
    types="The dtypes differ or are none that LAPACK takes.",
    shapes="The dims do not fit, or one of the last two of `a` is None.",
)  # fmt: skip
@naming_itself
def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """Return the least-squares solution of ``a @ x = b`` of least norm, as ``numpy.linalg.lstsq``.

    The solution is ``pinv(a) @ b``, with gradients as of `pinv`, for any rank that is constant.
    What is not used of the result is not computed.

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

    Examples
    --------
    >>> import actorgraph as ag
    >>> a = ag.Graph().input("a", ("batch", 3), "float64")
    >>> ag.ops.lstsq(a, a).solution.shape
    (3, 3)
    """
    a, b = lifted_pair(a, b, "lstsq")
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    x = matmul(pinv(as_matrices(a, "lstsq"), rcond), columns)
    rows, unknowns = a.dims[-2:]
    if isinstance(rows, int) and isinstance(unknowns, int) and rows <= unknowns:
        residuals = real_like(a.graph.constant(np.zeros(0, a.dtype)))
    else:
        rest = columns - matmul(a, x)
        residuals = sum_over(real_like(rest * conj(rest)), -2)
    solution = squeeze(x, -1) if b.ndim == 1 else x
    return LstsqResult(solution, residuals, matrix_rank(a, rcond), svdvals(a))
