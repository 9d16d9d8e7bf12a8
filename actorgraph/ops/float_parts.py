"""Signs, fractions and exponents of floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.op import Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import Binary, Unary, binary, unary
from actorgraph.ops.arithmetic import multiply, neg, power, sign
from actorgraph.ops.casting import astype
from actorgraph.ops.linalg import lifted_pair
from actorgraph.ops.rounding import trunc
from actorgraph.ops.selection import where

__all__ = [
    "copysign", "float_power", "fmod", "frac", "frexp", "heaviside", "ldexp", "modf", "nextafter",
    "signbit", "spacing",
]  # fmt: skip

_PAIR, _FLOAT = "f[*s] -> f[*t] -> f[*s|t]", "f[*s] -> f[*s]"

copysign: Binary = binary(
    "copysign", "copysign", (lambda t, z, x, y: t * (sign(x) * copysign(1.0, y)), None),
    "The size of x with the sign of y.", scheme=_PAIR,
    notes="The gradient of x is 1 or -1, 0 at 0; that of y is zero.",
)  # fmt: skip
fmod = binary(
    "fmod", "fmod", (lambda t, z, x, y: t, lambda t, z, x, y: -(t * trunc(x / y))),
    "Remainder of a division rounded towards zero, with the sign of x.",
    scheme="r[*s] -> r[*t] -> r[*s|t]", low=0.5, flops=40,
    notes="Gradients: 1 for x, -trunc(x / y) for y.",
)  # fmt: skip
heaviside = binary(
    "heaviside", "heaviside", (None, lambda t, z, x, y: where(x == 0, t, 0)),
    "0 where x < 0, 1 where x > 0, and y where x is 0.", scheme=_PAIR,
    notes="Piecewise constant in x: only y has a gradient, where x is 0.",
)  # fmt: skip
nextafter = binary(
    "nextafter", "nextafter", (lambda t, z, x, y: t, None), "The float next to x towards y.",
    scheme=_PAIR, notes="The gradient of x is 1, that of y zero.",
)  # fmt: skip
signbit = unary(
    "signbit", "signbit", None, "Whether the sign is minus, of -0.0 too.",
    scheme="f[*s] -> bool[*s]",
)  # fmt: skip
spacing = unary(
    "spacing", "spacing", None, "Distance to the next float away from zero.", scheme=_FLOAT,
    notes="Piecewise constant: its gradient is zero.",
)  # fmt: skip
frac: Unary = unary(
    "frac", lambda xp, x: xp.modf(x)[0], lambda t, y, x: t, "x without its integer part.",
    scheme=_FLOAT, notes="The gradient is 1.",
)  # fmt: skip

_ldexp: Binary = binary(
    "ldexp", lambda xp, x, y: xp.ldexp(x, y).astype(x.dtype, copy=False),
    (lambda t, z, x, y: _ldexp(t, y), None),
    "x times 2 ** y, for integers y.", scheme="f[*s] -> i[*t] -> f[*s|t]",
    samples=tuple(
        Sample(shapes, ints={1: 5})
        for shapes in (((3, 4), (3, 4)), ((3, 4), (4,)), ((), (3,)), ((0, 2), (2,)))
    ),
)  # fmt: skip
_exponent = unary(
    "frexp_exponent", lambda xp, x: xp.frexp(x)[1], None,
    "The exponent of 2 that leaves a mantissa from 0.5 to 1.", scheme="f[*s] -> int32[*s]",
)  # fmt: skip


@naming_itself
def ldexp(x: Any, y: Any) -> Node:
    """Multiply by powers of 2, as ``numpy.ldexp``.

    Parameters
    ----------
    x : node or array
        Float, or of the dtype of `y`.
    y : node or array
        Integers, which have no gradient; or as in PyTorch floats or complex numbers, which have.

    Examples
    --------
    >>> import actorgraph as ag
    >>> import numpy as np
    >>> ag.ops.ldexp(ag.Graph().input("x", (3,)), np.array([1, 2, 3])).shape
    (3,)
    """
    x, y = lifted_pair(x, y, "ldexp")
    return _ldexp(x, y) if y.dtype.kind in "iu" else multiply(x, power(2.0, y))


@naming_itself
def frexp(x: Node) -> tuple[Node, Node]:
    """Return mantissas and exponents, as ``numpy.frexp``: ``x = mantissa * 2 ** exponent``.

    Parameters
    ----------
    x : node
        Float.

    Returns
    -------
    tuple of Node
        The mantissa, of a size from 0.5 to 1, and the exponent, int32, which has no gradient.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.frexp(ag.Graph().input("x", (3,)))[1].dtype
    dtype('int32')
    """
    exponent = _exponent(x)
    return _ldexp(x, neg(exponent)), exponent


def modf(x: Node) -> tuple[Node, Node]:
    """Return the fraction and the integer part, each with the sign of `x`, as ``numpy.modf``."""
    return frac(x), trunc(x)


@naming_itself
def float_power(x: Any, y: Any) -> Node:
    """Return ``x ** y`` in float64, or complex128, as ``numpy.float_power``."""
    return power(_widest(x), _widest(y))


def _widest(value: Any) -> Any:
    if isinstance(value, Node):
        return astype(value, "complex128" if value.dtype.kind == "c" else "float64")
    array = np.asarray(value)
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")[()]
