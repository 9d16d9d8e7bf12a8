"""Products with logarithms, with their limits at 0; and the inverse of sigmoid."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from actorgraph.graph import Node
from actorgraph.ops._declare import binary, unary
from actorgraph.ops.exponential import log, log1p
from actorgraph.ops.selection import clip, where

__all__ = ["entr", "logit", "xlog1py", "xlogy"]

_PAIR, _FLOAT = "f[*s] -> f[*t] -> f[*s|t]", "f[*s] -> f[*s]"


def _inside(choose: Any, x: Any, y: Any, edge: int) -> Any:
    """Return y, but a number whose logarithm is 0 where x is 0 and that of y is not finite."""
    return choose((x == 0) & ((y <= edge) | (y == inf)), edge + 1, y)


def _xlogy_forward(xp: Any, x: Any, y: Any) -> Any:
    return xp.multiply(x, xp.log(_inside(xp.where, x, y, 0).astype(x.dtype)))


def _xlog1py_forward(xp: Any, x: Any, y: Any) -> Any:
    return xp.multiply(x, xp.log1p(_inside(xp.where, x, y, -1).astype(x.dtype)))


xlogy = binary(
    "xlogy", _xlogy_forward,
    (
        lambda t, z, x, y: t * log(_inside(where, x, y, 0)),
        lambda t, z, x, y: t * (x / _inside(where, x, y, 0)),
    ),
    "x * log(y), 0 where x is 0.", scheme=_PAIR, low=0.5, flops=7,
)  # fmt: skip
xlog1py = binary(
    "xlog1py", _xlog1py_forward,
    (
        lambda t, z, x, y: t * log1p(_inside(where, x, y, -1)),
        lambda t, z, x, y: t * (x / (_inside(where, x, y, -1) + 1)),
    ),
    "x * log(1 + y), 0 where x is 0.", scheme=_PAIR, low=0.5, flops=7,
)  # fmt: skip


def _entr_forward(xp: Any, x: Any) -> Any:
    safe = xp.where(x > 0, x, 1).astype(x.dtype)
    ends = xp.where(x < 0, -inf, x * 0)
    return xp.where(x > 0, -x * xp.log(safe), ends).astype(x.dtype)


entr = unary(
    "entr", _entr_forward, lambda t, y, x: -(t * (log(where(x < 0, nan, x)) + 1)),
    "-x * log(x), 0 at 0 and -inf below.", scheme=_FLOAT, low=0.1, flops=8,
    notes="The gradient at 0 is infinite, and below NaN.",
)  # fmt: skip

_logit = unary(
    "logit", lambda xp, x: xp.log(x) - xp.log1p(-x), lambda t, y, x: t / (x * (1 - x)),
    "log(x / (1 - x)), the inverse of sigmoid.", scheme=_FLOAT, low=0.1, high=0.9, flops=12,
)  # fmt: skip


def logit(x: Node, eps: float | None = None) -> Node:
    """Return ``log(x / (1 - x))``, the inverse of `sigmoid`.

    Parameters
    ----------
    x : node
        Float, from 0 to 1.
    eps : float, optional
        Limit `x` to the interval from `eps` to ``1 - eps`` before.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.logit(ag.Graph().input("x", (3,)), eps=1e-6).shape
    (3,)
    """
    return _logit(x if eps is None else clip(x, eps, 1 - eps))
