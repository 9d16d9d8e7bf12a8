"""Inverses, pseudo-inverses, determinants, ranks and systems of equations, over batches.

Formulas: M. B. Giles, Collected matrix derivative results for forward and reverse mode
algorithmic differentiation, 2008.  A complex gradient is ``dL/d(Re x) + i dL/d(Im x)``, so
transposes become adjoints.

Pseudo-inverses: G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses and nonlinear
least squares problems whose variables separate, 1973.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op
from actorgraph.ops import _rules
from actorgraph.ops._rules import add_all, as_of, declare, on, raises, returns
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze, unbroadcast, zeros_like
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.indexing import getitem
from actorgraph.ops.linalg import lifted_pair
from actorgraph.ops.matrices import (
    SQUARE_SAMPLES,
    adjoint,
    as_matrices,
    as_square,
    cubic_cost,
    diag_embed,
    matrix_diagonal,
    real_like,
    real_of,
)
from actorgraph.ops.matrices import hermitian as hermitian_part
from actorgraph.ops.shaping import stack, swap_last

__all__ = ["det", "inv", "matrix_power", "matrix_rank", "pinv", "slogdet", "solve"]


_INV: Op = declare(
    "inv", "x[*s, n, n] -> x[*s, n, n]", lambda xp, x: xp.linalg.inv(x),
    vjp=(lambda ct, y, x: neg(adjoint(y) @ ct @ adjoint(y)),),
    jvp=lambda tans, y, x: neg(y @ tans[0] @ y), cost=cubic_cost(2), samples=SQUARE_SAMPLES,
    in_blas=True,
)  # fmt: skip


@returns("Node of the shape and dtype of `x`")
@raises(types=_rules.NO_LAPACK, shapes=_rules.NOT_SQUARE)
def inv(x: Node) -> Node:
    """Invert each matrix, as ``numpy.linalg.inv``.

    With C = inv(A) the gradient is ``-C^H ct C^H`` (Giles 2008, 2.2.3).  For ``inv(A) @ b`` use
    `solve`, which is faster and more accurate.  A singular matrix raises in the run.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    """
    return build(_INV, as_square(x))


def _cofactor_forward(xp: Any, x: Any) -> Any:
    # By the singular value decomposition, which singular matrices have too:
    # cof(U S V) = det(U) det(V) conj(U) cof(S) conj(V), where cof(S)_j is the product of the rest.
    left, values, right = xp.linalg.svd(x)
    size = x.shape[-1]
    rest = xp.broadcast_to(values[..., None, :], x.shape)
    rest = xp.where(xp.eye(size, dtype=bool), xp.ones((), values.dtype), rest).prod(axis=-1)
    signs = xp.linalg.det(left) * xp.linalg.det(right)
    scaled = xp.conjugate(left) * (rest * signs[..., None])[..., None, :]
    return xp.matmul(scaled, xp.conjugate(right))


def _cofactor_vjp(ct: Node, y: Node, x: Node) -> Node:
    inverse = inv(x)
    weight = sum_over(conj(y) * ct, (-2, -1), keepdims=True)
    return weight * adjoint(inverse) - conj(y) @ swap_last(ct) @ adjoint(inverse)


def _cofactor_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    across = swap_last(inv(x))
    weight = sum_over(across * tans[0], (-2, -1), keepdims=True)
    return weight * y - across @ swap_last(tans[0]) @ y


_COFACTOR: Op = declare(
    "cofactor", "x[*s, n, n] -> x[*s, n, n]", _cofactor_forward, vjp=(_cofactor_vjp,),
    jvp=_cofactor_jvp, cost=cubic_cost(20), samples=SQUARE_SAMPLES,
    in_blas=True, doc="Cofactors of each matrix, singular ones included: the gradient of det.",
)  # fmt: skip

_DET: Op = declare(
    "det", "x[*s, n, n] -> x[*s]", lambda xp, x: xp.linalg.det(x),
    vjp=(lambda ct, y, x: expand_dims(ct, (-2, -1)) * conj(build(_COFACTOR, x)),),
    jvp=lambda tans, y, x: sum_over(tans[0] * build(_COFACTOR, x), (-2, -1)), cost=cubic_cost(1),
    samples=SQUARE_SAMPLES, in_blas=True,
)  # fmt: skip


@returns("Node of shape (...)")
@as_of(inv)
def det(x: Node) -> Node:
    """Return the determinant of each matrix, as ``numpy.linalg.det``.

    The gradient is the matrix of cofactors, which exists for singular matrices too; the second
    derivative divides by the determinant and raises in the run for singular ones.  For large
    matrices use `slogdet`, which does not overflow.
    """
    return build(_DET, as_square(x))


class SlogdetResult(NamedTuple):
    """Sign (of modulus 1, or 0) and logarithm of the modulus of a determinant."""

    sign: Node
    logabsdet: Node


def _slogdet_forward(xp: Any, x: Any) -> Any:
    sign, logabs = xp.linalg.slogdet(x)
    return xp.stack([sign, logabs.astype(x.dtype)], axis=-1)


def _slogdet_vjp(ct: Node, y: Node, x: Node) -> Node:
    weight = real_of(getitem(ct, (Ellipsis, 1)))
    if x.dtype.kind == "c":
        turned = conj(getitem(ct, (Ellipsis, 0))) * getitem(y, (Ellipsis, 0))
        weight = weight - (turned - conj(turned)) * 0.5
    return expand_dims(weight, (-2, -1)) * adjoint(inv(x))


def _slogdet_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    moved = sum_over(swap_last(inv(x)) * tans[0], (-2, -1))
    if x.dtype.kind != "c":
        return stack([zeros_like(moved), moved], axis=-1)
    turned = getitem(y, (Ellipsis, 0)) * ((moved - conj(moved)) * 0.5)
    return stack([turned, real_of(moved)], axis=-1)


_SLOGDET: Op = declare(
    "slogdet", "x[*s, n, n] -> x[*out]", _slogdet_forward, shape=lambda checks, x: (*x[:-2], 2),
    vjp=(_slogdet_vjp,), jvp=_slogdet_jvp, cost=cubic_cost(1), samples=SQUARE_SAMPLES,
    in_blas=True,
)  # fmt: skip


@returns("SlogdetResult: nodes `sign`, of the dtype of `x`, and `logabsdet`, real; shape (...)")
@as_of(inv)
def slogdet(x: Node) -> SlogdetResult:
    """Return sign and logarithm of the modulus of `det`, as ``numpy.linalg.slogdet``.

    The gradient of the logarithm is `inv` of ``A^H`` (Giles 2008, 2.2.4, divided by the
    determinant).  A real sign is piecewise constant; a complex one has its gradient.  A singular
    matrix gives sign 0 and -inf, and its gradient raises in the run.
    """
    both = build(_SLOGDET, as_square(x))
    sign, logabs = getitem(both, (Ellipsis, 0)), getitem(both, (Ellipsis, 1))
    return SlogdetResult(sign, real_like(logabs))


def _solve_jvp(tans: tuple[Node | None, ...], y: Node, a: Node, b: Node) -> Node | None:
    parts = [] if tans[1] is None else [tans[1]]
    if tans[0] is not None:
        parts.append(neg(tans[0] @ y))
    moved = add_all(parts)
    return None if moved is None else _solve(a, moved)


_SOLVE: Op = declare(
    "solve", "x[*s, n, n] -> x[*t, n, k] -> x[*s|t, n, k]", lambda xp, a, b: xp.linalg.solve(a, b),
    vjp=(
        lambda ct, y, a, b: unbroadcast(neg(_solve(adjoint(a), ct) @ adjoint(y)), a),
        lambda ct, y, a, b: unbroadcast(_solve(adjoint(a), ct), b),
    ),
    jvp=_solve_jvp,
    cost=lambda of, to, attrs: of[0][-1] * (2 / 3 * prod(of[0]) + 2 * prod(to)),
    samples=(
        on((3, 3), (3, 2)), on((2, 2, 2), (2, 1)), on((2, 2), (3, 2, 2)),
        on((0, 0), (0, 2)), on((2, 2), (2, 2)),
    ),
    in_blas=True,
)  # fmt: skip


def _solve(a: Node, b: Node) -> Node:
    return build(_SOLVE, a, b)


@returns("Node of shape (..., n) where `b` is a vector, else (..., n, k)")
@raises(_rules.MIXED_LAPACK, "The matrices are not square, or the dims do not fit.")
def solve(a: Any, b: Any) -> Node:
    """Solve ``a @ x = b``, as ``numpy.linalg.solve``.

    With ct_b = solve(a^H, ct) the gradients are ct_b and ``-ct_b x^H`` (Giles 2008, 2.3.1).  A
    singular matrix raises in the run.

    Parameters
    ----------
    a : node or array
        Shape (..., n, n), float or complex of at least 32 bits a number.
    b : node or array
        Shape (n,) or (..., n, k), of the dtype of `a`; leading dims broadcast.
    """
    a, b = lifted_pair(a, b)
    as_square(a)
    if b.ndim == 0:
        raise ShapeError(f"takes a right side of at least one dim, got {b!r}")
    return squeeze(_solve(a, expand_dims(b, -1)), -1) if b.ndim == 1 else _solve(a, b)


@returns("Node of the shape and dtype of `x`")
@raises("`n` is no int, or negative where LAPACK does not take the dtype.", _rules.NOT_SQUARE)
def matrix_power(x: Node, n: int) -> Node:
    """Raise square matrices to an integer power, as ``numpy.linalg.matrix_power``.

    Built of products by repeated squaring, and of `inv` where `n` is negative.

    Parameters
    ----------
    x : node
        Shape (..., m, m), any number; float or complex where `n` is negative.
    n : int
        The power; 0 gives unit matrices.
    """
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise GraphTypeError(f"takes an int as the power, got {n!r}")
    diagonal = matrix_diagonal(x, square=True)
    if n == 0:
        return diag_embed(zeros_like(diagonal) + 1)
    power, result = inv(x) if n < 0 else x, None
    left = abs(int(n))
    while True:
        if left & 1:
            result = power if result is None else result @ power
        left >>= 1
        if not left:
            assert result is not None
            return result
        power = power @ power


def _cut(xp: Any, x: Any, rtol: float | None, atol: float) -> Any:
    """Return the tolerance of each matrix, relative to its largest singular value."""
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
        on(one, rtol=None, atol=0.0) for one in ((3, 3), (4, 2), (2, 2, 3), (0, 2), (2, 0))
    ),
    in_blas=True,
)  # fmt: skip


def _tolerances(rtol: float | None, atol: float | None) -> dict[str, float | None]:
    return {"rtol": None if rtol is None else float(rtol), "atol": float(atol or 0)}


@returns("Node of shape (..., n, m)")
@raises(types=_rules.NO_LAPACK, shapes="`x` has fewer than two dims.")
def pinv(
    x: Node, rtol: float | None = None, *, atol: float | None = None, hermitian: bool = False
) -> Node:
    """Return the pseudo-inverse of each matrix, as ``numpy.linalg.pinv``.

    The gradient is that of Golub and Pereyra (1973), which holds where the rank is constant; where
    a change would raise the rank, the pseudo-inverse itself jumps.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number.
    rtol : float, optional
        Singular values up to this share of the largest count as 0; default ``max(m, n)`` times
        the spacing of the dtype at 1, also where NumPy's default differs, or 0 with `atol`.
    atol : float, optional
        Singular values up to this one count as 0, too.
    hermitian : bool
        Take the Hermitian part of each matrix.
    """
    x = as_matrices(x)
    return build(_PINV, hermitian_part(x) if hermitian else x, **_tolerances(rtol, atol))


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
)  # fmt: skip


@returns("Node: int64, shape (...)")
@as_of(pinv)
def matrix_rank(
    x: Node, rtol: float | None = None, *, atol: float | None = None, hermitian: bool = False
) -> Node:
    """Return ranks, as ``numpy.linalg.matrix_rank`` with the tolerances of `pinv`; no gradient."""
    x = as_matrices(x)
    return build(_RANK, hermitian_part(x) if hermitian else x, **_tolerances(rtol, atol))
