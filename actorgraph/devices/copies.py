"""Host arrays with strides of any kind.

An op may give other last bits for operands with other strides: NumPy adds up values in the order of
memory.  So copies that must not change a bit have the strides of their source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def laid(
    shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int]
) -> np.ndarray[Any, Any]:
    """Return zeros with these strides, which may repeat elements, skip bytes and go backwards."""
    reach = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
    first, last = sum([min(0, one) for one in reach]), sum([max(0, one) for one in reach])
    memory = np.zeros(last - first + dtype.itemsize, np.uint8)
    return np.ndarray(shape, dtype, memory, -first, strides)


def copied(array: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a host array with its strides."""
    copy = np.array(array)
    if copy.size > 1 and copy.strides != array.strides:  # it has gaps, or goes backwards
        copy = laid(array.shape, array.dtype, array.strides)
        copy[...] = array
    return copy
