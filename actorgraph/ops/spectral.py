"""Eigenvalues and singular values of batches of matrices: eigh, eigvalsh, svd, svdvals.

The ops behind `eigh`, `eig` and `svd` stack their factors as rows of one array; the functions
return slices of it.

Formulas: M. B. Giles, Collected matrix derivative results, 2008; J. Townsend, Differentiating the
singular value decomposition, 2016.  As in JAX, eigh is a function of the Hermitian part of its
argument, so that its gradient is Hermitian.  Complex eigenvectors and singular vectors are defined
up to phases; as in JAX and PyTorch the rules keep the phases of eigenvectors and of right singular
vectors constant, which is right for losses that do not depend on them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op
from actorgraph.ops._rules import NO_LAPACK, NOT_SQUARE, as_of, declare, on, raises, returns
from actorgraph.ops.arithmetic import imag, real
from actorgraph.ops.broadcasting import conj, expand_dims, zeros_like
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.counting import argmax
from actorgraph.ops.decompositions import complement
from actorgraph.ops.elementwise import astype
from actorgraph.ops.fourier import complex_of, like_dtype
from actorgraph.ops.indexing import getitem, one_hot
from actorgraph.ops.inverses import inv, solve
from actorgraph.ops.matrices import (
    SQUARE_SAMPLES,
    adjoint,
    as_matrices,
    as_square,
    cubic_cost,
    diag_embed,
    gap_divide,
    hermitian,
    hermitian_array,
    known,
    matrix_diagonal,
    one_triangle,
    read_rows,
    real_like,
    real_of,
    rows_stacked,
)
from actorgraph.ops.shaping import concatenate, swap_last
from actorgraph.types import UNKNOWN, Dim, dim_min

__all__ = ["eig", "eigh", "eigvals", "eigvalsh", "svd", "svdvals"]


class EighResult(NamedTuple):
    """Eigenvalues in ascending order and eigenvectors, as columns."""

    eigenvalues: Node
    eigenvectors: Node


def _eigh_forward(xp: Any, x: Any) -> Any:
    values, vectors = xp.linalg.eigh(hermitian_array(xp, x))
    return xp.concatenate([values.astype(x.dtype)[..., None, :], vectors], axis=-2)


def _first_row(stacked: Node) -> Node:
    return getitem(stacked, (Ellipsis, 0, slice(None)))


def _parts(stacked: Node) -> tuple[Node, Node]:
    return _first_row(stacked), read_rows(stacked, 1, None)


def _eigh_vjp(ct: Node, y: Node, x: Node) -> Node:
    values, vectors = _parts(y)
    turns = gap_divide(adjoint(vectors) @ read_rows(ct, 1, None), values, "difference")
    inner = turns + diag_embed(real_of(_first_row(ct)))
    return hermitian(vectors @ inner @ adjoint(vectors))


def _eigh_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    values, vectors = _parts(y)
    inner = adjoint(vectors) @ hermitian(tans[0]) @ vectors
    moved = real_of(matrix_diagonal(inner, square=True))
    return rows_stacked(moved, vectors @ gap_divide(inner, values, "difference"))


_EIGH: Op = declare(
    "eigh", "x[*s, n, n] -> x[*out]", _eigh_forward,
    shape=lambda checks, x: (*x[:-2], x[-1] + 1, x[-1]),
    vjp=(_eigh_vjp,), jvp=_eigh_jvp, cost=cubic_cost(9), samples=SQUARE_SAMPLES, in_blas=True,
)  # fmt: skip


@raises("The dtype is none that LAPACK takes, or there is no such triangle.", NOT_SQUARE)
def eigh(x: Node, UPLO: str | None = None) -> EighResult:
    """Return eigenvalues and eigenvectors of Hermitian matrices, as ``numpy.linalg.eigh``.

    The gradient is ``V (diag(ct_w) + (V^H ct_V) / E) V^H`` with ``E[i, j] = w[j] - w[i]`` (Giles
    2008, 3.1), of which the Hermitian part is taken.  Where eigenvalues coincide, within
    rounding, their vectors have no derivative: a run that needs it raises.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    UPLO : {"L", "U"}, optional
        The triangle that counts, and gets the gradient; by default the Hermitian part of each
        matrix counts.

    Returns
    -------
    EighResult
        `eigenvalues`, real, shape (..., n), ascending; `eigenvectors`, shape (..., n, n).
    """
    values, vectors = _parts(build(_EIGH, one_triangle(as_square(x), UPLO)))
    return EighResult(real_like(values), vectors)


def _eigvalsh_vjp(ct: Node, y: Node, x: Node) -> Node:
    vectors = read_rows(build(_EIGH, x), 1, None)
    return (vectors * expand_dims(real_of(ct), -2)) @ adjoint(vectors)


def _eigvalsh_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    vectors = read_rows(build(_EIGH, x), 1, None)
    inner = adjoint(vectors) @ hermitian(tans[0]) @ vectors
    return real_of(matrix_diagonal(inner, square=True))


_EIGVALSH: Op = declare(
    "eigvalsh", "x[*s, n, n] -> x[*s, n]",
    lambda xp, x: xp.linalg.eigvalsh(hermitian_array(xp, x)).astype(x.dtype), vjp=(_eigvalsh_vjp,),
    jvp=_eigvalsh_jvp, cost=cubic_cost(4 / 3), samples=SQUARE_SAMPLES, in_blas=True,
)  # fmt: skip


@returns("Node: real, shape (..., n), ascending")
@as_of(eigh)
def eigvalsh(x: Node, UPLO: str | None = None) -> Node:
    """Return the eigenvalues that `eigh` finds, as ``numpy.linalg.eigvalsh``.

    The gradient is ``V diag(ct) V^H``.  Where eigenvalues coincide, it is right for functions that
    are symmetric in them, such as their sum.
    """
    return real_like(build(_EIGVALSH, one_triangle(as_square(x), UPLO)))


class SVDResult(NamedTuple):
    """Left singular vectors (columns), singular values (descending), right ones (rows)."""

    U: Node
    S: Node
    Vh: Node


def _least(rows: int | Dim, columns: int | Dim) -> int | Dim:
    return UNKNOWN if UNKNOWN in (rows, columns) else dim_min(rows, columns)


def _svd_forward(xp: Any, x: Any) -> Any:
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    v = xp.conjugate(xp.swapaxes(vh, -1, -2))
    return xp.concatenate([s.astype(x.dtype)[..., None, :], u, v], axis=-2)


def _svd_parts(stacked: Node, x: Node) -> tuple[Node, Node, Node]:
    middle = x.dims[-2] + 1
    return _first_row(stacked), read_rows(stacked, 1, middle), read_rows(stacked, middle, None)


def _outside(vectors: Node, x: Node) -> Node:
    """Return `x` without its part in the span of orthonormal columns."""
    return x - vectors @ (adjoint(vectors) @ x)


def _has_rest(x: Node) -> tuple[bool, bool]:
    """Return whether the left, and the right, vectors may span less than the whole space."""
    rows, columns = x.dims[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        return rows > columns, columns > rows
    return rows != columns, rows != columns


def _svd_vjp(ct: Node, y: Node, x: Node) -> Node:
    (s, u, v), (ct_s, ct_u, ct_v) = _svd_parts(y, x), _svd_parts(ct, x)
    left, right = adjoint(u) @ ct_u, adjoint(v) @ ct_v
    turn_u, turn_v = gap_divide(left, s, "squares"), gap_divide(right, s, "squares")
    columns = expand_dims(s, -2)
    inner = (turn_u + adjoint(turn_u)) * columns + expand_dims(s, -1) * (turn_v + adjoint(turn_v))
    inner = inner + diag_embed(real_of(ct_s))
    if x.dtype.kind == "c":
        phases = matrix_diagonal(left, square=True)
        phases = diag_embed((phases - conj(phases)) * 0.5)
        inner = inner + gap_divide(phases, s, "value")
    result = u @ inner @ adjoint(v)
    more_rows, more_columns = _has_rest(x)
    if more_rows:
        result = result + gap_divide(_outside(u, ct_u), s, "value") @ adjoint(v)
    if more_columns:
        result = result + u @ adjoint(gap_divide(_outside(v, ct_v), s, "value"))
    return result


def _svd_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    (s, u, v), tan = _svd_parts(y, x), tans[0]
    inner = adjoint(u) @ tan @ v
    columns, rows = expand_dims(s, -2), expand_dims(s, -1)
    turn_u = gap_divide(inner * columns + rows * adjoint(inner), s, "squares")
    turn_v = gap_divide(rows * inner + adjoint(inner) * columns, s, "squares")
    moved = matrix_diagonal(inner, square=True)
    if x.dtype.kind == "c":
        phases = diag_embed((moved - conj(moved)) * 0.5)
        turn_u = turn_u + gap_divide(phases, s, "value")
    du, dv = u @ turn_u, v @ turn_v
    more_rows, more_columns = _has_rest(x)
    if more_rows:
        du = du + gap_divide(_outside(u, tan @ v), s, "value")
    if more_columns:
        dv = dv + gap_divide(_outside(v, adjoint(tan) @ u), s, "value")
    return rows_stacked(real_of(moved), du, dv)


_ANY_SAMPLES = (*SQUARE_SAMPLES, on((4, 2)), on((2, 2, 3)), on((0, 3)))
_SVD: Op = declare(
    "svd", "x[*s, m, n] -> x[*out]", _svd_forward,
    shape=lambda checks, x: (*x[:-2], x[-2] + x[-1] + 1, _least(x[-2], x[-1])),
    vjp=(_svd_vjp,), jvp=_svd_jvp, cost=cubic_cost(20), samples=_ANY_SAMPLES, in_blas=True,
)  # fmt: skip


def _known(x: Node) -> Node:
    known(as_matrices(x), -1)
    known(x, -2)
    return x


def _completed(x: Node) -> Node:
    return x if x.dims[-2] == x.dims[-1] else concatenate([x, complement(x)], axis=-1)


@raises(types=NO_LAPACK, shapes="`x` has fewer than two dims, or one of the last two is None.")
def svd(x: Node, full_matrices: bool = False) -> SVDResult:
    """Decompose each matrix as ``U @ diag(S) @ Vh``, as ``numpy.linalg.svd``.

    Gradients as Giles (2008, 3.2) and Townsend (2016) give them.  Where singular values coincide,
    within rounding, or a vector belongs to the value 0 and the matrix is not square, the vectors
    have no derivative: a run that needs it raises.  Nor have vectors that belong to no singular
    value, except for losses that are the same for every basis of their space.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number.
    full_matrices : bool
        Complete `U` and `Vh` to square matrices; the default is not NumPy's.

    Returns
    -------
    SVDResult
        With k = min(m, n): `U` of shape (..., m, k), `S`, real, shape (..., k), descending, and
        `Vh` of shape (..., k, n); of full matrices (..., m, m) and (..., n, n).
    """
    s, u, v = _svd_parts(build(_SVD, _known(x)), x)
    if full_matrices:
        u, v = _completed(u), _completed(v)
    return SVDResult(u, real_like(s), adjoint(v))


def _svdvals_vjp(ct: Node, y: Node, x: Node) -> Node:
    _, u, v = _svd_parts(build(_SVD, x), x)
    return (u * expand_dims(real_of(ct), -2)) @ adjoint(v)


def _svdvals_jvp(tans: tuple[Node, ...], y: Node, x: Node) -> Node:
    _, u, v = _svd_parts(build(_SVD, x), x)
    return real_of(matrix_diagonal(adjoint(u) @ tans[0] @ v, square=True))


_SVDVALS: Op = declare(
    "svdvals", "x[*s, m, n] -> x[*out]",
    lambda xp, x: xp.linalg.svd(x, compute_uv=False).astype(x.dtype),
    shape=lambda checks, x: (*x[:-2], _least(x[-2], x[-1])),
    vjp=(_svdvals_vjp,), jvp=_svdvals_jvp, cost=cubic_cost(4), samples=_ANY_SAMPLES, in_blas=True,
)  # fmt: skip


@returns("Node: real, shape (..., min(m, n)), descending")
@as_of(svd)
def svdvals(x: Node) -> Node:
    """Return the singular values that `svd` finds, as ``numpy.linalg.svdvals``.

    The gradient is ``U diag(ct) Vh``; of values that coincide, or are 0, it is one of several
    subgradients.
    """
    return real_like(build(_SVDVALS, _known(x)))


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors, as columns; both complex."""

    eigenvalues: Node
    eigenvectors: Node


