"""Pseudo-inverses and ranks, over batches of matrices.

Formula: G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses and nonlinear least
squares problems whose variables separate, 1973.
"""

from __future__ import annotations

from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Op
from actorgraph.ops._rules import NO_LAPACK, declare, on, raises
from actorgraph.ops.matrices import adjoint, as_matrices, cubic_cost
from actorgraph.ops.matrices import hermitian as hermitian_part

__all__ = ["matrix_rank", "pinv"]


def _cut(xp: Any, x: Any, rtol: float | None, atol: float) -> Any:
    """Return up to which share of the largest singular value of each matrix values count as 0."""
    if rtol is None:
        rtol = 0.0 if atol else max(x.shape[-2:]) * float(xp.finfo(x.dtype).eps)
    if not atol:
        return rtol
    largest = xp.linalg.norm(x, 2, axis=(-2, -1))
    return xp.maximum(atol / xp.where(largest == 0, 1, largest), rtol)


def _pinv_forward(xp: Any, x: Any, rtol: float | None, atol: float) -> Any:
    if not x.size:
        return xp.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    return xp.linalg.pinv(x, _cut(xp, x, rtol, atol)).astype(x.dtype, copy=False)


def _less_projection(p: Node, x: Node, z: Node) -> Node:
    """Return ``(I - p x) z``."""
    return z - p @ (x @ z)


def _pinv_vjp(ct: Node, y: Node, x: Node, **attrs: Any) -> Node:
    back = adjoint(y)
    outside = _less_projection(x, y, adjoint(ct) @ y @ back)
    inside = adjoint(_less_projection(y, x, ct @ back @ y))
    return outside + inside - back @ ct @ back


def _pinv_jvp(tans: tuple[Node, ...], y: Node, x: Node, **attrs: Any) -> Node:
    tan, back = tans[0], adjoint(y)
    # (I - x y) is Hermitian, so it is applied from the left of the adjoint.
    left = adjoint(_less_projection(x, y, tan @ y @ back))
    right = _less_projection(y, x, adjoint(tan) @ back @ y)
    return left + right - y @ tan @ y


_PINV: Op = declare(
    "pinv", "x[*s, m, n] -> x[*s, n, m]", _pinv_forward, vjp=(_pinv_vjp,), jvp=_pinv_jvp,
    cost=cubic_cost(20),
    samples=tuple(
        on(shape, rtol=None, atol=0.0)
        for shape in ((3, 3), (4, 2), (2, 2, 3), (0, 2), (2, 0))
    ),
    in_blas=True, doc="Moore-Penrose pseudo-inverse of each matrix.",
)  # fmt: skip


def _tolerances(rtol: float | None, atol: float | None) -> dict[str, float | None]:
    return {"rtol": None if rtol is None else float(rtol), "atol": float(atol or 0)}


@raises(types=NO_LAPACK, shapes="`x` has fewer than two dims.")
def pinv(
    x: Node, rtol: float | None = None, *, atol: float | None = None, hermitian: bool = False
) -> Node:
    """Return the pseudo-inverse of each matrix, as ``numpy.linalg.pinv``.

    The gradient is that of Golub and Pereyra (1973), which holds where the rank is constant; at a
    matrix whose rank any change would raise the pseudo-inverse itself jumps.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number.
    rtol : float, optional
        Singular values up to this share of the largest count as 0; default ``max(m, n)`` times
        the spacing of the dtype at 1, also where NumPy's own default is another, or 0 with `atol`.
    atol : float, optional
        So do singular values up to this one.
    hermitian : bool
        Take the Hermitian part of each matrix.

    Returns
    -------
    Node
        Shape (..., n, m).

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.pinv(ag.Graph().input("x", ("batch", 3), "float64")).shape
    (3, batch)
    """
    x = as_matrices(x, "pinv")
    return build(_PINV, hermitian_part(x) if hermitian else x, **_tolerances(rtol, atol))


# -- rank -------------------------------------------------------------------------------------


def _rank_forward(xp: Any, x: Any, rtol: float | None, atol: float) -> Any:
    if not x.size:
        return xp.zeros(x.shape[:-2], xp.int64)
    sizes = xp.linalg.svd(x, compute_uv=False)
    cut = _cut(xp, x, rtol, atol)
    cut = cut[..., None] if getattr(cut, "ndim", 0) else cut
    return (sizes > sizes.max(axis=-1, keepdims=True) * cut).sum(axis=-1, dtype=xp.int64)


_RANK: Op = declare(
    "matrix_rank", "x[*s, m, n] -> int64[*s]", _rank_forward, cost=cubic_cost(4),
    samples=(on((4, 2), rtol=None, atol=0.0), on((2, 2, 3), rtol=1e-3, atol=0.1)), in_blas=True,
    doc="Number of singular values of each matrix that are not 0.",
)  # fmt: skip


@raises(types=NO_LAPACK, shapes="`x` has fewer than two dims.")
def matrix_rank(
    x: Node, rtol: float | None = None, *, atol: float | None = None, hermitian: bool = False
) -> Node:
    """Return the rank of each matrix, as ``numpy.linalg.matrix_rank``; no gradient.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number.
    rtol, atol, hermitian : optional
        As in `pinv`.

    Returns
    -------
    Node
        int64, shape (...).

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.matrix_rank(ag.Graph().input("x", ("batch", 4, 3), "float64")).shape
    (batch,)
    """
    x = as_matrices(x, "matrix_rank")
    return build(_RANK, hermitian_part(x) if hermitian else x, **_tolerances(rtol, atol))
