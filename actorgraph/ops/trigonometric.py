"""Trigonometric and hyperbolic functions."""

from __future__ import annotations

from actorgraph.ops._declare import Unary, unary

__all__ = ["cos", "sin", "tanh"]

sin: Unary = unary("sin", "sin", lambda t, y, x: t * cos(x), "Sine of radians.", flops=20)
cos: Unary = unary("cos", "cos", lambda t, y, x: -(t * sin(x)), "Cosine of radians.", flops=20)
tanh: Unary = unary("tanh", "tanh", lambda t, y, x: t * (1 - y * y), "Hyperbolic tangent.", flops=5)
