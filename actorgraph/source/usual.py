"""Rules of what is no op: containers, conversions, Python's own functions, and the user's.

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

__all__ = ["ADJOINTS", "METHODS", "PURE", "SOURCES", "TANGENTS", "astype"]

Rule = Callable[..., Any]
ADJOINTS: dict[Any, Rule] = {}
TANGENTS: dict[Any, Rule] = {}
PURE: dict[Any, Rule] = {support.add_at: added_at, support.cleared: newly_cleared}
"""What stands for a helper that writes in place, where that helper is differentiated itself."""


def _linear(function: Any, adjoint: Rule, tangent: Rule | None = None) -> None:
    """Declare a function that is linear in its first argument and has no other derivative."""
    ADJOINTS[function] = adjoint
    apply = tangent or (lambda t, *rest, **kwargs: None if t is None else function(t, *rest, **kwargs))

    def rule(tans: Any, y: Any, x: Any, *rest: Any, **kwargs: Any) -> Any:
        return apply(tans[0] if isinstance(tans, tuple) else tans, *rest, **kwargs)

    TANGENTS[function] = rule


def astype(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``x.astype(...)``, the method as a function."""
    return x.astype(*args, **kwargs)


METHODS: dict[str, Rule] = {"astype": astype}
"""Methods of arrays that are no NumPy function."""


def _rest(count: int) -> tuple[None, ...]:
    return (None,) * count


for _function in (np.array, np.asarray, np.ascontiguousarray, np.copy, float, np.float64, astype):
    _linear(
        _function,
        lambda ct, y, x, *rest, **kwargs: (split_like(ct, x), *_rest(len(rest)))
        if rest else split_like(ct, x),
    )  # fmt: skip
_linear(list, lambda ct, y, x: join_like(ct, x))
_linear(tuple, lambda ct, y, x: join_like(ct, x))
_linear(sum_like, lambda ct, y, x, like: (broadcast_like(ct, x), None))
_linear(broadcast_like, lambda ct, y, x, like: (sum_like(ct, x), None))
_linear(split_like, lambda ct, y, x, value: (np.array(ct), None))
_linear(join_like, lambda ct, y, x, value: (split_like(ct, x), None))
_linear(item_of, lambda ct, y, x, index: (added_at(None, x, index, ct), None))
_linear(support.overwritten, lambda ct, y, x, index: (added_at(None, x, index, ct), None),
        lambda t, index: item_of(t, index))  # fmt: skip
_linear(newly_cleared, lambda ct, y, x, index: (newly_cleared(ct, index), None))
_linear(last_of, lambda ct, y, x: [*[None] * (len(x) - 1), ct])
_linear(shortened, lambda ct, y, x: None if ct is None else [*ct, None])
_linear(support.finished, lambda ct, y, x, value: (ct, None),
        lambda t, value: support.finished(t, value))  # fmt: skip
_linear(support.fitting, lambda ct, y, x, *rest: (ct, *_rest(len(rest))))
_linear(support.refuse_view, lambda ct, y, x, *rest: (ct, None, None), lambda t, *rest: t)
TANGENTS[support.fitting] = lambda tans, y, *rest: (
    support.zero_of(y) if tans[0] is None else tans[0]
)
for _function in (add, own):
    ADJOINTS[_function] = lambda ct, y, total, part: (ct, ct)
    TANGENTS[_function] = lambda tans, y, total, part: add(tans[0], tans[1])
ADJOINTS[pushed] = lambda ct, y, total, part: (shortened(ct), last_of(ct))
TANGENTS[pushed] = lambda tans, y, total, part: pushed(tans[0], tans[1])
ADJOINTS[added_at] = lambda ct, y, total, value, index, part: (ct, None, None, item_of(ct, index))
TANGENTS[added_at] = lambda tans, y, total, value, index, part: added_at(
    tans[0], value, index, tans[3]
)


# -- Python's own functions, as sources that are differentiated like the user's -------------------


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
"""Functions of Python's that stand for one written here."""
