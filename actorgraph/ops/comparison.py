"""Comparisons, which give bool nodes, and logic on bool nodes."""

from __future__ import annotations

from typing import Any, Protocol

from actorgraph.graph import Node
from actorgraph.ops._declare import Binary, binary, unary
from actorgraph.ops.casting import astype

__all__ = [
    "equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_not",
    "logical_or", "logical_xor", "not_equal",
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
