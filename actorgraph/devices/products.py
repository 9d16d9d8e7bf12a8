"""Matrix products by cuBLAS with a handle and workspaces of our own, called through ctypes.

CuPy uses one handle for all streams of a thread, and cuBLAS does not promise the same bits from run
to run if several streams are active on it.  Here each stream, and each stream of a captured graph,
has its own workspace, so that bits do not depend on what runs at the same time.  The call is the
same in a captured graph, where CuPy refuses cuBLAS, and outside.  Without the library CuPy
multiplies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, final

import numpy as np

_KINDS: dict[str, tuple[str, Any]] = {
    "f": ("Sgemm", ctypes.c_float), "d": ("Dgemm", ctypes.c_double),
    "F": ("Cgemm", ctypes.c_float * 2), "D": ("Zgemm", ctypes.c_double * 2),
}  # fmt: skip
"""By dtype: cuBLAS's function, and the type of a number."""

_HOPPER, _LARGE, _SMALL = 90, 32 << 20, 4 << 20
"""Least compute capability with a large workspace; bytes of a large and of a small one."""

_ROWS, _COLUMNS = 0, 1
"""cuBLAS's flags for a matrix as it is, and transposed."""

_UNKNOWN = object()
_NAMES = ("libcublas.so.{}", "cublas64_{}.dll")


def library(version: int) -> Any:
    """Return cuBLAS of a major version of CUDA.

    Raises
    ------
    OSError
        If it is not found.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, RuntimeError):  # pathfinder has not found it
        for name in _NAMES:
            try:
                return ctypes.CDLL(name.format(version))
            except OSError as error:
                missing = error
        raise missing from None


@final
class Products:
    """CuPy as an array module, but with a `matmul` that has workspaces and can be captured."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._library: Any = _UNKNOWN
        self._handle = ctypes.c_void_p()
        self._rooms: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._xp, name)

    @contextmanager
    def within(self, rooms: dict[Any, Any]) -> Iterator[None]:
        """Use the workspaces in `rooms`, by stream, within the `with` block."""
        before, self._rooms = self._rooms, rooms
        try:
            yield
        finally:
            self._rooms = before

    def matmul(self, x: Any, y: Any, out: Any = None) -> Any:
        """Return ``matmul(x, y)``, by cuBLAS if it supports the dtype."""
        kind = x.dtype.char
        known = kind in _KINDS and y.dtype.char == kind and x.size and y.size
        if not known or not self._is_ready():
            return self._xp.matmul(x, y, out=out)
        left, right = x[None] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        rows, columns = left.shape[-2], right.shape[-1]
        made = self._xp.empty((prod(batch), rows, columns), x.dtype)
        self._multiply(_stacked(self._xp, left, batch), _stacked(self._xp, right, batch), made)
        shape = batch + (rows,) * (x.ndim > 1) + (columns,) * (y.ndim > 1)
        result = made.reshape(shape)
        if out is None:
            return result
        out[...] = result
        return out

    def _multiply(self, x: Any, y: Any, out: Any) -> None:
        """Multiply stacks of matrices; a stack of one is broadcast."""
        (x, flag_x, gap_x), (y, flag_y, gap_y) = map(_in_lines, (x, y))
        name, number = _KINDS[out.dtype.char]
        one, zero = number(1), number(0)
        count, rows, columns = out.shape
        long, pointer = ctypes.c_longlong, ctypes.c_void_p
        # cuBLAS is column-major: to it all matrices are transposed, hence the order of operands.
        self._call(
            f"cublas{name}StridedBatched", flag_y, flag_x, columns, rows, x.shape[2],
            ctypes.byref(one), pointer(y.data.ptr), gap_y, long(_apart(y)), pointer(x.data.ptr),
            gap_x, long(_apart(x)), ctypes.byref(zero), pointer(out.data.ptr), columns,
            long(rows * columns), count,
        )  # fmt: skip

    def _is_ready(self) -> bool:
        """Give the handle the current stream and its workspace; return False without cuBLAS."""
        cuda, stream = self._xp.cuda, self._xp.cuda.get_current_stream()
        if self._library is _UNKNOWN:
            try:
                self._library = library(cuda.runtime.runtimeGetVersion() // 1000)
            except OSError:
                self._library = None
            else:
                self._call("cublasCreate_v2")
        if self._library is None:
            return False
        room = self._rooms.get(stream.ptr)
        if room is None:
            is_large = int(cuda.Device().compute_capability) >= _HOPPER
            room = self._xp.empty(_LARGE if is_large else _SMALL, "b")
            self._rooms[stream.ptr] = room
        self._call("cublasSetStream_v2", ctypes.c_void_p(stream.ptr))
        place, size = ctypes.c_void_p(room.data.ptr), ctypes.c_size_t(room.nbytes)
        self._call("cublasSetWorkspace_v2", place, size)
        return True

    def _call(self, name: str, *arguments: Any) -> None:
        handle = ctypes.byref(self._handle) if name == "cublasCreate_v2" else self._handle
        status = getattr(self._library, name)(handle, *arguments)
        if status:
            raise RuntimeError(f"cuBLAS: {name} gives status {status}")


def _stacked(xp: Any, x: Any, batch: tuple[int, ...]) -> Any:
    """Return matrices broadcast to a batch as a stack, a single one as a stack of one."""
    if x.ndim > 2 and x.shape[:-2] != batch:
        x = xp.broadcast_to(x, (*batch, *x.shape[-2:]))
    return x.reshape(prod(x.shape[:-2]), *x.shape[-2:])


def _in_lines(x: Any) -> tuple[Any, int, int]:
    """Return a stack with contiguous rows or columns, cuBLAS's flag for it, and their distance."""
    rows, columns = x.shape[1:]
    down, along = [stride // x.itemsize for stride in x.strides[1:]]
    if along == 1 and down >= columns:
        return x, _ROWS, down
    if down == 1 and along >= rows:
        return x, _COLUMNS, along
    return x.copy(), _ROWS, columns


def _apart(x: Any) -> int:
    """Return the distance in numbers between matrices of a stack, 0 for a single one."""
    return 0 if len(x) == 1 else x.strides[0] // x.itemsize
