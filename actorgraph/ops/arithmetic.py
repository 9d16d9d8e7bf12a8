"""Arithmetic on numbers, real and complex: operators, powers, roots, signs, parts and angles.

The convention of gradients.  For a real loss L and complex z the gradient (the cotangent of z) is
``dL/dRe z + i dL/dIm z``, as in PyTorch: a step against it lowers L.  The vjp of a holomorphic f is
therefore multiplication by ``conj(f'(z))``, and a vjp is the adjoint of the jvp under the inner
product ``Re sum(conj(a) * b)``.  See docs/complex.md.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, build, is_weak
from actorgraph.op import CONSTANT, Attrs, Op, Sample
from actorgraph.ops._declare import Unary, binary, unary
from actorgraph.ops._rules import declare, raises
from actorgraph.ops.broadcasting import add, broadcast_like, conj, zeros_like
from actorgraph.ops.elementwise import astype, log, real_part, where

__all__ = [
    "abs", "add", "cbrt", "cube", "divide", "floor_divide", "imag", "mod", "multiply", "neg",
    "power", "real", "reciprocal", "rsqrt", "sign", "sqrt", "square", "subtract",
]  # fmt: skip

_SAMPLES = tuple(
    Sample((shape,), {"dtype": "float64"}, complexes=(0,)) for shape in ((3, 4), (), (0, 2))
)


def is_complex(x: Any) -> bool:
    """Return whether `x` is a complex node."""
    return isinstance(x, Node) and x.dtype.kind == "c"


def _to_real(arity: int, attrs: Attrs) -> str:
    return f"c[*s] -> {attrs['dtype']}[*s]"


def _real_dtype(x: Node) -> str:
    """Return the name of the dtype of the parts of a complex node."""
    return "float32" if x.dtype == np.complex64 else "float64"


_IMAG: Op = declare(
    "imag", _to_real, lambda xp, x, dtype: xp.imag(x).astype(dtype),
    vjp=(lambda ct, y, x, dtype: astype(ct, x.dtype) * 1j,), linear=(0,), samples=_SAMPLES,
)  # fmt: skip

_ABS: Op = declare(
    "complex_abs", _to_real, lambda xp, x, dtype: xp.absolute(x).astype(dtype, copy=False),
    vjp=(lambda ct, y, x, dtype: astype(ct, x.dtype) * complex_sign(x),),
    jvp=lambda tans, y, x, dtype: real(tans[0] * conj(complex_sign(x))), samples=_SAMPLES,
    doc="Length of complex numbers.",
)  # fmt: skip


def real(x: Node) -> Node:
    """Real part; a real node as it is.

    Type ``c[*s] -> float[*s]``, of half the item size.
    """
    return real_part(x, _real_dtype(x)) if is_complex(x) else x


def imag(x: Node) -> Node:
    """Imaginary part; zeros of a real node.

    Type ``c[*s] -> float[*s]``, of half the item size.
    """
    return build(_IMAG, x, dtype=_real_dtype(x)) if is_complex(x) else zeros_like(x)


def complex_abs(x: Node) -> Node:
    """Length of complex numbers; its gradient at 0 is 0."""
    return build(_ABS, x, dtype=_real_dtype(x))


def complex_sign(x: Node) -> Node:
    """Return x / abs(x) of complex numbers, 0 of 0."""
    length = complex_abs(x)
    return x / astype(where(length == 0, inf, length), x.dtype)


_NUMBER, _REAL = "n[*s] -> n[*s]", "r[*s] -> r[*s]"
_NUMBERS, _REALS = "n[*s] -> n[*t] -> n[*s|t]", "r[*s] -> r[*t] -> r[*s|t]"

neg = unary("neg", lambda t, y, x: -t, "Negate.", forward="negative", scheme=_NUMBER, linear=(0,))
subtract = binary(
    "subtract", (lambda t, z, x, y: t, lambda t, z, x, y: -t), "Subtract.", scheme=_NUMBERS,
    linear=(0, 1), jointly=(),
)  # fmt: skip
multiply = binary(
    "multiply", (lambda t, z, x, y: t * y, lambda t, z, x, y: t * x), "Multiply.", scheme=_NUMBERS,
    linear=(0, 1),
)  # fmt: skip
divide = binary(
    "divide", (lambda t, z, x, y: t / y, lambda t, z, x, y: -(t * (z / y))),
    "Divide floats; integers have to be converted with ``.astype`` first.", low=0.5, linear=(0,),
)  # fmt: skip
floor_divide = binary(
    "floor_divide", (None, None), "The largest integer <= x / y.", scheme=_REALS, low=0.5, flops=40,
    notes="Piecewise constant: its gradient is zero.",
)  # fmt: skip
mod = binary(
    "mod", (lambda t, z, x, y: t, lambda t, z, x, y: -(t * (x // y))),
    "Remainder of `floor_divide`, with the sign of y.", forward="remainder", scheme=_REALS, low=0.5,
    flops=40, notes="Gradients: 1 for x, -floor(x / y) for y.",
)  # fmt: skip

_abs = unary(
    "abs", lambda t, y, x: t * sign(x), "Absolute value.", forward="absolute", scheme=_REAL,
    notes="The gradient at 0 is 0.",
)  # fmt: skip
_sign: Unary = unary(
    "sign", None, "-1, 0 or 1.", scheme=_REAL,
    notes="Piecewise constant: its gradient is zero, also at 0.",
)  # fmt: skip


def abs(x: Any) -> Node:
    """Absolute value; of complex numbers the length, which is real.

    Type ``r[*s] -> r[*s]``, or ``c[*s] -> float[*s]``.  The gradient at 0 is 0.

    Parameters
    ----------
    x : node
        Any shape.
    """
    return complex_abs(x) if is_complex(x) else _abs(x)


def sign(x: Any) -> Node:
    """Return -1, 0 or 1; of a complex number ``x / abs(x)``, and 0 of 0.

    Type ``n[*s] -> n[*s]``.  Of real numbers piecewise constant, with gradient zero; complex
    numbers follow ``x / abs(x)``, with gradient 0 at 0.

    Parameters
    ----------
    x : node
        Any shape.
    """
    return complex_sign(x) if is_complex(x) else _sign(x)


raises(types="`x` is bool.")(sign)


square = unary("square", lambda t, y, x: t * (x + x), "x * x.", scheme=_NUMBER)
cube = unary(
    "cube", lambda t, y, x: t * (square(x) * 3), "x * x * x.",
    forward="multiply(multiply(x, x), x)", scheme=_NUMBER, flops=2,
)  # fmt: skip
reciprocal = unary("reciprocal", lambda t, y, x: -(t * square(y)), "1 / x.", low=0.5)
sqrt = unary(
    "sqrt", lambda t, y, x: t / (y + y), "Square root.", low=0.5,
    notes="The gradient at 0 is infinite.",
)  # fmt: skip
rsqrt: Unary = unary(
    "rsqrt", lambda t, y, x: t * (y / x * -0.5), "1 / sqrt(x).", forward="reciprocal(sqrt(x))",
    low=0.5, flops=4,
)  # fmt: skip
cbrt = unary(
    "cbrt", lambda t, y, x: t / (square(y) * 3), "Cube root, also of negative numbers.",
    scheme="f[*s] -> f[*s]", low=0.5, flops=20, notes="The gradient at 0 is infinite.",
)  # fmt: skip


def _power_by_base(t: Node, z: Node, x: Node, y: Node) -> Node:
    if y.op is CONSTANT and not y.ndim:
        exponent = y.attrs["value"].item()
        return t * (power(x, exponent - 1) * exponent) if exponent else t * y
    # x ** -1 * 0 is not zero at x = 0, but the derivative of x ** 0 is.
    flat = y == 0
    return t * (y * power(x, where(flat, 1, y - 1)))


def _power_by_exponent(t: Node, z: Node, x: Node, y: Node) -> Node:
    has_log = x != 0 if x.dtype.kind == "c" else x > 0
    logarithm = log(where(has_log, x, 1))
    if x.dtype.kind != "c":
        at_zero = where(y < 0, -inf, zeros_like(y))
        logarithm = where(has_log, logarithm, where(x < 0, nan, at_zero))
    return t * (z * logarithm)


_power = binary(
    "power", (_power_by_base, _power_by_exponent), "x ** y.", scheme=_NUMBERS, low=0.5, flops=10
)

_EXACT_POWERS: dict[float, Callable[[Node], Node]] = {
    0: lambda x: broadcast_like(x.graph.constant(np.ones((), x.dtype)), x), 1: lambda x: x,
    2: lambda x: square(x), 3: lambda x: square(x) * x, 4: lambda x: square(square(x)),
    -1: lambda x: reciprocal(x), 0.5: lambda x: sqrt(x), -0.5: lambda x: rsqrt(x),
}  # fmt: skip


@raises(both="The operands do not fit the type, or an int has a negative or fractional exponent.")
def power(x: Any, y: Any) -> Node:
    """Return ``x ** y`` elementwise.

    Type ``n[*s] -> n[*t] -> n[*s|t]``.  A weak scalar exponent of 0, 1, 2, 3, 4, -1, 0.5 or -0.5
    builds the cheaper op that is exactly this power (``square``, ``reciprocal``, ``sqrt``,
    ``rsqrt``).  Gradients: ``y * x ** (y - 1)`` for x, 0 where y is 0; ``x ** y * log(x)`` for y,
    which is NaN where x < 0, and 0 where x is 0 and y is not negative.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """
    _refuse_negative_powers_of_ints(x, y)
    if isinstance(x, Node) and is_weak(y) and not isinstance(y, (complex, np.complexfloating)):
        exact, whole = _EXACT_POWERS.get(y), isinstance(y, (int, np.integer, np.bool_))
        if exact is not None and (x.dtype.kind in "fcV" or (x.dtype.kind in "iu" and whole)):
            return exact(x)
    return _power(x, y)


def _refuse_negative_powers_of_ints(x: Any, y: Any) -> None:
    unknown = isinstance(y, Node) and y.op is not CONSTANT
    if unknown or not isinstance(x, Node) or x.dtype.kind not in "iu":
        return
    exponents = np.asarray(y.attrs["value"] if isinstance(y, Node) else y)
    if exponents.dtype.kind in "if" and (exponents < 0).any():
        raise GraphTypeError(
            f"power: {x!r} is {x.dtype} and an exponent is negative, got {y!r}; the result would "
            "be no integer: convert with .astype('float64') first"
        )
