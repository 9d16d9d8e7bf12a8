"""Who multiplies large matrices: NumPy's own BLAS, or Intel's MKL where its package is installed.

The provider is chosen once in a process, before the first run: ``ACTORGRAPH_MATMUL`` (``numpy`` or
``mkl``) decides, else MKL where it is found.  All machines use the same one, so their bits agree;
it is part of a result's identity, for two providers round differently.

MKL is called through ctypes, which releases the GIL, with its sequential layer: threads are ours.
Its reproducible mode is on, so that no bit depends on where in memory an operand begins.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphError

VARIABLE = "ACTORGRAPH_MATMUL"
"""Environment variable that overrides the choice."""

BLAS_DTYPES = "fdFD"
"""Codes of the dtypes that a BLAS multiplies."""

_MKL_LEAST_FLOPS = 2.0**21
"""A call through ctypes costs some 5 us more than NumPy's, a quarter of such a product."""

_MKL_THINNEST = 16
"""Rows or columns below which NumPy is faster: at 128x512x10 three times."""

_NAMES = ("numpy", "mkl")
_INT_MAX = 2**31 - 1
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
_SEQUENTIAL_LAYER, _INTERFACE_LP64, _REPRODUCIBLE_AUTO = 1, 0, 2

Array = np.ndarray[Any, Any]


class Provider(NamedTuple):
    """A way to multiply matrices, by its name, ``"numpy"`` or ``"mkl"``.

    ``multiply(x, y, out)`` takes matrices of one of `BLAS_DTYPES`, each with unit stride along rows
    or columns, `out` along rows; it may be called from several threads at once.
    """

    name: str
    version: str
    multiply: Callable[[Array, Array, Array], object]
    least_flops: float  # products below are left to NumPy, whoever is the provider


NUMPY = Provider("numpy", np.__version__, np.matmul, float("inf"))
"""NumPy's own BLAS."""


def chosen() -> str:
    """Return the name of the provider of this process, without loading it.

    Raises
    ------
    GraphError
        ``ACTORGRAPH_MATMUL`` names a provider that does not exist or is not installed.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", *_NAMES):
        raise GraphError(
            f"{VARIABLE} is {asked!r}; set it to 'numpy' or 'mkl', or unset it for MKL where it "
            "is installed"
        )
    if asked == "mkl" and library() is None:
        raise GraphError(
            f"{VARIABLE} is 'mkl', but MKL is not installed: pip install 'actorgraph[mkl]', or "
            f"unset {VARIABLE}"
        )
    return asked or ("numpy" if library() is None else "mkl")


@cache
def provider() -> Provider:
    """Return the provider of this process, loaded.

    What `chosen` says at the first call stays.  MKL that was found but cannot be loaded is passed
    over, unless it was asked for by name.

    Raises
    ------
    GraphError
        As `chosen`, or the MKL that was asked for cannot be loaded.

    Examples
    --------
    >>> provider().name in ("numpy", "mkl")
    True
    """
    path = library() if chosen() == "mkl" else None
    if path is None:
        return NUMPY
    try:
        return load_mkl(path)
    except (OSError, AttributeError) as error:
        if os.environ.get(VARIABLE) == "mkl":
            raise GraphError(
                f"{VARIABLE} is 'mkl', but {os.path.basename(path)} cannot be loaded: {error}"
            ) from error
        return NUMPY


@cache
def library() -> str | None:
    """Return the path of MKL's runtime library as its package records it, None where it is not.

    The record is read by hand: `importlib.metadata` takes 30 ms to import.
    """
    for folder in sys.path:
        try:
            found = os.listdir(folder or os.curdir)
        except OSError:
            continue
        for package in found:
            if package.startswith("mkl-") and package.endswith(".dist-info"):
                path = _recorded(folder, package)
                if path is not None:
                    return path
    return None


def _recorded(folder: str, package: str) -> str | None:
    """Return the path of the runtime library by the record of a package, None where it has none."""
    record = os.path.join(folder, package, "RECORD")
    if not os.path.lexists(record):
        return None
    with open(record, encoding="utf-8") as lines:
        for line in lines:
            path = line.split(",")[0]
            name = os.path.basename(path).removeprefix("lib")
            if name.startswith("mkl_rt.") and not name.endswith(".lib"):
                return os.path.realpath(os.path.join(folder, path))
    return None


def load_mkl(path: str) -> Provider:
    """Return MKL as a provider.

    Raises
    ------
    OSError, AttributeError
        The library cannot be loaded, or is none of MKL.
    """
    loaded = ctypes.CDLL(path)
    loaded.MKL_Set_Interface_Layer(_INTERFACE_LP64)
    loaded.MKL_Set_Threading_Layer(_SEQUENTIAL_LAYER)
    loaded.MKL_CBWR_Set(_REPRODUCIBLE_AUTO)
    gemms = {
        "f": _gemm(loaded.cblas_sgemm, ctypes.c_float, 1.0, 0.0),
        "d": _gemm(loaded.cblas_dgemm, ctypes.c_double, 1.0, 0.0),
        "F": _gemm(loaded.cblas_cgemm, ctypes.c_void_p, *_complex_scalars(ctypes.c_float)),
        "D": _gemm(loaded.cblas_zgemm, ctypes.c_void_p, *_complex_scalars(ctypes.c_double)),
    }

    def multiply(x: Array, y: Array, out: Array) -> None:
        (m, k), n = x.shape, y.shape[1]
        left, x_step = _layout(x)
        right, y_step = _layout(y)
        step = out.strides[0] // out.itemsize
        if min(m, n) < _MKL_THINNEST or max(m, n, k, x_step, y_step, step) > _INT_MAX:
            np.matmul(x, y, out)
            return
        gemm, one, zero = gemms[x.dtype.char]
        gemm(
            _ROW_MAJOR, left, right, m, n, k,
            one, _address(x), x_step, _address(y), y_step, zero, _address(out), step,
        )  # fmt: skip

    return Provider("mkl", _version(loaded), multiply, _MKL_LEAST_FLOPS)


def _gemm(function: Any, scalar: Any, one: Any, zero: Any) -> tuple[Any, Any, Any]:
    integer, pointer = ctypes.c_int, ctypes.c_void_p
    function.restype = None
    function.argtypes = [
        *[integer] * 6, scalar, pointer, integer, pointer, integer, scalar, pointer, integer,
    ]  # fmt: skip
    return function, one, zero


def _complex_scalars(part: Any) -> tuple[Any, Any]:
    pair = part * 2
    one, zero = (ctypes.cast(pair(value, 0), ctypes.c_void_p) for value in (1, 0))
    return one, zero


def _layout(matrix: Array) -> tuple[int, int]:
    """Return BLAS's word for the matrix and the elements from one line to the next."""
    down, across = matrix.strides
    if across == matrix.itemsize:
        return _AS_IT_IS, down // across
    return _TRANSPOSED, across // down


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _version(loaded: Any) -> str:
    text = ctypes.create_string_buffer(256)
    loaded.MKL_Get_Version_String(text, len(text))
    # "Intel(R) ... Library Version 2026.2-Product Build 20260915 for ..."
    return text.value.decode(errors="replace").partition("Version ")[2].partition("-")[0]
