"""Arithmetic on numbers: the operators of `Node`."""

from __future__ import annotations

from actorgraph.ops._declare import binary, unary
from actorgraph.ops.broadcasting import add

__all__ = ["add", "divide", "multiply", "neg", "subtract"]

_NUMBERS = "n[*s] -> n[*t] -> n[*s|t]"

neg = unary("neg", "negative", lambda t, y, x: -t, "Negate.", scheme="n[*s] -> n[*s]")
subtract = binary(
    "subtract", "subtract", (lambda t, z, x, y: t, lambda t, z, x, y: -t), "Subtract.",
    scheme=_NUMBERS,
)  # fmt: skip
multiply = binary(
    "multiply", "multiply", (lambda t, z, x, y: t * y, lambda t, z, x, y: t * x), "Multiply.",
    scheme=_NUMBERS,
)  # fmt: skip
divide = binary(
    "divide", "divide", (lambda t, z, x, y: t / y, lambda t, z, x, y: -t * (z / y)),
    "Divide floats; integers have to be converted first.",
)  # fmt: skip
