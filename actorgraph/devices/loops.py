"""NumPy's inner loops: where they lie, read through the public struct of ufuncs and proved.

A loop is ``loop(char **args, intp *dims, intp *strides, void *data)``.  It needs no GIL, and gives
the bits of its ufunc: it is what the ufunc calls.  Before one is used, once a process, the fields
of the struct are compared with the attributes of the ufunc, and the loop with its ufunc on a few
values.  What differs has no loop.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Routine", "call", "loop_of", "product_loop", "sum_loop"]

Array = np.ndarray[Any, Any]


class _Struct(ctypes.Structure):
    """The fields of `PyUFuncObject`, behind the header of the object."""

    _fields_ = (
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    )


FLAGS = 0x1D
"""The flags of invalid, divide, overflow and underflow on x86."""

_HEADER = 16
_CALL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)  # fmt: skip
_LENGTHS = (1, 3, 8, 67)
_FLOATS, _OTHERS = "fd", "?il"
_INTEGER_LOOPS = frozenset(
    "add subtract multiply negative absolute equal not_equal less less_equal greater "
    "greater_equal maximum minimum logical_and logical_or logical_not logical_xor bitwise_and "
    "bitwise_or bitwise_xor invert positive".split()
)
"""Of integers and booleans only what cannot fail: others raise Python's errors from inside."""


class Routine(NamedTuple):
    """The addresses of a loop and of its data, and whether it clears no flags of errors."""

    function: int
    data: int
    keeps_flags: bool = False


def loop_of(name: str, chars: str) -> Routine | None:
    """Return the loop of a ufunc for these dtypes (of operands, then of the result), if proved.

    Examples
    --------
    >>> loop_of("tanh", "ff") is not None
    True
    >>> loop_of("tanh", "OO") is None
    True
    """
    ufunc = getattr(np, name, None)  # asked each time: it may be replaced for a while
    return _proved(ufunc, name, chars) if isinstance(ufunc, np.ufunc) else None


@cache
def _proved(ufunc: np.ufunc, name: str, chars: str) -> Routine | None:
    if ufunc.signature is not None or ufunc.nout != 1:
        return None
    if len(chars) != ufunc.nargs or not _is_safe(name, chars):
        return None
    found = _read(ufunc, chars)
    if found is None or not _gives_the_same(found, ufunc, chars):
        return None
    return found._replace(keeps_flags=_keeps_flags(found, chars))


@cache
def product_loop(char: str) -> Routine | None:
    """Return the loop of `np.matmul` for a dtype: who uses it proves it for his strides."""
    return _read(np.matmul, 3 * char) if char in _FLOATS else None


@cache
def sum_loop(char: str) -> tuple[Routine, float] | None:
    """Return the loop that adds rows up, and the number that sums begin with, if proved.

    It is that of `np.add` with the sum as first operand and result, without strides.
    """
    loop = loop_of("add", 3 * char) if char in _FLOATS else None
    if loop is None:
        return None
    negative = bool(np.signbit(np.add.reduce(np.full(3, -0.0, char))))
    first = -0.0 if negative else 0.0
    for rows, length in ((1, 1), (1, 20_000), (3, 7), (2, 8), (300, 3), (5, 129), (3, 1000)):
        values = np.sin(np.arange(rows * length)).astype(char).reshape(rows, length)
        for wanted, parts in (
            (np.add.reduce(values, axis=1), values),
            (np.add.reduce(values, axis=(0, 1)), values.reshape(1, -1)),
        ):
            found = np.full(len(parts), first, char)
            for into, part in zip(found[:, None], parts, strict=True):
                _call(loop, [into, part, into], part.size, (0, part.itemsize, 0))
            if found.tobytes() != np.asarray(wanted).tobytes():
                return None
    return loop, first


def _read(ufunc: np.ufunc, chars: str) -> Routine | None:
    """Return the addresses that the struct of a ufunc has for these dtypes."""
    struct = _Struct.from_address(id(ufunc) + _HEADER)
    kind = f"{chars[:-1]}->{chars[-1]}"
    if not _is_as_expected(struct, ufunc) or kind not in ufunc.types:
        return None
    place = ufunc.types.index(kind)
    function, data = struct.functions[place], struct.data[place]
    return Routine(function, data or 0) if function else None


def _is_safe(name: str, chars: str) -> bool:
    if not set(chars) <= set(_FLOATS + _OTHERS):
        return False
    return not set(chars[:-1]) & set(_OTHERS) or name in _INTEGER_LOOPS


def _is_as_expected(struct: _Struct, ufunc: np.ufunc) -> bool:
    """Return whether the struct says what the attributes of the ufunc say."""
    counts = struct.nin, struct.nout, struct.nargs, struct.ntypes
    if counts != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes):
        return False
    if struct.name != ufunc.__name__.encode():
        return False
    numbers = [[np.dtype(char).num for char in one.replace("->", "")] for one in ufunc.types]
    written = struct.types[: ufunc.ntypes * ufunc.nargs]
    return bytes(written) == bytes([number for one in numbers for number in one])


def _gives_the_same(loop: Routine, ufunc: np.ufunc, chars: str) -> bool:
    """Return whether the loop gives the bytes of the ufunc on a few values."""
    for length in _LENGTHS:
        arrays = [_values(char, length, seed) for seed, char in enumerate(chars[:-1])]
        result = np.empty(length, chars[-1])
        with np.errstate(all="ignore"):
            wanted = ufunc(*arrays)
        _call(loop, [*arrays, result], length)
        if wanted.dtype != result.dtype or wanted.tobytes() != result.tobytes():
            return False
    return True


def _keeps_flags(loop: Routine, chars: str) -> bool:
    """Return whether flags of floating-point errors are still up after the loop."""
    library = ctypes.CDLL("libm.so.6")
    for length in (*_LENGTHS, 1000):
        arrays = [_values(char, length, seed) for seed, char in enumerate(chars[:-1])]
        arrays.append(np.empty(length, chars[-1]))
        for first in (arrays[0].itemsize, 0):
            strides = [first, *[array.itemsize for array in arrays[1:]]]
            library.feraiseexcept(FLAGS)
            _call(loop, arrays, length, strides)
            if library.fetestexcept(FLAGS) != FLAGS:
                return False
    library.feclearexcept(FLAGS)
    return True


def _values(char: str, length: int, seed: int) -> Array:
    values = np.linspace(-3.0, 3.0, length) + 0.37 * (seed + 1)
    return (values > 0 if char == "?" else values).astype(char)


def _call(
    loop: Routine, arrays: Sequence[Array], length: int, strides: Sequence[int] | None = None
) -> None:
    call(loop, arrays, [length], strides or [array.itemsize for array in arrays])


def call(
    loop: Routine, arrays: Sequence[Array], dims: Sequence[int], strides: Sequence[int]
) -> None:
    """Call a loop as an interpreter of rows does; who calls answers for the bounds."""
    args = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    sizes = (ctypes.c_ssize_t * len(dims))(*dims)
    steps = (ctypes.c_ssize_t * len(strides))(*strides)
    _CALL(loop.function)(
        ctypes.addressof(args), ctypes.addressof(sizes), ctypes.addressof(steps), loop.data or None
    )
