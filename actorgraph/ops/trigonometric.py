"""Trigonometric and hyperbolic functions and their inverses.

Derivatives of the inverses are written so that no square overflows: for real x,
``1 / sqrt(1 + x * x)`` is ``1 / hypot(x, 1)``.
"""

from __future__ import annotations

from math import factorial, inf, perm, pi
from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.ops._declare import Unary, binary, nary_elementwise, unary
from actorgraph.ops._scalars import highest, is_half
from actorgraph.ops.arithmetic import reciprocal, sqrt, square
from actorgraph.ops.complex import imag, real
from actorgraph.ops.selection import clip, minimum, where

__all__ = [
    "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cos",
    "cosh", "cot", "csc", "deg2rad", "hypot", "rad2deg", "sec", "sin", "sinc", "sinh", "tan",
    "tanh",
]  # fmt: skip

_REALS, _FLOAT = "f[*s] -> f[*t] -> f[*s|t]", "f[*s] -> f[*s]"

sin: Unary = unary("sin", "sin", lambda t, y, x: t * cos(x), "Sine of radians.", flops=20)
cos: Unary = unary("cos", "cos", lambda t, y, x: -(t * sin(x)), "Cosine of radians.", flops=20)
tan = unary(
    "tan", "tan", lambda t, y, x: t * (square(y) + 1), "Tangent of radians.", flops=20,
    low=-1.3, high=1.3,
)  # fmt: skip
sinh: Unary = unary("sinh", "sinh", lambda t, y, x: t * cosh(x), "Hyperbolic sine.", flops=10)
cosh: Unary = unary("cosh", "cosh", lambda t, y, x: t * sinh(x), "Hyperbolic cosine.", flops=10)
tanh: Unary = unary("tanh", "tanh", lambda t, y, x: t * (1 - y * y), "Hyperbolic tangent.", flops=5)

deg2rad = unary(
    "deg2rad", "deg2rad", lambda t, y, x: t * (pi / 180), "Degrees to radians.", scheme=_FLOAT
)
rad2deg = unary(
    "rad2deg", "rad2deg", lambda t, y, x: t * (180 / pi), "Radians to degrees.", scheme=_FLOAT
)

hypot = binary(
    "hypot", "hypot", (lambda t, z, x, y: t * _over(x, z), lambda t, z, x, y: t * _over(y, z)),
    "sqrt(x * x + y * y), without overflow.", scheme=_REALS, flops=20,
    notes="At the origin all derivatives are 0.",
)  # fmt: skip
arctan2 = binary(
    "arctan2", "arctan2",
    (lambda t, z, x, y: t * _turn(y, x, y), lambda t, z, x, y: -(t * _turn(x, x, y))),
    "Angle of the point (y, x) in (-pi, pi]; the first argument is the ordinate.", scheme=_REALS,
    flops=30, notes="At the origin all derivatives are 0.",
)  # fmt: skip


def _over(part: Node, length: Node) -> Node:
    """Return part / length, 0 with all derivatives at the origin, and 1 for an infinite part."""
    top = highest(part.dtype)
    return clip(part, -top, top) / where(length == 0, inf, minimum(length, top))


def _turn(part: Node, x: Node, y: Node) -> Node:
    """Return part / (x * x + y * y), 0 with all derivatives at the origin."""
    length = hypot(x, y)
    safe = where(length == 0, inf, length)
    return part / safe / safe


def _over_root(t: Node, x: Node) -> Node:
    """Return t / sqrt(1 + x * x)."""
    return t / (sqrt(square(x) + 1) if x.dtype.kind == "c" else hypot(x, 1))


def _over_square(t: Node, x: Node) -> Node:
    """Return t / (1 + x * x)."""
    if x.dtype.kind == "c":
        return t / (square(x) + 1)
    return t * square(reciprocal(hypot(x, 1)))


arcsin = unary(
    "arcsin", "arcsin", lambda t, y, x: t / sqrt((1 - x) * (x + 1)), "Inverse sine.",
    low=-0.9, high=0.9, flops=20, notes="The gradient at -1 and 1 is infinite.",
)  # fmt: skip
arccos = unary(
    "arccos", "arccos", lambda t, y, x: -(t / sqrt((1 - x) * (x + 1))), "Inverse cosine.",
    low=-0.9, high=0.9, flops=20, notes="The gradient at -1 and 1 is infinite.",
)  # fmt: skip
arctan = unary("arctan", "arctan", lambda t, y, x: _over_square(t, x), "Inverse tangent.", flops=20)
arcsinh = unary(
    "arcsinh", "arcsinh", lambda t, y, x: _over_root(t, x), "Inverse hyperbolic sine.", flops=20
)
arccosh = unary(
    "arccosh", "arccosh", lambda t, y, x: t / (sqrt(x - 1) * sqrt(x + 1)),
    "Inverse hyperbolic cosine.", low=1.3, high=3, flops=20, notes="The gradient at 1 is infinite.",
)  # fmt: skip
arctanh = unary(
    "arctanh", "arctanh", lambda t, y, x: t / ((1 - x) * (x + 1)), "Inverse hyperbolic tangent.",
    low=-0.9, high=0.9, flops=20, notes="The gradient at -1 and 1 is infinite.",
)  # fmt: skip


def angle(x: Node) -> Node:
    """Angle of complex numbers in (-pi, pi]; of real ones 0 or, where negative, pi.

    Type ``c[*s] -> float[*s]``, built as ``arctan2(imag(x), real(x))``.  The gradient at 0 is 0.
    """
    return arctan2(imag(x), real(x))


def sec(x: Node) -> Node:
    """Return the secant of radians, ``1 / cos(x)``."""
    return reciprocal(cos(x))


def csc(x: Node) -> Node:
    """Return the cosecant of radians, ``1 / sin(x)``."""
    return reciprocal(sin(x))


def cot(x: Node) -> Node:
    """Return the cotangent of radians, ``cos(x) / sin(x)``."""
    return cos(x) * csc(x)


# -- sinc -------------------------------------------------------------------------------------


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
    >>> import actorgraph as ag
    >>> ag.ops.sinc(ag.Graph().input("x", (3,))).shape
    (3,)
    """
    if x.dtype.kind == "c":
        at_zero = x == 0
        safe = where(at_zero, 1, x) * pi
        return where(at_zero, 1, sin(safe) / safe)
    return build(_SINC, x, order=0)
