"""One step of recurrent networks, in PyTorch's layout of weights and order of gates.

Weights have the shape (gates * hidden, features), so a step multiplies by their transposes.  Built
of other ops.  Sources: S. Hochreiter, J. Schmidhuber, Long short-term memory, 1997; K. Cho et al.,
Learning phrase representations using RNN encoder-decoder, 2014.
"""

from __future__ import annotations

from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.ops._rules import as_of, raises, returns
from actorgraph.ops.activations import relu, sigmoid
from actorgraph.ops.indexing import getitem
from actorgraph.ops.linalg import matmul
from actorgraph.ops.shaping import swap_last
from actorgraph.ops.special import tanh
from actorgraph.types import Dim

__all__ = ["gru_cell", "lstm_cell", "rnn_cell"]


def _times(x: Node, turned: Node, bias: Any) -> Node:
    y = matmul(x, turned)
    return y if bias is None else y + bias


def weights_of(x: Node, hidden: Node, w_ih: Any, w_hh: Any, gates: int, what: str) -> list[Node]:
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


def pair_of(state: Any, what: str) -> tuple[Any, Any]:
    """Return the hidden and the cell state, or raise where they are no pair."""
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise GraphTypeError(f"{what}: state is a pair (hidden, cell), got {state!r}")
    return state[0], state[1]


def _parts(gates: Node, count: int, what: str) -> list[Node]:
    """Return the gates, side by side in the last axis, as views."""
    width = gates.dims[-1]
    if isinstance(width, Dim):
        raise ShapeError(f"{what}: the rows of the weights have to be known, got {width}")
    size = width // count
    full = (slice(None),) * (gates.ndim - 1)
    return [getitem(gates, (*full, slice(i * size, (i + 1) * size))) for i in range(count)]


@returns("Node: the next hidden state")
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
    """
    state = x.graph.lift(hidden)
    into, again = weights_of(x, state, w_ih, w_hh, 1, "rnn_cell")
    total = _times(x, swap_last(into), b_ih)
    return rnn_step(total, state, swap_last(again), b_hh, nonlinearity)


def rnn_step(total: Node, hidden: Node, turned: Node, b_hh: Any, nonlinearity: str) -> Node:
    """Return the next state from the input's part, ``x w_ih^T + b_ih``, as the other steps do.

    They take the transpose of ``w_hh``, which a loop over time computes once.
    """
    if nonlinearity not in ("tanh", "relu"):
        raise GraphTypeError(f"nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
    total = total + _times(hidden, turned, b_hh)
    return tanh(total) if nonlinearity == "tanh" else relu(total)


@returns("tuple of Node\n    ``(h', c')``.")
@raises(types="Dtypes differ, or `state` is no pair.", shapes="Shapes do not fit.")
@as_of(rnn_cell)
def lstm_cell(
    x: Node, state: tuple[Any, Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Node, Node]:
    """Return the next hidden and cell state of a long short-term memory, as ``torch.nn.LSTMCell``.

    With the gates i, f, g, o, in this order, of ``x w_ih^T + b_ih + h w_hh^T + b_hh``:
    ``c' = sigmoid(f) c + sigmoid(i) tanh(g)`` and ``h' = sigmoid(o) tanh(c')``.
    `rnn_cell` has no gates.

    Parameters
    ----------
    state : pair of node or array
        ``(h, c)``, each (batch, hidden) or (hidden,).
    w_ih, w_hh : node or array
        Shapes (4 hidden, features) and (4 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (4 hidden,).
    """
    hidden, cell = (x.graph.lift(part) for part in pair_of(state, "lstm_cell"))
    into, again = weights_of(x, hidden, w_ih, w_hh, 4, "lstm_cell")
    gates = _times(x, swap_last(into), b_ih)
    return lstm_step(gates, (hidden, cell), swap_last(again), b_hh)


def lstm_step(
    gates: Node, state: tuple[Node, Node], turned: Node, b_hh: Any, looks: Any = None
) -> tuple[Node, Node]:
    """Return the next states; `looks` are three vectors, the peepholes of gates into the cell."""
    hidden, cell = state
    gates = gates + _times(hidden, turned, b_hh)
    enter, forget, new, out = _parts(gates, 4, "lstm_cell")
    if looks is None:  # one call for all gates takes less time than three calls
        enter, forget, _, out = _parts(sigmoid(gates), 4, "lstm_cell")
    else:
        enter, forget = sigmoid(enter + looks[0] * cell), sigmoid(forget + looks[1] * cell)
    cell = forget * cell + enter * tanh(new)
    if looks is not None:
        out = sigmoid(out + looks[2] * cell)
    return out * tanh(cell), cell


@returns("Node: the next hidden state")
@raises(types="Dtypes differ.", shapes="Shapes do not fit.")
@as_of(rnn_cell)
def gru_cell(
    x: Node, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Node:
    """Return the next hidden state of a gated recurrent unit, as ``torch.nn.GRUCell``.

    With the gates r, z, n, in this order, of ``a = x w_ih^T + b_ih`` and ``b = h w_hh^T + b_hh``:
    ``r = sigmoid(a_r + b_r)``, ``z = sigmoid(a_z + b_z)``, ``n = tanh(a_n + r b_n)`` and
    ``h' = n + z (h - n)``; otherwise as `rnn_cell`.

    Parameters
    ----------
    w_ih, w_hh : node or array
        Shapes (3 hidden, features) and (3 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (3 hidden,).
    """
    state = x.graph.lift(hidden)
    into, again = weights_of(x, state, w_ih, w_hh, 3, "gru_cell")
    return gru_step(_times(x, swap_last(into), b_ih), state, swap_last(again), b_hh)


def gru_step(gates: Node, hidden: Node, turned: Node, b_hh: Any) -> Node:
    """Return the next state."""
    first = _parts(gates, 3, "gru_cell")
    other = _parts(_times(hidden, turned, b_hh), 3, "gru_cell")
    reset, update = (sigmoid(first[i] + other[i]) for i in range(2))
    new = tanh(first[2] + reset * other[2])
    return new + update * (hidden - new)
