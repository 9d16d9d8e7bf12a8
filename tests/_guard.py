"""Memory between pages that nobody may read or write: `pytest --guard`, on Linux."""

import ctypes
import mmap
from math import prod

import numpy as np

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def _bytes(size, alignment):
    """Return bytes that end where a guard page begins, but for what aligns their begin."""
    page = mmap.PAGESIZE
    room = -(-max(size, 1) // page) * page
    whole = np.frombuffer(mmap.mmap(-1, room + 2 * page), np.uint8)
    for guard in (whole.ctypes.data, whole.ctypes.data + page + room):
        if _LIBRARY.mprotect(guard, page, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = (page + room - size) // alignment * alignment
    return whole[begin : begin + size]


def aligned(size):
    """Return what `memory.buffers.aligned` does."""
    return _bytes(size, 64)


def fresh(shape, dtype):
    """Return what `np.empty` does."""
    return _bytes(prod(shape) * dtype.itemsize, dtype.itemsize).view(dtype).reshape(shape)
