"""Scalars by dtype for forwards: 0-d 0 and 1, limits, and the dtype in which sums are taken.

A Python scalar operand costs 0.2 us a call, and makes float32 of bfloat16, where NumPy's own
dtypes stay as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["accumulator", "highest", "is_half", "one", "scalar", "zero"]


class _ByDtype(dict[np.dtype[Any], Any]):
    """0-d arrays of one value, made when a dtype is first asked for."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __missing__(self, dtype: np.dtype[Any]) -> Any:
        array = np.full((), self.value, dtype)
        array.flags.writeable = False
        self[dtype] = array
        return array


_ZEROS, _ONES = _ByDtype(0), _ByDtype(1)
for _code in "?bBhHiIlLqQefdFD":
    _ = _ZEROS[np.dtype(_code)], _ONES[np.dtype(_code)]


def zero(xp: Any, x: Any) -> Any:
    """Return a zero that leaves the dtype of `x` as it is."""
    return _ZEROS[x.dtype] if xp is np else x.dtype.type(0)


def one(xp: Any, x: Any) -> Any:
    """Return a one that leaves the dtype of `x` as it is."""
    return _ONES[x.dtype] if xp is np else x.dtype.type(1)


def scalar(x: Any, value: float) -> Any:
    """Return `value` in the dtype of `x`."""
    if type(x) is not np.ndarray or not value:
        return x.dtype.type(value)
    return _number(x.dtype, value)  # half the cost for the ufunc that gets it


@lru_cache(256)
def _number(dtype: np.dtype[Any], value: float) -> Any:
    array = np.full((), value, dtype)
    array.flags.writeable = False
    return array


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether the dtype is a float of two bytes: float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which sums and products of many elements are taken.

    Floats of two bytes are accumulated in float32 and rounded once at the end.
    """
    return _FLOAT32 if is_half(dtype) else dtype


_FLOAT32 = np.dtype(np.float32)


def highest(dtype: np.dtype[Any]) -> float:
    """Return the largest finite number of a float dtype."""
    if dtype.kind == "V":
        # The largest bfloat16: a float32 of which only 7 bits of the fraction are kept.
        return (2 - 2.0**-7) * 2.0**127
    return float(np.finfo(dtype).max)
