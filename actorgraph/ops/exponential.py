"""Exponentials, logarithms and their sums."""

from __future__ import annotations

from math import log as log_of
from math import prod

from actorgraph.graph import Node
from actorgraph.op import Op
from actorgraph.ops._declare import Unary, binary, unary
from actorgraph.ops._quick import exp_without_warning
from actorgraph.ops._scalars import highest
from actorgraph.ops.selection import maximum

__all__ = [
    "EXPONENTIALS",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
]

_LN2, _LN10 = log_of(2), log_of(10)

exp: Unary = unary("exp", "exp", lambda t, y, x: t * y, "Exponential.", flops=5)
exp2: Unary = unary("exp2", "exp2", lambda t, y, x: t * (y * _LN2), "2 ** x.", flops=5)
# y + 1 would lose the digits of exp(x) far below 0, and those of softplus's second derivative.
expm1 = unary("expm1", "expm1", lambda t, y, x: t * exp(x), "exp(x) - 1, exact near 0.", flops=5)
log = unary("log", "log", lambda t, y, x: t / x, "Natural logarithm.", low=0.5, flops=5)
log2 = unary(
    "log2", "log2", lambda t, y, x: t / (x * _LN2), "Logarithm to base 2.", low=0.5, flops=5
)
log10 = unary(
    "log10", "log10", lambda t, y, x: t / (x * _LN10), "Logarithm to base 10.", low=0.5, flops=5
)
log1p = unary(
    "log1p", "log1p", lambda t, y, x: t / (x + 1), "log(1 + x), exact near 0.", low=-0.5, flops=5
)


EXPONENTIALS = Op(
    "exponentials", "f[*s] -> f[*s]", exp_without_warning,
    cost=lambda shapes, result, attrs: 5.0 * prod(result), layout="kept", takes_out=True,
)  # fmt: skip
"""What functions of the exponentials and their gradients share: inf where one is too large."""


def _excess(x: Node, z: Node) -> Node:
    """Return x - z for z >= x, which is -inf where both are."""
    return x - maximum(z, -highest(x.dtype))


_PAIR, _FLAT = "f[*s] -> f[*t] -> f[*s|t]", "Two of -inf give -inf, with gradient 0."

logaddexp = binary(
    "logaddexp", "logaddexp",
    (lambda t, z, x, y: t * exp(_excess(x, z)), lambda t, z, x, y: t * exp(_excess(y, z))),
    "log(exp(x) + exp(y)), without overflow.", scheme=_PAIR, flops=15, notes=_FLAT,
)  # fmt: skip
logaddexp2 = binary(
    "logaddexp2", "logaddexp2",
    (lambda t, z, x, y: t * exp2(_excess(x, z)), lambda t, z, x, y: t * exp2(_excess(y, z))),
    "log2(2**x + 2**y), without overflow.", scheme=_PAIR, flops=15, notes=_FLAT,
)  # fmt: skip
