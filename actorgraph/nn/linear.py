"""Affine and bilinear maps, and tables of vectors."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from actorgraph import ops
from actorgraph.nn import _draws
from actorgraph.nn._sized import Layer, Sized
from actorgraph.nn.module import Module
from actorgraph.node import Node
from actorgraph.parameters import Parameter


class Linear(Sized):
    """``x weight^T + bias``, of the last axis.

    Parameters
    ----------
    in_features : int or None
        None: taken from the first input.
    out_features : int
    bias : bool
    dtype : float dtype

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.Linear(None, 3)(ag.Graph().input("x", ("batch", 5))).shape
    (batch, 3)
    """

    def __init__(
        self, in_features: int | None, out_features: int, bias: bool = True, dtype: Any = "float32"
    ) -> None:
        self.out_features, self.has_bias, self.dtype = out_features, bias, dtype
        self.start(in_features)

    def make(self, size: int) -> None:
        """Draw weights from [-b, b), b = 1 / sqrt(size); see `Sized.make`."""
        bound = 1 / sqrt(max(size, 1))
        self.weight = _draws.uniform((self.out_features, size), bound, self.dtype)
        self.bias = (
            _draws.uniform((self.out_features,), bound, self.dtype) if self.has_bias else None
        )

    def forward(self, x: Node) -> Node:
        """Return the map of `x`."""
        return ops.linear(x, self.weight, self.bias)


class Bilinear(Module):
    """``x1^T weight[k] x2 + bias[k]`` for each output k."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        dtype: Any = "float32",
    ) -> None:
        bound = 1 / sqrt(max(in1_features, 1))
        shape = out_features, in1_features, in2_features
        self.weight = _draws.uniform(shape, bound, dtype)
        self.bias = _draws.uniform((out_features,), bound, dtype) if bias else None

    def forward(self, x1: Node, x2: Any) -> Node:
        """Return the map of both."""
        return ops.bilinear(x1, x2, self.weight, self.bias)


class PReLU(Module):
    """Its input where that is positive, else times a slope that is learnt."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = "float32") -> None:
        self.weight = _draws.filled((num_parameters,), init, dtype)

    def forward(self, x: Node) -> Node:
        """Return `ops.prelu` of the input."""
        return ops.prelu(x, self.weight)


class Embedding(Layer):
    """Rows of a table of vectors, by number.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows and columns.
    padding_idx : int, optional
        A row that starts as zeros and gets no gradient.
    dtype : float dtype
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: Any = "float32",
    ) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        weight = _draws.normal((num_embeddings, embedding_dim), dtype)
        if padding_idx is not None:
            array = np.array(weight.array)
            array[padding_idx] = 0
            weight = Parameter(array)
        self.weight: Any = weight

    def forward(self, index: Node) -> Node:
        """Return a row for each number."""
        return ops.embedding(index, self.weight, self.padding_idx)
