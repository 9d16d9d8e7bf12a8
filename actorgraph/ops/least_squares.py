"""Least squares over batches of matrices, by pseudo-inverses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops._matrix_rules import as_matrices, real_like
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.linalg import matmul
from actorgraph.ops.linalg_products import lifted_pair
from actorgraph.ops.pseudo_inverse import matrix_rank, pinv
from actorgraph.ops.spectral import svdvals

__all__ = ["lstsq"]


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
    >>> from actorgraph import Graph
    >>> a = Graph().input("a", ("batch", 3), "float64")
    >>> lstsq(a, a).solution.shape
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
