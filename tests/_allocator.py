"""An allocator for NumPy's arrays that fails on command, in whatever thread asks.

It stands in NumPy's own table of functions, so no call is missed: not that of an op, nor of a
copy inside of NumPy.
"""

import ctypes
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from actorgraph.memory import buffers

_LEAST_BYTES = 64
"""What is smaller is given always: single numbers."""

_MALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` of NumPy's C API."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


_GET_HANDLER = 305
"""Place of ``PyDataMem_GetHandler`` in the table of NumPy's C API, which never changes."""


def default_handler():
    """Return NumPy's table of functions, which may be written to."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer(np._core._multiarray_umath._ARRAY_API, None)
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_GET_HANDLER]
    capsule = ctypes.PYFUNCTYPE(ctypes.py_object)(address)()
    return _Handler.from_address(pointer(capsule, b"mem_handler"))


class Allocator:
    """Decides which calls get memory.

    Attributes
    ----------
    failed : int
        Calls that got none, since the last `failing` began.
    largest : int
        The most bytes that a call has asked for.
    """

    def __init__(self):
        self.failed = self.largest = 0
        self._before = self._left = 0
        self._lock = threading.Lock()

    @contextmanager
    def failing(self, place, count=1):
        """Have `count` calls fail, from the one of this number on; the first has 0."""
        self._before, self.failed, self._left = place, 0, count
        try:
            yield
        finally:
            self._left = 0
            # NumPy tells `tracemalloc` of what it did not get, as of bytes at no address.
            ctypes.pythonapi.PyTraceMalloc_Untrack(np.lib.tracemalloc_domain, ctypes.c_size_t(0))

    def gives(self, size):
        """Return whether a call gets so many bytes."""
        self.largest = max(self.largest, size)
        if not self._left or size < _LEAST_BYTES:
            return True
        with self._lock:
            if self._before:
                self._before -= 1
                return True
            self._left -= 1
            self.failed += 1
            return False


def skip_without():
    """Skip the test where nobody asks NumPy's allocator, and nobody can count what it gives."""
    if buffers.aligned.__module__ != buffers.__name__:
        pytest.skip("memory of steps lies between guard pages")


@contextmanager
def replaced():
    """Put an `Allocator` in the place of NumPy's, and yield it."""
    skip_without()
    handler, allocator = default_handler(), Allocator()
    before = handler.malloc, handler.calloc
    malloc, calloc = _MALLOC(before[0]), _CALLOC(before[1])

    @_MALLOC
    def ask_for_memory(context, size):
        return malloc(context, size) if allocator.gives(size) else None

    @_CALLOC
    def ask_for_zeros(context, count, size):
        return calloc(context, count, size) if allocator.gives(count * size) else None

    # Arrays are freed while errors are under way, when nothing of Python may run.
    made = ask_for_memory, ask_for_zeros
    handler.malloc, handler.calloc = [ctypes.cast(one, ctypes.c_void_p).value for one in made]
    try:
        yield allocator
    finally:
        handler.malloc, handler.calloc = before
