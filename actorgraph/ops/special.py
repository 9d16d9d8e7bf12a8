"""Special functions, computed by SciPy: an extra, asked for when a node is built."""

from __future__ import annotations

from functools import cache, partial
from math import factorial, inf, log, pi, sqrt
from typing import Any, NamedTuple

from actorgraph.errors import GraphError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import Unary, documented, nary_elementwise
from actorgraph.ops._device import by_host
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import add_all
from actorgraph.ops._scalars import is_half
from actorgraph.ops.arithmetic import reciprocal, sign, square
from actorgraph.ops.exponential import exp
from actorgraph.ops.selection import clip, where

__all__ = [
    "digamma", "erf", "erfc", "erfcx", "erfinv", "gammaln", "i0", "i0e", "i1", "i1e", "j0", "j1",
    "k0", "k0e", "k1", "k1e", "lgamma", "log_ndtr", "multigammaln", "ndtr", "ndtri", "polygamma",
    "psi", "y0", "y1", "zeta",
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
    >>> import actorgraph as ag
    >>> ag.ops.zeta(2, ag.Graph().input("x", (3,))).shape
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
    >>> import actorgraph as ag
    >>> ag.ops.multigammaln(ag.Graph().input("x", (3,)), 2).shape
    (3,)
    """
    if not isinstance(p, int) or p < 1:
        raise GraphError(f"multigammaln: the number of dims is an int >= 1, got {p!r}")
    terms: Node = add_all([lgamma(x - j / 2) for j in range(p)])  # type: ignore[assignment]
    return terms + p * (p - 1) / 4 * log(pi)


# -- bessel -----------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """What SciPy calls a function and its orders 0 and 1, and its derivative."""

    first: tuple[str, str]
    below: float
    """Share of the order below in the derivative, in halves."""
    above: float
    """Share of the order above."""
    own: Any
    """Share of the function itself, as a function of x, or None."""
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
    documented(
        apply, _BESSEL, "x : node\n    Any shape.",
        f"By ``scipy.special.{name}``, an extra: ``pip install 'actorgraph[special]'``.",
        name=name, doc=f"{what[0].upper()}{what[1:]}, of order {order}.",
    )  # fmt: skip
    return naming_itself(apply)


i0, i1 = _function("iv", 0), _function("iv", 1)
i0e, i1e = _function("ive", 0), _function("ive", 1)
j0, j1 = _function("jv", 0), _function("jv", 1)
k0, k1 = _function("kv", 0), _function("kv", 1)
k0e, k1e = _function("kve", 0), _function("kve", 1)
y0, y1 = _function("yv", 0), _function("yv", 1)
