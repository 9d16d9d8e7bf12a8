"""The provider of large matrix products: NumPy's own BLAS, or Intel's MKL if it is installed.

The provider is chosen once in a process, by its first large product: ``ACTORGRAPH_MATMUL``
(``numpy`` or ``mkl``) decides, else what was measured on this machine (`fastest`).  All machines
use the same one, so their bits agree; it is part of a result's identity, for two providers round
differently.

MKL is called through ctypes, which releases the GIL, with its sequential layer, as we bring the
threads.  Its reproducible mode is on, so that bits do not depend on the alignment of operands.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from actorgraph.devices.fastest import choice
from actorgraph.errors import GraphError

VARIABLE = "ACTORGRAPH_MATMUL"
"""Environment variable that overrides the choice."""

BLAS_DTYPES = "fdFD"
"""Codes of the dtypes that a BLAS multiplies."""

LEAST_FLOPS = 2.0**21
"""Products below are NumPy's, whoever is the provider: a call through ctypes costs some 5 us more
than NumPy's, a quarter of such a product."""

_MKL_THINNEST = 16
"""Least rows and columns for MKL: at 128x512x10 NumPy is three times as fast."""

_NAMES = ("numpy", "mkl")
_INT_MAX = 2**31 - 1
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
_SEQUENTIAL_LAYER, _INTERFACE_LP64, _REPRODUCIBLE_AUTO = 1, 0, 2

Array = np.ndarray[Any, Any]


class Provider(NamedTuple):
    """A library that multiplies matrices; its name is ``"numpy"`` or ``"mkl"``.

    ``multiply(x, y, out)`` takes matrices of one of `BLAS_DTYPES` with unit stride along rows or
    columns, `out` along rows.  Several threads may call it at once.
    """

    name: str
    version: str
    multiply: Callable[[Array, Array, Array], object]


NUMPY = Provider("numpy", np.__version__, np.matmul)
"""NumPy's own BLAS."""


def asked() -> str:
    """Return the name of the provider that the environment asks for, "" where it asks for none.

    Raises
    ------
    GraphError
        If ``ACTORGRAPH_MATMUL`` names a provider that does not exist or is not installed.
    """
    name = os.environ.get(VARIABLE, "")
    if name not in ("", *_NAMES):
        raise GraphError(
            f"{VARIABLE} is {name!r}; set it to 'numpy' or 'mkl', or unset it for the faster one "
            "of those that are installed"
        )
    if name == "mkl" and library() is None:
        raise GraphError(
            f"{VARIABLE} is 'mkl', but MKL is not installed: pip install 'actorgraph[mkl]', or "
            f"unset {VARIABLE}"
        )
    return name


@cache
def provider() -> Provider:
    """Return the provider of this process, loaded; what the first call returns stays.

    Where MKL is installed, and the environment asks for no provider, the first call on a machine
    measures both for some 20 ms.  MKL that cannot be loaded is passed over, unless it is asked for.

    Raises
    ------
    GraphError
        As `asked`, or the MKL that is asked for cannot be loaded.

    Examples
    --------
    >>> provider().name in ("numpy", "mkl")
    True
    """
    name, path = asked(), library()
    if name == "numpy" or path is None:
        return NUMPY
    try:
        mkl = load_mkl(path)
    except (OSError, AttributeError) as error:
        if name == "mkl":
            raise GraphError(
                f"{VARIABLE} is 'mkl', but {os.path.basename(path)} cannot be loaded: {error}"
            ) from error
        return NUMPY
    return mkl if name or choice(NUMPY.multiply, mkl.multiply, path).other else NUMPY


@cache
def library() -> str | None:
    """Return the path of MKL's runtime library as its package records it, None without it.

    The record is parsed here, since `importlib.metadata` takes 30 ms to import.
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


@cache
def load_mkl(path: str) -> Provider:
    """Return MKL as a provider, loaded by the first call.

    Raises
    ------
    OSError, AttributeError
        If the library cannot be loaded, or is not MKL.
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

    return Provider("mkl", _version(loaded), multiply)


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
    """Return BLAS's flag for the order of the matrix, and its leading dimension."""
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
