"""What the rules of matrix functions share, and division by gaps of eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample
from actorgraph.ops._device import raise_if
from actorgraph.ops._rules import add_all, declare
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import conj, expand_dims
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.casting import real_part
from actorgraph.ops.indexing import getitem
from actorgraph.ops.matrices import tril, triu
from actorgraph.ops.shaping import concatenate, swap_last
from actorgraph.types import UNKNOWN

__all__ = [
    "SQUARE_SAMPLES", "adjoint", "as_matrices", "as_square", "cubic_cost", "gap_divide",
    "half_lower", "half_upper", "hermitian", "hermitian_array", "known", "one_triangle",
    "read_rows", "real_like", "real_of", "rows_stacked",
]  # fmt: skip


SQUARE_SAMPLES = (
    Sample(((3, 3),)), Sample(((2, 2, 2),)), Sample(((0, 0),)), Sample(((0, 2, 2),)),
)  # fmt: skip
"""Where the law tests try functions of square matrices."""


def cubic_cost(factor: float) -> Callable[..., float]:
    """Return the cost of an op on matrices: `factor` times the size times the lesser dim."""

    def cost(shapes: Any, result: Any, attrs: Attrs) -> float:
        return float(factor * prod(shapes[0]) * min(shapes[0][-2:]))

    return cost


def as_matrices(x: Node, what: str) -> Node:
    """Return `x`, or raise where it is no batch of matrices that LAPACK takes."""
    if x.dtype.kind not in "fc" or x.dtype.itemsize < 4:
        wanted = "float32" if x.dtype.kind in "fV" else "float64"
        raise GraphTypeError(
            f"{what} takes float32, float64, complex64 and complex128, got {x!r}; "
            f"convert with .astype({wanted!r})"
        )
    if x.ndim < 2:
        raise ShapeError(f"{what} takes matrices, of at least two dims, got {x!r}")
    return x


def as_square(x: Node, what: str) -> Node:
    """Return `x`, or raise where its matrices can be shown not to be square."""
    rows, columns = as_matrices(x, what).dims[-2:]
    if isinstance(rows, int) and isinstance(columns, int) and rows != columns:
        raise ShapeError(f"{what} takes square matrices, got {x!r}")
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


def one_triangle(x: Node, uplo: str | None, what: str) -> Node:
    """Return matrices whose Hermitian part is that of the lower or upper triangle, or all of x."""
    if uplo is None:
        return x
    if uplo not in ("L", "U"):
        raise GraphTypeError(f"{what}: UPLO is 'L', 'U' or None, got {uplo!r}")
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
    """Stack one row and matrices of so many columns."""
    return concatenate([expand_dims(vectors, -2), *matrices], axis=-2)


# -- division by gaps -------------------------------------------------------------------------


def _gaps(w: Any, mode: str) -> Any:
    """Return w_j - w_i, its like for squares, or w_j (mode "value"), in row i and column j.

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
    # Measured: equal values come out of LAPACK up to about sqrt(n) roundings of the largest apart.
    largest = xp.abs(w).max(axis=-1, keepdims=True)[..., None]
    closed = distances <= largest * (2 * float(xp.finfo(w.dtype).eps) * sqrt(w.shape[-1]))
    closed = xp.broadcast_to(closed | (gaps == 0), x.shape)
    wanted = x != 0
    if mode != "value":
        # An element may be 0 by symmetry alone, at the identity matrix for example, so that the
        # whole column, which is the cotangent of one vector, has to be 0.
        wanted = wanted.any(axis=-2, keepdims=True) & ~xp.eye(x.shape[-1], dtype=bool)
    raise_if(xp, (closed & wanted).any(), np.linalg.LinAlgError, _DEGENERATE[mode])
    result = x / xp.where(closed, xp.ones((), w.dtype), gaps)
    return xp.where(closed, xp.zeros((), x.dtype), result)


_DEGENERATE = {
    "eigenvalues": "eigenvalues coincide, so that the eigenvectors have no derivative; "
    "use eigvals where only the eigenvalues matter",
    "difference": "eigenvalues coincide, so that the eigenvectors have no derivative; "
    "use eigvalsh where only the eigenvalues matter",
    "squares": "singular values coincide, so that the singular vectors have no derivative; "
    "use svdvals where only the singular values matter",
    "value": "a singular value is zero, so that the singular vectors have no derivative; "
    "use svdvals where only the singular values matter",
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


def _gap_jvp(tans: tuple[Node | None, ...], y: Node, x: Node, w: Node, mode: str) -> Node | None:
    parts = [] if tans[0] is None else [gap_divide(tans[0], w, mode)]
    if tans[1] is not None:
        moves = tans[1], w
        dw, values = moves if mode == "eigenvalues" else map(real_of, moves)
        moved = _gap_tangent(dw, values, mode)
        parts.append(neg(gap_divide(y * moved, w, mode)))
    return add_all(parts)


_GAP_DIVIDE: Op = declare(
    "gap_divide", "x[*s, m, n] -> x[*s, n] -> x[*s, m, n]", _gap_divide,
    vjp=(lambda ct, y, x, w, mode: gap_divide(ct, conj(w), mode), _gap_vjp_w), jvp=_gap_jvp,
    samples=(
        Sample(((3, 3), (3,)), {"mode": "difference"}, low=0.5),
        Sample(((2, 3, 3), (2, 3)), {"mode": "squares"}, low=0.5),
        Sample(((4, 3), (3,)), {"mode": "value"}, low=0.5),
        Sample(((3, 3), (3,)), {"mode": "eigenvalues"}, low=0.5),
        Sample(((0, 0), (0,)), {"mode": "difference"}),
    ),
    doc="Divide matrices by gaps between values; a gap of 0 raises unless nothing needs it.",
)  # fmt: skip


def gap_divide(x: Node, w: Node, mode: str) -> Node:
    """Divide ``x[i, j]`` by ``w[j] - w[i]``, by the same of squares, or by ``w[j]``.

    A gap within rounding of 0 gives 0 where nothing asks for the quotient, and else raises
    ``LinAlgError`` in the run: where the element is not 0, or for gaps between two values where
    any element of its column is not.
    """
    return build(_GAP_DIVIDE, x, w, mode=mode)


def known(x: Node, axis: int, what: str) -> Any:
    """Return a dim, or raise where only the run knows it."""
    dim = x.dims[axis]
    if dim is UNKNOWN:
        raise ShapeError(
            f"{what} needs to know the dim at axis {axis} of {x!r}; name it with a symbol"
        )
    return dim
