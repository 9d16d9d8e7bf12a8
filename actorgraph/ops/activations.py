"""Activation functions, in forms that neither overflow nor cancel."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.ops._declare import unary
from actorgraph.ops._scalars import one, zero
from actorgraph.ops.arithmetic import sign

__all__ = ["relu", "sigmoid", "softplus"]


def _sigmoid_forward(xp: Any, x: Any) -> Any:
    # Where exp(-x) overflows the result is 0, which is right to the last bit of a normal number.
    with np.errstate(over="ignore"):
        denominator = xp.exp(xp.negative(x))
    denominator += one(xp, x)
    return xp.reciprocal(denominator)


def _softplus_forward(xp: Any, x: Any) -> Any:
    result = xp.log1p(xp.exp(xp.negative(xp.absolute(x))))
    result += xp.maximum(x, zero(xp, x))
    return result


sigmoid = unary(
    "sigmoid", _sigmoid_forward, lambda t, y, x: t * (y * (1 - y)), "1 / (1 + exp(-x)).",
    scheme="f[*s] -> f[*s]", flops=8,
)  # fmt: skip
softplus = unary(
    "softplus", _softplus_forward, lambda t, y, x: t * sigmoid(x),
    "log(1 + exp(x)), computed as max(x, 0) + log1p(exp(-abs(x))).", scheme="f[*s] -> f[*s]",
    flops=12,
)  # fmt: skip
relu = unary(
    "relu", lambda xp, x: xp.maximum(x, zero(xp, x)), lambda t, y, x: t * sign(y), "max(x, 0).",
    scheme="r[*s] -> r[*s]", notes="The gradient at 0 is 0.",
)  # fmt: skip
