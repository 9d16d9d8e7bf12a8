"""Affine and bilinear maps, and tables of vectors."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from actorgraph import ops
from actorgraph.nn import _draws, init
from actorgraph.nn._sized import Layer, Sized
from actorgraph.nn.module import Module
from actorgraph.node import Node
from actorgraph.ops.losses import check_reduction
from actorgraph.parameters import Buffer, Parameter


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
        return ops.linear(x, self.weight, self.bias)


class LinearCrossEntropyLoss(Layer):
    """`ops.cross_entropy` of a `Linear` layer of its own; classes are on axis 1.

    Parameters
    ----------
    in_features, num_classes : int
    out_features : tuple of int
        Of each row so many losses: targets are ``(batch, *out_features)``.
    bias : bool
    reduction, weight, ignore_index, label_smoothing
        As of `ops.cross_entropy`, but that classes of -100 are ignored where no other are.
    dtype : float dtype

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> loss = ag.nn.LinearCrossEntropyLoss(5, 10, out_features=(4, 3))
    >>> loss(np.zeros((2, 5), "float32"), np.zeros((2, 4, 3), int)).shape
    ()
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
        bias: bool = False, reduction: str = "mean", weight: Any = None,
        ignore_index: int | None = None, label_smoothing: float = 0.0, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        check_reduction(reduction)
        self.in_features, self.num_classes = in_features, num_classes
        self.out_features, self.reduction = out_features, reduction
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.weight = None if weight is None else Buffer(np.asarray(weight, dtype))
        self.linear = Linear(in_features, num_classes * prod(out_features), bias, dtype)

    def forward(self, x: Node, target: Any) -> Node:
        logits = self.linear(x)
        if self.out_features:
            logits = ops.reshape(logits, (-1, self.num_classes, *self.out_features))
        ignored, target = self.ignore_index, x.graph.lift(target)
        if ignored is None and target.dtype.kind in "iu":
            ignored = -100
        return ops.cross_entropy(
            logits, target, self.weight, reduction=self.reduction, ignore_index=ignored,
            label_smoothing=self.label_smoothing, axis=min(1, x.ndim - 1),
        )  # fmt: skip


class Bilinear(Module):
    """``x1^T weight[k] x2 + bias[k]`` for each output k."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        bound = 1 / sqrt(max(in1_features, 1))
        shape = out_features, in1_features, in2_features
        self.weight = _draws.uniform(shape, bound, dtype)
        self.bias = _draws.uniform((out_features,), bound, dtype) if bias else None

    def forward(self, x1: Node, x2: Any) -> Node:
        return ops.bilinear(x1, x2, self.weight, self.bias)


class PReLU(Module):
    """Its input where that is positive, else times a slope that is learnt."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = "float32") -> None:
        self.weight = _draws.filled((num_parameters,), init, dtype)

    def forward(self, x: Node) -> Node:
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
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        weight = init.normal((num_embeddings, embedding_dim), dtype=dtype)
        if padding_idx is not None:
            weight[padding_idx] = 0
        self.weight: Any = Parameter(weight)

    def forward(self, index: Node) -> Node:
        return ops.embedding(index, self.weight, self.padding_idx)
