"""Which of two libraries multiplies faster on this machine: measured once, and kept in a file.

The choice changes the last bits of products, so it has to be the same in all processes of a
machine.  The first process that needs it measures for some 20 ms, and writes the file.  Later ones
read it, as long as the other library is the same file.  Where it cannot be written, each process
measures.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import exp, log
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from actorgraph.devices.blas_threads import OneThread
from actorgraph.devices.files import cache_path, write_whole

_SIZES, _ROUNDS = ((64, 256, 256), (128, 512, 512), (256, 512, 512)), 5
_MARGIN = 1.05
"""How many times as fast as NumPy another library has to be: NumPy is chosen in a tie."""

Multiply = Callable[[Any, Any, Any], object]


class Faster(NamedTuple):
    """Whether the other library multiplies, and how many times as fast as NumPy it is."""

    other: bool
    ratio: float


def choice(numpy: Multiply, other: Multiply, library: str) -> Faster:
    """Return the choice between NumPy and the library of a path, measured where it is not kept."""
    kept = _kept(library)
    if kept is None:
        one_thread = OneThread()
        try:
            one_thread.hold()
            kept = keep(ratio(numpy, other), library)
        finally:
            one_thread.restore()
    return kept


def ratio(numpy: Multiply, other: Multiply) -> float:
    """Return how many times as fast as `numpy` the other one is, called in turn."""
    logarithms = []
    for m, k, n in _SIZES:
        x, y, out = np.ones((m, k), "f"), np.ones((k, n), "f"), np.empty((m, n), "f")
        best = [float("inf")] * 2
        for _ in range(_ROUNDS):
            for place, multiply in enumerate((numpy, other)):
                started = perf_counter()
                multiply(x, y, out)
                best[place] = min(best[place], perf_counter() - started)
        logarithms.append(log(best[0] / best[1]))
    return exp(sum(logarithms) / len(logarithms))


def keep(measured: float, library: str) -> Faster:
    """Choose by a measured ratio, and have later processes of this machine choose the same."""
    import json

    content = {"library": _identity(library), "ratio": measured}
    try:
        write_whole(cache_path("matmul"), json.dumps(content).encode())
    except OSError:
        pass
    return _by(measured)


def _kept(library: str) -> Faster | None:
    import json

    try:
        with open(cache_path("matmul"), encoding="utf-8") as file:
            content = json.load(file)
        if content["library"] == _identity(library):
            return _by(float(content["ratio"]))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        pass
    return None


def _by(measured: float) -> Faster:
    return Faster(measured >= _MARGIN, measured)


def _identity(library: str) -> list[Any]:
    """Return what changes when the library is another one."""
    return [library, os.stat(library).st_mtime_ns]
