"""Memory between pages that nobody may read or write, on Linux.

With ``pytest --guard`` it ends where such a page begins, with ``--guard-begin`` it begins where one
ends, as far as alignment allows.
"""

import ctypes
import mmap
from math import prod

import numpy as np

from actorgraph import scratch
from actorgraph.control import loop, waves
from actorgraph.jit import lowering
from actorgraph.lower import loop_table, quick_rows, table, table_rows
from actorgraph.memory import arenas, buffers, free_lists

MAKERS = table, quick_rows, loop_table, loop, waves, lowering
"""Modules with `memory.buffers.fresh`."""

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Guard:
    """Makes memory that lies against a page at one of its ends."""

    def __init__(self, at_begin):
        self._at_begin = at_begin

    def array(self, shape, dtype, strides=None, alignment=None):
        """Return an array that, as one with memory of its own, is the base of its views."""
        steps = strides or np.ndarray(shape, dtype).strides
        size = sum([(n - 1) * step for n, step in zip(shape, steps)]) + dtype.itemsize
        size, alignment = size if prod(shape) else 0, alignment or dtype.itemsize
        page = mmap.PAGESIZE
        room = -(-max(size, 1) // page) * page
        try:
            whole = mmap.mmap(-1, room + 2 * page)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"Unable to allocate {size} bytes") from error
        begin = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        for guard in (begin, begin + page + room):
            if _LIBRARY.mprotect(guard, page, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        begin = page if self._at_begin else (page + room - size) // alignment * alignment
        return np.ndarray(shape, dtype, whole, begin, strides)

    def fresh(self, shape, dtype=float):
        """Return what `memory.buffers.fresh` does."""
        return self.array(shape if isinstance(shape, tuple) else (shape,), np.dtype(dtype))

    def aligned(self, size):
        """Return what `memory.buffers.aligned` does."""
        return self.array((size,), np.dtype(np.uint8), alignment=64)

    def room(self, size):
        """Return what `scratch._room` does."""
        return self.aligned(size), 0

    def listed(self, free_list):
        """Return what `FreeList._fresh` does."""
        return self.array(free_list._shape, free_list._dtype, free_list._strides)

    def put(self, patch):
        """Have all memory that machine code writes come from here, and what its rows keep."""
        for module in (arenas, buffers, table_rows):
            patch.setattr(module, "aligned", self.aligned)
        for module in MAKERS:
            patch.setattr(module, "fresh", self.fresh)
        patch.setattr(scratch, "_room", self.room)
        patch.setattr(free_lists.FreeList, "_fresh", lambda one: self.listed(one))
        taken = loop_table.LoopTable._taken

        def with_carries(loop, length, way):
            block = taken(loop, length, way)
            block.carries = [self.array(one.shape, one.dtype) for one in block.carries]
            return block

        patch.setattr(loop_table.LoopTable, "_taken", with_carries)
        constant = table_rows.Written.constant

        def kept(rows, value):
            copy = self.array(value.shape, value.dtype)
            copy[...] = value
            return constant(rows, copy)

        patch.setattr(table_rows.Written, "constant", kept)
