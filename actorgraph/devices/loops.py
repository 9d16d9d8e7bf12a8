"""NumPy's inner loops: their addresses, read from the public struct of ufuncs and verified.

A loop is ``loop(char **args, intp *dims, intp *strides, void *data)``.  It needs no GIL and gives
the bits of its ufunc, which calls it.  Invariant: a loop is used only after, once in a process, the
fields of the struct have been compared with the attributes of the ufunc, and the loop's results
with the ufunc's on some values.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from actorgraph.devices.listed import FLOATS, is_safe
from actorgraph.devices.native import ALL_ERRORS

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


_HEADER = 16
_CALL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)  # fmt: skip
_LENGTHS = (1, 3, 8, 67)


class Routine(NamedTuple):
    """The addresses of a loop and of its data, and whether it leaves raised error flags alone.

    The `owner` is what has to live as long.
    """

    function: int
    data: int
    keeps_flags: bool = False
    owner: Any = None


def loop_of(name: str, chars: str) -> Routine | None:
    """Return the loop of a ufunc for these dtypes (operands, then result), if it is verified.

    Examples
    --------
    >>> loop_of("tanh", "ff") is not None
    True
    >>> loop_of("tanh", "OO") is None
    True
    """
    # Not cached, as in `may_have_loop`.
    module: Any = np._core.umath if name == "clip" else np  # type: ignore[attr-defined]
    ufunc = getattr(module, name, None)
    return proved(ufunc, chars) if isinstance(ufunc, np.ufunc) else None


@cache
def proved(ufunc: np.ufunc, chars: str) -> Routine | None:
    """Return the loop of a ufunc, of NumPy or another library, for these dtypes, if verified."""
    if ufunc.signature is not None or ufunc.nout != 1:
        return None
    if len(chars) != ufunc.nargs or not is_safe(ufunc.__name__, chars):
        return None
    loop = _read(ufunc, chars)
    if loop is None or not _agrees(loop, ufunc, chars):
        return None
    return loop._replace(keeps_flags=_keeps_flags(loop, chars))


def are_readable() -> bool:
    """Return whether this NumPy's ufuncs have the expected struct, whose loops give their bits."""
    return proved(np.add, "ddd") is not None and product_loop("d") is not None


@cache
def product_loop(char: str) -> Routine | None:
    """Return the loop of `np.matmul` for a dtype; the caller must verify it for its strides."""
    return _read(np.matmul, 3 * char) if char in FLOATS else None


@cache
def dot_loop(char: str) -> Routine | None:
    """Return the loop of `np.vecdot` for a dtype, if it is verified."""
    loop = _read(np.vecdot, 3 * char) if char in FLOATS else None
    for length, step in ((1, 1), (8, 1), (67, 1), (67, 3), (1000, 1), (4100, 2)):
        x, y = [np.sin(np.arange(3.0 * length * step) + k).astype(char) for k in (0, 1)]
        x, y = x.reshape(3, -1)[:, ::step], y[:length]
        result = np.empty(3, char)
        if loop is not None:
            strides = [x.strides[0], 0, x.itemsize, x.strides[1], y.itemsize]
            call(loop, [x, y, result], [3, length], strides)
            loop = loop if result.tobytes() == np.vecdot(x, y).tobytes() else None
    return loop


_REDUCED = (
    ((1,), (0,)), ((20_000,), (0,)), ((3, 7), (1,)), ((300, 3), (1,)), ((5, 129), (1,)),
    ((40, 1300), (1,)), ((7, 5), (0,)), ((1300, 17), (0,)), ((3, 4, 70), (0, 2)),
    ((5, 3, 4000), (0, 2)), ((6, 40, 9), (1,)), ((9, 50, 40), (1,)),
)  # fmt: skip
"""Shapes and axes for which loops are compared with reductions."""


@cache
def reducing_loop(name: str, char: str) -> tuple[Routine, float | None] | None:
    """Return the loop by which a ufunc reduces, and its initial number, if verified.

    It is the ufunc's loop with the result as first operand, with strides of 0 along the axes.  A
    maximum or minimum begins with the first entry; its number is None.
    """
    loop = loop_of(name, 3 * char)
    if loop is None or name not in ("add", "maximum", "minimum", "logical_or", "logical_and"):
        return None
    if char not in FLOATS:  # every order gives the same bits
        return None if name == "add" and char in "?i" else (loop, None)
    ufunc, first = getattr(np, name), None
    if name == "add":
        first = -0.0 if np.signbit(np.add.reduce(np.full(3, -0.0, char))) else 0.0
    for shape, axes in _REDUCED:
        x = _with_an_order(name, shape).astype(char)
        for begin in [first] if name == "add" else [-np.inf, 0.0, *[None] * (len(axes) == 1)]:
            options = {} if begin is None or name == "add" else {"initial": begin}
            with np.errstate(all="ignore"):
                expected = ufunc.reduce(x, axis=axes, keepdims=True, **options)
            if _by_rows(loop, x, axes, begin).tobytes() != expected.tobytes():
                return None
    return loop, first


