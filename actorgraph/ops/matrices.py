"""Parts of matrices: diagonals, traces, triangles.

All are linear, so a gradient is the part put back in its place, with zeros elsewhere.
"""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Memory, Op, Sample
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import one_axis, transpose
from actorgraph.types import UNKNOWN, Checks, Shape, dim_max, dim_min

__all__ = ["diag", "diag_embed", "diagflat", "diagonal", "trace", "tril", "triu"]

# -- diagonal ---------------------------------------------------------------------------------


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


def _write_diagonal(xp: Any, values: Any, like: Any, offset: int) -> Any:
    result = xp.zeros(like.shape, values.dtype)
    rows = xp.arange(values.shape[-1])
    result[..., rows - min(offset, 0), rows + max(offset, 0)] = values
    return result


def _diagonal_flops(shapes: Any, result: Any, attrs: Attrs) -> float:
    return 1.0


_DIAGONAL: Op = declare(
    "diagonal", "a[*s, m, n] -> a[*out]", _read_diagonal, shape=_diagonal_shape,
    vjp=(lambda ct, y, x, offset, square: build(_PLACE, ct, x, offset=offset),),
    linear=(0,), cost=_diagonal_flops,
    samples=(
        Sample(((3, 3),), {"offset": 0, "square": True}),
        Sample(((2, 3, 4),), {"offset": 1, "square": False}),
        Sample(((3, 4),), {"offset": -2, "square": False}),
        Sample(((2, 2),), {"offset": 5, "square": False}),
        Sample(((0, 2),), {"offset": 0, "square": False}),
    ),
    memory=Memory(is_view=True), doc="Diagonal of each matrix of a batch.",
)  # fmt: skip

_PLACE: Op = declare(
    "place_diagonal", "a[*s] -> a1[*t] -> a[*t]", _write_diagonal,
    vjp=(lambda ct, y, x, like, offset: matrix_diagonal(ct, offset), None), linear=(0,),
    samples=(
        Sample(((3,), (3, 4)), {"offset": 0}), Sample(((2, 2), (2, 3, 4)), {"offset": 2}),
        Sample(((1,), (3, 4)), {"offset": -2}),
    ),
    doc="Zeros in the shape of another array, with the given diagonal.",
)  # fmt: skip


def matrix_diagonal(x: Node, offset: int = 0, square: bool = False) -> Node:
    """Return the diagonals over the last two axes; `square` asks for equal dims."""
    return build(_DIAGONAL, x, offset=int(offset), square=square)


