"""Sums of numbers that are given by their logarithms."""

from __future__ import annotations

from math import e, inf
from math import log as log_of
from typing import Any

from actorgraph.graph import Node
from actorgraph.ops._declare import Binary, Derivative, binary
from actorgraph.ops._docs import raises
from actorgraph.ops._scalars import highest
from actorgraph.ops.activations import sigmoid
from actorgraph.ops.complex import is_complex, real
from actorgraph.ops.exponential import exp, log1p
from actorgraph.ops.linalg import lifted_pair
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


_logaddexp = _pair("logaddexp", e, "log(exp(x) + exp(y)), without overflow.")


@raises(both="The operands do not fit the type.")
def logaddexp(x: Any, y: Any) -> Node:
    """Return ``log(exp(x) + exp(y))`` without overflow, of complex numbers too.

    Type ``x[*s] -> x[*t] -> x[*s|t]``.  Two of -inf give -inf, with gradient 0.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """
    if not (is_complex(x) or is_complex(y)):
        return _logaddexp(x, y)
    x, y = lifted_pair(x, y, "logaddexp")
    first = real(x) >= real(y)
    larger, smaller = where(first, x, y), where(first, y, x)
    return larger + log1p(exp(smaller - larger))


logaddexp2 = _pair("logaddexp2", 2, "log2(2**x + 2**y), without overflow.")
