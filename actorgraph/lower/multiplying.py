"""Whether NumPy's inner loop of a product gives the bits of a kernel for some layout.

It is tried once for each layout; `table_rows` writes a row only where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from actorgraph.devices.loops import Routine, call
from actorgraph.lower.spots import Spot

_PERIOD = 65_537
"""Period of the numbers that products are tried on: a prime."""

_RESULTS = 32
"""Least numbers that are compared: of a few, all may have the same bits in any order of terms."""


@lru_cache(1024)
def is_product(
    loop: Routine, kernel_of: Callable[..., Any], char: str, x: Spot, y: Spot, dims: Sequence[int],
    steps: Sequence[int],
) -> bool:  # fmt: skip
    """Return whether the loop gives the kernel's bits for operands of this layout.

    Operands of one base share memory: NumPy computes a product of a matrix and its own transpose by
    another routine of BLAS.
    """
    if x.base != y.base:
        y = y._replace(offset=x.end - y.begin)
    begin = min(x.begin, y.begin)
    size, compared = max(x.end, y.end) - begin, 0
    while compared < _RESULTS:
        raw = numbers(char, size + compared * x.itemsize)[compared:]
        given = [np.ndarray(one.shape, char, raw, one.offset - begin, one.strides)
                 for one in (x, y)]  # fmt: skip
        wanted = np.asarray(kernel_of(*given))
        result = np.empty(wanted.shape, char)
        call(loop, [*given, result], dims, steps)
        if wanted.tobytes() != result.tobytes():
            return False
        compared += max(result.size, 1)
    return True


def numbers(char: str, size: int) -> np.ndarray[Any, Any]:
    """Return `size` bytes of numbers that differ along any axis; callers must not write to them."""
    count, drawn = size // np.dtype(char).itemsize, _drawn(char)
    return drawn[:count] if count <= _PERIOD else np.resize(drawn, count)


@cache
def _drawn(char: str) -> np.ndarray[Any, Any]:
    return np.sin(np.arange(1, _PERIOD + 1)).astype(char)  # none is 0