def _axes_last(x: Node, axis1: int, axis2: int, what: str) -> Node:
    if x.ndim < 2:
        raise ShapeError(f"{what} takes arrays of at least two dims, got {x!r}")
    one, other = one_axis(axis1, x.ndim, what), one_axis(axis2, x.ndim, what)
    if one == other:
        raise ShapeError(f"{what}: axis1 and axis2 are both {one}; they have to differ")
    return transpose(x, (*(i for i in range(x.ndim) if i not in (one, other)), one, other))


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

    Returns
    -------
    Node
        The two axes are replaced by one, which is the last.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.diagonal(ag.Graph().input("x", (2, 3, 4), "float64"), axis1=1, axis2=2).shape
    (2, 3)
    """
    return matrix_diagonal(_axes_last(x, axis1, axis2, "diagonal"), offset)


@raises(shapes="There are no two such axes.")
def trace(x: Node, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """Sum along diagonals, as ``numpy.trace``; integers keep their dtype.

    Built of `diagonal` and `sum`.  The gradient is the cotangent on the diagonal.

    Parameters
    ----------
    x : node
        At least two dims, numbers.
    offset, axis1, axis2 : int
        As in `diagonal`.

    Returns
    -------
    Node
        The two axes are gone.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.trace(ag.Graph().input("x", (3, 3), "float64")).shape
    ()
    """
    return sum_over(matrix_diagonal(_axes_last(x, axis1, axis2, "trace"), offset), -1)


# -- diagonal matrices ------------------------------------------------------------------------


def _embed_shape(checks: Checks, x: Shape, *, offset: int) -> Shape:
    size = x[-1] + abs(offset)
    return (*x[:-1], size, size)


def _embed(xp: Any, x: Any, offset: int) -> Any:
    size = x.shape[-1] + abs(offset)
    result = xp.zeros((*x.shape[:-1], size, size), x.dtype)
    rows = xp.arange(x.shape[-1])
    result[..., rows - min(offset, 0), rows + max(offset, 0)] = x
    return result


_EMBED: Op = declare(
    "diag_embed", "a[*s, n] -> a[*out]", _embed, shape=_embed_shape,
    vjp=(lambda ct, y, x, offset: matrix_diagonal(ct, offset),), linear=(0,),
    samples=(
        Sample(((3,),), {"offset": 0}), Sample(((2, 3),), {"offset": -1}),
        Sample(((0,),), {"offset": 1}),
    ),
    doc="Matrices with the given diagonals and zeros elsewhere.",
)  # fmt: skip


@raises(types="`x` is a scalar.")
def diag_embed(x: Node, offset: int = 0) -> Node:
    """Put the last dim on the diagonal of square matrices, as ``torch.diag_embed``.

    Parameters
    ----------
    x : node
        Shape (..., n), any dtype.
    offset : int
        As in `diagonal`.

    Returns
    -------
    Node
        Shape (..., n + abs(offset), n + abs(offset)).

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.diag_embed(ag.Graph().input("x", ("batch", 3), "float64")).shape
    (batch, 3, 3)
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

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.diag(ag.Graph().input("x", (3,), "float64"), 1).shape
    (4, 4)
    """
    if x.ndim not in (1, 2):
        raise ShapeError(
            f"diag takes a vector or a matrix, got {x!r}; for batches use diagonal or diag_embed"
        )
    return diag_embed(x, k) if x.ndim == 1 else matrix_diagonal(x, k)


@raises(types="`x` is no node.")
def diagflat(x: Node, k: int = 0) -> Node:
    """Return the diagonal matrix of the flattened array, as ``numpy.diagflat``.

    Parameters
    ----------
    x : node
        Any shape and dtype.
    k : int
        Which diagonal, as `offset` in `diagonal`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.diagflat(ag.Graph().input("x", (2, 2), "float64")).shape
    (4, 4)
    """
    return diag_embed(reshape(x, (-1,)), k)


# -- triangles --------------------------------------------------------------------------------


def _triangle(name: str, doc: str) -> Op:
    def forward(xp: Any, x: Any, k: int) -> Any:
        return getattr(xp, name)(x, k)

    def vjp(ct: Node, y: Node, x: Node, k: int) -> Node:
        return build(op, ct, k=k)

    samples = (
        Sample(((3, 4),), {"k": 0}),
        Sample(((2, 3, 3),), {"k": -1}),
        Sample(((2, 0),), {"k": 1}),
    )
    op = declare(
        name, "a[*s, m, n] -> a[*s, m, n]", forward, vjp=(vjp,), linear=(0,),
        samples=samples, doc=doc,
    )  # fmt: skip
    return op


_TRIL = _triangle("tril", "Lower triangle of each matrix, zeros above.")
_TRIU = _triangle("triu", "Upper triangle of each matrix, zeros below.")


@raises(types="`x` has fewer than two dims.")
def tril(x: Node, k: int = 0) -> Node:
    """Keep the lower triangle of each matrix, with zeros above the `k`-th diagonal.

    Parameters
    ----------
    x : node
        Shape (..., m, n), any dtype.
    k : int
        The last diagonal that is kept; 0 is the main one.

    Returns
    -------
    Node
        Of the shape of `x`; the gradient is the same triangle of the cotangent.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.tril(ag.Graph().input("x", (3, 4), "float64"), -1).shape
    (3, 4)
    """
    return build(_TRIL, x, k=int(k))


@raises(types="`x` has fewer than two dims.")
def triu(x: Node, k: int = 0) -> Node:
    """Keep the upper triangle of each matrix, with zeros below the `k`-th diagonal.

    Parameters
    ----------
    x : node
        Shape (..., m, n), any dtype.
    k : int
        The first diagonal that is kept; 0 is the main one.

    Returns
    -------
    Node
        Of the shape of `x`; the gradient is the same triangle of the cotangent.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.triu(ag.Graph().input("x", (3, 4), "float64"), 1).shape
    (3, 4)
    """
    return build(_TRIU, x, k=int(k))
