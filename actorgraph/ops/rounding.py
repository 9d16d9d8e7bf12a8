"""Rounding to integers, and tests for NaN and infinity: piecewise constant, so without gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.ops._declare import Unary, unary
from actorgraph.ops._docs import raises
from actorgraph.ops.casting import astype

__all__ = ["ceil", "floor", "isfinite", "isinf", "isnan", "round", "trunc"]

_ROUNDED, _TEST = "f[*s] -> f[*s]", "n[*s] -> bool[*s]"
_FLAT = "Piecewise constant: its gradient is zero.  Integers are returned as they are."

_ceil = unary("ceil", "ceil", None, "The smallest integer >= x.", scheme=_ROUNDED, notes=_FLAT)
_floor = unary("floor", "floor", None, "The largest integer <= x.", scheme=_ROUNDED, notes=_FLAT)
_trunc = unary(
    "trunc", "trunc", None, "The nearest integer towards zero.", scheme=_ROUNDED, notes=_FLAT
)  # fmt: skip
_round = unary(
    "round", "rint", None, "The nearest integer; halves go to the even one.",
    scheme="x[*s] -> x[*s]", notes=_FLAT,
)  # fmt: skip

isnan = unary("isnan", "isnan", None, "Whether x is NaN.", scheme=_TEST)
isinf = unary("isinf", "isinf", None, "Whether x is infinite.", scheme=_TEST)
isfinite = unary(
    "isfinite", "isfinite", None, "Whether x is neither NaN nor infinite.", scheme=_TEST
)


def _of_floats(function: Unary) -> Unary:
    """Return the function with integers, which are round already, passed through."""

    def rounded(x: Any) -> Node:
        return x if isinstance(x, Node) and x.dtype.kind in "iu" else function(x)

    rounded.__name__ = rounded.__qualname__ = function.__name__
    rounded.__module__, rounded.__doc__ = function.__module__, function.__doc__
    return rounded


ceil, floor, trunc = _of_floats(_ceil), _of_floats(_floor), _of_floats(_trunc)


def _to_tens(x: Node, ten: int) -> Node:
    """Round integers to multiples of a power of ten, halves to the even multiple."""
    if ten > np.iinfo(x.dtype).max:
        return x * 0
    tens = x // ten
    left = x - tens * ten
    more = (left > ten - left) | ((left == ten - left) & (tens % 2 == 1))
    return (tens + astype(more, x.dtype)) * ten


@raises(types="`x` is bool.")
def round(x: Any, decimals: int = 0) -> Node:  # noqa: A001 - NumPy's name
    """Round to the nearest number of so many decimals; halves go to the even neighbour.

    Type ``x[*s] -> x[*s]``; of integers only the digits that stand are rounded.  Piecewise
    constant: its gradient is zero.  With decimals the value is ``rint(x * 10**decimals) /
    10**decimals``, as in NumPy.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.round(ag.Graph().input("x", (3,)))
    <round_1: float32[3]>
    """
    if isinstance(x, Node) and x.dtype.kind in "iu" and decimals >= 0:
        return x
    if isinstance(x, Node) and x.dtype.kind in "iu":
        return _to_tens(x, 10**-decimals)
    if not decimals:
        return _round(x)
    factor = 10.0 ** abs(decimals)
    return _round(x * factor) / factor if decimals > 0 else _round(x / factor) * factor
