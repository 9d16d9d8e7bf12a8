"""Scratch: memory that forwards of ops need for themselves, used again by the next ones.

A fresh array of 256 KB costs 64 page faults, up to 70 us.  There come to be as many rooms as
threads that ask at once.  A room is in use while somebody holds an array that shows it, which its
count of references tells; two threads that look at one at a time count each other, and pass on.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

_LEAST_BYTES, _MOST_BYTES, _MOST_ROOMS = 1 << 15, 1 << 22, 16
"""What is smaller malloc has at hand; of what is larger faults are a small part of the time."""

_LINE = 64
"""Bytes of a cache line, at which arrays begin."""

_rooms: list[tuple[Any, int]] = []
"""Bytes, and where the first line in them begins."""


def _room(size: int) -> tuple[Any, int]:
    raw = np.empty(size + _LINE, np.uint8)
    return raw, -raw.ctypes.data % _LINE


def _references(rooms: list[tuple[Any, int]]) -> int:
    raw, _ = rooms[0]
    return getrefcount(raw)


_IDLE = _references([_room(0)])
"""References to bytes that only their list holds, as counted where `scratch` counts."""


def scratch(xp: Any, shape: tuple[int, ...], dtype: np.dtype[Any], *, cleared: bool = False) -> Any:
    """Return an array of any content, or of zeros, whose memory is used again when it is gone."""
    size = prod(shape) * dtype.itemsize
    if xp is not np or not _LEAST_BYTES <= size <= _MOST_BYTES:
        return (xp.zeros if cleared else xp.empty)(shape, dtype)
    for place, (raw, begin) in enumerate(_rooms):
        if getrefcount(raw) == _IDLE:
            if raw.size < size + _LINE:
                _rooms[place] = raw, begin = _room(size)
            break
    else:
        raw, begin = _room(max([size, *[one[0].size - _LINE for one in _rooms]]))
        if len(_rooms) < _MOST_ROOMS:
            _rooms.append((raw, begin))
    if cleared:
        raw[begin : begin + size].fill(0)  # as bytes in half the time
    return np.ndarray(shape, dtype, raw, begin)


def reserve(count: int) -> None:
    """Have rooms for so many threads that ask at once for the most that was asked for so far.

    Without memory there are fewer.
    """
    most = max([raw.size for raw, _ in [*_rooms]], default=0)
    with suppress(MemoryError):  # the op that needs one tells of it
        for place in range(min(count, _MOST_ROOMS) if most else 0):
            if place == len(_rooms):
                _rooms.append(_room(0))
            if _rooms[place][0].size < most:  # who holds the smaller one keeps it
                _rooms[place] = found = _room(most - _LINE)
                found[0].fill(0)  # it has its pages now


def scratch_bytes() -> int:
    """Return the bytes of all rooms of this process."""
    return sum([raw.size for raw, _ in [*_rooms]])


def scratch_like(xp: Any, x: Any) -> Any:
    """Return scratch that lies as a ufunc's result for `x` would; None is to be a fresh one.

    So that no bit of sums over it depends on where it is.
    """
    lies_alike = xp is np and x.ndim and x.flags.c_contiguous
    return scratch(xp, x.shape, x.dtype) if lies_alike else None
