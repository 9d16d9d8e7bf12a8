"""Comparisons, which give bool nodes, logic, bits of integers, and parts of floats.

The functions of bits do logic on bools.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from actorgraph.graph import Node, build
from actorgraph.op import Sample
from actorgraph.ops import _declare
from actorgraph.ops._declare import Binary, Unary, binary, nary_elementwise, unary
from actorgraph.ops._rules import as_of, declare, on, raises
from actorgraph.ops.arithmetic import multiply, neg, power, sign
from actorgraph.ops.counting import all as all_of
from actorgraph.ops.elementwise import astype, trunc, where
from actorgraph.ops.linalg import lifted_pair

__all__ = [
    "allclose", "array_equal", "bitwise_and", "bitwise_count", "bitwise_not", "bitwise_or",
    "bitwise_xor", "copysign", "equal", "float_power", "fmod", "frac", "frexp", "gcd", "greater",
    "greater_equal", "heaviside", "isclose", "lcm", "ldexp", "left_shift", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "logical_xor", "modf", "nextafter", "not_equal",
    "right_shift", "signbit", "spacing",
]  # fmt: skip

_NONE = (None, None)
_ANY, _ORDERED = "a[*s] -> a[*t] -> bool[*s|t]", "r[*s] -> r[*t] -> bool[*s|t]"
_BOOLS = "bool[*s] -> bool[*t] -> bool[*s|t]"


class Comparison(Protocol):
    """What users call to compare: ``op(x, y)``, or ``op(x, y, same_dtype=True)``."""

    def __call__(self, x: Any, y: Any, *, same_dtype: bool = False) -> Node:
        """Compare elementwise."""


def _comparison(name: str, sign: str, scheme: str = _ORDERED) -> Comparison:
    op = nary_elementwise(name, scheme, name, _NONE, doc=f"x {sign} y.")

    def compare(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
        result = build(op, x, y)
        return astype(result, result.inputs[0].dtype) if same_dtype else result

    same = "same_dtype : bool\n    Give 0 and 1 in the dtype of x and y instead of bools."
    return _declare.documented(compare, op, f"{_declare.BROADCAST}\n{same}")


equal, not_equal = _comparison("equal", "==", _ANY), _comparison("not_equal", "!=", _ANY)
less, less_equal = _comparison("less", "<"), _comparison("less_equal", "<=")
greater, greater_equal = _comparison("greater", ">"), _comparison("greater_equal", ">=")

logical_and = binary("logical_and", _NONE, "x and y.", scheme=_BOOLS, bools=(0, 1))
logical_or = binary("logical_or", _NONE, "x or y.", scheme=_BOOLS, bools=(0, 1))
logical_xor = binary("logical_xor", _NONE, "x != y.", scheme=_BOOLS, bools=(0, 1))
logical_not = unary("logical_not", None, "not x.", scheme="bool[*s] -> bool[*s]", bools=(0,))


_DEFAULTS = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}

_SHAPES: Any = (((3, 4), (3, 4)), ((3, 4), (4,)), ((), (3,)), ((0, 2), (2,)))

_ISCLOSE = nary_elementwise(
    "isclose", "n[*s] -> n[*t] -> bool[*s|t]", lambda xp, x, y, **attrs: xp.isclose(x, y, **attrs),
    _NONE, flops=8, traced=False, samples=tuple(on(*one, **_DEFAULTS) for one in _SHAPES[1:]),
)  # fmt: skip


@raises(both="The operands do not fit the type.")
def isclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Node:
    """Whether ``abs(x - y) <= atol + rtol * abs(y)``, as ``numpy.isclose``; no gradient.

    Type ``n[*s] -> n[*t] -> bool[*s|t]``.  Infinities are close where they are equal.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    rtol, atol : float
        Share of `y`, and absolute distance, that are allowed.
    equal_nan : bool
        Whether NaN is close to NaN.
    """
    attrs = {"rtol": float(rtol), "atol": float(atol), "equal_nan": bool(equal_nan)}
    return build(_ISCLOSE, x, y, **attrs)


@as_of(isclose)
def allclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Node:
    """Whether `isclose` holds of all elements, as ``numpy.allclose``."""
    return all_of(isclose(x, y, rtol, atol, equal_nan))


_ARRAY_EQUAL = declare(
    "array_equal", "a[*s] -> a[*t] -> bool[]",
    lambda xp, x, y, equal_nan: xp.asarray(xp.array_equal(x, y, equal_nan)), vjp=(None, None),
    samples=tuple(on(*shapes, equal_nan=True) for shapes in (((3, 4), (3, 4)), ((2,), (3,)))),
)  # fmt: skip


@raises(types="The dtypes differ.")
def array_equal(x: Any, y: Any, equal_nan: bool = False) -> Node:
    """Whether two arrays have one shape and equal elements, as ``numpy.array_equal``; no gradient.

    Type ``a[*s] -> a[*t] -> bool[]``: nothing broadcasts, and other shapes are no error.

    Parameters
    ----------
    x, y : node or array
    equal_nan : bool
        Whether NaN equals NaN.
    """
    return build(_ARRAY_EQUAL, x, y, equal_nan=bool(equal_nan))


def _ints(name: str, doc: str, notes: str = "") -> Binary:
    samples = tuple(Sample(shapes, ints={0: 40, 1: 7}) for shapes in _SHAPES)
    scheme = "i[*s] -> i[*t] -> i[*s|t]"
    return binary(name, _NONE, doc, scheme=scheme, samples=samples, notes=notes)


def _one_int(name: str, ufunc: str, doc: str, result: str) -> Unary:
    samples = tuple(Sample((shape,), ints={0: 40}) for shape in ((3, 4), (), (0, 2)))
    return unary(name, None, doc, forward=ufunc, scheme=f"i[*s] -> {result}[*s]", samples=samples)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _or_logic(bits: Any, logic: Any) -> Any:
    """Return a function that is `logic` of bools and `bits` of integers."""

    def either(*values: Any) -> Node:
        result: Node = (logic if all(map(_is_bool, values)) else bits)(*values)
        return result

    return _declare.public(either, bits.__name__, bits.__doc__)


def _bits(kind: str, doc: str, logic: Binary) -> Any:
    return _or_logic(_ints(f"bitwise_{kind}", doc, f"Of bools it is `logical_{kind}`."), logic)


bitwise_and: Binary = _bits("and", "Bits that both integers have.", logical_and)
bitwise_or: Binary = _bits("or", "Bits that one of two integers has.", logical_or)
bitwise_xor: Binary = _bits("xor", "Bits in which two integers differ.", logical_xor)
bitwise_not: Unary = _or_logic(
    _one_int("bitwise_not", "invert", "All bits the other way; of bools `logical_not`.", "i"),
    logical_not,
)
left_shift = _ints("left_shift", "x times 2 ** y, without the bits that are shifted out.")
right_shift = _ints("right_shift", "x divided by 2 ** y, rounded down.")
bitwise_count = _one_int(
    "bitwise_count", "bitwise_count", "Number of bits that are 1 in abs(x).", "uint8"
)
gcd = _ints("gcd", "Greatest common divisor.")
lcm = _ints("lcm", "Least common multiple.")


_PAIR, _FLOAT = "f[*s] -> f[*t] -> f[*s|t]", "f[*s] -> f[*s]"

copysign: Binary = binary(
    "copysign", (lambda t, z, x, y: t * (sign(x) * copysign(1.0, y)), None),
    "The size of x with the sign of y.", scheme=_PAIR,
    notes="The gradient of x is 1 or -1, 0 at 0; that of y is zero.",
)  # fmt: skip
fmod = binary(
    "fmod", (lambda t, z, x, y: t, lambda t, z, x, y: -(t * trunc(x / y))),
    "Remainder of a division rounded towards zero, with the sign of x.",
    scheme="r[*s] -> r[*t] -> r[*s|t]", low=0.5, flops=40,
    notes="Gradients: 1 for x, -trunc(x / y) for y.",
)  # fmt: skip
heaviside = binary(
    "heaviside", (None, lambda t, z, x, y: where(x == 0, t, 0)),
    "0 where x < 0, 1 where x > 0, and y where x is 0.", scheme=_PAIR,
    notes="Piecewise constant in x: only y has a gradient, where x is 0.",
)  # fmt: skip
nextafter = binary(
    "nextafter", (lambda t, z, x, y: t, None), "The float next to x towards y.", scheme=_PAIR,
    notes="The gradient of x is 1, that of y zero.",
)  # fmt: skip
signbit = unary(
    "signbit", None, "Whether the sign is minus, of -0.0 too.", scheme="f[*s] -> bool[*s]"
)
spacing = unary(
    "spacing", None, "Distance to the next float away from zero.", scheme=_FLOAT,
    notes="Piecewise constant: its gradient is zero.",
)  # fmt: skip
frac: Unary = unary(
    "frac", lambda t, y, x: t, "x without its integer part.", forward=lambda xp, x: xp.modf(x)[0],
    scheme=_FLOAT, notes="The gradient is 1.", traced=False,
)  # fmt: skip

_ldexp: Binary = binary(
    "ldexp", (lambda t, z, x, y: _ldexp(t, y), None), "x times 2 ** y, for integers y.",
    forward=lambda xp, x, y: xp.ldexp(x, y).astype(x.dtype, copy=False),
    scheme="f[*s] -> i[*t] -> f[*s|t]", traced=False,
    samples=tuple(Sample(shapes, ints={1: 5}) for shapes in _SHAPES),
)  # fmt: skip
_exponent = unary(
    "frexp_exponent", None, "The exponent of 2 that leaves a mantissa from 0.5 to 1.",
    forward=lambda xp, x: xp.frexp(x)[1], scheme="f[*s] -> int32[*s]", traced=False,
)  # fmt: skip


def ldexp(x: Any, y: Any) -> Node:
    """Multiply by powers of 2, as ``numpy.ldexp``.

    Parameters
    ----------
    x : node or array
        Float, or of the dtype of `y`.
    y : node or array
        Integers, which have no gradient; or as in PyTorch floats or complex numbers, which have.
    """
    x, y = lifted_pair(x, y)
    return _ldexp(x, y) if y.dtype.kind in "iu" else multiply(x, power(2.0, y))


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
    """
    exponent = _exponent(x)
    return _ldexp(x, neg(exponent)), exponent


def modf(x: Node) -> tuple[Node, Node]:
    """Return the fraction and the integer part, each with the sign of `x`, as ``numpy.modf``."""
    return frac(x), trunc(x)


def float_power(x: Any, y: Any) -> Node:
    """Return ``x ** y`` in float64, or complex128, as ``numpy.float_power``."""
    return power(_widest(x), _widest(y))


def _widest(value: Any) -> Any:
    if isinstance(value, Node):
        return astype(value, "complex128" if value.dtype.kind == "c" else "float64")
    array = np.asarray(value)
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")[()]
