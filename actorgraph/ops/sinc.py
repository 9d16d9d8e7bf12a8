"""Sinc and its derivatives of every order: one op, so that none loses digits near 0."""

from __future__ import annotations

from math import factorial, perm, pi
from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.ops._declare import nary_elementwise
from actorgraph.ops._scalars import is_half
from actorgraph.ops.selection import where
from actorgraph.ops.trigonometric import sin

__all__ = ["sinc"]

_TERMS = 14


def _series(u: Any, order: int) -> Any:
    """Return the derivative of sin(u) / u by Taylor's series, for u up to the order."""
    first = (order + 1) // 2
    powers = [2 * k for k in range(first, first + _TERMS + order)]
    total = u * 0
    for p in reversed(powers):  # by Horner's rule in u * u
        factor = (-1) ** (p // 2) * perm(p, order) / factorial(p + 1)
        total = total * (u * u) + factor
    return total * u if (powers[0] - order) % 2 else total


def _recurrence(xp: Any, u: Any, order: int) -> Any:
    """Return it by u s[n] + n s[n - 1] = sin(u + n pi / 2), which is stable beyond the order."""
    sin, cos = xp.sin(u), xp.cos(u)
    found = sin / u
    for n, phase in zip(range(1, order + 1), (cos, -sin, -cos, sin) * order, strict=False):
        found = (phase - n * found) / u
    return found


def _forward(xp: Any, x: Any, order: int) -> Any:
    u = (x.astype(xp.float32) if is_half(x.dtype) else x) * pi
    near = xp.abs(u) < max(order, 1)
    far = _recurrence(xp, xp.where(near, order + 1, u).astype(u.dtype), order)
    series = _series(xp.where(near, u, 0).astype(u.dtype), order)
    return (xp.where(near, series, far) * pi**order).astype(x.dtype)


_SINC: Op = nary_elementwise(
    "sinc", "f[*s] -> f[*s]", _forward,
    (lambda t, y, x, order: t * build(_SINC, x, order=order + 1),), flops=60,
    samples=(
        Sample(((3, 4),), {"order": 0}), Sample(((),), {"order": 0}),
        Sample(((0, 2),), {"order": 0}), Sample(((3, 4),), {"order": 3}),
    ),
    doc="sin(pi x) / (pi x), 1 at 0; or its derivative of an order.",
)  # fmt: skip


def sinc(x: Node) -> Node:
    """Return ``sin(pi x) / (pi x)``, 1 at 0, as ``numpy.sinc``.

    Type ``f[*s] -> f[*s]``; derivatives of every order are exact near 0 too.  Of complex numbers
    it is built of `sin`, with the gradient 0 at 0.

    Parameters
    ----------
    x : node
        Any shape.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> sinc(Graph().input("x", (3,))).shape
    (3,)
    """
    if x.dtype.kind == "c":
        at_zero = x == 0
        safe = where(at_zero, 1, x) * pi
        return where(at_zero, 1, sin(safe) / safe)
    return build(_SINC, x, order=0)