@cache
def follows_memory(name: str, char: str) -> bool:
    """Return whether a ufunc reduces an array in the order of its memory, not of its axes."""
    if char not in FLOATS:  # every order gives the same bits
        return True
    for shape, axes in (((6, 40, 9), (1,)), ((5, 3, 400), (0, 2)), ((5, 30, 40), (0, 1))):
        x = _with_an_order(name, shape).astype(char)
        with np.errstate(all="ignore"):
            expected = getattr(np, name).reduce(x, axis=axes, keepdims=True, initial=0)
            for turn in permutations(range(3)):
                own = tuple([turn.index(axis) for axis in axes])
                found = getattr(np, name).reduce(
                    x.transpose(turn), axis=own, keepdims=True, initial=0
                )
                if found.tobytes() != expected.transpose(turn).tobytes():
                    return False
    return True


def _with_an_order(name: str, shape: tuple[int, ...]) -> Array:
    """Return numbers on which the order of a reduction shows: zeros of both signs, and NaN."""
    x: Array = np.sin(np.arange(float(np.prod(shape)))).reshape(shape)
    if name != "add":
        x = np.where(x > 0, 0.0, np.where(x < -0.9, np.copysign(np.nan, x + 0.95), -0.0))
        x = np.where(np.sin(x.size + np.arange(x.size)).reshape(shape) > -0.99, x, 1.0)
    return x


def _by_rows(loop: Routine, x: Array, axes: tuple[int, ...], begin: float | None) -> Array:
    """Reduce row by row, as the rows of a table do."""
    if begin is None:
        result = x.take([0], axes[0])
        x = x[(slice(None),) * axes[0] + (slice(1, None),)]
    else:
        result = np.full([1 if i in axes else n for i, n in enumerate(x.shape)], begin, x.dtype)
    step = 0 if x.ndim - 1 in axes else x.itemsize
    for index in np.ndindex(x.shape[:-1]):
        into = result[tuple([0 if i in axes else place for i, place in enumerate(index)])]
        call(loop, [into, x[index], into], x.shape[-1:], (step, x.itemsize, step))
    return result


def _read(ufunc: np.ufunc, chars: str) -> Routine | None:
    """Return the loop in the struct of a ufunc for these dtypes, unverified."""
    struct = _Struct.from_address(id(ufunc) + _HEADER)
    kind = f"{chars[:-1]}->{chars[-1]}"
    if not _struct_agrees(struct, ufunc) or kind not in ufunc.types:
        return None
    place = ufunc.types.index(kind)
    function, data = struct.functions[place], struct.data[place]
    return Routine(function, data or 0) if function else None


def _struct_agrees(struct: _Struct, ufunc: np.ufunc) -> bool:
    counts = struct.nin, struct.nout, struct.nargs, struct.ntypes
    if counts != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes):
        return False
    if struct.name != ufunc.__name__.encode():
        return False
    numbers = [[np.dtype(char).num for char in one.replace("->", "")] for one in ufunc.types]
    written = struct.types[: ufunc.ntypes * ufunc.nargs]
    return bytes(written) == bytes([number for one in numbers for number in one])


def _agrees(loop: Routine, ufunc: np.ufunc, chars: str) -> bool:
    """Return whether the loop gives the bytes of the ufunc on some values."""
    for length in _LENGTHS:
        arrays = [_values(char, length, seed) for seed, char in enumerate(chars[:-1])]
        result = np.empty(length, chars[-1])
        with np.errstate(all="ignore"):
            expected = ufunc(*arrays)
        call(loop, [*arrays, result], [length])
        if expected.dtype != result.dtype or expected.tobytes() != result.tobytes():
            return False
    return True


def _keeps_flags(loop: Routine, chars: str) -> bool:
    """Return whether raised floating-point flags are still set after the loop."""
    library = ctypes.CDLL("libm.so.6")
    for length in (*_LENGTHS, 1000):
        arrays = [_values(char, length, seed) for seed, char in enumerate(chars[:-1])]
        arrays.append(np.empty(length, chars[-1]))
        for first in (arrays[0].itemsize, 0):
            strides = [first, *[array.itemsize for array in arrays[1:]]]
            library.feraiseexcept(ALL_ERRORS)
            call(loop, arrays, [length], strides)
            if library.fetestexcept(ALL_ERRORS) != ALL_ERRORS:
                return False
    library.feclearexcept(ALL_ERRORS)
    return True


def _values(char: str, length: int, seed: int) -> Array:
    values: Array = np.linspace(-3.0, 3.0, length) + 0.37 * (seed + 1)
    if char in "?LB":
        values = values > 0 if char == "?" else abs(values)
    return values.astype(char)


def call(
    loop: Routine, arrays: Sequence[Array], dims: Sequence[int],
    strides: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """Call a loop as the interpreter of tables does; the caller must check the bounds.

    Without strides arrays are contiguous.
    """
    strides = strides or [array.itemsize for array in arrays]
    args = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    sizes = (ctypes.c_ssize_t * len(dims))(*dims)
    steps = (ctypes.c_ssize_t * len(strides))(*strides)
    _CALL(loop.function)(
        ctypes.addressof(args), ctypes.addressof(sizes), ctypes.addressof(steps), loop.data or None
    )
