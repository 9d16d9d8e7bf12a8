"""Trigonometric, hyperbolic and special functions, and products with logarithms.

Derivatives of the inverses are written so that no square overflows: for real x, ``1 / sqrt(1 + x *
x)`` is ``1 / hypot(x, 1)``.  Special functions are computed by SciPy, an extra; if it is missing,
building a node raises.
"""

from __future__ import annotations

import math
from functools import cache, partial
from math import factorial, inf, nan, perm, pi
from typing import Any, NamedTuple

from actorgraph.errors import GraphError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.ops._arrays import by_host, highest, is_half
from actorgraph.ops._declare import Unary, binary, documented, nary_elementwise, unary
from actorgraph.ops._rules import add_all, on, raises
from actorgraph.ops.arithmetic import imag, is_complex, real, reciprocal, sign, sqrt, square
from actorgraph.ops.elementwise import clip, exp, log, log1p, minimum, where

__all__ = [
    "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cos",
    "cosh", "cot", "csc", "deg2rad", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "gammaln",
    "hypot", "i0", "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "lgamma", "log_ndtr",
    "logit", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "rad2deg", "sec", "sin", "sinc",
    "sinh", "tan", "tanh", "xlog1py", "xlogy", "y0", "y1", "zeta",
]  # fmt: skip

_REALS, _FLOAT = "f[*s] -> f[*t] -> f[*s|t]", "f[*s] -> f[*s]"

sin: Unary = unary("sin", lambda t, y, x: t * cos(x), "Sine of radians.", flops=20)
cos: Unary = unary("cos", lambda t, y, x: -(t * sin(x)), "Cosine of radians.", flops=20)
tan = unary(
    "tan", lambda t, y, x: t * (square(y) + 1), "Tangent of radians.", flops=20, low=-1.3, high=1.3
)
sinh: Unary = unary("sinh", lambda t, y, x: t * cosh(x), "Hyperbolic sine.", flops=10)
cosh: Unary = unary("cosh", lambda t, y, x: t * sinh(x), "Hyperbolic cosine.", flops=10)
tanh: Unary = unary("tanh", lambda t, y, x: t * (1 - y * y), "Hyperbolic tangent.", flops=5)

deg2rad = unary("deg2rad", lambda t, y, x: t * (pi / 180), "Degrees to radians.", scheme=_FLOAT)
rad2deg = unary("rad2deg", lambda t, y, x: t * (180 / pi), "Radians to degrees.", scheme=_FLOAT)

