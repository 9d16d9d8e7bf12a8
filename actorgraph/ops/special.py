"""Special functions, computed by SciPy: an extra, asked for when a node is built."""

from __future__ import annotations

from functools import cache
from math import factorial, inf, log, pi, sqrt
from typing import Any

from actorgraph.errors import GraphError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import Unary, documented, nary_elementwise
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import add_all
from actorgraph.ops._scalars import is_half
from actorgraph.ops.arithmetic import reciprocal, square
from actorgraph.ops.exponential import exp
from actorgraph.ops.selection import clip, where

__all__ = [
    "digamma", "erf", "erfc", "erfcx", "erfinv", "gammaln", "lgamma", "log_ndtr", "multigammaln",
    "ndtr", "ndtri", "polygamma", "psi", "zeta",
]  # fmt: skip


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
    """Return a function of ``scipy.special`` of `x`, after the other arguments, in its dtype."""
    function = getattr(_library(xp.__name__), name)
    wide = x.astype(xp.float32) if is_half(x.dtype) else x
    return function(*before, wide).astype(x.dtype, copy=False)


def _bell(x: Node) -> Node:
    """Return exp(-x * x); beyond 40 it is 0 in every dtype and the square might overflow."""
    x = clip(x, -40, 40)
    return exp(-(x * x))


_BY = "By ``scipy.special.{}``, an extra: ``pip install 'actorgraph[special]'``."


def _declared(
    name: str,
    function: str,
    derivative: Any,
    doc: str,
    low: float = -2.0,
    high: float = 2.0,
    notes: str = "",
    forward: Any = None,
) -> Unary:
    def by_library(xp: Any, x: Any) -> Any:
        return special_function(xp, function, x)

    op = nary_elementwise(
        name, "f[*s] -> f[*s]", forward or by_library, (derivative,), flops=30, doc=doc,
        low=low, high=high,
    )  # fmt: skip

    def apply(x: Any) -> Node:
        need_scipy()
        return build(op, x)

    documented(apply, op, "x : node\n    Any shape.", f"{_BY.format(function)}{notes}")
    return apply


_SLOPE, _UNIT = 2 / sqrt(pi), 1 / sqrt(2 * pi)
_NORMAL = "the normal distribution function"

erf: Unary = _declared(
    "erf", "erf", lambda t, y, x: t * (_bell(x) * _SLOPE),
    "Error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
)  # fmt: skip
erfc: Unary = _declared(
    "erfc", "erfc", lambda t, y, x: t * (_bell(x) * -_SLOPE),
    "Complementary error function, 1 - erf(x), exact for large x.",
)  # fmt: skip


def _erfcx_slope(y: Node, x: Node) -> Node:
    """Return 2 x y - 2 / sqrt(pi), by its series where the difference would lose all digits."""
    far = x > 100
    small = square(reciprocal(where(far, x, 100)))
    tail = small * (small * (1.5 - small * 3.75) - 1) * (_SLOPE / 2)
    return where(far, tail, clip(x, None, 100) * y * 2 - _SLOPE)


erfcx: Unary = _declared(
    "erfcx", "erfcx", lambda t, y, x: t * _erfcx_slope(y, x),
    "exp(x * x) * erfc(x), without overflow for large x.",
)  # fmt: skip
erfinv: Unary = _declared(
    "erfinv", "erfinv", lambda t, y, x: t * (exp(square(y)) * (1 / _SLOPE)), "Inverse of erf.",
    -0.9, 0.9, "  The gradient at -1 and 1 is infinite.",
)  # fmt: skip
ndtr: Unary = _declared(
    "ndtr", "ndtr", lambda t, y, x: t * (_bell(x * sqrt(0.5)) * _UNIT),
    f"{_NORMAL.capitalize()}, the integral of its density up to x.",
)  # fmt: skip
ndtri: Unary = _declared(
    "ndtri", "ndtri", lambda t, y, x: t * (exp(square(y) * 0.5) * (1 / _UNIT)),
    f"Inverse of {_NORMAL}.", 0.1, 0.9, "  The gradient at 0 and 1 is infinite.",
)  # fmt: skip
# The quotient of density and integral, without a difference of large exponents.
log_ndtr: Unary = _declared(
    "log_ndtr", "log_ndtr", lambda t, y, x: t * (2 * _UNIT / erfcx(x * -sqrt(0.5))),
    f"Logarithm of {_NORMAL}, exact far below 0 too.",
)  # fmt: skip


def _lgamma_forward(xp: Any, x: Any) -> Any:
    return special_function(xp, "gammaln", xp.where(x == -inf, -x, x))


lgamma: Unary = _declared(
    "lgamma", "gammaln", lambda t, y, x: t * digamma(x),
    "Logarithm of the absolute value of the gamma function.", 0.3, forward=_lgamma_forward,
)  # fmt: skip
gammaln = lgamma
digamma: Unary = _declared(
    "digamma", "psi", lambda t, y, x: t * polygamma(1, x), "Derivative of lgamma.", 0.3
)
psi = digamma


_ZETA: Op = nary_elementwise(
    "zeta", "f[*s] -> f[*s]", lambda xp, x, s: special_function(xp, "zeta", x, s),
    (lambda t, y, x, s: t * (zeta(s + 1, x) * -s),), flops=60,
    samples=tuple(Sample(((3, 4),), {"s": s}, 0.5, 3) for s in (1.5, 3.0)),
    doc="Sum of (x + k) ** -s over k = 0, 1, 2 and so on.",
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

    Raises
    ------
    GraphError
        SciPy is missing, or `s` is not a number above 1.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> zeta(2, Graph().input("x", (3,))).shape
    (3,)
    """
    need_scipy()
    if not isinstance(s, (int, float)) or not s > 1:
        raise GraphError(f"zeta: the exponent is a number above 1, got {s!r}")
    return build(_ZETA, x, s=float(s))


def polygamma(n: int, x: Any) -> Node:
    """Derivative of order `n` of `digamma`; from 1 on ``(-1) ** (n + 1) * n! * zeta(n + 1, x)``.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.zeta``, an extra: ``pip install
    'actorgraph[special]'``.

    Parameters
    ----------
    n : int
        Order, at least 0.
    x : node

    Raises
    ------
    GraphError
        SciPy is missing, or `n` is no order.
    """
    if not isinstance(n, int) or n < 0:
        raise GraphError(f"polygamma: the order is an int >= 0, got {n!r}")
    return zeta(n + 1, x) * ((-1.0) ** (n + 1) * factorial(n)) if n else digamma(x)


@raises(other="SciPy is missing, or `p` is no number of dims.")
@naming_itself
def multigammaln(x: Node, p: int) -> Node:
    """Logarithm of the gamma function of `p` dims, as ``torch.special.multigammaln``.

    Parameters
    ----------
    x : node
        Float, above ``(p - 1) / 2``.
    p : int
        Number of dims, at least 1.

    Examples
    --------
    >>> from actorgraph import Graph
    >>> multigammaln(Graph().input("x", (3,)), 2).shape
    (3,)
    """
    if not isinstance(p, int) or p < 1:
        raise GraphError(f"multigammaln: the number of dims is an int >= 1, got {p!r}")
    terms: Node = add_all([lgamma(x - j / 2) for j in range(p)])  # type: ignore[assignment]
    return terms + p * (p - 1) / 4 * log(pi)
