"""Eigenvalues and eigenvectors of any square matrices, over batches of them.

The op behind `eig` stacks the vectors below the values as rows of one complex array.

Formulas: M. B. Giles, Collected matrix derivative results, 2008, for the values.  A vector is of
length 1, and its largest entry is real, as LAPACK gives it: so it has a derivative, for losses that
depend on the phase too, where in PyTorch and JAX these have none or a wrong one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample
from actorgraph.ops._docs import NO_LAPACK, NOT_SQUARE, raises
from actorgraph.ops._matrix_rules import (
    SQUARE_SAMPLES,
    adjoint,
    as_square,
    cubic_cost,
    gap_divide,
    read_rows,
    rows_stacked,
)
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import conj, expand_dims, zeros_like
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.casting import astype, real_part
from actorgraph.ops.complex import imag, real
from actorgraph.ops.counting import argmax
from actorgraph.ops.indexing import getitem, one_hot
from actorgraph.ops.inverses import solve
from actorgraph.ops.matrices import diag_embed, matrix_diagonal
from actorgraph.ops.shaping import swap_last
from actorgraph.types import Checks, Shape

__all__ = ["eig", "eigvals"]


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors, as columns; both complex."""

    eigenvalues: Node
    eigenvectors: Node


def _complex_name(x: Node) -> str:
    return np.result_type(x.dtype, np.complex64).name


def _scheme(result: str) -> Any:
    def scheme(arity: int, attrs: Attrs) -> str:
        return f"x[*s, n, n] -> {attrs['dtype']}[{result}]"

    return scheme


def _parts(stacked: Node) -> tuple[Node, Node]:
    return getitem(stacked, (Ellipsis, 0, slice(None))), read_rows(stacked, 1, None)


def _like(result: Node, x: Node) -> Node:
    return result if x.dtype.kind == "c" else real_part(result, x.dtype.name)


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
    return _like(solve(adjoint(vectors), inner @ adjoint(vectors)), x)


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


def _eig_shape(checks: Checks, x: Shape, *, dtype: str) -> Shape:
    return (*x[:-2], x[-1] + 1, x[-1])


_SAMPLES = tuple(Sample(one.shapes, {"dtype": "complex128"}) for one in SQUARE_SAMPLES)

_EIG: Op = declare(
    "eig", _scheme("*out"), _eig_forward, shape=_eig_shape, vjp=(_eig_vjp,), jvp=_eig_jvp,
    cost=cubic_cost(25), samples=_SAMPLES,
    doc="Eigenvalues and eigenvectors of each matrix, stacked.",
)  # fmt: skip


def _eigvals_vjp(ct: Node, y: Node, x: Node, dtype: str) -> Node:
    across = adjoint(_parts(build(_EIG, x, dtype=dtype))[1])
    return _like(solve(across, diag_embed(ct) @ across), x)


def _eigvals_jvp(tans: tuple[Node, ...], y: Node, x: Node, dtype: str) -> Node:
    vectors = _parts(build(_EIG, x, dtype=dtype))[1]
    inner = solve(vectors, astype(tans[0], dtype) @ vectors)
    return matrix_diagonal(inner, square=True)


_EIGVALS: Op = declare(
    "eigvals", _scheme("*s, n"),
    lambda xp, x, dtype: xp.linalg.eigvals(x).astype(dtype, copy=False), vjp=(_eigvals_vjp,),
    jvp=_eigvals_jvp, cost=cubic_cost(10), samples=_SAMPLES, doc="Eigenvalues of each matrix.",
)  # fmt: skip


@raises(types=NO_LAPACK, shapes=NOT_SQUARE)
def eig(x: Node) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices, as ``numpy.linalg.eig``.

    Both are complex, also where a run finds real ones, which NumPy gives as floats.  Where
    eigenvalues coincide, within rounding, their vectors have no derivative: a run that needs it
    raises.  For Hermitian matrices use `eigh`.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.

    Returns
    -------
    EigResult
        `eigenvalues`, shape (..., n), in LAPACK's order; `eigenvectors`, shape (..., n, n), of
        length 1, with a largest entry that is real.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> eig(Graph().input("x", (3, 3), "float64")).eigenvalues.dtype
    dtype('complex128')
    """
    return EigResult(*_parts(build(_EIG, as_square(x, "eig"), dtype=_complex_name(x))))


@raises(types=NO_LAPACK, shapes=NOT_SQUARE)
def eigvals(x: Node) -> Node:
    """Return the eigenvalues of square matrices, as ``numpy.linalg.eigvals``.

    The gradient is ``V^-H diag(ct) V^H``; a matrix without a basis of eigenvectors V has none, and
    raises in the run or gives numbers without meaning.

    Parameters
    ----------
    x : node
        As in `eig`.

    Returns
    -------
    Node
        Complex, shape (..., n), in LAPACK's order.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> eigvals(Graph().input("x", ("batch", 3, 3), "float32")).shape
    (batch, 3)
    """
    return build(_EIGVALS, as_square(x, "eigvals"), dtype=_complex_name(x))