hypot = binary(
    "hypot", (lambda t, z, x, y: t * _over(x, z), lambda t, z, x, y: t * _over(y, z)),
    "sqrt(x * x + y * y), without overflow.", scheme=_REALS, flops=20,
    notes="At the origin all derivatives are 0.",
)  # fmt: skip
arctan2 = binary(
    "arctan2", (lambda t, z, x, y: t * _turn(y, x, y), lambda t, z, x, y: -(t * _turn(x, x, y))),
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


arcsin = unary(
    "arcsin", lambda t, y, x: t / sqrt((1 - x) * (x + 1)), "Inverse sine.", low=-0.9, high=0.9,
    flops=20, notes="The gradient at -1 and 1 is infinite.",
)  # fmt: skip
arccos = unary(
    "arccos", lambda t, y, x: -(t / sqrt((1 - x) * (x + 1))), "Inverse cosine.", low=-0.9, high=0.9,
    flops=20, notes="The gradient at -1 and 1 is infinite.",
)  # fmt: skip
arctan = unary(
    "arctan",
    lambda t, y, x: t / (square(x) + 1) if is_complex(x) else t * square(reciprocal(hypot(x, 1))),
    "Inverse tangent.", flops=20,
)  # fmt: skip
arcsinh = unary(
    "arcsinh", lambda t, y, x: t / (sqrt(square(x) + 1) if is_complex(x) else hypot(x, 1)),
    "Inverse hyperbolic sine.", flops=20,
)  # fmt: skip
arccosh = unary(
    "arccosh", lambda t, y, x: t / (sqrt(x - 1) * sqrt(x + 1)), "Inverse hyperbolic cosine.",
    low=1.3, high=3, flops=20, notes="The gradient at 1 is infinite.",
)  # fmt: skip
arctanh = unary(
    "arctanh", lambda t, y, x: t / ((1 - x) * (x + 1)), "Inverse hyperbolic tangent.", low=-0.9,
    high=0.9, flops=20, notes="The gradient at -1 and 1 is infinite.",
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
    """Return the same by u s[n] + n s[n - 1] = sin(u + n pi / 2), stable for u beyond the order."""
    sin, cos = xp.sin(u), xp.cos(u)
    found = sin / u
    for n, phase in zip(range(1, order + 1), (cos, -sin, -cos, sin) * order, strict=False):
        found = (phase - n * found) / u
    return found


def _sinc_forward(xp: Any, x: Any, order: int) -> Any:
    u = (x.astype(xp.float32) if is_half(x.dtype) else x) * pi
    near = xp.abs(u) < max(order, 1)
    far = _recurrence(xp, xp.where(near, order + 1, u).astype(u.dtype), order)
    series = _series(xp.where(near, u, 0).astype(u.dtype), order)
    return (xp.where(near, series, far) * pi**order).astype(x.dtype)


_SINC: Op = nary_elementwise(
    "sinc", "f[*s] -> f[*s]", _sinc_forward,
    (lambda t, y, x, order: t * build(_SINC, x, order=order + 1),), flops=60,
    samples=(on((3, 4), order=0), on((), order=0), on((0, 2), order=0), on((3, 4), order=3)),
)  # fmt: skip


def sinc(x: Node) -> Node:
    """Return ``sin(pi x) / (pi x)``, 1 at 0, as ``numpy.sinc``.

    Type ``f[*s] -> f[*s]``; derivatives of every order are exact near 0 too.  Of complex numbers
    it is built of `sin`, with the gradient 0 at 0.

    Parameters
    ----------
    x : node
        Any shape.
    """
    if x.dtype.kind == "c":
        at_zero = x == 0
        safe = where(at_zero, 1, x) * pi
        return where(at_zero, 1, sin(safe) / safe)
    return build(_SINC, x, order=0)


@cache
def _library(name: str) -> Any:
    try:
        if name == "cupy":
            from cupyx.scipy import special
        else:
            from scipy import special
    except ImportError:
        raise GraphError(
            "this op is computed by SciPy, which is not installed; "
            'install it with: pip install "actorgraph[special]"'
        ) from None
    return special


def need_scipy() -> None:
    """Raise `GraphError` with what to install where SciPy is missing."""
    _library("numpy")


def special_function(xp: Any, name: str, x: Any, *before: Any) -> Any:
    """Call a function of ``scipy.special`` with `x` behind other arguments, in the dtype of `x`."""
    function = getattr(_library(xp.__name__), name, None)
    if function is None:  # CuPy has few of several arguments
        host = partial(getattr(_library("numpy"), name), *before)
        return by_host(xp, host, x).astype(x.dtype, copy=False)
    wide = x.astype(xp.float32) if is_half(x.dtype) else x
    return function(*before, wide).astype(x.dtype, copy=False)


def _bell(x: Node) -> Node:
    """Return exp(-x * x); beyond 40 it is 0 in every dtype and the square might overflow."""
    x = clip(x, -40, 40)
    return exp(-(x * x))


_BY = "By ``scipy.special.{}``, an extra: ``pip install 'actorgraph[special]'``."


def _declared(
    name: str, derivative: Any, doc: str, low: float = -2.0, high: float = 2.0, notes: str = "",
    function: str = "", forward: Any = None,
) -> Unary:  # fmt: skip
    function = function or name

    def by_library(xp: Any, x: Any) -> Any:
        return special_function(xp, function, x)

    op = nary_elementwise(
        name, "f[*s] -> f[*s]", forward or by_library, (derivative,), flops=30, doc=doc,
        low=low, high=high, rule=f"{function}(x)",
    )  # fmt: skip

    def apply(x: Any) -> Node:
        need_scipy()
        return build(op, x)

    return documented(apply, op, "x : node\n    Any shape.", f"{_BY.format(function)}{notes}")


_SLOPE, _UNIT = 2 / math.sqrt(pi), 1 / math.sqrt(2 * pi)
_NORMAL = "the normal distribution function"

erf: Unary = _declared(
    "erf", lambda t, y, x: t * (_bell(x) * _SLOPE),
    "Error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
)  # fmt: skip
erfc: Unary = _declared(
    "erfc", lambda t, y, x: t * (_bell(x) * -_SLOPE),
    "Complementary error function, 1 - erf(x), exact for large x.",
)  # fmt: skip


def _erfcx_slope(y: Node, x: Node) -> Node:
    """Return 2 x y - 2 / sqrt(pi), by its series where the difference would lose all digits."""
    far = x > 100
    small = square(reciprocal(where(far, x, 100)))
    tail = small * (small * (1.5 - small * 3.75) - 1) * (_SLOPE / 2)
    return where(far, tail, clip(x, None, 100) * y * 2 - _SLOPE)


erfcx: Unary = _declared(
    "erfcx", lambda t, y, x: t * _erfcx_slope(y, x),
    "exp(x * x) * erfc(x), without overflow for large x.",
)  # fmt: skip
erfinv: Unary = _declared(
    "erfinv", lambda t, y, x: t * (exp(square(y)) * (1 / _SLOPE)), "Inverse of erf.", -0.9, 0.9,
    "  The gradient at -1 and 1 is infinite.",
)  # fmt: skip
ndtr: Unary = _declared(
    "ndtr", lambda t, y, x: t * (_bell(x * math.sqrt(0.5)) * _UNIT),
    f"{_NORMAL.capitalize()}, the integral of its density up to x.",
)  # fmt: skip
ndtri: Unary = _declared(
    "ndtri", lambda t, y, x: t * (exp(square(y) * 0.5) * (1 / _UNIT)), f"Inverse of {_NORMAL}.",
    0.1, 0.9, "  The gradient at 0 and 1 is infinite.",
)  # fmt: skip
# The quotient of density and integral, without a difference of large exponents.
log_ndtr: Unary = _declared(
    "log_ndtr", lambda t, y, x: t * (2 * _UNIT / erfcx(x * -math.sqrt(0.5))),
    f"Logarithm of {_NORMAL}, exact far below 0 too.",
)  # fmt: skip


lgamma: Unary = _declared(
    "lgamma", lambda t, y, x: t * digamma(x),
    "Logarithm of the absolute value of the gamma function.", 0.3, function="gammaln",
    forward=lambda xp, x: special_function(xp, "gammaln", xp.where(x == -inf, -x, x)),
)  # fmt: skip
gammaln = lgamma
digamma: Unary = _declared(
    "digamma", lambda t, y, x: t * polygamma(1, x), "Derivative of lgamma.", 0.3, function="psi"
)
psi = digamma


_ZETA: Op = nary_elementwise(
    "zeta", "f[*s] -> f[*s]", lambda xp, x, s: special_function(xp, "zeta", x, s),
    (lambda t, y, x, s: t * (zeta(s + 1, x) * -s),), flops=60,
    samples=tuple(Sample(((3, 4),), {"s": s}, 0.5, 3) for s in (1.5, 3.0)),
)  # fmt: skip


def zeta(s: float, x: Any) -> Node:
    """Zeta function of Hurwitz, the sum of ``(x + k) ** -s`` over k = 0, 1, 2 and so on.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.zeta``, an extra: ``pip install
    'actorgraph[special]'``.

    Parameters
    ----------
    s : float
        The exponent, above 1.
    x : node
    """
    need_scipy()
    if not isinstance(s, (int, float)) or not s > 1:
        raise GraphError(f"the exponent is a number above 1, got {s!r}")
    return build(_ZETA, x, s=float(s))


raises(other="SciPy is missing, or `s` is not a number above 1.")(zeta)


def polygamma(n: int, x: Any) -> Node:
    """Derivative of order `n` of `digamma`; from 1 on ``(-1) ** (n + 1) * n! * zeta(n + 1, x)``.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.zeta``, an extra: ``pip install
    'actorgraph[special]'``.

    Parameters
    ----------
    n : int
        Order, at least 0.
    x : node
    """
    if not isinstance(n, int) or n < 0:
        raise GraphError(f"the order is an int >= 0, got {n!r}")
    return zeta(n + 1, x) * ((-1.0) ** (n + 1) * factorial(n)) if n else digamma(x)


raises(other="SciPy is missing, or `n` is no order.")(polygamma)


@raises(other="SciPy is missing, or `p` is no number of dims.")
def multigammaln(x: Node, p: int) -> Node:
    """Logarithm of the gamma function of `p` dims, as ``torch.special.multigammaln``.

    Parameters
    ----------
    x : node
        Float, above ``(p - 1) / 2``.
    p : int
        Number of dims, at least 1.
    """
    if not isinstance(p, int) or p < 1:
        raise GraphError(f"the number of dims is an int >= 1, got {p!r}")
    terms: Node = add_all([lgamma(x - j / 2) for j in range(p)])  # type: ignore[assignment]
    return terms + p * (p - 1) / 4 * math.log(pi)


class _Kind(NamedTuple):
    """SciPy's names of a kind's orders 0 and 1, and the terms of its derivative."""

    first: tuple[str, str]
    below: float  # twice the share of the order below in the derivative
    above: float  # twice that of the order above
    own: Any  # that of the function itself, as a function of x; or None
    what: str


_KINDS = {
    "jv": _Kind(("j0", "j1"), 1, -1, None, "Bessel function of the first kind"),
    "yv": _Kind(("y0", "y1"), 1, -1, None, "Bessel function of the second kind"),
    "iv": _Kind(("i0", "i1"), 1, 1, None, "modified Bessel function of the first kind"),
    "ive": _Kind(
        ("i0e", "i1e"), 1, 1, lambda x: -sign(x),
        "exp(-abs(x)) times the modified Bessel function of the first kind",
    ),
    "kv": _Kind(("k0", "k1"), -1, -1, None, "modified Bessel function of the second kind"),
    "kve": _Kind(
        ("k0e", "k1e"), -1, -1, lambda x: 1,
        "exp(x) times the modified Bessel function of the second kind",
    ),
}  # fmt: skip


def _forward(xp: Any, x: Any, kind: str, order: int) -> Any:
    first = _KINDS[kind].first
    if order < len(first):
        return special_function(xp, first[order], x)
    return special_function(xp, kind, x, order)


def _derivative(t: Node, y: Node, x: Node, kind: str, order: int) -> Node:
    facts = _KINDS[kind]
    above = build(_BESSEL, x, kind=kind, order=order + 1)
    if order:
        below = build(_BESSEL, x, kind=kind, order=order - 1)
        slope = below * (facts.below / 2) + above * (facts.above / 2)
    else:
        slope = above * facts.above  # the order -1 is the order 1, but for its sign
    return t * (slope if facts.own is None else slope + y * facts.own(x))


_BESSEL: Op = nary_elementwise(
    "bessel", "f[*s] -> f[*s]", _forward, (_derivative,), flops=80,
    samples=tuple(
        Sample(((3, 4),), {"kind": kind, "order": order}, 0.3, 4.0)
        for kind in _KINDS
        for order in (0, 2)
    ),
    doc="Bessel function of a kind and an integer order.",
)  # fmt: skip


def _function(kind: str, order: int) -> Unary:
    def apply(x: Any) -> Node:
        need_scipy()
        return build(_BESSEL, x, kind=kind, order=order)

    name, what = _KINDS[kind].first[order], _KINDS[kind].what
    return documented(
        apply, _BESSEL, "x : node\n    Any shape.", _BY.format(name), name=name,
        doc=f"{what[0].upper()}{what[1:]}, of order {order}.",
    )  # fmt: skip


i0, i1 = _function("iv", 0), _function("iv", 1)
i0e, i1e = _function("ive", 0), _function("ive", 1)
j0, j1 = _function("jv", 0), _function("jv", 1)
k0, k1 = _function("kv", 0), _function("kv", 1)
k0e, k1e = _function("kve", 0), _function("kve", 1)
y0, y1 = _function("yv", 0), _function("yv", 1)


def _inside(choose: Any, x: Any, y: Any, edge: int) -> Any:
    """Return y; where x is 0 and log(y) is not finite, a number whose logarithm is 0."""
    return choose((x == 0) & ((y <= edge) | (y == inf)), edge + 1, y)


xlogy = binary(
    "xlogy", (
        lambda t, z, x, y: t * log(_inside(where, x, y, 0)),
        lambda t, z, x, y: t * (x / _inside(where, x, y, 0)),
    ), "x * log(y), 0 where x is 0.",
    forward=lambda xp, x, y: xp.multiply(x, xp.log(_inside(xp.where, x, y, 0).astype(x.dtype))),
    scheme=_REALS, low=0.5, flops=7,
)  # fmt: skip
xlog1py = binary(
    "xlog1py", (
        lambda t, z, x, y: t * log1p(_inside(where, x, y, -1)),
        lambda t, z, x, y: t * (x / (_inside(where, x, y, -1) + 1)),
    ), "x * log(1 + y), 0 where x is 0.",
    forward=lambda xp, x, y: xp.multiply(x, xp.log1p(_inside(xp.where, x, y, -1).astype(x.dtype))),
    scheme=_REALS, low=0.5, flops=7,
)  # fmt: skip


def _entr_forward(xp: Any, x: Any) -> Any:
    safe = xp.where(x > 0, x, 1).astype(x.dtype)
    ends = xp.where(x < 0, -inf, x * 0)
    return xp.where(x > 0, -x * xp.log(safe), ends).astype(x.dtype)


entr = unary(
    "entr", lambda t, y, x: -(t * (log(where(x < 0, nan, x)) + 1)),
    "-x * log(x), 0 at 0 and -inf below.", forward=_entr_forward, scheme=_FLOAT, low=0.1, flops=8,
    notes="The gradient at 0 is infinite, and below NaN.",
)  # fmt: skip

_logit = unary(
    "logit", lambda t, y, x: t / (x * (1 - x)), "log(x / (1 - x)), the inverse of sigmoid.",
    forward=lambda xp, x: xp.log(x) - xp.log1p(-x), scheme=_FLOAT, low=0.1, high=0.9, flops=12,
)  # fmt: skip


def logit(x: Node, eps: float | None = None) -> Node:
    """Return ``log(x / (1 - x))``, the inverse of `sigmoid`.

    Parameters
    ----------
    x : node
        Float, from 0 to 1.
    eps : float, optional
        Limit `x` to the interval from `eps` to ``1 - eps`` before.
    """
    return _logit(x if eps is None else clip(x, eps, 1 - eps))
