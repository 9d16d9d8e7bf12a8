"""`AdaptiveLogSoftmaxWithLoss`: a softmax over many classes, of which few are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from actorgraph import ops
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.nn._sized import Layer
from actorgraph.nn.containers import ModuleList, Sequential
from actorgraph.nn.linear import Linear
from actorgraph.node import Node


class AdaptiveLogSoftmax(NamedTuple):
    """The result of `AdaptiveLogSoftmaxWithLoss`."""

    output: Any
    """Logarithms of the probabilities of the targets."""
    loss: Any
    """Minus their mean."""


class AdaptiveLogSoftmaxWithLoss(Layer):
    """Softmax over many classes, which are sorted from frequent to rare, without all logits.

    The head has the classes below the first cutoff and one entry a cluster; each cluster has the
    classes from one cutoff to the next and is computed for the rows whose targets are there.

    Parameters
    ----------
    in_features, n_classes : int
    cutoffs : sequence of int
        Ascending, from 1 to ``n_classes - 1``.
    div_value : float
        Each cluster sees so many times fewer features than the one before.
    head_bias : bool
    dtype : float dtype

    References
    ----------
    E. Grave, A. Joulin, M. Cisse, D. Grangier, H. Jegou, "Efficient softmax approximation for
    GPUs", ICML 2017.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> net = ag.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10])
    >>> x = np.zeros((3, 8), "float32")
    >>> result = net(x, np.array([0, 5, 19]))
    >>> result.output.shape, result.loss.shape
    ((3,), ())
    >>> net.log_prob(x).shape, net.predict(x).shape
    ((3, 20), (3,))
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        first, *others = ends = (*cutoffs, n_classes)
        if not others or [0, *ends] != sorted({0, *ends}) or any(int(one) != one for one in ends):
            raise GraphTypeError(
                f"cutoffs are ascending ints from 1 to {n_classes - 1}, got {cutoffs!r}"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, tuple(cutoffs)
        self.div_value, self.head_bias = div_value, head_bias
        self.head = Linear(in_features, first + len(cutoffs), head_bias, dtype)
        self.tail = ModuleList()
        for number, (start, end) in enumerate(pairwise(ends), 1):
            width = int(in_features // div_value**number)
            self.tail.append(
                Sequential(
                    Linear(in_features, width, False, dtype),
                    Linear(width, end - start, False, dtype),
                )
            )

    def forward(self, x: Node, target: Any = None) -> Any:
        """Return `AdaptiveLogSoftmax` of targets; without them what `log_prob` does."""
        head = ops.log_softmax(self.head(x))
        first = self.cutoffs[0]
        if target is None:
            parts = [head[..., :first]]
            for start, cluster in enumerate(self.tail, first):
                parts.append(ops.log_softmax(cluster(x)) + head[..., start : start + 1])
            return ops.concatenate(parts, -1)
        target = x.graph.lift(target)
        if target.ndim > 1 or x.ndim != target.ndim + 1:
            raise ShapeError(
                f"takes (batch, features) and (batch,), or (features,) and (), got {x!r} and "
                f"{target!r}"
            )
        single = not target.ndim
        if single:
            x, head, target = (ops.expand_dims(one, 0) for one in (x, head, target))
        ends = (*self.cutoffs, self.n_classes)
        # A target that is no class is no index of the head either, which raises in the run.
        place: Any = ops.minimum(target, first - 1)
        for end in ends:
            place = place + ops.astype(target >= end, target.dtype)
        output = ops.pick(head, place)
        for cluster, (start, end) in zip(self.tail, pairwise(ends), strict=True):
            rows = ops.flatnonzero((target >= start) & (target < end))
            log_probs = ops.log_softmax(cluster(ops.take(x, rows, 0)))
            picked = ops.pick(log_probs, ops.take(target, rows, 0) - start)
            output = ops.index_add(output, 0, rows, picked)
        return AdaptiveLogSoftmax(ops.squeeze(output, 0) if single else output, -ops.mean(output))

    def log_prob(self, x: Any) -> Any:
        """Return the logarithms of the probabilities of all classes, of nodes or arrays."""
        return self(x)

    def predict(self, x: Any) -> Any:
        """Return the most probable class of each row, of nodes or arrays."""
        return self(x).argmax(-1)
