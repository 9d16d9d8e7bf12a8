"""The structs of Python and NumPy that machine code reads, and whether they are as expected here.

Machine code finds the memory of arrays in a tuple, and the word of `AbstractRun.dead`, by fixed
offsets.  `native` asks before it makes any; first runs do not.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from contextvars import copy_context
from functools import cache
from typing import Any, Final

import numpy as np

from actorgraph.options import NATIVE, has_global_lock, has_llvmlite, proves_tables
from actorgraph.runs import AbstractRun

CONTIGUOUS, ALIGNED, WRITABLE = 0x1, 0x100, 0x400

OFFSETS = {"data": 16, "nd": 24, "dimensions": 32, "strides": 40, "descr": 56, "flags": 64}
"""Byte offsets of fields in an array object, see NumPy's `PyArrayObject_fields`."""
ITEMS = 24
"""Byte offset of the items in a tuple object."""


ARRAY_TYPE: Final = id(np.ndarray)


@cache
def expected() -> str | None:
    """Return why tables cannot be used in this process, None if they can."""
    if not proves_tables():
        return "it is proved on Linux with x86-64 only"
    return callable_from_python() or (None if dead_offset() else DIFFERENT)


@cache
def callable_from_python() -> str | None:
    """Return why machine code cannot be given arrays in this process, None if it can.

    It reads fields of some arrays and of a tuple through their structs.
    """
    if not has_global_lock():
        return "it needs CPython with its global lock"
    if sys.byteorder != "little" or struct.calcsize("P") != 8:
        return "it needs a processor with 64 bits, little-endian"
    if not has_llvmlite():
        return "llvmlite is not installed: pip install 'actorgraph[native]'"
    return None if _reads_structs() else DIFFERENT


DIFFERENT = "arrays or ufuncs of this NumPy or objects of this Python differ"


def switched_off() -> str | None:
    """Return what has switched machine code off, None if it is on."""
    return f"{NATIVE}=0 says so" if os.environ.get(NATIVE) == "0" else None


class _Idle(AbstractRun):
    """A run that nobody can cancel."""

    __slots__ = ()
    dead: Any
    context: Any = property(lambda self: copy_context())
    deliver: Any = None
    fail: Any = None
    cancel: Any = None
    expire: Any = None


def _idle(dead: BaseException | None = None) -> AbstractRun:
    found = _Idle()
    found.dead = dead
    return found


IDLE = _idle()
"""The run of direct calls."""


@cache
def dead_offset() -> int:
    """Return the byte offset of the field `dead` in a run, 0 if it cannot be found."""
    mark = Exception()
    one, places = _idle(mark), range(ITEMS - 8, _Idle.__basicsize__, 8)
    found = [place for place in places if _word(id(one) + place) == id(mark)]
    right = len(found) == 1 and _word(id(IDLE) + found[0]) == id(None)
    return found[0] if right else 0


def _word(address: int, kind: Any = ctypes.c_int64) -> Any:
    return kind.from_address(address).value


def _reads_structs() -> bool:
    """Return whether the fields of some arrays and a tuple have the expected offsets."""
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays: tuple[np.ndarray[Any, Any], ...] = (
        whole,
        whole[1:, ::2],
        np.zeros((), np.int64),
        np.zeros((2, 0, 3), bool),
    )
    for place, array in enumerate(arrays):
        item = _word(id(arrays) + ITEMS + 8 * place)
        if item != id(array) or _word(item + 8) != ARRAY_TYPE:
            return False
        at = {name: item + offset for name, offset in OFFSETS.items()}
        found = array.flags
        flags = CONTIGUOUS * found.c_contiguous | WRITABLE * found.writeable | ALIGNED
        if (
            _word(at["data"]) != array.ctypes.data
            or _word(at["nd"], ctypes.c_int32) != array.ndim
            or _word(at["descr"]) != id(array.dtype)
            or _word(at["flags"], ctypes.c_int32) & (CONTIGUOUS | WRITABLE | ALIGNED) != flags
        ):
            return False
        for name, wanted in (("dimensions", array.shape), ("strides", array.strides)):
            begin = _word(at[name])
            if [_word(begin + 8 * i) for i in range(array.ndim)] != list(wanted):
                return False
    return True
