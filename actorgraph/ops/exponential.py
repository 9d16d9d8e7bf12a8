"""Exponentials and logarithms."""

from __future__ import annotations

from math import log as log_of

from actorgraph.op import KEPT_OUT, Op
from actorgraph.ops._arrays import exp_without_warning
from actorgraph.ops._declare import Unary, unary
from actorgraph.ops._rules import each

__all__ = ["exp", "exp2", "expm1", "log", "log10", "log1p", "log2"]

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
    "exponentials", "f[*s] -> f[*s]", exp_without_warning, cost=each(5), memory=KEPT_OUT,
)  # fmt: skip
"""What functions of the exponentials and their gradients share: inf where one is too large."""
