"""Parts of matrices: diagonals, traces, triangles; and what rules of matrix functions share.

The parts are linear, so a gradient is the part put back in its place, with zeros elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, KEPT, Attrs, Memory, Op, Sample
from actorgraph.ops._arrays import machine_epsilon, raise_if
from actorgraph.ops._rules import as_of, declare, on, raises, returns, tangents
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import conj, expand_dims
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.elementwise import real_part
from actorgraph.ops.indexing import getitem
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import concatenate, one_axis, swap_last, transpose
from actorgraph.types import UNKNOWN, Checks, Shape, dim_max, dim_min

__all__ = ["diag", "diag_embed", "diagflat", "diagonal", "trace", "tril", "triu"]


def _diagonal_shape(checks: Checks, x: Shape, *, offset: int, square: bool) -> Shape:
    rows, columns = x[-2:]
    if square:
        return (*x[:-2], checks.equal(rows, columns, "dims of the diagonal"))
    if UNKNOWN in (rows, columns):
        return (*x[:-2], UNKNOWN)
    length = dim_min(rows + min(offset, 0), columns - max(offset, 0))
    return (*x[:-2], dim_max(length, 0))


def _read_diagonal(xp: Any, x: Any, offset: int, square: bool) -> Any:
    if square and x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"the dims of the diagonal differ: {x.shape[-2]} and {x.shape[-1]}")
    return xp.diagonal(x, offset, -2, -1)


def _with_diagonal(xp: Any, values: Any, shape: Any, offset: int) -> Any:
    result = xp.zeros(shape, values.dtype)
    rows = xp.arange(values.shape[-1])
    result[..., rows - min(offset, 0), rows + max(offset, 0)] = values
    return result


_DIAGONAL: Op = declare(
    "diagonal", "a[*s, m, n] -> a[*out]", _read_diagonal, shape=_diagonal_shape,
    vjp=(lambda ct, y, x, offset, square: build(_PLACE, ct, x, offset=offset),), linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(
        on((3, 3), offset=0, square=True), on((2, 3, 4), offset=1, square=False),
        on((3, 4), offset=-2, square=False), on((2, 2), offset=5, square=False),
        on((0, 2), offset=0, square=False),
    ),
    memory=Memory(is_view=True),
)  # fmt: skip

_PLACE: Op = declare(
    "place_diagonal", "a[*s] -> a1[*t] -> a[*t]",
    lambda xp, values, like, offset: _with_diagonal(xp, values, like.shape, offset),
    vjp=(lambda ct, y, x, like, offset: matrix_diagonal(ct, offset), None), linear=(0,),
    samples=(
        on((3,), (3, 4), offset=0), on((2, 2), (2, 3, 4), offset=2), on((1,), (3, 4), offset=-2),
    ),
    memory=FRESH, doc="Zeros in the shape of another array, with the given diagonal.",
)  # fmt: skip


def matrix_diagonal(x: Node, offset: int = 0, square: bool = False) -> Node:
    """Return the diagonals over the last two axes; `square` asks for equal dims."""
    return build(_DIAGONAL, x, offset=int(offset), square=square)


def _axes_last(x: Node, axis1: int, axis2: int) -> Node:
    if x.ndim < 2:
        raise ShapeError(f"takes arrays of at least two dims, got {x!r}")
    one, other = one_axis(axis1, x.ndim), one_axis(axis2, x.ndim)
    if one == other:
        raise ShapeError(f"axis1 and axis2 are both {one}; they have to differ")
    return transpose(x, (*(i for i in range(x.ndim) if i not in (one, other)), one, other))


@returns("Node: the two axes are replaced by one, which is the last")
@raises(shapes="There are no two such axes.")
def diagonal(x: Node, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """Return diagonals, as ``numpy.diagonal``; a view.

    Parameters
    ----------
    x : node
        At least two dims, any dtype.
    offset : int
        Columns to the right of the main diagonal; negative for rows below it.
    axis1, axis2 : int
        The axes of the rows and of the columns.
    """
    return matrix_diagonal(_axes_last(x, axis1, axis2), offset)


@returns("Node without the two axes")
@as_of(diagonal)
def trace(x: Node, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """Sum along diagonals, as ``numpy.trace``; integers keep their dtype.

    Built of `diagonal` and `sum`.  The gradient is the cotangent on the diagonal.

    Parameters
    ----------
    x : node
        At least two dims, numbers.
    """
    return sum_over(matrix_diagonal(_axes_last(x, axis1, axis2), offset), -1)


def _embed_shape(checks: Checks, x: Shape, *, offset: int) -> Shape:
    size = x[-1] + abs(offset)
    return (*x[:-1], size, size)


_EMBED: Op = declare(
    "diag_embed", "a[*s, n] -> a[*out]",
    lambda xp, x, offset: (
        _with_diagonal(xp, x, _embed_shape(Checks(), x.shape, offset=offset), offset)
    ),
    shape=_embed_shape,
    vjp=(lambda ct, y, x, offset: matrix_diagonal(ct, offset),), linear=(0,),
    samples=(on((3,), offset=0), on((2, 3), offset=-1), on((0,), offset=1)), memory=FRESH,
)  # fmt: skip


@returns("Node of shape (..., n + abs(offset), n + abs(offset))")
@raises(types="`x` is a scalar.")
def diag_embed(x: Node, offset: int = 0) -> Node:
    """Put the last dim on the diagonal of square matrices, as ``torch.diag_embed``.

    Parameters
    ----------
    x : node
        Shape (..., n), any dtype.
    offset : int
        As in `diagonal`.
    """
    return build(_EMBED, x, offset=int(offset))


@raises(shapes="`x` is neither a vector nor a matrix.")
def diag(x: Node, k: int = 0) -> Node:
    """Return the diagonal matrix of a vector, or the diagonal of a matrix, as ``numpy.diag``.

    Parameters
    ----------
    x : node
        A vector or a matrix, any dtype.
    k : int
        Which diagonal, as `offset` in `diagonal`.
    """
    if x.ndim not in (1, 2):
        raise ShapeError(
            f"takes a vector or a matrix, got {x!r}; for batches use diagonal or diag_embed"
        )
    return diag_embed(x, k) if x.ndim == 1 else matrix_diagonal(x, k)


@raises(types="`x` is no node.")
@as_of(diag)
def diagflat(x: Node, k: int = 0) -> Node:
    """Return `diag` of the flattened array, as ``numpy.diagflat``.

    Parameters
    ----------
    x : node
        Any shape and dtype.
    """
    return diag_embed(reshape(x, (-1,)), k)


def _triangle(name: str, doc: str) -> Op:
    def forward(xp: Any, x: Any, k: int) -> Any:
        return getattr(xp, name)(x, k)

    def vjp(ct: Node, y: Node, x: Node, k: int) -> Node:
        return build(op, ct, k=k)

    op = declare(
        name, "a[*s, m, n] -> a[*s, m, n]", forward, vjp=(vjp,), linear=(0,),
        samples=(on((3, 4), k=0), on((2, 3, 3), k=-1), on((2, 0), k=1)), doc=doc,
        memory=KEPT,
    )  # fmt: skip
    return op


_TRIL = _triangle("tril", "Lower triangle of each matrix, zeros above.")
_TRIU = _triangle("triu", "Upper triangle of each matrix, zeros below.")


@returns("Node of the shape of `x`; the gradient is the same triangle of the cotangent")
@raises(types="`x` has fewer than two dims.")
def tril(x: Node, k: int = 0) -> Node:
    """Keep the lower triangle of each matrix, with zeros above the `k`-th diagonal.

    Parameters
    ----------
    x : node
        Shape (..., m, n), any dtype.
    k : int
        The last diagonal that is kept; 0 is the main one.
    """
    return build(_TRIL, x, k=int(k))


@returns("Node of the shape of `x`; the gradient is the same triangle of the cotangent")
@as_of(tril)
def triu(x: Node, k: int = 0) -> Node:
    """Keep the upper triangle of each matrix, with zeros below the `k`-th diagonal; see `tril`.

    Parameters
    ----------
    k : int
        The first diagonal that is kept; 0 is the main one.
    """
    return build(_TRIU, x, k=int(k))


SQUARE_SAMPLES = (on((3, 3)), on((2, 2, 2)), on((0, 0)), on((0, 2, 2)))
"""Where the law tests try functions of square matrices."""


def cubic_cost(factor: float) -> Callable[..., float]:
    """Return the cost of an op on matrices: `factor` times the size times the lesser dim."""

    def cost(shapes: Any, result: Any, attrs: Attrs) -> float:
        return float(factor * prod(shapes[0]) * min(shapes[0][-2:]))

    return cost


def as_matrices(x: Node) -> Node:
    """Return `x`, or raise where it is no batch of matrices that LAPACK takes."""
    if x.dtype.kind not in "fc" or x.dtype.itemsize < 4:
        wanted = "float32" if x.dtype.kind in "fV" else "float64"
        raise GraphTypeError(
            f"takes float32, float64, complex64 and complex128, got {x!r}; "
            f"convert with .astype({wanted!r})"
        )
    if x.ndim < 2:
        raise ShapeError(f"takes matrices, of at least two dims, got {x!r}")
    return x


def as_square(x: Node) -> Node:
    """Return `x`, or raise where its matrices can be shown not to be square."""
    rows, columns = as_matrices(x).dims[-2:]
    if isinstance(rows, int) and isinstance(columns, int) and rows != columns:
        raise ShapeError(f"takes square matrices, got {x!r}")
    return x


def adjoint(x: Node) -> Node:
    """Conjugate transpose of each matrix."""
    return conj(swap_last(x))


def hermitian(x: Node) -> Node:
    """Hermitian part of each matrix; a projection that is its own adjoint."""
    return (x + adjoint(x)) * 0.5


def hermitian_array(xp: Any, x: Any) -> Any:
    """Hermitian part of each matrix of an array; exact where it is Hermitian already."""
    half = x.dtype.type(0.5)
    return (x + xp.conjugate(xp.swapaxes(x, -1, -2))) * half


def one_triangle(x: Node, uplo: str | None) -> Node:
    """Return matrices whose Hermitian part is that of the lower or upper triangle, or all of x."""
    if uplo is None:
        return x
    if uplo not in ("L", "U"):
        raise GraphTypeError(f"UPLO is 'L', 'U' or None, got {uplo!r}")
    return (half_lower(x) if uplo == "L" else half_upper(x)) * 2


def real_of(x: Node) -> Node:
    """The real part, in the dtype of `x`."""
    return (x + conj(x)) * 0.5 if x.dtype.kind == "c" else x


def real_like(x: Node) -> Node:
    """The real part, in the real dtype."""
    return real_part(x, x.dtype.type(0).real.dtype.name) if x.dtype.kind == "c" else x


def half_lower(x: Node) -> Node:
    """Lower triangle with half of the diagonal; its own adjoint."""
    return (tril(x) + tril(x, -1)) * 0.5


def half_upper(x: Node) -> Node:
    """Upper triangle with half of the diagonal; its own adjoint."""
    return (triu(x) + triu(x, 1)) * 0.5


def read_rows(x: Node, start: Any, stop: Any) -> Node:
    """Rows of each matrix."""
    return getitem(x, (Ellipsis, slice(start, stop), slice(None)))


def rows_stacked(vectors: Node, *matrices: Node) -> Node:
    """Return each vector as a row above the rows of matrices."""
    return concatenate([expand_dims(vectors, -2), *matrices], axis=-2)


def _gaps(w: Any, mode: str) -> Any:
    """Return w_j - w_i, w_j^2 - w_i^2 ("squares") or w_j ("value") in row i and column j.

    Of "eigenvalues" the differences are complex, of the other modes w is real.
    """
    columns, rows = w[..., None, :], w[..., :, None]
    if mode == "value":
        return columns
    return (columns - rows) * (columns + rows) if mode == "squares" else columns - rows


def _gap_divide(xp: Any, x: Any, w: Any, mode: str) -> Any:
    if not x.size:
        return xp.zeros(x.shape, x.dtype)
    w = w if mode == "eigenvalues" else xp.real(w)
    gaps = xp.broadcast_to(_gaps(w, mode), x.shape)
    distances = xp.abs(_gaps(w, "value" if mode == "value" else "difference"))
    # Measured: LAPACK returns equal values up to about sqrt(n) roundings of the largest apart.
    largest = xp.abs(w).max(axis=-1, keepdims=True)[..., None]
    closed = distances <= largest * (2 * machine_epsilon(w.dtype) * sqrt(w.shape[-1]))
    closed = xp.broadcast_to(closed | (gaps == 0), x.shape)
    wanted = x != 0
    if mode != "value":
        # An element may be 0 by symmetry alone, as for the identity matrix; so the whole column,
        # which is the cotangent of one vector, has to be 0.
        wanted = wanted.any(axis=-2, keepdims=True) & ~xp.eye(x.shape[-1], dtype=bool)
    raise_if(xp, (closed & wanted).any(), np.linalg.LinAlgError, _DEGENERATE[mode])
    result = x / xp.where(closed, xp.ones((), w.dtype), gaps)
    return xp.where(closed, xp.zeros((), x.dtype), result)


_DEGENERATE = {
    mode: f"{why}, so that the {kind}vectors have no derivative; use {name} where only the {kind}"
    "values matter"
    for mode, why, kind, name in (
        ("eigenvalues", "eigenvalues coincide", "eigen", "eigvals"),
        ("difference", "eigenvalues coincide", "eigen", "eigvalsh"),
        ("squares", "singular values coincide", "singular ", "svdvals"),
        ("value", "a singular value is zero", "singular ", "svdvals"),
    )
}


def _gap_tangent(dw: Node, w: Node, mode: str) -> Node:
    if mode == "squares":
        dw = (w + w) * dw
    columns = expand_dims(dw, -2)
    return columns if mode == "value" else columns - expand_dims(dw, -1)


def _gap_vjp_w(ct: Node, y: Node, x: Node, w: Node, mode: str) -> Node:
    share = neg(gap_divide(ct, conj(w), mode) * conj(y))
    share = share if mode == "eigenvalues" else real_of(share)
    total = sum_over(share, -2)
    if mode != "value":
        total = total - sum_over(share, -1)
    return total * (real_of(w) * 2) if mode == "squares" else total


def _gap_push_w(t: Node, y: Node, x: Node, w: Node, mode: str) -> Node:
    dw, values = (t, w) if mode == "eigenvalues" else map(real_of, (t, w))
    return neg(gap_divide(y * _gap_tangent(dw, values, mode), w, mode))


_GAP_DIVIDE: Op = declare(
    "gap_divide", "x[*s, m, n] -> x[*s, n] -> x[*s, m, n]", _gap_divide,
    vjp=(lambda ct, y, x, w, mode: gap_divide(ct, conj(w), mode), _gap_vjp_w),
    jvp=tangents(lambda t, y, x, w, mode: gap_divide(t, w, mode), _gap_push_w),
    samples=(
        Sample(((3, 3), (3,)), {"mode": "difference"}, low=0.5),
        Sample(((2, 3, 3), (2, 3)), {"mode": "squares"}, low=0.5),
        Sample(((4, 3), (3,)), {"mode": "value"}, low=0.5),
        Sample(((3, 3), (3,)), {"mode": "eigenvalues"}, low=0.5),
        on((0, 0), (0,), mode="difference"),
    ),
    doc="Divide matrices by gaps between values; a gap of 0 raises unless nothing needs it.",
)  # fmt: skip


def gap_divide(x: Node, w: Node, mode: str) -> Node:
    """Divide ``x[i, j]`` by ``w[j] - w[i]``, by the same of squares, or by ``w[j]``.

    A gap within rounding of 0 gives 0 where the quotient is not needed, and else raises
    ``LinAlgError`` in the run: where the element is not 0, or for gaps between two values where
    any element of its column is not 0.
    """
    return build(_GAP_DIVIDE, x, w, mode=mode)


def known(x: Node, axis: int, why: str = "") -> Any:
    """Return a dim, or raise where only the run knows it."""
    dim = x.dims[axis]
    if dim is UNKNOWN:
        raise ShapeError(
            f"needs to know the dim at axis {axis} of {x!r}{why}; name it with a symbol"
        )
    return dim
