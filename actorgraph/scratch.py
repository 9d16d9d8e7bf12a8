"""Scratch: temporary memory of ops' forwards, which later calls use again.

A fresh array of 256 KB costs 64 page faults, up to 70 us.  There are as many buffers ("rooms") as
threads have needed at once.  A room is in use while somebody refers to an array in it, as its
reference count tells; two threads that check one at the same time count each other, and skip it.
The last machine that closes drops all rooms.

Memory that a plan knows to be idle during a call is lent to it first, see `borrowing`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

from actorgraph.store import CACHE_LINE

_LEAST_BYTES, MOST_BYTES, _MOST_ROOMS = 1 << 15, 1 << 22, 16
"""Sizes that are worth it: malloc reuses smaller ones; for larger ones faults matter little."""

_rooms: list[tuple[Any, int]] = []
"""Bytes, and the offset of the first whole cache line in them."""


def _room(size: int) -> tuple[Any, int]:
    raw = np.empty(size + CACHE_LINE, np.uint8)
    return raw, -raw.ctypes.data % CACHE_LINE


def _references(rooms: list[tuple[Any, int]]) -> int:
    raw, _ = rooms[0]
    return getrefcount(raw)


_IDLE = _references([_room(0)])
"""References to the bytes of an idle room, as `scratch` counts them."""


class _Lent(threading.local):
    """The bytes that are lent to the call in progress of a thread, or None."""

    memory: Any = None


_lent = _Lent()


def borrowing(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that takes scratch memory from whoever calls it.

    Its ``out`` may be a pair: what it writes into, and bytes from the begin of a cache line on that
    nobody else uses until it returns.  Threads that compute parts of it have rooms.
    """

    def borrowed(*arrays: Any, out: Any = None) -> Any:
        if type(out) is not tuple:
            return kernel(*arrays) if out is None else kernel(*arrays, out=out)
        try:  # Ctrl-C may come anywhere behind this
            out, _lent.memory = out
            return kernel(*arrays, out=out)
        finally:
            _lent.memory = None

    ordinary = getattr(kernel, "ordinary", None)
    if ordinary is not None:
        borrowed.ordinary = borrowing(ordinary)  # type: ignore[attr-defined]
    return borrowed


def scratch(xp: Any, shape: tuple[int, ...], dtype: np.dtype[Any], *, cleared: bool = False) -> Any:
    """Return an array, uninitialised or `cleared`, whose memory is reused when it is dropped."""
    size = prod(shape) * dtype.itemsize
    lent = _lent.memory
    if lent is not None and _LEAST_BYTES <= size <= lent.size:
        _lent.memory = lent[size + -size % CACHE_LINE :]
        if cleared:
            lent[:size].fill(0)
        return np.ndarray(shape, dtype, lent)
    if xp is not np or not _LEAST_BYTES <= size <= MOST_BYTES:
        return (xp.zeros if cleared else xp.empty)(shape, dtype)
    rooms = _rooms  # `clear` may replace it
    for place, (raw, begin) in enumerate(rooms):
        if getrefcount(raw) == _IDLE:
            if raw.size < size + CACHE_LINE:
                rooms[place] = raw, begin = _room(size)
            break
    else:
        raw, begin = _room(max([size, *[one[0].size - CACHE_LINE for one in rooms]]))
        if len(rooms) < _MOST_ROOMS:
            rooms.append((raw, begin))
    if cleared:
        raw[begin : begin + size].fill(0)  # as bytes, in half the time
    return np.ndarray(shape, dtype, raw, begin)


def reserve(count: int) -> None:
    """Make rooms of the largest size so far for `count` threads at once, if memory suffices."""
    rooms = _rooms
    most = max([raw.size for raw, _ in [*rooms]], default=0)
    with suppress(MemoryError):  # an op that needs one will raise
        for place in range(min(count, _MOST_ROOMS) if most else 0):
            if place == len(rooms):
                rooms.append(_room(0))
            if rooms[place][0].size < most:  # users of the smaller one keep it
                rooms[place] = found = _room(most - CACHE_LINE)
                found[0].fill(0)  # touch its pages


def clear() -> None:
    """Drop all rooms; arrays in them stay as they are."""
    global _rooms
    _rooms = []


def scratch_bytes() -> int:
    """Return the bytes of all rooms of this process."""
    return sum([raw.size for raw, _ in [*_rooms]])


def scratch_like(xp: Any, x: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """Return scratch with the layout of a ufunc's result for `x`, or None for a fresh array.

    So the bits of sums over it do not depend on whether it is scratch.
    """
    same_layout = xp is np and x.ndim and x.flags.c_contiguous
    return scratch(xp, x.shape, dtype or x.dtype) if same_layout else None
