"""Systems of equations with triangular matrices, over batches of matrices.

They are solved by halves, so that nearly all is matrix products.
"""

from __future__ import annotations

from math import prod
from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops._matrix_rules import adjoint, as_square
from actorgraph.ops._rules import add_all, declare
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import expand_dims, squeeze, unbroadcast
from actorgraph.ops.linalg_products import lifted_pair
from actorgraph.ops.matrices import tril, triu
from actorgraph.ops.shaping import swap_last

__all__ = ["cholesky_solve", "solve_triangular"]

_SMALL = 32
"""Size from which on a system is solved by halves; below NumPy substitutes back for one call."""


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


def _pull_b(ct: Node, y: Node, a: Node, b: Node, upper: bool, unit: bool) -> Node:
    return unbroadcast(_triangular(adjoint(a), ct, not upper, unit), b)


def _push(tans: Any, y: Node, a: Node, b: Node, upper: bool, unit: bool) -> Node | None:
    parts = [] if tans[1] is None else [tans[1]]
    if tans[0] is not None:
        parts.append(neg(_part(tans[0], upper, unit) @ y))
    moved = add_all(parts)
    return None if moved is None else _triangular(a, moved, upper, unit)


_SOLVE_TRIANGULAR: Op = declare(
    "solve_triangular", "x[*s, n, n] -> x[*t, n, k] -> x[*s|t, n, k]",
    lambda xp, a, b, upper, unit: triangular_solution(xp, a, b, upper, unit),
    vjp=(_pull_a, _pull_b), jvp=_push,
    cost=lambda shapes, result, attrs: float(shapes[0][-1] * prod(result)),
    samples=(
        Sample(((3, 3), (3, 2)), {"upper": True, "unit": False}, low=0.5),
        Sample(((3, 3), (2, 3, 1)), {"upper": False, "unit": False}, low=0.5),
        Sample(((2, 2, 2), (2, 2)), {"upper": True, "unit": True}),
        Sample(((2, 2), (2, 2)), {"upper": False, "unit": True}),
        Sample(((0, 0), (0, 2)), {"upper": False, "unit": False}),
    ),
    doc="Solution of systems of equations with triangular matrices.",
)  # fmt: skip


@raises(
    types="The dtypes differ or are none that LAPACK takes.",
    shapes="The matrices are not square, or the dims do not fit.",
)  # fmt: skip
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

    Returns
    -------
    Node
        Of the shape of `b`, broadcast.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> a = Graph().input("a", ("batch", 3, 3), "float64")
    >>> solve_triangular(a, a[..., :1], upper=True).shape
    (batch, 3, 1)
    """
    a, b = lifted_pair(a, b, "solve_triangular")
    as_square(a, "solve_triangular")
    if b.ndim == 0:
        raise ShapeError(f"solve_triangular takes a right side of at least one dim, got {b!r}")
    if not left:
        turned = expand_dims(b, -1) if b.ndim == 1 else swap_last(b)
        result = _triangular(swap_last(a), turned, not upper, bool(unitriangular))
        return squeeze(result, -1) if b.ndim == 1 else swap_last(result)
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    result = _triangular(a, columns, bool(upper), bool(unitriangular))
    return squeeze(result, -1) if b.ndim == 1 else result


@raises(both="As `solve_triangular`.")
@naming_itself
def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Node:
    """Solve ``(L @ L^H) @ x = b`` for a Cholesky factor L, as ``torch.cholesky_solve``.

    Parameters
    ----------
    b : node or array
        Shape (n,) or (..., n, k).
    factor : node or array
        Shape (..., n, n); L, or with `upper` its adjoint.
    upper : bool

    Examples
    --------
    >>> from actorgraph import Graph
    >>> b = Graph().input("b", (3, 2), "float64")
    >>> cholesky_solve(b, b[:, :1] @ b[:, :1].T).shape
    (3, 2)
    """
    b, factor = lifted_pair(b, factor, "cholesky_solve")
    lower = adjoint(factor) if upper else factor
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    inner = solve_triangular(lower, columns, upper=False)
    result = solve_triangular(adjoint(lower), inner, upper=True)
    return squeeze(result, -1) if b.ndim == 1 else result
