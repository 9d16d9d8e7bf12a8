"""What NumPy does slowly in the obvious way, done as fast as it can.

Figures are of float32, 128x512 where no shape is named, on a processor with AVX-512 and NumPy 2.4.
Other array modules, other dtypes and few elements go the obvious way.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from actorgraph.ops._scalars import one

__all__ = [
    "all_finite", "are_columns", "at_least", "at_most", "column_sums", "dot_tells",
    "exp_without_warning", "limited", "logistic", "row_squares", "row_sums",
]  # fmt: skip

# -- limits -----------------------------------------------------------------------------------

# NumPy takes the extremum of an array and one number element by element: 22 us, where two arrays
# take 5.  So the number is repeated in a row, which stays in the cache: 9.
_FEW = 8192
_ROW = 16384


def at_least(xp: Any, x: Any, low: Any, out: Any = None) -> Any:
    """Return ``maximum(x, low)`` for a number of the dtype of `x`; NaN stays NaN."""
    if x.size < _FEW or not _many_floats(xp, x, out):
        return xp.maximum(x, low, out=out)
    return _in_rows(np.maximum, x, low, out)


def at_most(xp: Any, x: Any, high: Any, out: Any = None) -> Any:
    """Return ``minimum(x, high)`` for a number of the dtype of `x`; NaN stays NaN."""
    if x.size < _FEW or not _many_floats(xp, x, out):
        return xp.minimum(x, high, out=out)
    return _in_rows(np.minimum, x, high, out)


def limited(xp: Any, x: Any, low: Any, high: Any) -> Any:
    """Return `x` limited to an interval, in its dtype; clip makes float32 of bfloat16."""
    if x.dtype.kind == "V":
        return xp.minimum(xp.maximum(x, low), high)
    if x.size < _FEW or low.ndim or high.ndim or not _many_floats(xp, x, None):
        return xp.clip(x, low, high)
    raised = _in_rows(np.maximum, x, low, None)
    return _in_rows(np.minimum, raised, high, raised)


def _many_floats(xp: Any, x: Any, out: Any) -> bool:
    plain = xp is np and x.dtype.kind == "f" and x.flags.c_contiguous
    return plain and (out is None or out.flags.c_contiguous)


def _in_rows(ufunc: Any, x: Any, bound: Any, out: Any) -> Any:
    out = np.empty(x.shape, x.dtype) if out is None else out
    numbers, into, row = x.reshape(-1), out.reshape(-1), _repeated(x.dtype, bound.tobytes())
    rest = x.size % _ROW
    whole = x.size - rest
    if whole:
        rows = (-1, _ROW)
        ufunc(numbers[:whole].reshape(rows), row, out=into[:whole].reshape(rows))
    if rest:
        ufunc(numbers[whole:], row[:rest], out=into[whole:])
    return out


# By its bits: as numbers 0 and -0 are one key.
@lru_cache(64)
def _repeated(dtype: np.dtype[Any], number: bytes) -> Any:
    row = np.repeat(np.frombuffer(number, dtype), _ROW)
    row.flags.writeable = False
    return row


# -- sums -------------------------------------------------------------------------------------

# Products with ones: for 32x32 one takes 0.3 us where `np.add.reduce` takes 1.3 down the columns,
# and for 32768x10, whose rows are short, 33 where that takes 410; float32 keeps more digits.


@cache
def _ones(dtype: np.dtype[Any]) -> Any:
    row = np.ones(_ROW, dtype)
    row.flags.writeable = False
    return row


@cache
def dot_tells() -> bool:
    """Return whether `ndarray.dot` tells of overflow as `np.errstate` wants: from NumPy 2.3 on."""
    huge = np.full((2, 2), 1e200)
    try:
        with np.errstate(over="raise"):
            huge.dot(huge)
    except FloatingPointError:
        return True
    return False


def are_columns(ndim: int, dtype: np.dtype[Any], axis: tuple[int, ...], keepdims: bool) -> bool:
    """Return whether a sum over these axes is one that `column_sums` computes."""
    if not axis or keepdims or len(axis) != ndim - 1 or dtype.char not in "fd":
        return False
    return axis == tuple(range(ndim - 1)) and dot_tells()


def column_sums(x: Any, out: Any = None) -> Any:
    """Return the sum of a NumPy array over all axes but the last."""
    if x.ndim > 2:
        if not x.flags.c_contiguous:
            return np.add.reduce(x, axis=tuple(range(x.ndim - 1)), out=out)
        x = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    rows = len(x)
    ones = _ones(x.dtype)[:rows] if rows <= _ROW else np.ones(rows, x.dtype)
    return ones.dot(x, out)


# Along rows BLAS does not add pairwise as NumPy does, in a third of the time (4 us, not 12): up to
# so many elements its error is as small, 4 units in the last place.
_LONGEST = 4096
_sum: Any = np.add.reduce


def _are_rows(x: Any, axis: tuple[int, ...]) -> bool:
    return x.dtype.char in "fd" and axis == (x.ndim - 1,) and x.shape[-1] <= _LONGEST


def row_sums(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Return the sum of a NumPy array along axes, faster along the last."""
    if not _are_rows(x, axis):
        return _sum(x, axis=axis, keepdims=keepdims)
    total = np.vecdot(x, _ones(x.dtype)[: x.shape[-1]])
    return total[..., None] if keepdims else total


def row_squares(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Return the sum of the squares of a NumPy array along axes, faster along the last."""
    if not _are_rows(x, axis):
        return _sum(np.square(x), axis=axis, keepdims=keepdims)
    total = np.vecdot(x, x)
    return total[..., None] if keepdims else total


# -- overflow ---------------------------------------------------------------------------------


# As a decorator np.errstate takes 0.3 us, as a context 0.8.
@np.errstate(over="ignore")
def exp_without_warning(xp: Any, x: Any, out: Any = None) -> Any:
    """Return exp(x), inf without a warning where it is too large."""
    return xp.exp(x, out=out)


def logistic(xp: Any, negated: Any, out: Any = None) -> Any:
    """Return 1 / (1 + exp(negated)): 0, which is right to the last bit, where exp is too large."""
    denominator = exp_without_warning(xp, negated, out)
    denominator += one(xp, denominator)
    return xp.divide(one(xp, denominator), denominator, out=out)  # half the time of reciprocal


def all_finite(x: Any) -> bool:
    """Return whether a NumPy array has no Inf and no NaN; squares of its numbers may not overflow.

    One product takes half the time of a reduction.
    """
    if x.dtype.char in "fd":
        return bool(np.vdot(x, x) < np.inf)
    return bool(np.isfinite(x).all())
