"""Recurrent networks over time, in PyTorch's layout of weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from actorgraph import ops
from actorgraph.control.functions import scan
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.nn import _draws
from actorgraph.nn._sized import settings
from actorgraph.nn.module import Module
from actorgraph.node import Node
from actorgraph.ops.attention import gru_step, lstm_step, rnn_step
from actorgraph.options import choice, real

__all__ = ["GRU", "LSTM", "RNN", "TreeLSTM"]

State = tuple[Node, ...]


class _Recurrent(Module, ABC):
    """Layers of cells over the steps of a sequence."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    adds_biases: ClassVar[bool] = True
    """Whether both biases are added to the same sums, so that their own sum can be."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = "float32",
    ) -> None:
        """Take the settings.

        Parameters
        ----------
        input_size, hidden_size, num_layers : int
        bias, batch_first : bool
            Shapes are (length, batch, features), with `batch_first` (batch, length, features).
        dropout : float
            Between layers, in training.
        bidirectional : bool
            A second pass from the end, whose outputs stand beside those of the first.
        dtype : float dtype
        """
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = real("dropout", dropout)
        self.directions = ["", "_reverse"] if bidirectional else [""]
        for layer in range(num_layers):
            size = input_size if layer == 0 else hidden_size * len(self.directions)
            for way in self.directions:
                for name, shape in self._shapes(size).items():
                    drawn = _draws.uniform(shape, 1 / sqrt(hidden_size), dtype)
                    setattr(self, f"{name}_l{layer}{way}", drawn)

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        rows = self.gates * self.hidden_size
        biases = {"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {}
        return {"weight_ih": (rows, size), "weight_hh": (rows, self.hidden_size), **biases}

    @abstractmethod
    def _step(self, gates: Node, state: State, weights: dict[str, Node]) -> State:
        """Return the next state by the products of the inputs, which are made for all steps."""

    def forward(self, x: Node, state: Any = None, lengths: Any = None) -> tuple[Node, Any]:
        """Return the outputs of the last layer, and the last states of all.

        Parameters
        ----------
        x : node
            Of three axes, or two without the batch; the length may be a symbol.
        state : node, or pair of them for an LSTM; optional
            First states, (layers * directions, batch, hidden); default zeros.
        lengths : node or array of int, optional
            Steps of each sequence, (batch,): what follows is not looked at, and its outputs are 0.
        """
        if x.ndim not in (2, 3):
            raise ShapeError(f"takes sequences, (length, batch, features), got {x!r}")
        swaps = x.ndim == 3 and self.batch_first
        steps = ops.swapaxes(x, 0, 1) if swaps else x
        given = (
            (state if isinstance(state, (tuple, list)) else (state,)) if state is not None else ()
        )
        if state is not None and len(given) != self.states:
            raise GraphTypeError(f"a state is {self.states} nodes, got {len(given)}")
        reach = None if lengths is None else x.graph.lift(lengths)
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                steps = ops.dropout(steps, self.dropout, self.training)
            sides = []
            for way in self.directions:
                if state is not None:
                    first = tuple([x.graph.lift(part)[len(last)] for part in given])
                else:
                    row = ops.sum(steps[..., :1], 0)  # of which only the shape is asked for
                    zeros = ops.zeros_like(row) * np.ones(self.hidden_size, x.dtype)
                    first = (zeros,) * self.states
                outputs, end = self._pass(steps, first, f"_l{layer}{way}", reach)
                sides.append(outputs)
                last.append(end)
            steps = ops.concatenate(sides, axis=-1) if len(sides) > 1 else sides[0]
        ends = tuple([ops.stack(parts) for parts in zip(*last, strict=True)])
        return ops.swapaxes(steps, 0, 1) if swaps else steps, ends if self.states > 1 else ends[0]

    def _pass(
        self, steps: Node, first: State, suffix: str, reach: Node | None
    ) -> tuple[Node, State]:
        """Return the outputs of a layer one way, and its last state, by a scan."""
        names = [*self._shapes(0)]
        weights = {name: steps.graph.lift(getattr(self, name + suffix)) for name in names}
        bias = weights.pop("bias_ih", None)
        if bias is not None and self.adds_biases:
            bias = bias + weights.pop("bias_hh")
        weights["turned_hh"] = ops.swapaxes(weights.pop("weight_hh"), 0, 1)
        products = ops.linear(steps, weights.pop("weight_ih"), bias)

        def step(state: State, given: Any) -> tuple[State, Node]:
            gates, place = given
            new = self._step(gates, state, weights)
            if reach is None:
                return new, new[0]
            live = ops.expand_dims(ops.greater(reach, place), -1)
            pairs = zip(new, state, strict=True)
            return tuple([ops.where(live, *pair) for pair in pairs]), ops.where(live, new[0], 0)

        places = None if reach is None else ops.arange(steps, steps.dims[0])
        backwards = suffix.endswith("_reverse")
        end, outputs = scan(step, first, (products, places), reverse=backwards)
        return outputs, end

    def extra_repr(self) -> str:
        """Return the settings; see `Module.extra_repr`."""
        return settings(self)


class RNN(_Recurrent):
    """Elman's network; ``nonlinearity="tanh"`` or ``"relu"``.

    Source: J. Elman, "Finding Structure in Time", 1990.
    """

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        **others: Any,
    ) -> None:  # fmt: skip
        self.nonlinearity = choice("nonlinearity", nonlinearity, ("tanh", "relu"))
        super().__init__(input_size, hidden_size, num_layers, **others)

    def _step(self, gates: Node, state: State, weights: dict[str, Node]) -> State:
        again, bias = weights["turned_hh"], weights.get("bias_hh")
        return (rnn_step(gates, state[0], again, bias, self.nonlinearity),)


class GRU(_Recurrent):
    """Gated recurrent units.

    Source: K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
    """

    gates, adds_biases = 3, False

    def _step(self, gates: Node, state: State, weights: dict[str, Node]) -> State:
        return (gru_step(gates, state[0], weights["turned_hh"], weights.get("bias_hh")),)


class LSTM(_Recurrent):
    """Long short-term memory; with ``peephole=True`` the gates see the cell, by three vectors more.

    Sources: S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997; with peepholes F.
    Gers, N. Schraudolph, J. Schmidhuber, "Learning precise timing with LSTM recurrent networks",
    2002.
    """

    gates, states = 4, 2

    def __init__(
        self, input_size: int, hidden_size: int, *args: Any, peephole: bool = False, **others: Any
    ) -> None:
        self.peephole = peephole
        super().__init__(input_size, hidden_size, *args, **others)

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        looks = ("weight_ci", "weight_cf", "weight_co") if self.peephole else ()
        return {**super()._shapes(size), **dict.fromkeys(looks, (self.hidden_size,))}

    def _step(self, gates: Node, state: State, weights: dict[str, Node]) -> State:
        looks = [weights[f"weight_c{gate}"] for gate in "ifo"] if self.peephole else None
        hidden, cell = state
        again, bias = weights["turned_hh"], weights.get("bias_hh")
        return lstm_step(gates, (hidden, cell), again, bias, looks)


class TreeLSTM(Module):
    """The child-sum LSTM of one node of a tree; call it for children first.

    Source: K. Tai, R. Socher, C. Manning, "Improved Semantic Representations From Tree-Structured
    Long Short-Term Memory Networks", ACL 2015.

    Examples
    --------
    >>> import actorgraph as ag
    >>> tree = ag.nn.TreeLSTM(4, 3)
    >>> x = ag.Graph().input("x", ("batch", 4))
    >>> leaves = [tree(x), tree(x)]
    >>> tree(x, leaves)[0].shape
    (batch, 3)
    """

    def __init__(self, input_size: int, hidden_size: int, dtype: Any = "float32") -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        bound = 1 / sqrt(hidden_size)
        for gate in ("iou", "f"):
            rows = hidden_size * len(gate)
            setattr(self, f"weight_{gate}", _draws.uniform((rows, input_size), bound, dtype))
            setattr(self, f"under_{gate}", _draws.uniform((rows, hidden_size), bound, dtype))
            setattr(self, f"bias_{gate}", _draws.uniform((rows,), bound, dtype))

    def forward(self, x: Node, children: Any = ()) -> tuple[Node, Node]:
        """Return (hidden, cell) of a node with the input `x` and the pairs of its children."""
        gates = ops.linear(x, self.weight_iou, self.bias_iou)
        if children:
            below = sum((hidden for hidden, _ in children[1:]), children[0][0])
            gates = gates + ops.linear(below, self.under_iou)
        enter, out, new = ops.split(gates, 3, axis=-1)
        cell = ops.sigmoid(enter) * ops.tanh(new)
        if children:
            own = ops.linear(x, self.weight_f, self.bias_f)
            for hidden, below in children:
                cell = cell + ops.sigmoid(own + ops.linear(hidden, self.under_f)) * below
        return ops.sigmoid(out) * ops.tanh(cell), cell
