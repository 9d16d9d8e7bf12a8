"""Exponentials, logarithms and what is built of them."""

from __future__ import annotations

from actorgraph.ops._declare import unary

__all__ = ["exp", "tanh"]

exp = unary("exp", "exp", lambda t, y, x: t * y, "Exponential.")
tanh = unary("tanh", "tanh", lambda t, y, x: t * (1 - y * y), "Hyperbolic tangent.")
