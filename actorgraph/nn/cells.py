"""Cells of recurrent networks: one step each, as for the body of an `ag.scan`."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from actorgraph import ops
from actorgraph.nn import _draws
from actorgraph.nn._sized import Layer
from actorgraph.node import Node
from actorgraph.options import choice, positive


class _Cell(Layer):
    """A step of a recurrent network, in PyTorch's layout of weights."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    step: ClassVar[Callable[..., Any]]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: Any = "float32"
    ) -> None:
        self.input_size = positive("input_size", input_size)
        self.hidden_size = positive("hidden_size", hidden_size)
        self.bias = bias
        rows, bound = self.gates * hidden_size, 1 / sqrt(hidden_size)
        shapes = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size)}
        for name, shape in (shapes | dict.fromkeys(("bias_ih", "bias_hh"), (rows,))).items():
            drawn = bias or name in shapes
            setattr(self, name, _draws.uniform(shape, bound, dtype) if drawn else None)

    def forward(self, x: Node, state: Any = None) -> Any:
        """Return the next state: a node (batch, hidden), or a pair of them for an LSTM.

        Parameters
        ----------
        x : node
            (batch, features), or (features,).
        state : node, or pair of them for an LSTM; optional
            The state before; default zeros.
        """
        if state is None:
            size = np.zeros(self.hidden_size, x.dtype)
            zeros = ops.zeros_like(x[..., :1]) + size if x.ndim > 1 else x.graph.constant(size)
            state = zeros if self.states == 1 else (zeros,) * self.states
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return type(self).step(x, state, *weights, **self._options())

    def _options(self) -> dict[str, Any]:
        return {}


class RNNCell(_Cell):
    """A step of Elman's network; ``nonlinearity="tanh"`` or ``"relu"``.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> cell = ag.nn.RNNCell(4, 3)
    >>> steps = ag.Graph().input("steps", ("length", 4))
    >>> last, _ = ag.scan(lambda h, x: (cell(x, h), None), np.zeros(3, "float32"), steps)
    >>> last.shape
    (3,)
    """

    gates, step = 1, staticmethod(ops.rnn_cell)

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        **others: Any,
    ) -> None:  # fmt: skip
        self.nonlinearity = choice("nonlinearity", nonlinearity, ("tanh", "relu"))
        super().__init__(input_size, hidden_size, bias, **others)

    def _options(self) -> dict[str, Any]:
        return {"nonlinearity": self.nonlinearity}


class GRUCell(_Cell):
    """A step of gated recurrent units; see `GRU`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.GRUCell(4, 3)(ag.Graph().input("x", ("batch", 4))).shape
    (batch, 3)
    """

    gates, step = 3, staticmethod(ops.gru_cell)


class LSTMCell(_Cell):
    """A step of a long short-term memory, from (hidden, cell) to the next pair; see `LSTM`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> hidden, cell = ag.nn.LSTMCell(4, 3)(ag.Graph().input("x", ("batch", 4)))
    >>> hidden.shape
    (batch, 3)
    """

    gates, states, step = 4, 2, staticmethod(ops.lstm_cell)
