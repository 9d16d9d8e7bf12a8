"""Which of NumPy's ufuncs may have a loop that rows can call, by names and dtypes alone.

First runs ask this.  `loops` reads and proves the loops, which takes 0.1 ms each.
"""

from __future__ import annotations

from functools import cache

import numpy as np

MOST_ARGUMENTS = 4
"""Most arguments of a row's loop; behind them the loop finds the bases of the walk."""

FLOATS, _OTHERS = "fd", "?ilLB"

CASTS = {
    "?f": "uitofp", "?d": "uitofp", "?i": "zext", "?l": "zext", "if": "sitofp", "id": "sitofp",
    "lf": "sitofp", "ld": "sitofp", "li": "trunc", "lL": "bitcast", "fd": "fpext", "df": "fptrunc",
    "bl": "sext", "hl": "sext", "il": "sext", "Bl": "zext", "Hl": "zext", "Il": "zext",
    "Ll": "bitcast",
}  # fmt: skip
"""The instruction of each cast that gives NumPy's bits.  Casts of floats to integers are left out:
their result is undefined where it is out of range."""

_INTEGER_LOOPS = frozenset(
    "add subtract multiply negative absolute equal not_equal less less_equal greater "
    "greater_equal maximum minimum logical_and logical_or logical_not logical_xor bitwise_and "
    "bitwise_or bitwise_xor invert positive".split()
)
"""Functions of integers and booleans that cannot fail; others raise Python exceptions inside."""


def may_have_loop(name: str, chars: str) -> bool:
    """Return whether there is probably a loop, without verifying it, which takes 0.1 ms."""
    ufunc = getattr(np, name, None)  # not cached: a user may replace it for a while
    return isinstance(ufunc, np.ufunc) and _is_listed(ufunc, name, chars)


@cache
def _is_listed(ufunc: np.ufunc, name: str, chars: str) -> bool:
    listed = ufunc.signature is None and f"{chars[:-1]}->{chars[-1]}" in ufunc.types
    return listed and is_safe(name, chars)


def is_safe(name: str, chars: str) -> bool:
    """Return whether a ufunc cannot fail for these dtypes, but by floating-point flags."""
    if not set(chars) <= set(FLOATS + _OTHERS):
        return False
    return not set(chars[:-1]) & set(_OTHERS) or name in _INTEGER_LOOPS
