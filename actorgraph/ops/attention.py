"""Attention, of one head and of several, and one step of recurrent networks; built of other ops.

Attention of floats of two bytes is computed in float32 and rounded once, at the end.  Recurrent
networks have PyTorch's layout of weights and order of gates: weights have the shape (gates *
hidden, features), so a step multiplies by their transposes. Sources: S. Hochreiter, J. Schmidhuber,
Long short-term memory, 1997; K. Cho et al., Learning phrase representations using RNN
encoder-decoder, 2014.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op
from actorgraph.ops._arrays import highest, is_half
from actorgraph.ops._rules import declare, on, raises
from actorgraph.ops.activations import relu, sigmoid
from actorgraph.ops.comparison import greater
from actorgraph.ops.convolution import linear
from actorgraph.ops.elementwise import astype, where
from actorgraph.ops.indexing import getitem
from actorgraph.ops.linalg import matmul
from actorgraph.ops.losses import softmax
from actorgraph.ops.random import dropout
from actorgraph.ops.rearranging import repeat
from actorgraph.ops.reshaping import group_dim, ungroup_dims
from actorgraph.ops.shaping import split, swap_last, swapaxes
from actorgraph.ops.special import tanh
from actorgraph.types import Dim

__all__ = [
    "gru_cell", "lstm_cell", "multi_head_attention", "rnn_cell", "scaled_dot_product_attention",
]  # fmt: skip


def _affine(x: Node, weight: Node, bias: Any) -> Node:
    return _times(x, swap_last(weight), bias)


def _times(x: Node, turned: Node, bias: Any) -> Node:
    y = matmul(x, turned)
    return y if bias is None else y + bias


def _weights(x: Node, hidden: Node, w_ih: Any, w_hh: Any, gates: int, what: str) -> list[Node]:
    """Return both weights as nodes, checked; the input's first."""
    nodes = [x.graph.lift(w_ih), x.graph.lift(w_hh)]
    for node in nodes:
        if node.ndim != 2:
            raise ShapeError(
                f"{what}: weights have rank 2, ({gates} * hidden, features), got {node!r}"
            )
        size = hidden.dims[-1] if hidden.ndim else 0
        rows = node.dims[0]
        if isinstance(size, int) and isinstance(rows, int) and rows != gates * size:
            raise ShapeError(
                f"{what}: weights have {gates} * {size} rows, one block of the hidden size per "
                f"gate, got {node!r}"
            )
    return nodes


def _parts(gates: Node, count: int, what: str) -> list[Node]:
    """Return the gates, side by side in the last axis, as views."""
    width = gates.dims[-1]
    if isinstance(width, Dim):
        raise ShapeError(f"{what}: the rows of the weights have to be known, got {width}")
    size = width // count
    full = (slice(None),) * (gates.ndim - 1)
    return [getitem(gates, (*full, slice(i * size, (i + 1) * size))) for i in range(count)]


