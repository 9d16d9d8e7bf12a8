"""Products of vectors and matrices.

Gradients keep operands where they are: ``ct @ B^T`` and ``A^T @ ct`` take the transposes as views.
A complex gradient is the adjoint: the other operand is conjugated.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH_OUT, Attrs, Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops._half import through_float32
from actorgraph.ops._rules import declare
from actorgraph.ops.arithmetic import multiply
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze, unbroadcast
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import swap_last
from actorgraph.types import UNKNOWN, Checks, Shape, size_of

__all__ = ["dot", "matmul", "outer"]


# -- matmul -----------------------------------------------------------------------------------


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


def _matmul_vjp_y(ct: Node, z: Node, x: Node, y: Node) -> Node:
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


def _matmul_flops(shapes: Any, result: tuple[int, ...], attrs: Attrs) -> float:
    return float(2 * prod(result) * shapes[0][-1])


_MATMUL_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 4), (4, 2)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)), ((0, 4), (4, 2)), ((3, 0), (0, 2)),
)  # fmt: skip

_MATMUL = declare(
    "matmul", "n[*s] -> n[*t] -> n[*out]",
    through_float32(lambda xp, x, y, out=None: xp.matmul(x, y, out=out)), shape=_matmul_shape,
    vjp=(_matmul_vjp_x, _matmul_vjp_y), linear=(0, 1), cost=_matmul_flops, ufunc="matmul",
    memory=FRESH_OUT, samples=tuple(map(Sample, _MATMUL_SHAPES)), total="sum", in_blas=True,
    doc="Matrix product of vectors, matrices and batches of matrices.",
)  # fmt: skip


@raises(
    types="The dtypes differ or are bool.",
    shapes="The inner dims differ, the leading dims do not broadcast, or an operand is a scalar.",
)  # fmt: skip
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

    Returns
    -------
    Node
        Shape (..., m, n); leading dims broadcast.
    """
    return build(_MATMUL, x, y)


@raises(
    types="The dtypes differ.", shapes="The inner dims differ, or an operand has a rank above 2.",
)  # fmt: skip
@naming_itself
def dot(x: Any, y: Any) -> Node:
    """Multiply as ``numpy.dot`` does for ranks up to 2.

    The inner product of two vectors, the matrix product where a matrix takes part, the product
    with a scalar where an operand is one.
    """
    ranks = _rank(x), _rank(y)
    if max(ranks) > 2:
        raise ShapeError(
            f"dot takes ranks 0, 1 and 2, got ranks {ranks[0]} and {ranks[1]}; "
            "for batches of matrices use matmul"
        )
    return matmul(x, y) if min(ranks) > 0 else multiply(x, y)


def _rank(value: Any) -> int:
    return value.ndim if isinstance(value, Node) else np.ndim(value)


# -- outer ------------------------------------------------------------------------------------

_OUTER = declare(
    "outer", "n[m] -> n[k] -> n[m, k]", lambda xp, x, y: xp.multiply.outer(x, y),
    vjp=(lambda ct, z, x, y: matmul(ct, conj(y)), lambda ct, z, x, y: matmul(conj(x), ct)),
    linear=(0, 1), samples=(Sample(((3,), (4,))), Sample(((0,), (2,)))),
    doc="Product of each element of a vector with each of another.",
)  # fmt: skip


@raises(types="The dtypes differ or are bool.")
def outer(x: Any, y: Any) -> Node:
    """Multiply each element of `x` with each element of `y`, as ``numpy.outer``.

    Parameters
    ----------
    x, y : node or array
        Of one dtype, any number; what is no vector is flattened.

    Returns
    -------
    Node
        Shape (size of x, size of y).
    """
    return build(_OUTER, _flat(x), _flat(y))


def _flat(value: Any) -> Any:
    if isinstance(value, Node):
        return value if value.ndim == 1 else reshape(value, (-1,))
    return np.ravel(value)
