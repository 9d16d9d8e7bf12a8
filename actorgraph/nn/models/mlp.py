"""`MLP`: affine maps with a function between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from actorgraph.nn.containers import Sequential
from actorgraph.nn.layers import Dropout, ReLU
from actorgraph.nn.linear import Linear
from actorgraph.nn.module import Module


class MLP(Sequential):
    """A multilayer perceptron.

    Parameters
    ----------
    *widths : int
        Of the input (None takes it from the first call), the hidden layers, and the output.
    activation : callable
        Makes the module between two maps.
    dropout : float
        After each activation.
    dtype : float dtype

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.models.MLP(4, 8, 3)
    MLP(
      (0): Linear(in_features=4, out_features=8)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=3)
    )
    """

    def __init__(
        self, *widths: int | None, activation: Callable[[], Module] = ReLU, dropout: float = 0.0,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        if len(widths) < 2 or None in widths[1:]:
            raise ValueError(f"an MLP has the widths of input and output at least, got {widths}")
        layers: list[Module] = []
        for inputs, outputs in pairwise(widths):
            if layers:
                layers += [activation(), *([Dropout(dropout)] if dropout else [])]
            layers.append(Linear(inputs, int(outputs or 0), dtype=dtype))
        super().__init__(*layers)
