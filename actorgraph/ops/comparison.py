"""Comparisons, which give bool nodes, and logic on bool nodes."""

from __future__ import annotations

from actorgraph.ops._declare import binary, unary

__all__ = [
    "equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_not",
    "logical_or", "logical_xor", "not_equal",
]  # fmt: skip

_NONE = (None, None)
_ANY, _ORDERED = "a[*s] -> a[*t] -> bool[*s|t]", "r[*s] -> r[*t] -> bool[*s|t]"
_BOOLS = "bool[*s] -> bool[*t] -> bool[*s|t]"

equal = binary("equal", "equal", _NONE, "x == y.", scheme=_ANY)
not_equal = binary("not_equal", "not_equal", _NONE, "x != y.", scheme=_ANY)
less = binary("less", "less", _NONE, "x < y.", scheme=_ORDERED)
less_equal = binary("less_equal", "less_equal", _NONE, "x <= y.", scheme=_ORDERED)
greater = binary("greater", "greater", _NONE, "x > y.", scheme=_ORDERED)
greater_equal = binary("greater_equal", "greater_equal", _NONE, "x >= y.", scheme=_ORDERED)

logical_and = binary("logical_and", "logical_and", _NONE, "x and y.", scheme=_BOOLS, bools=(0, 1))
logical_or = binary("logical_or", "logical_or", _NONE, "x or y.", scheme=_BOOLS, bools=(0, 1))
logical_xor = binary("logical_xor", "logical_xor", _NONE, "x != y.", scheme=_BOOLS, bools=(0, 1))
logical_not = unary(
    "logical_not", "logical_not", None, "not x.", scheme="bool[*s] -> bool[*s]", bools=(0,)
)
