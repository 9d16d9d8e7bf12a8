"""Affine and bilinear maps of the last axis."""

from __future__ import annotations

from typing import Any

from actorgraph.graph import Node
from actorgraph.ops.einsum import einsum
from actorgraph.ops.linalg import matmul
from actorgraph.ops.shaping import swap_last

__all__ = ["bilinear", "linear"]


def linear(x: Node, weight: Any, bias: Any = None) -> Node:
    """Return ``x weight^T + bias``, as ``torch.nn.functional.linear``.

    Parameters
    ----------
    x : node
        Shape (..., features).
    weight : node or array
        Shape (outputs, features), or (features,) for one output without an axis.
    bias : node or array, optional
        Shape (outputs,).

    Returns
    -------
    Node
        Shape (..., outputs).
    """
    weight = x.graph.lift(weight)
    y = matmul(x, swap_last(weight) if weight.ndim > 1 else weight)
    return y if bias is None else y + bias


def bilinear(x1: Node, x2: Any, weight: Any, bias: Any = None) -> Node:
    """Return ``x1^T weight[k] x2 + bias[k]`` for each k, as ``torch.nn.functional.bilinear``.

    Parameters
    ----------
    x1, x2 : node or array
        Shapes (..., n) and (..., m).
    weight : node or array
        Shape (outputs, n, m).
    bias : node or array, optional
        Shape (outputs,).

    Returns
    -------
    Node
        Shape (..., outputs).
    """
    y = einsum("...n,knm,...m->...k", x1, x1.graph.lift(weight), x1.graph.lift(x2))
    return y if bias is None else y + bias
