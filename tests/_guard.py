"""Memory between pages that nobody may read or write, on Linux.

With ``pytest --guard`` it ends where such a page begins, with ``--guard-begin`` it begins where one
ends, as far as alignment allows.  With ``--guard-values`` each value in an arena or a table ends
where one begins: no value reuses the memory of another, and nothing in between is lent.  Arrays of
NumPy do then, too, see `_fence`.
"""

import ctypes
import mmap
from math import prod

import numpy as np

from actorgraph import scratch
from actorgraph.control import loop, waves
from actorgraph.jit import lowering
from actorgraph.lower import loop_table, quick_rows, table, table_rows
from actorgraph.memory import arenas, buffers, free_lists, packing

MAKERS = table, quick_rows, loop_table, loop, waves, lowering
"""Modules with `memory.buffers.fresh`."""

_PAGE = mmap.PAGESIZE
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class _Size(int):
    """Bytes of memory with pages that nobody may touch, which begin at `guards`."""

    guards = ()


def _pages(size):
    return -(-size // _PAGE) * _PAGE


def apart(spans, loans):
    """Return what `packing.pack` does, with a guard page behind each span."""
    end, places, guards = 0, [], []
    for span in spans:
        end += _pages(span.size)
        places.append(packing.Place(-1, end - span.size))
        if span.size:
            guards.append(end)
            end += _PAGE
    total = _Size(end)
    total.guards = guards
    return total, places


class Guard:
    """Makes memory that lies against a page at one of its ends."""

    def __init__(self, at_begin):
        self._at_begin = at_begin

    def array(self, shape, dtype, strides=None, alignment=None):
        """Return an array that, as one with memory of its own, is the base of its views."""
        steps = strides or np.ndarray(shape, dtype).strides
        size = sum([(n - 1) * step for n, step in zip(shape, steps)]) + dtype.itemsize
        size, alignment = size if prod(shape) else 0, alignment or dtype.itemsize
        page, room = _PAGE, _pages(max(size, 1))
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
        found = self.array((size,), np.dtype(np.uint8), alignment=64)
        for begin in getattr(size, "guards", ()):
            # There are too many mappings where that fails.
            _LIBRARY.mprotect(found.ctypes.data + begin, _PAGE, 0)
        return found

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

    def put_values(self, patch):
        """Have values in arenas and tables lie apart."""
        for module in (packing, table_rows):
            patch.setattr(module, "pack", apart)
        patch.setattr(packing, "idle", lambda total, spans, places, turns: [(0, 0) for _ in turns])
        patch.setattr(table, "_LENT_BYTES", 1 << 62)  # nobody guards memory that is lent
        patch.setattr(arenas.Arenas, "reserve", lambda these, count: None)
        lay = table_rows.Written._lay

        def taken(these, size):
            these.clear()  # guards are those of one layout
            made = arenas._Arena(size)
            these._all.append(made)
            return made

        def laid(rows, stretch):
            lay(rows, stretch)
            rows.guards = [getattr(size, "guards", ()) for size in rows.sizes[rows._first_room :]]

        def total(rows):
            *begins, end = rows.begins
            found = _Size(_pages(end))
            found.guards = [
                begin + one
                for begin, guards in zip(begins, getattr(rows, "guards", ()))
                for one in (() if begin % _PAGE else guards)
            ]
            return found

        patch.setattr(arenas.Arenas, "take", taken)
        patch.setattr(table_rows.Written, "_lay", laid)
        patch.setattr(table_rows.Written, "total", property(total))