def _scheme(result: str) -> Any:
    def scheme(arity: int, attrs: Attrs) -> str:
        return f"x[*s, n, n] -> {attrs['dtype']}[{result}]"

    return scheme


def _real_rows(x: Node) -> Node:
    """Return sums of the real parts of each column, complex and with a dim of size 1."""
    return astype(expand_dims(sum_over(real(x), -2), -2), x.dtype)


def _pinned(vectors: Node) -> tuple[Node, Node]:
    """Return where the largest entry of each column stands, as ones, and these entries."""
    size = real(vectors * conj(vectors))
    place = swap_last(one_hot(argmax(size, -2), vectors.dims[-2], vectors.dtype))
    return place, expand_dims(sum_over(place * vectors, -2), -2)


def _eig_forward(xp: Any, x: Any, dtype: str) -> Any:
    values, vectors = xp.linalg.eig(x)
    return xp.concatenate([values[..., None, :], vectors], axis=-2).astype(dtype, copy=False)


def _eig_vjp(ct: Node, y: Node, x: Node, dtype: str) -> Node:
    if x.dims[-1] == 0:
        return zeros_like(x)
    (values, vectors), (ct_values, ct_vectors) = _parts(y), _parts(ct)
    place, entry = _pinned(vectors)
    # The adjoint of taking away what changes length and phase, as the jvp does.
    along = vectors * _real_rows(conj(vectors) * ct_vectors)
    turned = sum_over(imag(conj(vectors) * ct_vectors), -2)
    free = ct_vectors - along - place * (astype(expand_dims(turned, -2), dtype) / entry * 1j)
    inner = gap_divide(adjoint(vectors) @ free, conj(values), "eigenvalues")
    inner = inner + diag_embed(ct_values)
    return like_dtype(solve(adjoint(vectors), inner @ adjoint(vectors)), x)


