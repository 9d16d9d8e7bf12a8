"""Recurrent networks over time, in PyTorch's layout of weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import sqrt
from typing import Any, ClassVar

from actorgraph import ops
from actorgraph.control.recurrent import gru, lstm, rnn
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.nn import _draws
from actorgraph.nn._sized import Layer
from actorgraph.nn.module import Module
from actorgraph.node import Node
from actorgraph.options import choice, positive, real

State = tuple[Node, ...]


class _Recurrent(Layer, ABC):
    """Layers of cells over the steps of a sequence."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
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
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers = positive("num_layers", num_layers)
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
    def _layer(self, x: Node, first: Any, *weights: Any, **options: Any) -> tuple[Node, State]:
        """Return the outputs of a layer one way, and its last state."""

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
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                steps = ops.dropout(steps, self.dropout, self.training)
            sides = []
            for way in self.directions:
                first = [x.graph.lift(part)[len(last)] for part in given] or None
                outputs, end = self._pass(steps, first, f"_l{layer}{way}", lengths)
                sides.append(outputs)
                last.append(end)
            steps = ops.concatenate(sides, axis=-1) if len(sides) > 1 else sides[0]
        ends = tuple([ops.stack(parts) for parts in zip(*last, strict=True)])
        return ops.swapaxes(steps, 0, 1) if swaps else steps, ends if self.states > 1 else ends[0]

    def _pass(self, steps: Node, first: Any, suffix: str, lengths: Any) -> tuple[Node, State]:
        names = [*self._shapes(0)]
        weights = {name: steps.graph.lift(getattr(self, name + suffix)) for name in names}
        usual = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return self._layer(
            steps, first, *[weights.pop(name, None) for name in usual], **weights,
            reverse=suffix.endswith("_reverse"), lengths=lengths,
        )  # fmt: skip


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

    def _layer(self, x: Node, first: Any, *weights: Any, **options: Any) -> tuple[Node, State]:
        hidden = None if first is None else first[0]
        options["nonlinearity"] = self.nonlinearity
        outputs, end = rnn(x, hidden, *weights, **options)
        return outputs, (end,)


class GRU(_Recurrent):
    """Gated recurrent units.

    Source: K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
    """

    gates = 3

    def _layer(self, x: Node, first: Any, *weights: Any, **options: Any) -> tuple[Node, State]:
        outputs, end = gru(x, None if first is None else first[0], *weights, **options)
        return outputs, (end,)


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

    def _layer(self, x: Node, first: Any, *weights: Any, **options: Any) -> tuple[Node, State]:
        looks = [options.pop(f"weight_c{gate}") for gate in "ifo"] if self.peephole else None
        return lstm(x, first, *weights, peepholes=looks, **options)


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
