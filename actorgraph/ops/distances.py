"""Distances and angles between vectors, and vectors of unit length."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops._half import tiny
from actorgraph.ops.arithmetic import multiply, sqrt, square, subtract
from actorgraph.ops.broadcasting import along_axis, broadcast_like, expand_dims, sum  # noqa: A004
from actorgraph.ops.casting import astype
from actorgraph.ops.indexing import take
from actorgraph.ops.selection import maximum
from actorgraph.ops.shaping import one_axis
from actorgraph.ops.statistics import norm
from actorgraph.types import Dim

__all__ = ["cdist", "cosine_similarity", "normalize", "pairwise_distance", "pdist"]


@raises(
    types="Dtypes differ or are no floats.",
    shapes="Shapes do not broadcast, or there is no such axis.",
)  # fmt: skip
@naming_itself
@along_axis("x")
def cosine_similarity(x: Any, y: Any, axis: int = 1, eps: float = 1e-8) -> Node:
    """Return the cosine of the angle between vectors along an axis.

    ``sum(x y) / (max(norm(x), eps) max(norm(y), eps))``: of zero vectors 0, with finite gradients.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype, shapes that broadcast.
    axis : int
        Along which the vectors lie; it is removed.
    eps : float
        Least norm.
    """
    product = multiply(x, y)
    place = one_axis(axis, product.ndim, "cosine_similarity")
    if product.dtype.kind not in "fV":
        raise GraphTypeError(
            f"cosine_similarity: {product.dtype} is not a float; convert with .astype('float32')"
        )
    # In half precision the square of eps would be 0.
    least = max(float(eps) ** 2, tiny(product.dtype))
    for part in product.inputs:
        square_norm = sum(square(broadcast_like(part, product)), place, keepdims=True)
        product = product / sqrt(maximum(square_norm, least))
    return sum(product, place)


def pairwise_distance(
    x: Any, y: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Node:
    """Return the p-norm of ``x - y + eps`` along the last axis, as in PyTorch.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype, shapes that broadcast.
    p : float
        Order of the norm, as of `norm`.
    eps : float
        Keeps the gradient of equal vectors finite in PyTorch; here it only gives equal values.
    keepdims : bool
    """
    return norm(subtract(x, y) + float(eps), p, -1, keepdims)


@raises(shapes="`x` is no matrix, or only a run knows its rows.")
def pdist(x: Node, p: float = 2.0) -> Node:
    """Return the distances between all pairs of rows of a matrix, as ``torch.pdist``.

    Parameters
    ----------
    x : node
        Float, shape (rows, features) with a known number of rows.
    p : float
        Order of the norm.

    Returns
    -------
    Node
        Shape (rows (rows - 1) / 2,): of rows 0 and 1, 0 and 2, ..., 1 and 2, ...
    """
    if x.ndim != 2 or isinstance(x.dims[0], Dim):
        raise ShapeError(f"pdist takes a matrix of a known number of rows, got {x!r}")
    first, second = np.triu_indices(x.dims[0], 1)
    return norm(take(x, first, 0) - take(x, second, 0), p, -1)


def cdist(x: Node, y: Any, p: float = 2.0) -> Node:
    """Return the distance of each row of x from each of y, as ``torch.cdist``.

    Parameters
    ----------
    x, y : node or array
        Float, shapes (..., n, features) and (..., m, features).
    p : float
        Order of the norm.

    Returns
    -------
    Node
        Shape (..., n, m).
    """
    return norm(expand_dims(x, -2) - expand_dims(x.graph.lift(y), -3), p, -1)


def normalize(x: Node, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Node:
    """Divide vectors along an axis by their p-norm, or by `eps` where that is larger.

    Parameters
    ----------
    x : node
        Float or complex.
    p : float
        Order of the norm.
    axis : int
    eps : float
    """
    return x / astype(maximum(norm(x, p, axis, keepdims=True), float(eps)), x.dtype)
