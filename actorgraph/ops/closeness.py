"""Comparison of arrays as wholes, or within a tolerance; bool results, without gradient."""

from __future__ import annotations

from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import nary_elementwise
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.counting import all  # noqa: A004 - NumPy's name

__all__ = ["allclose", "array_equal", "isclose"]

_DEFAULTS = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}

_ISCLOSE = nary_elementwise(
    "isclose", "n[*s] -> n[*t] -> bool[*s|t]", lambda xp, x, y, **attrs: xp.isclose(x, y, **attrs),
    (None, None), flops=8,
    samples=tuple(
        Sample(shapes, _DEFAULTS)
        for shapes in (((3, 4), (4,)), ((), (3,)), ((0, 2), (2,)))
    ),
    doc="Whether abs(x - y) <= atol + rtol * abs(y).",
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

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> isclose(Graph().input("x", ("batch", 3)), 1.0).shape
    (batch, 3)
    """
    attrs = {"rtol": float(rtol), "atol": float(atol), "equal_nan": bool(equal_nan)}
    return build(_ISCLOSE, x, y, **attrs)


@naming_itself
def allclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Node:
    """Whether all elements are close, as ``numpy.allclose``; parameters as those of `isclose`."""
    return all(isclose(x, y, rtol, atol, equal_nan))


_ARRAY_EQUAL = declare(
    "array_equal", "a[*s] -> a[*t] -> bool[]",
    lambda xp, x, y, equal_nan: xp.asarray(xp.array_equal(x, y, equal_nan)), vjp=(None, None),
    samples=tuple(
        Sample(shapes, {"equal_nan": True})
        for shapes in (((3, 4), (3, 4)), ((2,), (3,)))
    ),
    doc="Whether two arrays have one shape and equal elements.",
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

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> x = Graph().input("x", ("batch", 3))
    >>> array_equal(x, x[:1]).dtype
    dtype('bool')
    """
    return build(_ARRAY_EQUAL, x, y, equal_nan=bool(equal_nan))
