"""Triangular decompositions of batches of matrices: cholesky, qr, and products of reflections.

The op behind `qr` stacks its factors as rows of one array, of which the function gives out slices.

Formulas: I. Murray, Differentiation of the Cholesky decomposition, 2016; S. F. Walter and
L. Lehmann, Algorithmic differentiation of linear algebra functions, 2010.  As in JAX, cholesky is a
function of the Hermitian part of its argument, so that its gradient is Hermitian.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._complement import complement
from actorgraph.ops._docs import NO_LAPACK, NOT_SQUARE, raises
from actorgraph.ops._matrix_rules import (
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
)
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import expand_dims, zeros_like
from actorgraph.ops.creation import eye
from actorgraph.ops.indexing import getitem
from actorgraph.ops.inverses import solve
from actorgraph.ops.linalg_products import lifted_pair
from actorgraph.ops.matrices import tril
from actorgraph.ops.shaping import concatenate
from actorgraph.types import Checks, Shape

__all__ = ["cholesky", "householder_product", "qr"]

# -- cholesky ---------------------------------------------------------------------------------


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
    samples=(
        Sample(((1, 1),), low=0.5), Sample(((3, 1, 1),), low=0.5), Sample(((0, 0),)),
        Sample(((0, 2, 2),)),
    ),
    in_blas=True, doc="Lower Cholesky factor of each matrix.",
)  # fmt: skip


@raises(types=NO_LAPACK, shapes=NOT_SQUARE)
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

    Returns
    -------
    Node
        Lower triangles, or upper ones.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> cholesky(Graph().input("x", ("batch", 3, 3), "float64")).shape
    (batch, 3, 3)
    """
    lower = build(_CHOLESKY, as_square(x, "cholesky"))
    return adjoint(lower) if upper else lower


# -- qr ---------------------------------------------------------------------------------------


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    Q: Node
    R: Node


def _qr_shape(checks: Checks, x: Shape) -> Shape:
    return (*x[:-2], x[-1] + x[-2], x[-1])


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
    "qr", "x[*s, m, n] -> x[*out]", _qr_forward, shape=_qr_shape, vjp=(_qr_vjp,), jvp=_qr_jvp,
    cost=cubic_cost(4),
    samples=(*SQUARE_SAMPLES, Sample(((4, 2),)), Sample(((2, 3, 2),)), Sample(((3, 0),))),
    in_blas=True, doc="Triangular and orthonormal factor of each matrix, stacked.",
)  # fmt: skip


def _reduced(x: Node) -> tuple[Node, Node]:
    columns, rows = known(as_matrices(x, "qr"), -1, "qr"), x.dims[-2]
    if not (isinstance(rows, int) and isinstance(columns, int) and rows < columns):
        return _qr_parts(build(_QR, x))
    # A wide matrix: the first columns give Q, which rotates the others.
    left = getitem(x, (Ellipsis, slice(None), slice(None, rows)))
    right = getitem(x, (Ellipsis, slice(None), slice(rows, None)))
    q, r = _qr_parts(build(_QR, left))
    return q, concatenate([r, adjoint(q) @ right], axis=-1)


def _completed(q: Node, r: Node, x: Node) -> QRResult:
    rows = known(x, -2, "qr with mode='complete'")
    if rows == r.dims[-2]:
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

    Examples
    --------
    >>> from actorgraph import Graph
    >>> qr(Graph().input("x", ("batch", 3), "float64")).R.shape
    (3, 3)
    """
    if mode not in ("reduced", "complete", "r"):
        raise GraphTypeError(f"qr: mode is 'reduced', 'complete' or 'r', got {mode!r}")
    q, r = _reduced(x)
    if mode == "r":
        return r
    return _completed(q, r, x) if mode == "complete" else QRResult(q, r)


# -- reflections ------------------------------------------------------------------------------


@raises(types=NO_LAPACK, shapes="The dims are not known ints, or `x` is wide.")
@naming_itself
def householder_product(x: Any, tau: Any) -> Node:
    """Return the first columns of a product of reflections.

    As ``torch.linalg.householder_product``.
    Reflection i is ``I - tau[i] v v^H``, where v is column i of `x` below the diagonal, with a 1 on
    it; their product is Q of a QR decomposition.

    Parameters
    ----------
    x : node or array
        Shape (..., m, n), m >= n.
    tau : node or array
        Shape (..., k), k <= n.

    Returns
    -------
    Node
        Shape (..., m, n).

    Examples
    --------
    >>> from actorgraph import Graph
    >>> x = Graph().input("x", (4, 3), "float64")
    >>> householder_product(x, x[0]).shape
    (4, 3)
    """
    x, tau = lifted_pair(x, tau, "householder_product")
    rows, columns = (known(as_matrices(x, "householder_product"), axis, "householder_product")
                     for axis in (-2, -1))  # fmt: skip
    count = known(tau, -1, "householder_product")
    known_dims = all(isinstance(dim, int) for dim in (rows, columns, count))
    if not (known_dims and count <= columns <= rows):
        raise ShapeError(
            "householder_product takes tall matrices of known dims, and at most a number for each "
            f"column, got {x!r} and {tau!r}"
        )
    unit = eye(x, rows, columns, dtype=x.dtype)
    vectors, result = tril(x, -1) + unit, zeros_like(x) + unit
    for i in reversed(range(count)):
        v = getitem(vectors, (Ellipsis, slice(i, i + 1)))
        share = expand_dims(getitem(tau, (Ellipsis, slice(i, i + 1))), -1)
        result = result - share * (v @ (adjoint(v) @ result))
    return result
