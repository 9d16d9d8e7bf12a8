"""Triangular decompositions of batches of matrices: cholesky, qr, and products of reflections.

The op behind `qr` stacks its factors as rows of one array; the function returns slices of it.

Formulas: I. Murray, Differentiation of the Cholesky decomposition, 2016; S. F. Walter and
L. Lehmann, Algorithmic differentiation of linear algebra functions, 2010.  As in JAX, cholesky is a
function of the Hermitian part of its argument, so that its gradient is Hermitian.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Memory, Op, Sample
from actorgraph.ops import _rules
from actorgraph.ops._arrays import raise_if
from actorgraph.ops._rules import add_all, declare, on, raises, returns
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import expand_dims, squeeze, unbroadcast, zeros_like
from actorgraph.ops.creation import eye
from actorgraph.ops.indexing import getitem
from actorgraph.ops.inverses import pinv, solve
from actorgraph.ops.linalg import lifted_pair
from actorgraph.ops.matrices import (
    SQUARE_SAMPLES,
    adjoint,
    as_matrices,
    as_square,
    cubic_cost,
    half_lower,
    half_upper,
    hermitian,
    hermitian_array,
    known,
    read_rows,
    tril,
    triu,
)
from actorgraph.ops.shaping import concatenate, swap_last

__all__ = ["cholesky", "cholesky_solve", "householder_product", "qr", "solve_triangular"]

_SMALL = 32
"""Systems above this size are solved by halves, others by one call of NumPy."""


def _part(x: Any, upper: bool, unit: bool) -> Any:
    """Return the triangle that counts, of nodes; of unit triangles without the diagonal."""
    return triu(x, int(unit)) if upper else tril(x, -int(unit))


def _substituted(xp: Any, a: Any, b: Any) -> Any:
    """Solve upper triangular systems, of which nothing below the diagonal is set."""
    size = a.shape[-1]
    if size <= _SMALL:
        return xp.linalg.solve(a, b)
    half = size // 2
    below = _substituted(xp, a[..., half:, half:], b[..., half:, :])
    rest = b[..., :half, :] - xp.matmul(a[..., :half, half:], below)
    above = _substituted(xp, a[..., :half, :half], rest)
    return xp.concatenate([above, below], axis=-2)


def triangular_solution(xp: Any, a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """Solve triangular systems of arrays."""
    if unit:
        diagonal = xp.eye(a.shape[-1], dtype=a.dtype)
        a = diagonal + (xp.triu(a, 1) if upper else xp.tril(a, -1))
    if upper:
        return _substituted(xp, xp.triu(a), b)
    turned = xp.tril(a)[..., ::-1, ::-1]
    return _substituted(xp, turned, b[..., ::-1, :])[..., ::-1, :]


def _triangular(a: Node, b: Node, upper: bool, unit: bool = False) -> Node:
    return build(_SOLVE_TRIANGULAR, a, b, upper=upper, unit=unit)


def _pull_a(ct: Node, y: Node, a: Node, b: Node, upper: bool, unit: bool) -> Node:
    back = _triangular(adjoint(a), ct, not upper, unit)
    return unbroadcast(neg(_part(back @ adjoint(y), upper, unit)), a)


def _push(tans: Any, y: Node, a: Node, b: Node, upper: bool, unit: bool) -> Node | None:
    parts = [] if tans[1] is None else [tans[1]]
    if tans[0] is not None:
        parts.append(neg(_part(tans[0], upper, unit) @ y))
    moved = add_all(parts)
    return None if moved is None else _triangular(a, moved, upper, unit)


_SOLVE_TRIANGULAR: Op = declare(
    "solve_triangular", "x[*s, n, n] -> x[*t, n, k] -> x[*s|t, n, k]",
    lambda xp, a, b, upper, unit: triangular_solution(xp, a, b, upper, unit),
    vjp=(_pull_a,
    lambda ct, y, a, b, upper, unit: unbroadcast(_triangular(adjoint(a), ct, not upper, unit), b)),
    jvp=_push,
    cost=lambda shapes, result, attrs: float(shapes[0][-1] * prod(result)),
    samples=(
        Sample(((3, 3), (3, 2)), {"upper": True, "unit": False}, low=0.5),
        Sample(((3, 3), (2, 3, 1)), {"upper": False, "unit": False}, low=0.5),
        on((2, 2, 2), (2, 2), upper=True, unit=True), on((2, 2), (2, 2), upper=False, unit=True),
        on((0, 0), (0, 2), upper=False, unit=False),
    ),
)  # fmt: skip


@returns("Node of the shape of `b`, broadcast")
@raises(_rules.MIXED_LAPACK, "The matrices are not square, or the dims do not fit.")
def solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Node:
    """Solve ``a @ x = b`` for triangular `a`, as ``torch.linalg.solve_triangular``.

    A diagonal with a zero raises in the run.

    Parameters
    ----------
    a : node or array
        Shape (..., n, n), float or complex of at least 32 bits a number; what lies outside of the
        triangle does not count.
    b : node or array
        Shape (n,), (..., n, k), or (..., k, n) without `left`; leading dims broadcast.
    upper : bool
        Whether the upper triangle of `a` counts, else the lower one.
    left : bool
        False solves ``x @ a = b``.
    unitriangular : bool
        Take the diagonal of `a` for ones.
    """
    a, b = lifted_pair(a, b)
    as_square(a)
    if b.ndim == 0:
        raise ShapeError(f"takes a right side of at least one dim, got {b!r}")
    columns = expand_dims(b, -1) if b.ndim == 1 else b if left else swap_last(b)
    matrix, upper = (a, bool(upper)) if left else (swap_last(a), not upper)
    result = _triangular(matrix, columns, upper, bool(unitriangular))
    if b.ndim == 1:
        return squeeze(result, -1)
    return result if left else swap_last(result)


@raises(both="As `solve_triangular`.")
def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Node:
    """Solve ``(L @ L^H) @ x = b`` for a Cholesky factor L, as ``torch.cholesky_solve``.

    Parameters
    ----------
    b : node or array
        Shape (n,) or (..., n, k).
    factor : node or array
        Shape (..., n, n); L, or with `upper` its adjoint.
    """
    b, factor = lifted_pair(b, factor)
    lower = adjoint(factor) if upper else factor
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    inner = solve_triangular(lower, columns, upper=False)
    result = solve_triangular(adjoint(lower), inner, upper=True)
    return squeeze(result, -1) if b.ndim == 1 else result


def _turn_free_forward(xp: Any, ct: Any, y: Any) -> Any:
    inner = xp.conjugate(xp.swapaxes(y, -1, -2)) @ ct
    skew = xp.abs(inner - xp.conjugate(xp.swapaxes(inner, -1, -2)))
    if skew.size:
        raise_if(
            xp, skew.max() > sqrt(xp.finfo(ct.dtype).eps) * xp.abs(ct).max(), np.linalg.LinAlgError,
            "vectors that complete a basis are arbitrary within their space, so that a loss that "
            "depends on the choice has no gradient; take the reduced factors",
        )  # fmt: skip
    return ct


_TURN_FREE: Op = declare(
    "turn_free", "x[*s, m, n] -> x[*s, m, n] -> x[*s, m, n]", _turn_free_forward,
    vjp=(lambda ct, y, x, basis: ct, None), jvp=lambda tans, y, x, basis: tans[0],
    samples=(on((3, 1), (3, 1)), on((2, 4, 0), (2, 4, 0))), memory=Memory(is_view=True),
    doc="The cotangent of arbitrary vectors; raises where it depends on the choice.",
)  # fmt: skip


# From x^H y = 0: dy = -pinv(x)^H dx^H y, up to a rotation of y, which is taken to be none.
_COMPLEMENT: Op = declare(
    "complement", "x[*s, m, n] -> x[*out]",
    lambda xp, x: xp.linalg.qr(x, "complete")[0][..., x.shape[-1] :],
    shape=lambda checks, x: (*x[:-1], x[-2] - x[-1]),
    vjp=(lambda ct, y, x: neg(y @ adjoint(build(_TURN_FREE, ct, y)) @ adjoint(pinv(x))),),
    jvp=lambda tans, y, x: neg(adjoint(pinv(x)) @ adjoint(tans[0]) @ y), cost=cubic_cost(4),
    samples=(on((3, 2)), on((2, 2, 1)), on((2, 2))),
    in_blas=True, doc="Orthonormal basis of what the columns of each matrix leave out.",
)  # fmt: skip


def complement(x: Node) -> Node:
    """Return orthonormal columns that complete those of `x`, of rank n <= m, to a basis."""
    return build(_COMPLEMENT, x)


def _cholesky_vjp(ct: Node, y: Node, x: Node) -> Node:
    inner = half_lower(adjoint(y) @ ct)
    # L^-H inner L^-1, by two solutions with L^H.
    return hermitian(solve(adjoint(y), adjoint(solve(adjoint(y), adjoint(inner)))))


def _cholesky_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    inner = solve(y, adjoint(solve(y, hermitian(tans[0]))))
    return y @ half_lower(adjoint(inner))


_CHOLESKY: Op = declare(
    "cholesky", "x[*s, n, n] -> x[*s, n, n]",
    lambda xp, x: xp.linalg.cholesky(hermitian_array(xp, x)), vjp=(_cholesky_vjp,),
    jvp=_cholesky_jvp, cost=cubic_cost(1 / 3),
    samples=(Sample(((1, 1),), low=0.5), Sample(((3, 1, 1),), low=0.5), on((0, 0)), on((0, 2, 2))),
    in_blas=True,
)  # fmt: skip


@returns("Node: lower triangles, or upper ones")
@raises(types=_rules.NO_LAPACK, shapes=_rules.NOT_SQUARE)
def cholesky(x: Node, upper: bool = False) -> Node:
    """Return L with ``x = L @ L^H``, as ``numpy.linalg.cholesky``.

    The gradient is ``L^-H low(L^H ct) L^-1``, of which the Hermitian part is taken; low is the
    lower triangle with half of the diagonal (Murray 2016, 9).  A matrix that is not positive
    definite raises in the run.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number; the Hermitian part of
        each matrix counts.
    upper : bool
        Return ``L^H`` instead.
    """
    lower = build(_CHOLESKY, as_square(x))
    return adjoint(lower) if upper else lower


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    Q: Node
    R: Node


def _qr_forward(xp: Any, x: Any) -> Any:
    rows, columns = x.shape[-2:]
    if rows < columns:
        raise ShapeError(
            f"qr of {columns} columns and a number of rows that the graph did not know got only "
            f"{rows} rows; give both dims as ints"
        )
    q, r = xp.linalg.qr(x)
    return xp.concatenate([r, q], axis=-2)


def _qr_parts(stacked: Node) -> tuple[Node, Node]:
    columns = stacked.dims[-1]
    return read_rows(stacked, columns, None), read_rows(stacked, None, columns)


def _qr_vjp(ct: Node, y: Node, x: Node) -> Node:
    (q, r), (ct_q, ct_r) = _qr_parts(y), _qr_parts(ct)
    inner = half_upper(ct_r @ adjoint(r) - adjoint(q) @ ct_q)
    moved = ct_q + q @ (inner + adjoint(inner))
    return adjoint(solve(r, adjoint(moved)))


def _qr_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    q, r = _qr_parts(y)
    moved = adjoint(solve(adjoint(r), adjoint(tans[0])))
    inner = adjoint(q) @ moved
    upper = half_upper(inner + adjoint(inner))
    return concatenate([upper @ r, moved - q @ upper], axis=-2)


_QR: Op = declare(
    "qr", "x[*s, m, n] -> x[*out]", _qr_forward,
    shape=lambda checks, x: (*x[:-2], x[-1] + x[-2], x[-1]),
    vjp=(_qr_vjp,), jvp=_qr_jvp,
    cost=cubic_cost(4), samples=(*SQUARE_SAMPLES, on((4, 2)), on((2, 3, 2)), on((3, 0))),
    in_blas=True,
)  # fmt: skip


def _reduced(x: Node) -> tuple[Node, Node]:
    columns, rows = known(as_matrices(x), -1), x.dims[-2]
    if not (isinstance(rows, int) and isinstance(columns, int) and rows < columns):
        return _qr_parts(build(_QR, x))
    # A wide matrix: the first columns give Q, which rotates the others.
    left = getitem(x, (Ellipsis, slice(None), slice(None, rows)))
    right = getitem(x, (Ellipsis, slice(None), slice(rows, None)))
    q, r = _qr_parts(build(_QR, left))
    return q, concatenate([r, adjoint(q) @ right], axis=-1)


def _completed(q: Node, r: Node, x: Node) -> QRResult:
    if known(x, -2, " for mode='complete'") == r.dims[-2]:
        return QRResult(q, r)
    rest = complement(q)
    below = zeros_like(adjoint(rest) @ q)
    return QRResult(concatenate([q, rest], axis=-1), concatenate([r, below], axis=-2))


@raises(
    types="The dtype is none that LAPACK takes, or there is no such mode.",
    shapes="`x` has fewer than two dims, or the number of columns is None.",
)  # fmt: skip
def qr(x: Node, mode: str = "reduced") -> Any:
    """Decompose each matrix as ``Q @ R``, as ``numpy.linalg.qr``.

    The gradient holds where the first min(m, n) columns are independent (Walter and Lehmann 2010);
    where R is singular it raises in the run.  The last m - n columns of a complete Q are arbitrary
    within their space: a loss that depends on the choice raises in the run that differentiates it.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number; where m or n is a symbol,
        runs have to feed m >= n.
    mode : {"reduced", "complete", "r"}
        With k = min(m, n) for "reduced" and k = m for "complete"; "r" gives the reduced `R` alone.

    Returns
    -------
    QRResult, or a Node
        `Q` of shape (..., m, k) with orthonormal columns and the upper triangle `R` of shape
        (..., k, n); the diagonal of `R` is real.
    """
    if mode not in ("reduced", "complete", "r"):
        raise GraphTypeError(f"mode is 'reduced', 'complete' or 'r', got {mode!r}")
    q, r = _reduced(x)
    if mode == "r":
        return r
    return _completed(q, r, x) if mode == "complete" else QRResult(q, r)


@returns("Node of shape (..., m, n)")
@raises(types=_rules.NO_LAPACK, shapes="The dims are not known ints, or `x` is wide.")
def householder_product(x: Any, tau: Any) -> Node:
    """Return the first columns of a product of reflections, as PyTorch's function of that name.

    Reflection i is ``I - tau[i] v v^H``, where v is column i of `x` below the diagonal, with a 1 on
    it; their product is Q of a QR decomposition.

    Parameters
    ----------
    x : node or array
        Shape (..., m, n), m >= n.
    tau : node or array
        Shape (..., k), k <= n.
    """
    x, tau = lifted_pair(x, tau)
    rows, columns = (known(as_matrices(x), axis) for axis in (-2, -1))
    count = known(tau, -1)
    known_dims = all(isinstance(dim, int) for dim in (rows, columns, count))
    if not (known_dims and count <= columns <= rows):
        raise ShapeError(
            "takes tall matrices of known dims, and at most one number per column, "
            f"got {x!r} and {tau!r}"
        )
    unit = eye(x, rows, columns, dtype=x.dtype)
    vectors, result = tril(x, -1) + unit, zeros_like(x) + unit
    for i in reversed(range(count)):
        v = getitem(vectors, (Ellipsis, slice(i, i + 1)))
        share = expand_dims(getitem(tau, (Ellipsis, slice(i, i + 1))), -1)
        result = result - share * (v @ (adjoint(v) @ result))
    return result
