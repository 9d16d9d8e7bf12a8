"""Recurrent layers over time, as scans: `rnn`, `gru` and `lstm`, in PyTorch's layout of weights.

Products with the inputs are computed for all steps at once; a step multiplies by the weights of the
state, which are transposed before the loop.  Lengths may be symbolic.  `ag.ops` exports these
functions, and the modules of `ag.nn` call them for each layer and direction.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from actorgraph.control.functions import scan
from actorgraph.control.in_blocks import in_blocks
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.ops import _foreign
from actorgraph.ops._rules import raises
from actorgraph.ops.broadcasting import expand_dims, zeros_like
from actorgraph.ops.comparison import greater
from actorgraph.ops.creation import arange
from actorgraph.ops.elementwise import where
from actorgraph.ops.recurrent import gru_step, lstm_step, pair_of, rnn_step, weights_of
from actorgraph.ops.shaping import swap_last, turned

__all__ = ["gru", "lstm", "rnn"]

_State = tuple[Node, ...]
_DTYPES = "Dtypes differ, or an argument is none of those named."


def _over_time(
    what: str, step: Callable[[Node, _State, Node], _State], gates: int, x: Node,
    state: tuple[Any, ...], weights: tuple[Any, Any], bias: Any, reverse: bool, lengths: Any,
) -> tuple[Node, _State]:  # fmt: skip
    """Return the outputs and the last state; ``step(gates, state, w_hh.T)`` makes one."""
    if x.ndim not in (2, 3):
        raise ShapeError(f"{what} takes sequences, (length, [batch,] features), got {x!r}")
    graph = x.graph
    size = graph.lift(weights[1]).dims[-1]
    if any([part is None for part in state]):  # noqa: C419
        row = x[..., :1].sum(0)  # only its shape is used
        state = (zeros_like(row) * np.ones(size, x.dtype),) * len(state)  # type: ignore[arg-type]
    first = tuple([graph.lift(part) for part in state])
    into, again = weights_of(x, first[0], *weights, gates, what)
    products, hidden = in_blocks(x, swap_last(into)), turned(again)
    lifted_lengths = None if lengths is None else graph.lift(lengths)

    def body(state: _State, given: Any) -> tuple[_State, Node]:
        now, place = given
        new = step(now if bias is None else now + bias, state, hidden)
        if lifted_lengths is None:
            return new, new[0]
        live = expand_dims(greater(lifted_lengths, place), -1)
        next_state = tuple([where(live, *pair) for pair in zip(new, state, strict=True)])
        return next_state, where(live, new[0], 0)

    places = None if lifted_lengths is None else arange(x, x.dims[0])
    end, outputs = scan(body, first, (products, places), reverse=reverse)
    return outputs, end


def _joined(x: Node, one: Any, other: Any) -> Any:
    """Return the sum of two optional biases."""
    if one is None or other is None:
        return one if other is None else other
    return x.graph.lift(one) + other


@raises(types=_DTYPES, shapes="Shapes do not fit.")
def rnn(
    x: Node, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None,
    nonlinearity: str = "tanh", *, reverse: bool = False, lengths: Any = None,
) -> tuple[Node, Node]:  # fmt: skip
    """Apply `rnn_cell` along the first axis of `x`, a layer of ``torch.nn.RNN``.

    A scan: nothing grows with the length, which may be symbolic.

    Parameters
    ----------
    x : node
        Float, shape (length, batch, features) or (length, features).
    hidden : node or array, optional
        The first state, (batch, hidden) or (hidden,); None for zeros.
    w_ih, w_hh : node or array
        Shapes (hidden, features) and (hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (hidden,).
    nonlinearity : {"tanh", "relu"}
    reverse : bool
        Begin with the last element; outputs keep the places of the inputs.
    lengths : node or array of int, optional
        Steps of each sequence, (batch,): later elements are not read, and their outputs are 0.

    Returns
    -------
    outputs, hidden : Node
        The states of all steps, (length, batch, hidden), and the last one.
    """

    def step(now: Node, state: _State, transposed_hh: Node) -> _State:
        return (rnn_step(now, state[0], transposed_hh, None, nonlinearity),)

    bias = _joined(x, b_ih, b_hh)
    outputs, end = _over_time("rnn", step, 1, x, (hidden,), (w_ih, w_hh), bias, reverse, lengths)
    return outputs, end[0]


@raises(types=_DTYPES, shapes="Shapes do not fit.")
def gru(
    x: Node, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None,
    *, reverse: bool = False, lengths: Any = None,
) -> tuple[Node, Node]:  # fmt: skip
    """Apply `gru_cell` along the first axis of `x`, a layer of ``torch.nn.GRU``.

    A scan: nothing grows with the length, which may be symbolic.

    Parameters
    ----------
    x, hidden, reverse, lengths
        As in `rnn`.
    w_ih, w_hh : node or array
        Shapes (3 hidden, features) and (3 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (3 hidden,).

    Returns
    -------
    outputs, hidden : Node
        The states of all steps, (length, batch, hidden), and the last one.
    """

    def step(now: Node, state: _State, transposed_hh: Node) -> _State:
        return (gru_step(now, state[0], transposed_hh, b_hh),)

    outputs, end = _over_time("gru", step, 3, x, (hidden,), (w_ih, w_hh), b_ih, reverse, lengths)
    return outputs, end[0]


@raises(types=_DTYPES, shapes="Shapes do not fit.")
def lstm(
    x: Node, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None,
    *, reverse: bool = False, lengths: Any = None, peepholes: Any = None,
) -> tuple[Node, tuple[Node, Node]]:  # fmt: skip
    """Apply `lstm_cell` along the first axis of `x`, a layer of ``torch.nn.LSTM``.

    A scan: nothing grows with the length, which may be symbolic.

    Parameters
    ----------
    x, reverse, lengths
        As in `rnn`.
    state : pair of node or array, optional
        The first ``(h, c)``, each (batch, hidden) or (hidden,); None for zeros.
    w_ih, w_hh : node or array
        Shapes (4 hidden, features) and (4 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (4 hidden,).
    peepholes : three of node or array, optional
        Shapes (hidden,): weights by which the gates i, f and o read the cell.

    Returns
    -------
    outputs : Node
        The hidden states of all steps, (length, batch, hidden).
    state : tuple of Node
        The last ``(h, c)``.
    """
    first = (None, None) if state is None else pair_of(state, "lstm")
    if peepholes is not None and len(peepholes) != 3:
        raise GraphTypeError(f"lstm: peepholes are three vectors, got {len(peepholes)}")

    def step(now: Node, state: _State, transposed_hh: Node) -> _State:
        return lstm_step(now, (state[0], state[1]), transposed_hh, None, peepholes)

    bias = _joined(x, b_ih, b_hh)
    outputs, end = _over_time("lstm", step, 4, x, first, (w_ih, w_hh), bias, reverse, lengths)
    return outputs, (end[0], end[1])


_foreign.install([sys.modules[__name__]])
