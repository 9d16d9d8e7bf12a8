"""Reductions of the elements that count: those where a mask holds, or that are not NaN.

`reduce_where` is NumPy's ``where=`` and ``initial=``; the nan-family is the case that the mask is
``~isnan(x)``.  What does not count is replaced by the identity of the reduction and gets no
gradient.  `nanmax` and `nanmin` stand with `max`, `nanmedian` and `nanquantile` with `median`.
"""

from __future__ import annotations

from math import nan
from typing import Any, Protocol

import numpy as np

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import Reduction
from actorgraph.ops.arithmetic import abs as size_of_each
from actorgraph.ops.arithmetic import add, multiply, sqrt, square
from actorgraph.ops.broadcasting import axes_of, broadcast_like
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.casting import astype
from actorgraph.ops.complex import is_complex
from actorgraph.ops.counting import all as all_of
from actorgraph.ops.counting import any as any_of
from actorgraph.ops.counting import argmax
from actorgraph.ops.creation import full
from actorgraph.ops.cumulative import cumprod, cumsum, prod
from actorgraph.ops.reductions import max as max_of
from actorgraph.ops.reductions import mean, nanmax, nanmin
from actorgraph.ops.reductions import min as min_of
from actorgraph.ops.rounding import isnan
from actorgraph.ops.selection import maximum, minimum
from actorgraph.ops.selection import where as choose
from actorgraph.ops.statistics import std, var

__all__ = [
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmean", "nanprod", "nanstd", "nansum",
    "nanvar",
]  # fmt: skip

# The reduction, its identity, and what joins a result with an initial value.
_JOINS: dict[str, tuple[Reduction, Any, Any]] = {
    "sum": (sum_of, 0, add), "prod": (prod, 1, multiply),
    "max": (max_of, None, maximum), "min": (min_of, None, minimum),
    "any": (any_of, False, None), "all": (all_of, True, None),
}  # fmt: skip


def reduce_where(
    name: str, x: Node, axis: Any = None, keepdims: bool = False, initial: Any = None,
    where: Any = True, **ddof: int,
) -> Node:  # fmt: skip
    """Reduce over `axis` the elements where a mask holds, joined with `initial`, as NumPy does.

    Parameters
    ----------
    name : str
        sum, prod, max, min, any, all, mean, var or std; with "nan" before it NaN counts no more.
    x : node
    axis, keepdims
        As of the reduction.
    initial : scalar or node, optional
        `max` and `min` need it where a mask is given.
    where : bool, array or node
        Broadcasts to `x`.
    **ddof : int
        Of var and std.
    """
    mask = None if where is True else _mask_of(x, where, name)
    if name.startswith("nan"):
        mask = ~isnan(x) if mask is None else mask & ~isnan(x)
        name = name.removeprefix("nan")
    if name in _MOMENTS:
        if x.dtype.kind in "biu":
            raise GraphTypeError(f"{name} of {x!r}: convert it first, .astype('float64')")
        moment = _MOMENTS[name][mask is not None]
        given = (x,) if mask is None else (x, mask)
        found: Node = moment(*given, axis, keepdims, **ddof)
        return found
    plain, identity, join = _JOINS[name]
    identity = initial if identity is None else identity
    if mask is not None:
        if identity is None:
            raise GraphTypeError(f"{name} with where= takes initial= too: no entry may be left")
        x = choose(mask, x, identity)
    axes = axes_of(axis, x.ndim, name)
    if initial is not None and any(x.dims[i] == 0 for i in axes):
        kept = [1 if i in axes else dim for i, dim in enumerate(x.dims)]
        dims = kept if keepdims else [dim for i, dim in enumerate(kept) if i not in axes]
        return full(x.graph, dims, initial, x.dtype)
    found = plain(x, axis, keepdims)
    if initial is not None:
        found = join(found, initial)
    return found


def _mask_of(x: Node, where: Any, name: str) -> Node:
    mask = x.graph.lift(where if isinstance(where, Node) else np.asarray(where))
    if mask.dtype.kind != "b":
        raise GraphTypeError(f"{name}: where= is a mask of bools, got {mask!r}")
    return broadcast_like(mask, x)


