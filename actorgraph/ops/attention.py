"""Attention, of one head and of several, built of other ops.

Floats of two bytes are computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

import sys
from math import inf, sqrt
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, Op
from actorgraph.ops import _foreign
from actorgraph.ops._arrays import highest, is_half
from actorgraph.ops._rules import as_of, declare, on, raises, returns
from actorgraph.ops.comparison import greater
from actorgraph.ops.convolution import linear
from actorgraph.ops.elementwise import astype, where
from actorgraph.ops.linalg import matmul
from actorgraph.ops.losses import softmax
from actorgraph.ops.random import dropout
from actorgraph.ops.rearranging import repeat
from actorgraph.ops.reshaping import group_dim, ungroup_dims
from actorgraph.ops.shaping import split, swap_last, swapaxes
from actorgraph.types import Dim

__all__ = ["multi_head_attention", "scaled_dot_product_attention"]


_CAUSAL: Op = declare(
    "causal_mask", "a[*s, q, k] -> bool[q, k]",
    lambda xp, scores: xp.tri(*scores.shape[-2:], dtype=bool), samples=(on((2, 3, 4)), on((0, 2))),
    memory=FRESH, traced=True, doc="Which keys each query may see: those up to its own place.",
)  # fmt: skip


@returns("Node of shape (..., queries, outputs)")
@raises(
    types="Dtypes differ, the mask is neither bool nor of the dtype of `query`, or `scale` is "
    "needed because only a run knows the features.", shapes="Shapes do not fit.",
)  # fmt: skip
def scaled_dot_product_attention(
    query: Node, key: Any, value: Any, mask: Any = None, *, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Node:  # fmt: skip
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
        to the scores; -inf hides a key.
    dropout_p : float
        Probability with which a weight is dropped in each run.
    is_causal : bool
        Query i sees the keys 0 to i, besides what `mask` says.
    scale : float, optional
        Default: ``1 / sqrt(features)``.
    enable_gqa : bool
        Shapes are (..., heads, length, features), and several heads of queries share one of keys
        and values.
    """
    keys, values = query.graph.lift(key), query.graph.lift(value)
    if min(query.ndim, keys.ndim) < 2:
        raise ShapeError(f"takes rank 2 or more, got {query!r} and {keys!r}")
    if enable_gqa:
        keys, values = (_for_heads(node, query) for node in (keys, values))
    scale = _scale(query) if scale is None else float(scale)
    operands = [query, keys, values, *([] if mask is None else [query.graph.lift(mask)])]
    if not is_half(query.dtype):
        return _attended(*operands, scale=scale, dropout_p=dropout_p, is_causal=is_causal)
    for node in operands:
        if node.dtype not in (query.dtype, np.bool_):
            raise GraphTypeError(f"mixed dtypes, {query.dtype} and {node.dtype}")
    wide = [node if node.dtype == np.bool_ else astype(node, "float32") for node in operands]
    y = _attended(*wide, scale=scale, dropout_p=dropout_p, is_causal=is_causal)
    return astype(y, query.dtype)


def _attended(
    query: Node, keys: Node, values: Node, mask: Node | None = None, *, scale: float,
    dropout_p: float, is_causal: bool,
) -> Node:  # fmt: skip
    scores = matmul(query * scale, swap_last(keys))
    seen = build(_CAUSAL, scores) if is_causal else None
    if mask is not None:
        if mask.dtype != np.bool_:
            scores = scores + mask
            mask = greater(mask, -inf)
        seen = mask if seen is None else seen & mask
    if seen is None:
        return matmul(dropout(softmax(scores), dropout_p), values)
    # A large finite number: in a row of -inf softmax would be NaN.
    lowest = -highest(scores.dtype) / 2
    weights = where(seen, softmax(where(seen, scores, lowest)), 0)
    return matmul(dropout(weights, dropout_p), values)


def _for_heads(node: Node, query: Node) -> Node:
    """Return keys or values with each head repeated for every head of queries that shares it."""
    heads, shared = query.dims[-3], node.dims[-3]
    if isinstance(heads, Dim) or isinstance(shared, Dim) or heads % shared:
        raise ShapeError(
            f"scaled_dot_product_attention: {heads} heads of queries cannot share {shared} of keys"
        )
    return repeat(node, heads // shared, node.ndim - 3)


def _scale(query: Node) -> float:
    features = query.dims[-1]
    if isinstance(features, Dim):
        raise GraphTypeError(
            f"scaled_dot_product_attention: only a run knows the features of {query!r}; give scale"
        )
    return 1 / sqrt(max(features, 1))


@returns("Node of shape (..., queries, outputs)")
@raises(types="Dtypes differ.", shapes="Shapes do not fit.")
@as_of(scaled_dot_product_attention)
def multi_head_attention(
    query: Node, key: Any, value: Any, num_heads: int, *, in_proj_weight: Any, out_proj_weight: Any,
    in_proj_bias: Any = None, out_proj_bias: Any = None, mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Node:  # fmt: skip
    """Project, attend with several heads, and project: PyTorch's ``MultiheadAttention``.

    Source: A. Vaswani et al., Attention is all you need, 2017.  The batch comes first.

    Parameters
    ----------
    query, key, value : node or array
        Shape (..., length, features); those of key and value are alike.
    num_heads : int
        Divides the features of the projections.
    in_proj_weight : node or array, or three of them
        Shape (3 * features, features): the projections of query, key and value stacked; or one
        for each.
    out_proj_weight : node or array
        Shape (outputs, features).
    in_proj_bias, out_proj_bias : node or array, optional
        Shapes (3 * features,) and (outputs,).
    mask : node or array, optional
        As of `scaled_dot_product_attention`; broadcasts to (..., heads, queries, keys).

    Examples
    --------
    >>> import actorgraph as ag, numpy as np
    >>> x = ag.Graph().input("x", ("batch", "length", 8))
    >>> w, v = np.zeros((24, 8), "float32"), np.zeros((8, 8), "float32")
    >>> ag.ops.multi_head_attention(x, x, x, 2, in_proj_weight=w, out_proj_weight=v).shape
    (batch, length, 8)
    """
    lift = query.graph.lift
    packed = not isinstance(in_proj_weight, (tuple, list))
    weights = split(lift(in_proj_weight), 3) if packed else in_proj_weight
    biases = (None,) * 3 if in_proj_bias is None else split(lift(in_proj_bias), 3)
    heads = []
    for x, weight, bias in zip((query, key, value), weights, biases, strict=True):
        projected = linear(lift(x), weight, bias)
        places = projected.ndim - 1
        heads.append(swapaxes(group_dim(projected, places, num_heads), -2, -3))
    q, k, v = heads
    y = scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout_p, is_causal=is_causal)
    return linear(ungroup_dims(swapaxes(y, -2, -3), query.ndim - 1), out_proj_weight, out_proj_bias)


_foreign.install_late(sys.modules[__name__])
