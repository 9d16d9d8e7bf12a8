"""Sums of numbers that are given by their logarithms."""

from __future__ import annotations

from math import e, inf
from math import log as log_of

from actorgraph.graph import Node
from actorgraph.ops._declare import Binary, Derivative, binary
from actorgraph.ops._scalars import highest
from actorgraph.ops.activations import sigmoid
from actorgraph.ops.selection import clip, where

__all__ = ["logaddexp", "logaddexp2"]

# Beyond this a share is exactly 0 or 1 in every dtype.
_FAR = 2000


def _pair(name: str, base: float, doc: str) -> Binary:
    def share(t: Node, z: Node, x: Node, y: Node) -> Node:
        """Return t times the part of the sum that is due to x; of two equal numbers a half."""
        top = highest(x.dtype)
        # Halves, for the difference of two numbers may overflow; infinite ones are equal.
        apart = clip(x, -top, top) * 0.5 - clip(y, -top, top) * 0.5
        part = sigmoid(clip(apart, -_FAR, _FAR) * (2 * log_of(base)))
        return t * where(z == -inf, 0, part)

    def other(t: Node, z: Node, x: Node, y: Node) -> Node:
        return share(t, z, y, x)

    rules: tuple[Derivative, Derivative] = (share, other)
    return binary(
        name, name, rules, doc, scheme="f[*s] -> f[*t] -> f[*s|t]", flops=15,
        notes="Two of -inf give -inf, with gradient 0.",
    )  # fmt: skip


logaddexp = _pair("logaddexp", e, "log(exp(x) + exp(y)), without overflow.")
logaddexp2 = _pair("logaddexp2", 2, "log2(2**x + 2**y), without overflow.")