def _eig_jvp(tans: tuple[Node, ...], y: Node, x: Node, dtype: str) -> Node:
    if x.dims[-1] == 0:
        return zeros_like(y)
    values, vectors = _parts(y)
    inner = solve(vectors, astype(tans[0], dtype) @ vectors)
    moved = vectors @ gap_divide(inner, values, "eigenvalues")
    place, entry = _pinned(vectors)
    phase = astype(expand_dims(sum_over(imag(place * moved), -2), -2), dtype) / entry * 1j
    moved = moved - vectors * (_real_rows(conj(vectors) * moved) + phase)
    return rows_stacked(matrix_diagonal(inner, square=True), moved)


_SAMPLES = tuple(on(*one.shapes, dtype="complex128") for one in SQUARE_SAMPLES)

_EIG: Op = declare(
    "eig", _scheme("*out"), _eig_forward,
    shape=lambda checks, x, *, dtype: (*x[:-2], x[-1] + 1, x[-1]),
    vjp=(_eig_vjp,), jvp=_eig_jvp, cost=cubic_cost(25), samples=_SAMPLES,
)  # fmt: skip


def _eigvals_vjp(ct: Node, y: Node, x: Node, dtype: str) -> Node:
    across = adjoint(_parts(build(_EIG, x, dtype=dtype))[1])
    return like_dtype(solve(across, diag_embed(ct) @ across), x)


