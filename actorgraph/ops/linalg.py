"""Products of arrays: matmul, dot, outer, vecdot, bmm, tensordot, kron, cross, multi_dot, vander.

A complex gradient is the adjoint: the other operand is conjugated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH_OUT, KEPT, Op, Sample
from actorgraph.ops._arrays import on_host, through_float32
from actorgraph.ops._rules import MIXED, as_of, declare, on, raises, returns
from actorgraph.ops.arithmetic import multiply, power
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze, unbroadcast
from actorgraph.ops.rearranging import roll
from actorgraph.ops.reshaping import merge_dims, reshape
from actorgraph.ops.shaping import one_axis, swap_last, transpose
from actorgraph.types import UNKNOWN, Checks, Shape, size_of

__all__ = [
    "bmm", "cross", "dot", "kron", "matmul", "matvec", "multi_dot", "outer", "tensordot",
    "vander", "vecdot", "vecmat",
]  # fmt: skip


def _matmul_shape(checks: Checks, x: Shape, y: Shape) -> Shape:
    if not x or not y:
        raise ShapeError("a scalar has no matrix product; multiply with * instead")
    checks.equal(x[-1], y[-2] if len(y) > 1 else y[0], "inner dims of the product")
    batch = checks.broadcast(x[:-2], y[:-2])
    return (*batch, *x[-2:-1], *(y[-1:] if len(y) > 1 else ()))


def _matmul_vjp_x(ct: Node, z: Node, x: Node, y: Node) -> Node:
    y = conj(y)
    if y.ndim == 1:
        if x.ndim == 2:
            return outer(ct, y)
        return multiply(ct if x.ndim == 1 else expand_dims(ct, -1), y)
    if x.ndim == 1 and y.ndim > 2:
        return unbroadcast(squeeze(matmul(expand_dims(ct, -2), swap_last(y)), -2), x)
    return unbroadcast(matmul(ct, swap_last(y)), x)


def matmul_vjp_y(ct: Node, z: Node, x: Node, y: Node) -> Node:
    x = conj(x)
    if x.ndim == 1:
        if y.ndim == 2:
            return outer(x, ct)
        return multiply(x, ct) if y.ndim == 1 else multiply(expand_dims(x, 1), expand_dims(ct, -2))
    rows = size_of(x.dims[:-1])
    if x.ndim > 2 and y.ndim <= 2 and rows is not UNKNOWN:
        # One product of tall matrices instead of a batch of products that is summed afterwards.
        ct = reshape(ct, (rows, *ct.dims[x.ndim - 1 :]))
        return matmul(swap_last(reshape(x, (rows, x.dims[-1]))), ct)
    if y.ndim == 1 and x.ndim > 2:
        return unbroadcast(squeeze(matmul(swap_last(x), expand_dims(ct, -1)), -1), y)
    return unbroadcast(matmul(swap_last(x), ct), y)


_MATMUL_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 4), (4, 2)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)), ((0, 4), (4, 2)), ((3, 0), (0, 2)),
)  # fmt: skip

_MATMUL = declare(
    "matmul", "n[*s] -> n[*t] -> n[*out]",
    through_float32(lambda xp, x, y, out=None: xp.matmul(x, y, out=out)), shape=_matmul_shape,
    vjp=(_matmul_vjp_x, matmul_vjp_y), linear=(0, 1),
    cost=lambda shapes, result, attrs: float(2 * prod(result) * shapes[0][-1]), ufunc="matmul",
    memory=FRESH_OUT, samples=tuple(map(Sample, _MATMUL_SHAPES)), total="sum", in_blas=True,
)  # fmt: skip


@returns("Node of shape (..., m, n); leading dims broadcast")
@raises(MIXED, "Inner dims differ, leading dims do not broadcast, or an operand is a scalar.")
def matmul(x: Any, y: Any) -> Node:
    """Multiply matrices, as ``x @ y``.

    Floats of two bytes (float16, bfloat16) are multiplied and summed in float32 and rounded once.

    Parameters
    ----------
    x : node or array
        Shape (..., m, k), or (k,), which counts as a row that the result lacks.
    y : node or array
        Shape (..., k, n), or (k,), which counts as a column that the result lacks; of the dtype
        of `x`, any number.
    """
    return build(_MATMUL, x, y)


@raises("The dtypes differ.", "The inner dims differ, or an operand has a rank above 2.")
def dot(x: Any, y: Any) -> Node:
    """Multiply as ``numpy.dot`` does for ranks up to 2.

    The inner product of two vectors, the product of matrices, or with a scalar, whichever fits.
    """
    ranks = [one.ndim if isinstance(one, Node) else np.ndim(one) for one in (x, y)]
    if max(ranks) > 2:
        raise ShapeError(
            f"takes ranks 0, 1 and 2, got ranks {ranks[0]} and {ranks[1]}; "
            "for batches of matrices use matmul"
        )
    return matmul(x, y) if min(ranks) > 0 else multiply(x, y)


_OUTER = declare(
    "outer", "n[m] -> n[k] -> n[m, k]", lambda xp, x, y: x[:, None] * y,
    vjp=(lambda ct, z, x, y: matmul(ct, conj(y)), lambda ct, z, x, y: matmul(conj(x), ct)),
    linear=(0, 1), samples=(on((3,), (4,)), on((0,), (2,))), memory=KEPT, traced=True,
)  # fmt: skip


@returns("Node of shape (size of x, size of y)")
@raises(types=MIXED)
def outer(x: Any, y: Any) -> Node:
    """Multiply each element of `x` with each element of `y`, as ``numpy.outer``.

    Parameters
    ----------
    x, y : node or array
        Of one dtype, any number; what is no vector is flattened.
    """
    return build(_OUTER, _flat(x), _flat(y))


def _flat(value: Any) -> Any:
    if isinstance(value, Node):
        return value if value.ndim == 1 else reshape(value, (-1,))
    return np.ravel(value)


def all_lifted(operands: Sequence[Any]) -> list[Node]:
    """Return operands, of which one at least is a node, as nodes of its graph."""
    for one in operands:
        if isinstance(one, Node):
            return [one.graph.lift(operand) for operand in operands]
    got = " and ".join(type(operand).__name__ for operand in operands)
    raise GraphTypeError(f"needs at least one node, got {got or 'nothing'}; for arrays use NumPy")


def lifted_pair(x: Any, y: Any) -> tuple[Node, Node]:
    """Return two operands as nodes, see `all_lifted`."""
    first, other = all_lifted((x, y))
    return first, other


def _vecdot_forward(xp: Any, x: Any, y: Any) -> Any:
    if on_host(xp):
        return np.vecdot(x, y).astype(x.dtype, copy=False)  # of bfloat16 it is float32
    return xp.matmul(xp.conjugate(x)[..., None, :], y[..., :, None])[..., 0, 0]


_VECDOT: Op = declare(
    "vecdot", "n[*s, k] -> n[*t, k] -> n[*s|t]", _vecdot_forward,
    # The product is antilinear in x, so that its cotangent is conjugated once more.
    vjp=(
        lambda ct, z, x, y: unbroadcast(multiply(expand_dims(conj(ct), -1), y), x),
        lambda ct, z, x, y: unbroadcast(multiply(expand_dims(ct, -1), x), y),
    ),
    linear=(0, 1), cost=lambda shapes, result, attrs: 2 * prod(result) * shapes[0][-1],
    samples=(
        on((3, 4), (3, 4)), on((2, 1, 4), (3, 4)), on((4,), (4,)), on((0, 2), (2,)),
        on((2, 0), (2, 0)),
    ),
    total="sum", memory=KEPT, traced=lambda step: step.dtype.kind == "f",
)  # fmt: skip


@returns("Node: the broadcast shape without `axis`")
@raises(MIXED, "The vectors are of different lengths, or there is no such axis.")
def vecdot(x: Any, y: Any, axis: int = -1) -> Node:
    """Return the inner products of vectors, as ``numpy.vecdot``: sum of ``conj(x) * y``.

    Parameters
    ----------
    x, y : node or array
        Of one dtype, any number; shapes that broadcast but for `axis`.
    axis : int
        Along which the vectors lie in both.
    """
    x, y = lifted_pair(x, y)
    return build(_VECDOT, _moved_last(x, axis), _moved_last(y, axis))


def _moved_last(x: Node, axis: int) -> Node:
    place = one_axis(axis, x.ndim)
    return transpose(x, (*(i for i in range(x.ndim) if i != place), place))


@returns("Node of shape (..., m, n)")
@raises(MIXED, "An operand has fewer than two dims, or the dims do not fit.")
def bmm(x: Any, y: Any, *, transpose_x: bool = False, transpose_y: bool = False) -> Node:
    """Multiply batches of matrices, each transposed first where asked; no copies are made.

    Built of `matmul` on views.

    Parameters
    ----------
    x, y : node or array
        Shapes (..., m, k) and (..., k, n), or their transposes; leading dims broadcast.
    transpose_x, transpose_y : bool
        Exchange the last two axes of the operand; it is not conjugated.
    """
    x, y = lifted_pair(x, y)
    for node in (x, y):
        if node.ndim < 2:
            raise ShapeError(f"takes batches of matrices, got {node!r}; for vectors use matmul")
    return matmul(swap_last(x) if transpose_x else x, swap_last(y) if transpose_y else y)


def matvec(x: Any, y: Any) -> Node:
    """Return products of matrices with vectors, as ``numpy.matvec``; leading dims broadcast."""
    x, y = lifted_pair(x, y)
    return squeeze(matmul(x, expand_dims(y, -1)), -1)


def vecmat(x: Any, y: Any) -> Node:
    """Return products of vectors, conjugated, with matrices, as ``numpy.vecmat``."""
    x, y = lifted_pair(x, y)
    return squeeze(matmul(expand_dims(conj(x), -2), y), -2)


Axes = tuple[int, ...]


def _free(ndim: int, taken: Axes) -> Axes:
    return tuple(axis for axis in range(ndim) if axis not in taken)


def _tensordot_shape(checks: Checks, x: Shape, y: Shape, *, x_axes: Axes, y_axes: Axes) -> Shape:
    for one, other in zip(x_axes, y_axes, strict=True):
        checks.equal(x[one], y[other], f"dims at axes {one} and {other} of the product")
    free_y = tuple(y[axis] for axis in _free(len(y), y_axes))
    return tuple(x[axis] for axis in _free(len(x), x_axes)) + free_y


def _in_order(node: Node, axes: Axes) -> Node:
    """Transpose a node whose dim ``i`` belongs at ``axes[i]``."""
    return transpose(node, sorted(range(len(axes)), key=axes.__getitem__))


def _tensordot_vjp_x(ct: Node, z: Node, x: Node, y: Node, x_axes: Axes, y_axes: Axes) -> Node:
    free = _free(x.ndim, x_axes)
    ct_axes = tuple(range(len(free), z.ndim))
    product = _tensordot(ct, conj(y), ct_axes, _free(y.ndim, y_axes))
    pairs = sorted(zip(y_axes, x_axes, strict=True))
    return _in_order(product, (*free, *(axis for _, axis in pairs)))


def _tensordot_vjp_y(ct: Node, z: Node, x: Node, y: Node, x_axes: Axes, y_axes: Axes) -> Node:
    free = _free(x.ndim, x_axes)
    product = _tensordot(conj(x), ct, free, tuple(range(len(free))))
    pairs = sorted(zip(x_axes, y_axes, strict=True))
    return _in_order(product, (*(axis for _, axis in pairs), *_free(y.ndim, y_axes)))


_TENSORDOT: Op = declare(
    "tensordot", "n[*s] -> n[*t] -> n[*out]",
    lambda xp, x, y, x_axes, y_axes: xp.asarray(xp.tensordot(x, y, (x_axes, y_axes))),
    shape=_tensordot_shape,
    vjp=(_tensordot_vjp_x, _tensordot_vjp_y), linear=(0, 1),
    cost=lambda of, to, attrs: 2.0 * prod(to) * prod(of[0][axis] for axis in attrs["x_axes"]),
    samples=(
        on((2, 3, 4), (4, 3, 5), x_axes=(1, 2), y_axes=(1, 0)),
        on((2, 3, 4), (3, 4), x_axes=(2, 1), y_axes=(1, 0)), on((3,), (2,), x_axes=(), y_axes=()),
        on((2, 3), (2, 3), x_axes=(0, 1), y_axes=(0, 1)),
        on((0, 3), (3, 2), x_axes=(1,), y_axes=(0,)),
    ),
    total="sum", in_blas=True,
)  # fmt: skip


def _tensordot(x: Node, y: Node, x_axes: Axes, y_axes: Axes) -> Node:
    return build(_TENSORDOT, x, y, x_axes=x_axes, y_axes=y_axes)


@returns("Node: the other axes of `x`, then those of `y`")
@raises(MIXED, "Numbers of axes differ, an axis is given twice or out of range, or dims differ.")
def tensordot(x: Any, y: Any, axes: Any = 2) -> Node:
    """Sum products over pairs of axes, as ``numpy.tensordot``.

    Parameters
    ----------
    x, y : node or array
        Of one dtype, any number.
    axes : int or pair
        A pair of axes, or of sequences of axes, one for each operand; an int n pairs the last n
        axes of `x` with the first n of `y`.
    """
    x, y = lifted_pair(x, y)
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(f"{axes} pairs of axes do not fit {x!r} and {y!r}")
        given: Any = (range(x.ndim - int(axes), x.ndim), range(int(axes)))
    elif isinstance(axes, Sequence) and len(axes) == 2:
        given = axes
    else:
        raise ShapeError(f"axes has to be an int or a pair, got {axes!r}")
    x_axes, y_axes = (_distinct(part, node) for part, node in zip(given, (x, y), strict=True))
    if len(x_axes) != len(y_axes):
        raise ShapeError(
            f"{len(x_axes)} axes of the first operand cannot be paired with "
            f"{len(y_axes)} of the second"
        )
    return _tensordot(x, y, x_axes, y_axes)


def _distinct(axes: Any, node: Node) -> Axes:
    given = (axes,) if isinstance(axes, (int, np.integer)) else tuple(axes)
    found = tuple(one_axis(axis, node.ndim) for axis in given)
    if len(set(found)) != len(found):
        raise ShapeError(f"tensordot: axes {given} name a dim of {node!r} twice")
    return found


@returns("Node: each dim is the product of the operands' dims")
@raises(types=MIXED)
def kron(x: Any, y: Any) -> Node:
    """Return the Kronecker product, as ``numpy.kron``: `x` with each element times `y`.

    Built of one product of `x` and `y`, with dims of size 1 between theirs, whose pairs of dims are
    then merged.  The operand of lower rank gets dims of size 1 in front.

    Parameters
    ----------
    x, y : node or array
        Of one dtype, any number and any rank.
    """
    x, y = lifted_pair(x, y)
    rank = max(x.ndim, y.ndim)
    x, y = (expand_dims(node, tuple(range(rank - node.ndim))) for node in (x, y))
    left = expand_dims(x, tuple(range(1, 2 * rank, 2)))
    right = expand_dims(y, tuple(range(0, 2 * rank, 2)))
    return merge_dims(multiply(left, right), (2,) * rank)


@returns("Node: the broadcast shape")
@raises(MIXED, "The vectors are not of 3 entries, or there is no such axis.")
@as_of(vecdot)
def cross(x: Any, y: Any, axis: int = -1) -> Node:
    """Return the cross products of vectors of three entries, as ``numpy.linalg.cross``."""
    nodes = lifted_pair(x, y)
    for node in nodes:
        if node.dims[one_axis(axis, node.ndim)] != 3:
            raise ShapeError(f"takes vectors of 3 along axis {axis}, got {node!r}")
    (x1, y1), (x2, y2) = ([roll(node, -shift, axis) for node in nodes] for shift in (1, 2))
    return multiply(x1, y2) - multiply(x2, y1)


OPEN_SIZE = 32
"""Stands for a dim that only the run knows when the order is chosen."""


def _cheapest(sizes: Sequence[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return for each stretch of factors its least cost in multiplications, and where to cut it."""
    count = len(sizes) - 1
    best = {(i, i): (0, i) for i in range(count)}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return best


