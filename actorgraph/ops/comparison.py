"""Comparisons, which give bool nodes, closeness among them, and logic on bool nodes."""

from __future__ import annotations

from typing import Any, Protocol

from actorgraph.graph import Node, build
from actorgraph.op import Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import Binary, binary, nary_elementwise, unary
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.casting import astype
from actorgraph.ops.counting import all  # noqa: A004 - NumPy's name

__all__ = [
    "allclose", "array_equal", "equal", "greater", "greater_equal", "isclose", "less",
    "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal",
]  # fmt: skip

_NONE = (None, None)
_ANY, _ORDERED = "a[*s] -> a[*t] -> bool[*s|t]", "r[*s] -> r[*t] -> bool[*s|t]"
_BOOLS = "bool[*s] -> bool[*t] -> bool[*s|t]"

_equal = binary("equal", "equal", _NONE, "x == y.", scheme=_ANY)
_not_equal = binary("not_equal", "not_equal", _NONE, "x != y.", scheme=_ANY)
_less = binary("less", "less", _NONE, "x < y.", scheme=_ORDERED)
_less_equal = binary("less_equal", "less_equal", _NONE, "x <= y.", scheme=_ORDERED)
_greater = binary("greater", "greater", _NONE, "x > y.", scheme=_ORDERED)
_greater_equal = binary("greater_equal", "greater_equal", _NONE, "x >= y.", scheme=_ORDERED)


class Comparison(Protocol):
    """What users call to compare: ``op(x, y)``, or ``op(x, y, same_dtype=True)``."""

    def __call__(self, x: Any, y: Any, *, same_dtype: bool = False) -> Node:
        """Compare elementwise."""


def _comparison(bools: Binary) -> Comparison:
    def compare(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
        result = bools(x, y)
        return astype(result, result.inputs[0].dtype) if same_dtype else result

    compare.__name__ = compare.__qualname__ = bools.__name__
    compare.__module__ = bools.__module__
    parameter = "same_dtype : bool\n    Give 0 and 1 in the dtype of x and y instead of bools.\n\n"
    compare.__doc__ = str(bools.__doc__).replace("Returns\n", f"{parameter}Returns\n".lstrip(), 1)
    return compare


equal, not_equal = _comparison(_equal), _comparison(_not_equal)
less, less_equal = _comparison(_less), _comparison(_less_equal)
greater, greater_equal = _comparison(_greater), _comparison(_greater_equal)

logical_and = binary("logical_and", "logical_and", _NONE, "x and y.", scheme=_BOOLS, bools=(0, 1))
logical_or = binary("logical_or", "logical_or", _NONE, "x or y.", scheme=_BOOLS, bools=(0, 1))
logical_xor = binary("logical_xor", "logical_xor", _NONE, "x != y.", scheme=_BOOLS, bools=(0, 1))
logical_not = unary(
    "logical_not", "logical_not", None, "not x.", scheme="bool[*s] -> bool[*s]", bools=(0,)
)


# -- closeness --------------------------------------------------------------------------------


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
    >>> import actorgraph as ag
    >>> ag.ops.isclose(ag.Graph().input("x", ("batch", 3)), 1.0).shape
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
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", ("batch", 3))
    >>> ag.ops.array_equal(x, x[:1]).dtype
    dtype('bool')
    """
    return build(_ARRAY_EQUAL, x, y, equal_nan=bool(equal_nan))
