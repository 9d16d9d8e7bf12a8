"""Vectors scaled down to a length: clip_by_norm of one node, clip_by_global_norm of several.

For gradients in the backward pass, by `ag.hook_gradient`, or those of `ag.gradients`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from actorgraph.errors import GraphError
from actorgraph.graph import Node, is_weak
from actorgraph.ops import _foreign
from actorgraph.ops._rules import WRONG_AXIS, as_of, raises, returns
from actorgraph.ops.elementwise import astype, maximum
from actorgraph.ops.shaping import stack
from actorgraph.ops.statistics import norm

__all__ = ["clip_by_global_norm", "clip_by_norm"]


def _shrunk(x: Node, length: Node, max_norm: Any) -> Node:
    # Exactly x where the length is within bounds, and nothing is divided by 0.
    factor = max_norm / maximum(length, max_norm)
    return x * (factor if factor.dtype == x.dtype else astype(factor, x.dtype))


def _checked(max_norm: Any) -> Any:
    if is_weak(max_norm) and not max_norm > 0:
        raise GraphError(f"max_norm has to be above 0, got {max_norm!r}")
    return max_norm


@returns("Node of the shape and dtype of `x`")
@raises("`x` is an int or bool.", WRONG_AXIS, other="`max_norm` is a number not above 0.")
def clip_by_norm(x: Node, max_norm: Any, axis: Any = None) -> Node:
    """Scale `x` down to the length `max_norm` where it is longer; TensorFlow's ``clip_by_norm``.

    ``x * max_norm / max(norm(x), max_norm)``, with gradients through the norm as well.

    Parameters
    ----------
    x : node
        Float or complex.
    max_norm : scalar or node
        Above 0.
    axis : int, tuple of int, or None for all
        The axes that make a vector; each vector is clipped by itself.
    """
    max_norm = _checked(max_norm)
    return _shrunk(x, norm(x, 2, axis, keepdims=True), max_norm)


@returns("list of Node, Node\n    The scaled nodes, and the norm of all elements before.")
@as_of(clip_by_norm)
@raises("Dtypes differ, or one is int or bool.", other="No nodes, or `max_norm` is not above 0.")
def clip_by_global_norm(nodes: Sequence[Node], max_norm: Any) -> tuple[list[Node], Node]:
    """Scale several nodes down by one factor, so that together they are no longer than `max_norm`.

    TensorFlow's ``clip_by_global_norm``; PyTorch's ``clip_grad_norm_`` adds 1e-6 to the norm.
    `clip_by_norm` scales one node.

    Parameters
    ----------
    nodes : sequence of node
        Float, of one dtype, or complex; such as what `ag.gradients` returns.
    """
    max_norm = _checked(max_norm)
    if not nodes:
        raise GraphError("needs at least one node")
    total = norm(stack([norm(node) for node in nodes]))
    return [_shrunk(node, total, max_norm) for node in nodes], total


_foreign.install_late(sys.modules[__name__])