def _count(mask: Node, like: Node, axis: Any, keepdims: bool, ddof: float = 0) -> Node:
    """Return how many elements count, less `ddof`; NaN for none, so that nothing divides by 0."""
    real = size_of_each(like) if is_complex(like) else like
    left = sum_of(astype(mask, real.dtype), axis, keepdims) - ddof
    return choose(left > 0, left, nan)


def _mean(x: Node, mask: Node, axis: Any, keepdims: bool) -> Node:
    total = sum_of(choose(mask, x, 0), axis, keepdims)
    count = _count(mask, x, axis, keepdims)
    # A complex number that is divided by NaN warns; its product with NaN does not.
    return total * astype(1 / count, x.dtype) if is_complex(x) else total / count


def _var(x: Node, mask: Node, axis: Any, keepdims: bool, ddof: float = 0) -> Node:
    off = choose(mask, x - _mean(x, mask, axis, keepdims=True), 0)
    total = sum_of(square(size_of_each(off) if is_complex(x) else off), axis, keepdims)
    return total / _count(mask, x, axis, keepdims, ddof)


def _std(x: Node, mask: Node, axis: Any, keepdims: bool, ddof: float = 0) -> Node:
    spread = _var(x, mask, axis, keepdims, ddof)
    # As of `std`, the gradient is 0 where all elements are equal.
    return choose(spread == 0, 0, sqrt(choose(spread == 0, 1, spread)))


_MOMENTS: dict[str, tuple[Any, Any]] = {
    "mean": (mean, _mean), "var": (var, _var), "std": (std, _std),
}  # fmt: skip


# -- what is not NaN --------------------------------------------------------------------------


class _Spread(Protocol):
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, ddof: int = 0
    ) -> Node: ...


def _passing_over_nan(name: str, of_none: str, spread: bool = False) -> Any:
    """Return the reduction of a name over what is not NaN."""

    def function(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
        return reduce_where(f"nan{name}", x, axis, keepdims)

    def spread_function(
        x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0
    ) -> Node:
        return reduce_where(f"nan{name}", x, axis, keepdims, ddof=ddof)

    found: Any = spread_function if spread else function
    found.__name__ = found.__qualname__ = f"nan{name}"
    found.__module__ = "actorgraph.ops"
    found.__doc__ = (
        f"`{name}` over axes of what is not NaN, as ``numpy.nan{name}``; {of_none}.\n\n"
        "NaN gets no gradient.\n\n"
        "Parameters\n----------\nx : node\naxis : int, tuple of int, or None for all\n"
        "keepdims : bool\n    Keep the axes as dims of size 1.\n"
        + ("ddof : int\n    Degrees of freedom to subtract.\n" if spread else "")
        + "\nReturns\n-------\nNode\n\nRaises\n------\nGraphTypeError, ShapeError\n"
        f"    As `{name}` does.\n"
    )
    return naming_itself(found)


nansum: Reduction = _passing_over_nan("sum", "0 of none")
nanprod: Reduction = _passing_over_nan("prod", "1 of none")
nanmean: Reduction = _passing_over_nan("mean", "NaN of none, without a warning")
nanvar: _Spread = _passing_over_nan("var", "NaN of no more than `ddof`", spread=True)
nanstd: _Spread = _passing_over_nan("std", "NaN of no more than `ddof`", spread=True)


@naming_itself
def nancumsum(x: Node, axis: int | None = None) -> Node:
    """Running sum with NaN as 0, as ``numpy.nancumsum``; parameters as those of `cumsum`."""
    return cumsum(choose(isnan(x), 0, x), axis)


@naming_itself
def nancumprod(x: Node, axis: int | None = None) -> Node:
    """Running product with NaN as 1, as ``numpy.nancumprod``; parameters as those of `cumprod`."""
    return cumprod(choose(isnan(x), 1, x), axis)


def _position(x: Node, extremum: Reduction, axis: int | None, keepdims: bool) -> Node:
    return argmax(astype(x == extremum(x, axis, keepdims=True), "int8"), axis, keepdims)


@naming_itself
def nanargmax(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the largest element that is not NaN; parameters as those of `argmax`.

    0 where all are NaN, for which ``numpy.nanargmax`` raises.
    """
    return _position(x, nanmax, axis, keepdims)


@naming_itself
def nanargmin(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the smallest element that is not NaN; parameters as those of `argmin`.

    0 where all are NaN, for which ``numpy.nanargmin`` raises.
    """
    return _position(x, nanmin, axis, keepdims)