def _eigvals_jvp(tans: tuple[Node, ...], y: Node, x: Node, dtype: str) -> Node:
    vectors = _parts(build(_EIG, x, dtype=dtype))[1]
    inner = solve(vectors, astype(tans[0], dtype) @ vectors)
    return matrix_diagonal(inner, square=True)


_EIGVALS: Op = declare(
    "eigvals", _scheme("*s, n"),
    lambda xp, x, dtype: xp.linalg.eigvals(x).astype(dtype, copy=False), vjp=(_eigvals_vjp,),
    jvp=_eigvals_jvp, cost=cubic_cost(10), samples=_SAMPLES,
)  # fmt: skip


@as_of(inv)
def eig(x: Node) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices, as ``numpy.linalg.eig``.

    Both are complex, also where a run finds real ones, which NumPy gives as floats.  Where
    eigenvalues coincide, within rounding, their vectors have no derivative: a run that needs it
    raises.  For Hermitian matrices use `eigh`.

    Returns
    -------
    EigResult
        `eigenvalues`, shape (..., n), in LAPACK's order; `eigenvectors`, shape (..., n, n), of
        length 1, with a largest entry that is real.
    """
    return EigResult(*_parts(build(_EIG, as_square(x), dtype=complex_of(x.dtype))))


@returns("Node: complex, shape (..., n), in LAPACK's order")
@as_of(inv)
def eigvals(x: Node) -> Node:
    """Return the eigenvalues that `eig` finds, as ``numpy.linalg.eigvals``.

    The gradient is ``V^-H diag(ct) V^H``; a matrix without a basis of eigenvectors V has none, and
    raises in the run or gives numbers without meaning.
    """
    return build(_EIGVALS, as_square(x), dtype=complex_of(x.dtype))
