"""Special functions, computed by SciPy: an extra, asked for when a node is built."""

from __future__ import annotations

from functools import cache
from math import pi, sqrt
from typing import Any

from actorgraph.errors import GraphError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.ops._declare import Unary, documented, nary_elementwise
from actorgraph.ops._scalars import is_half
from actorgraph.ops.exponential import exp
from actorgraph.ops.selection import clip

__all__ = ["digamma", "erf", "erfc", "lgamma", "need_scipy", "polygamma", "special_function"]


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


def special_function(xp: Any, name: str, x: Any) -> Any:
    """Return a function of ``scipy.special`` of `x` in its dtype."""
    function = getattr(_library(xp.__name__), name)
    if is_half(x.dtype):
        return function(x.astype(xp.float32)).astype(x.dtype)
    return function(x)


def _bell(x: Node) -> Node:
    """Return exp(-x * x); beyond 40 it is 0 in every dtype and the square might overflow."""
    x = clip(x, -40, 40)
    return exp(-(x * x))


def _declared(
    name: str, function: str, derivative: Any, doc: str, low: float = -2.0, notes: str = ""
) -> Unary:
    def forward(xp: Any, x: Any) -> Any:
        return special_function(xp, function, x)

    op = nary_elementwise(
        name, "f[*s] -> f[*s]", forward, (derivative,), flops=30, doc=doc,
        samples=tuple(Sample((shape,), {}, low) for shape in ((3, 4), (), (0, 2))),
    )  # fmt: skip

    def apply(x: Any) -> Node:
        need_scipy()
        return build(op, x)

    notes = (
        f"By ``scipy.special.{function}``, an extra: ``pip install 'actorgraph[special]'``.{notes}"
    )
    documented(apply, op, "x : node\n    Any shape.", notes)
    return apply


_SLOPE = 2 / sqrt(pi)

erf: Unary = _declared(
    "erf", "erf", lambda t, y, x: t * (_bell(x) * _SLOPE),
    "Error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
)  # fmt: skip
erfc: Unary = _declared(
    "erfc", "erfc", lambda t, y, x: t * (_bell(x) * -_SLOPE),
    "Complementary error function, 1 - erf(x), exact for large x.",
)  # fmt: skip
lgamma: Unary = _declared(
    "lgamma", "gammaln", lambda t, y, x: t * digamma(x),
    "Logarithm of the absolute value of the gamma function.", 0.3,
)  # fmt: skip
digamma: Unary = _declared(
    "digamma", "psi", lambda t, y, x: t * polygamma(1, x), "Derivative of lgamma.", 0.3
)


def _polygamma_forward(xp: Any, x: Any, order: int) -> Any:
    function = _library(xp.__name__).polygamma
    return function(order, x).astype(x.dtype)


_POLYGAMMA: Op = nary_elementwise(
    "polygamma", "f[*s] -> f[*s]", _polygamma_forward,
    (lambda t, y, x, order: t * polygamma(order + 1, x),), flops=60,
    samples=tuple(Sample(((3, 4),), {"order": n}, 0.5, 3) for n in (1, 2)),
    doc="Derivative of digamma of an order.",
)  # fmt: skip


def polygamma(n: int, x: Any) -> Node:
    """Derivative of order `n` of `digamma`.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.polygamma``, an extra: ``pip install
    'actorgraph[special]'``.

    Parameters
    ----------
    n : int
        Order, at least 0.
    x : node

    Returns
    -------
    Node

    Raises
    ------
    GraphError
        SciPy is missing, or `n` is no order.
    """
    need_scipy()
    if not isinstance(n, int) or n < 0:
        raise GraphError(f"polygamma: the order is an int >= 0, got {n!r}")
    return build(_POLYGAMMA, x, order=n) if n else digamma(x)
