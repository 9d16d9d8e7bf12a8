"""Exponentials and logarithms."""

from __future__ import annotations

from actorgraph.ops._declare import unary

__all__ = ["exp", "expm1", "log", "log1p"]

exp = unary("exp", "exp", lambda t, y, x: t * y, "Exponential.", flops=5)
expm1 = unary("expm1", "expm1", lambda t, y, x: t * (y + 1), "exp(x) - 1, exact near 0.", flops=5)
log = unary("log", "log", lambda t, y, x: t / x, "Natural logarithm.", low=0.5, flops=5)
log1p = unary(
    "log1p", "log1p", lambda t, y, x: t / (x + 1), "log(1 + x), exact near 0.", low=-0.5, flops=5
)
