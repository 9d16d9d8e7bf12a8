"""Systems of equations whose unknowns are arrays: built of `solve` and `inv`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import NO_LAPACK, raises
from actorgraph.ops.inverses import inv, solve
from actorgraph.ops.linalg_products import lifted_pair
from actorgraph.ops.rearranging import moveaxis
from actorgraph.ops.reshaping import reshape

__all__ = ["tensorinv", "tensorsolve"]


def _sizes(dims: Sequence[Any], what: str) -> tuple[int, ...]:
    if not all(isinstance(dim, int) for dim in dims):
        raise ShapeError(f"{what}: the dims have to be ints, got {tuple(dims)}")
    return tuple(dims)


@raises(
    types="The dtypes differ or are none that LAPACK takes.",
    shapes="The dims are not ints, or do not fit.",
)  # fmt: skip
@naming_itself
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Node:
    """Solve ``tensordot(a, x, x.ndim) = b``, as ``numpy.linalg.tensorsolve``.

    Parameters
    ----------
    a : node or array
        Shape ``b.shape + x.shape``, of which both parts have as many entries.
    b : node or array
    axes : sequence of int, optional
        Axes of `a` to move to its end before.

    Returns
    -------
    Node
        Shape ``a.shape[b.ndim:]``.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> a = Graph().input("a", (6, 2, 3), "float64")
    >>> tensorsolve(a, a[:, 0, 0]).shape
    (2, 3)
    """
    a, b = lifted_pair(a, b, "tensorsolve")
    if axes is not None:
        a = moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    result = _sizes(a.dims[b.ndim :], "tensorsolve")
    flat = reshape(b, (prod(result),)) if b.ndim else b
    matrix = reshape(a, (prod(_sizes(b.dims, "tensorsolve")), prod(result)))
    return reshape(solve(matrix, flat), result)


@raises(types=NO_LAPACK, shapes="The dims are not ints, or do not fit.")
@naming_itself
def tensorinv(a: Node, ind: int = 2) -> Node:
    """Return the inverse of `a` for `tensordot` over `ind` axes, as ``numpy.linalg.tensorinv``.

    Parameters
    ----------
    a : node
        The dims before and from axis `ind` on have as many entries.
    ind : int

    Returns
    -------
    Node
        Shape ``a.shape[ind:] + a.shape[:ind]``.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> tensorinv(Graph().input("a", (6, 2, 3), "float64"), ind=1).shape
    (2, 3, 6)
    """
    if not 0 < ind <= a.ndim:
        raise ShapeError(f"tensorinv: ind has to be from 1 to {a.ndim}, got {ind!r}")
    dims = _sizes(a.dims, "tensorinv")
    matrix = reshape(a, (prod(dims[:ind]), prod(dims[ind:])))
    return reshape(inv(matrix), (*dims[ind:], *dims[:ind]))
