"""Rules of functions that are no ops: of containers, conversions, Python's own, and the user's.

A reverse rule is ``rule(ct, y, *args, **kwargs)`` and returns the cotangent of the only argument,
or one for each; None is a zero.  A forward rule is ``rule(tangents, y, *args, **kwargs)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from actorgraph.source import support
from actorgraph.source.support import (
    add,
    added_at,
    broadcast_like,
    item_of,
    join_like,
    last_of,
    newly_cleared,
    own,
    pushed,
    shortened,
    split_like,
    sum_like,
)

Rule = Callable[..., Any]
ADJOINTS: dict[Any, Rule] = {}
"""The reverse rule of a function."""
TANGENTS: dict[Any, Rule] = {}
"""The forward rule of a function."""
LINEAR: set[Any] = set()
"""Functions of one active argument, the first."""
PURE: dict[Any, Rule] = {support.add_at: added_at, support.cleared: newly_cleared}
"""For each helper that writes in place, the one to differentiate instead."""


def _linear(function: Any, adjoint: Rule, tangent: Rule | None = None) -> None:
    """Declare a function that is linear in its first argument and constant in the others.

    Its reverse rule returns the cotangent of that argument alone.
    """
    ADJOINTS[function] = adjoint
    LINEAR.add(function)
    apply = tangent or function

    def rule(tans: Any, y: Any, x: Any, *rest: Any, **kwargs: Any) -> Any:
        return None if tans[0] is None else apply(tans[0], *rest, **kwargs)

    TANGENTS[function] = rule


def astype(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``x.astype(...)``, the method as a function."""
    return x.astype(*args, **kwargs)


def copy(x: Any) -> Any:
    """Return ``x.copy()``, the method as a function."""
    return x.copy()


METHODS: dict[str, Rule] = {"astype": astype, "copy": copy, "__array__": np.array}
"""Methods of arrays that are not NumPy functions."""


for _function in (np.array, np.asarray, np.ascontiguousarray, np.copy, float, np.float64, astype):
    _linear(_function, lambda ct, y, x, *rest, **kwargs: split_like(ct, x))
_linear(copy, lambda ct, y, x: ct, lambda tan: own(None, tan))
_linear(list, lambda ct, y, x: join_like(ct, x))
_linear(tuple, lambda ct, y, x: join_like(ct, x))
_linear(sum_like, lambda ct, y, x, like: broadcast_like(ct, x))
_linear(broadcast_like, lambda ct, y, x, like: sum_like(ct, x))
_linear(split_like, lambda ct, y, x, value: np.array(ct))
_linear(join_like, lambda ct, y, x, value: split_like(ct, x))
_linear(item_of, lambda ct, y, x, index: added_at(None, x, index, ct))
_linear(support.written_of, lambda ct, y, x, index, value: support.unwritten(ct, x, index))
ADJOINTS[support.concatenated] = support.concatenated_adjoint
TANGENTS[support.concatenated] = support.concatenated_tangent
_linear(support.overwritten, lambda ct, y, x, index: added_at(None, x, index, ct), item_of)
_linear(newly_cleared, lambda ct, y, x, index: newly_cleared(ct, index))
_linear(last_of, lambda ct, y, x: [None] * (len(x) - 1) + [ct])
_linear(shortened, lambda ct, y, x: None if ct is None else pushed(ct, None, None))
_linear(support.finished, lambda ct, y, x, value: ct)
_linear(support.fitting, lambda ct, y, x, value, what, default, check: ct)
_linear(support.refuse_view, lambda ct, y, x, name, source: ct, lambda t, name, source: t)
TANGENTS[support.fitting] = lambda tans, y, seed, value, what, default, check: (
    support.zero_of(y) if tans[0] is None else tans[0]
)
for _sum_of in (add, own):
    ADJOINTS[_sum_of] = lambda ct, y, total, part: (ct, ct)
    TANGENTS[_sum_of] = lambda tans, y, total, part: add(tans[0], tans[1])
ADJOINTS[np.full] = lambda ct, y, shape, value, **kwargs: (None, sum_like(ct, value))
TANGENTS[np.full] = lambda tans, y, shape, value, **kwargs: broadcast_like(np.array(tans[1]), y)
ADJOINTS[pushed] = lambda ct, y, total, part, value: (shortened(ct), last_of(ct), None)
TANGENTS[pushed] = lambda tans, y, total, part, value: pushed(tans[0], tans[1], value)
ADJOINTS[added_at] = lambda ct, y, total, value, index, part: (ct, None, None, item_of(ct, index))
TANGENTS[added_at] = lambda tans, y, total, value, index, part: added_at(
    tans[0], value, index, tans[3]
)


# -- Python's own functions, as sources to differentiate ------------------------------------------


def _sum(items: Any, start: Any = 0) -> Any:
    total = start
    for item in items:
        total = total + item
    return total


def _largest(*items: Any) -> Any:
    given = items[0] if len(items) == 1 else items
    best = given[0]
    for item in given:
        if item > best:
            best = item
    return best


def _smallest(*items: Any) -> Any:
    given = items[0] if len(items) == 1 else items
    best = given[0]
    for item in given:
        if item < best:
            best = item
    return best


SOURCES: dict[Any, Rule] = {sum: _sum, max: _largest, min: _smallest}
"""The source above for each of Python's functions."""