@raises(types="Dtypes differ, or there is no such nonlinearity.", shapes="Shapes do not fit.")
def rnn_cell(
    x: Node, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None,
    nonlinearity: str = "tanh",
) -> Node:  # fmt: skip
    """Return ``tanh(x w_ih^T + b_ih + hidden w_hh^T + b_hh)``, as ``torch.nn.RNNCell``.

    Parameters
    ----------
    x : node
        Float, shape (batch, features) or (features,).
    hidden : node or array
        Shape (batch, hidden) or (hidden,).
    w_ih, w_hh : node or array
        Shapes (hidden, features) and (hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (hidden,).
    nonlinearity : {"tanh", "relu"}

    Returns
    -------
    Node: the next hidden state
    """
    if nonlinearity not in ("tanh", "relu"):
        raise GraphTypeError(f"rnn_cell: nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
    state = x.graph.lift(hidden)
    into, again = _weights(x, state, w_ih, w_hh, 1, "rnn_cell")
    return rnn_step(_affine(x, into, b_ih), state, swap_last(again), b_hh, nonlinearity)


def rnn_step(total: Node, hidden: Node, turned: Node, b_hh: Any, nonlinearity: str) -> Node:
    """Return the next state by what the input gives, ``x w_ih^T + b_ih``; so do those below.

    They take the transpose of ``w_hh``: a loop over time makes it once.
    """
    total = total + _times(hidden, turned, b_hh)
    return tanh(total) if nonlinearity == "tanh" else relu(total)


@raises(types="Dtypes differ, or `state` is no pair.", shapes="Shapes do not fit.")
def lstm_cell(
    x: Node, state: tuple[Any, Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Node, Node]:
    """Return the next hidden and cell state of a long short-term memory, as ``torch.nn.LSTMCell``.

    With the gates i, f, g, o, in this order, of ``x w_ih^T + b_ih + h w_hh^T + b_hh``:
    ``c' = sigmoid(f) c + sigmoid(i) tanh(g)`` and ``h' = sigmoid(o) tanh(c')``.

    Parameters
    ----------
    x : node
        Float, shape (batch, features) or (features,).
    state : pair of node or array
        ``(h, c)``, each (batch, hidden) or (hidden,).
    w_ih, w_hh : node or array
        Shapes (4 hidden, features) and (4 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (4 hidden,).

    Returns
    -------
    tuple of Node
        ``(h', c')``.
    """
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise GraphTypeError(f"lstm_cell: state is a pair (hidden, cell), got {state!r}")
    hidden, cell = (x.graph.lift(part) for part in state)
    into, again = _weights(x, hidden, w_ih, w_hh, 4, "lstm_cell")
    return lstm_step(_affine(x, into, b_ih), (hidden, cell), swap_last(again), b_hh)


def lstm_step(
    gates: Node, state: tuple[Node, Node], turned: Node, b_hh: Any, looks: Any = None
) -> tuple[Node, Node]:
    """Return the next states; `looks` are three vectors by which gates see the cell."""
    hidden, cell = state
    gates = gates + _times(hidden, turned, b_hh)
    enter, forget, new, out = _parts(gates, 4, "lstm_cell")
    if looks is None:  # one call for all of them takes less than one for each of three
        enter, forget, _, out = _parts(sigmoid(gates), 4, "lstm_cell")
    else:
        enter, forget = sigmoid(enter + looks[0] * cell), sigmoid(forget + looks[1] * cell)
    cell = forget * cell + enter * tanh(new)
    if looks is not None:
        out = sigmoid(out + looks[2] * cell)
    return out * tanh(cell), cell


@raises(types="Dtypes differ.", shapes="Shapes do not fit.")
def gru_cell(
    x: Node, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Node:
    """Return the next hidden state of a gated recurrent unit, as ``torch.nn.GRUCell``.

    With the gates r, z, n, in this order, of ``a = x w_ih^T + b_ih`` and ``b = h w_hh^T + b_hh``:
    ``r = sigmoid(a_r + b_r)``, ``z = sigmoid(a_z + b_z)``, ``n = tanh(a_n + r b_n)`` and
    ``h' = n + z (h - n)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, features) or (features,).
    hidden : node or array
        Shape (batch, hidden) or (hidden,).
    w_ih, w_hh : node or array
        Shapes (3 hidden, features) and (3 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (3 hidden,).

    Returns
    -------
    Node: the next hidden state
    """
    state = x.graph.lift(hidden)
    into, again = _weights(x, state, w_ih, w_hh, 3, "gru_cell")
    return gru_step(_affine(x, into, b_ih), state, swap_last(again), b_hh)


def gru_step(gates: Node, hidden: Node, turned: Node, b_hh: Any) -> Node:
    """Return the next state."""
    first = _parts(gates, 3, "gru_cell")
    other = _parts(_times(hidden, turned, b_hh), 3, "gru_cell")
    reset, update = (sigmoid(first[i] + other[i]) for i in range(2))
    new = tanh(first[2] + reset * other[2])
    return new + update * (hidden - new)


_CAUSAL: Op = declare(
    "causal_mask", "a[*s, q, k] -> bool[q, k]",
    lambda xp, scores: xp.tri(*scores.shape[-2:], dtype=bool), samples=(on((2, 3, 4)), on((0, 2))),
    doc="Which keys each query may see: those up to its own place.",
)  # fmt: skip


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

    Returns
    -------
    Node of shape (..., queries, outputs)

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", ("batch", "length", 8))
    >>> ag.ops.scaled_dot_product_attention(x, x, x, is_causal=True).shape
    (batch, length, 8)
    """
    keys, values = query.graph.lift(key), query.graph.lift(value)
    if min(query.ndim, keys.ndim) < 2:
        raise ShapeError(
            f"scaled_dot_product_attention takes rank 2 or more, got {query!r} and {keys!r}"
        )
    if enable_gqa:
        keys, values = (_for_heads(node, query) for node in (keys, values))
    scale = _scale(query) if scale is None else float(scale)
    operands = [query, keys, values, *([] if mask is None else [query.graph.lift(mask)])]
    if not is_half(query.dtype):
        return _attended(*operands, scale=scale, dropout_p=dropout_p, is_causal=is_causal)
    for node in operands:
        if node.dtype not in (query.dtype, np.bool_):
            raise GraphTypeError(
                f"scaled_dot_product_attention: mixed dtypes, {query.dtype} and {node.dtype}"
            )
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
    """Return keys or values with each head as often as heads of queries share it."""
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


@raises(types="Dtypes differ.", shapes="Shapes do not fit.")
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
        Shape (3 * features, features): the projections of query, key and value on top of each
        other; or one for each.
    out_proj_weight : node or array
        Shape (outputs, features).
    in_proj_bias, out_proj_bias : node or array, optional
        Shapes (3 * features,) and (outputs,).
    mask : node or array, optional
        As of `scaled_dot_product_attention`; broadcasts to (..., heads, queries, keys).
    dropout_p, is_causal
        As of `scaled_dot_product_attention`.

    Returns
    -------
    Node of shape (..., queries, outputs)

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