@raises("There is no node, or dtypes differ.", "Dims do not fit, or an inner operand is no matrix.")
def multi_dot(arrays: Sequence[Any]) -> Node:
    """Multiply a chain of matrices in the cheapest order, as ``numpy.linalg.multi_dot``.

    Parameters
    ----------
    arrays : sequence of nodes and arrays
        Matrices; the first and the last may be vectors.
    """
    nodes = all_lifted(arrays)
    for place, node in enumerate(nodes):
        if node.ndim != 2 and not (node.ndim == 1 and place in (0, len(nodes) - 1)):
            raise ShapeError(f"takes matrices, and vectors at both ends, got {node!r}")
    inner: list[Any] = [node.dims[0] for node in nodes[1:]]
    first, last = nodes[0].dims, nodes[-1].dims
    dims = [first[0] if len(first) > 1 else 1, *inner, last[1] if len(last) > 1 else 1]
    best = _cheapest([dim if isinstance(dim, int) else OPEN_SIZE for dim in dims])

    def product(i: int, j: int) -> Node:
        cut = best[i, j][1]
        return nodes[i] if i == j else matmul(product(i, cut), product(cut + 1, j))

    return product(0, len(nodes) - 1)


@returns("Node of shape (..., m, n)")
@raises(shapes="`x` has no dims, or m is the number of columns and no int.")
def vander(x: Node, n: int | None = None, increasing: bool = False) -> Node:
    """Return matrices whose columns are powers of vectors, as ``numpy.vander``.

    Parameters
    ----------
    x : node
        Float or complex, shape (..., m).
    n : int, optional
        Number of columns; m by default.
    increasing : bool
        Begin with the power 0, as ``torch.linalg.vander``, instead of n - 1.
    """
    count = (x.dims[-1] if x.ndim else None) if n is None else n
    if not isinstance(count, (int, np.integer)) or not x.ndim:
        raise ShapeError(f"takes vectors and a number of columns, got {x!r} and {n!r}")
    powers = np.arange(count) if increasing else np.arange(count)[::-1]
    return power(expand_dims(x, -1), powers.astype(x.dtype))
