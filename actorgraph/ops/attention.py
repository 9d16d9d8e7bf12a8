"""Scaled dot-product attention, built of other ops."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample, register
from actorgraph.operands import naming_itself
from actorgraph.ops._scalars import highest
from actorgraph.ops.linalg import matmul
from actorgraph.ops.losses import softmax
from actorgraph.ops.selection import where
from actorgraph.ops.shaping import swap_last
from actorgraph.types import Dim

__all__ = ["scaled_dot_product_attention"]

_CAUSAL: Op = register(
    Op(
        "causal_mask",
        "a[*s, q, k] -> bool[q, k]",
        lambda xp, scores: xp.tri(*scores.shape[-2:], dtype=bool),
        samples=(Sample(((2, 3, 4),)), Sample(((0, 2),))),
        doc="Which keys each query may see: those up to its own place.",
    )
)


@naming_itself
def scaled_dot_product_attention(
    query: Node,
    key: Any,
    value: Any,
    mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Node:
    """Return ``softmax(query key^T scale + mask) value``, as PyTorch's function of that name.

    Computed with the maximum of each row subtracted.  A query that may see no key gets zeros, and
    no gradient.  Source: A. Vaswani et al., Attention is all you need, 2017.

    Parameters
    ----------
    query : node
        Float, shape (..., queries, features).
    key : node or array
        Shape (..., keys, features).
    value : node or array
        Shape (..., keys, outputs).
    mask : node or array, optional
        Broadcasts to (..., queries, keys).  Bool: True where a query may see a key.  Float: added
        to the scores.
    is_causal : bool
        Query i sees the keys 0 to i, besides what `mask` says.
    scale : float, optional
        Default: ``1 / sqrt(features)``.

    Returns
    -------
    Node
        Shape (..., queries, outputs).

    Raises
    ------
    GraphTypeError
        Dtypes differ, the mask is neither bool nor of the dtype of `query`, or `scale` is needed
        because only a run knows the features.
    ShapeError
        Shapes do not fit.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> x = Graph().input("x", ("batch", "length", 8))
    >>> scaled_dot_product_attention(x, x, x, is_causal=True).shape
    (batch, length, 8)
    """
    keys = query.graph.lift(key)
    if min(query.ndim, keys.ndim) < 2:
        raise ShapeError(
            f"scaled_dot_product_attention takes rank 2 or more, got {query!r} and {keys!r}"
        )
    scores = matmul(query * _scale(query, scale), swap_last(keys))
    seen = build(_CAUSAL, scores) if is_causal else None
    if mask is not None:
        given = query.graph.lift(mask)
        if given.dtype == np.bool_:
            seen = given if seen is None else seen & given
        else:
            scores = scores + given
    if seen is None:
        return matmul(softmax(scores), value)
    # A large finite number: in a row of -inf softmax would be NaN.
    lowest = -highest(scores.dtype) / 2
    weights = softmax(where(seen, scores, lowest))
    return matmul(where(seen, weights, 0), value)


def _scale(query: Node, scale: float | None) -> float:
    if scale is not None:
        return float(scale)
    features = query.dims[-1]
    if isinstance(features, Dim):
        raise GraphTypeError(
            f"scaled_dot_product_attention: only a run knows the features of {query!r}; give scale"
        )
    return 1 / sqrt(max(features, 1))
