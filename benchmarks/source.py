"""Gradients of small NumPy functions: generated source beside autograd and a gradient by hand.

The functions are those that Tangent publishes, and the time is that of one call of a gradient that
has been made before; what it takes to make one is a row of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any, cast

import numpy as np

import actorgraph as ag
from benchmarks._harness import MISSING_PEER, Figure, best_call
from benchmarks._report import (
    exit_status,
    options,
    print_environment,
    print_table,
    tell,
    write_json,
)

TARGET = 5.0


def cubic(x: Any) -> Any:
    return x * x * x + 2.0 * x


def logsumexp(x: Any) -> Any:
    top = x[0]
    for a in x:
        if a > top:
            top = a
    total = 0.0
    for a in x:
        total = total + np.exp(a - top)
    return np.log(total) + top


def iterpower(x: Any) -> Any:
    y = x
    for _ in range(10):
        y = y * x
    return y


def branches(x: Any) -> Any:
    y = np.sum(x)
    if y > 0:
        for i in range(3):
            y = np.sin(y) * (i + 1.0)
    else:
        y = np.exp(y)
    return y


def mlp(x: Any) -> Any:
    h = x
    for _ in range(3):
        h = np.tanh(np.dot(h, WEIGHTS))
    return np.sum(h * h)


WEIGHTS = np.linspace(-1.0, 1.0, 64).reshape(8, 8)
CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "cubic": (cubic, 1.3),
    "iterpower, 10 times": (iterpower, 1.1),
    "logsumexp by loops, 8 elements": (logsumexp, np.linspace(0.0, 1.0, 8)),
    "branch and loop, 8 elements": (branches, np.linspace(0.0, 1.0, 8)),
    "three layers of 8x8": (mlp, np.linspace(0.0, 1.0, 8)),
}


def measure(rounds: int, only: str | None) -> list[Figure]:
    figures: list[Figure] = []
    for case, (function, x) in CASES.items():
        if only and only.lower() not in case.lower():
            continue
        ours = ag.source.grad(function)
        ways: dict[str, Callable[[], Any]] = {
            "ag.source": partial(ours, x),
            "NumPy, forward only": partial(function, x),
            "making it": partial(ag.source.grad, function),
        }
        made = [Figure(case, way, ours=way != "NumPy, forward only") for way in ways]
        theirs = _autograd(function)
        if theirs is None:
            made.append(Figure(case, "autograd", note=MISSING_PEER))
        else:
            np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-9)
            ways["autograd"] = partial(theirs, x)
            made.append(Figure(case, "autograd"))
        for _ in range(rounds):
            for figure, run in zip(made, ways.values(), strict=False):
                figure.rounds.append(best_call(run, 0.02))
                figure.seconds = min(figure.rounds)
        figures += made
    return figures


def _autograd(function: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """Return autograd's gradient of the same code, with its own NumPy."""
    try:
        autograd = import_module("autograd")
        own = import_module("autograd.numpy")
    except ImportError:
        return None
    found: Callable[[Any], Any] = autograd.grad(
        FunctionType(cast(FunctionType, function).__code__, {**globals(), "np": own})
    )
    return found


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("source", __doc__)
    print_environment()
    figures = measure(5 if asked.quick else 40, asked.only)
    print_table("one call", "us", figures, "ag.source")
    found = {(figure.case, figure.system): figure.seconds for figure in figures}
    targets = []
    for case in CASES:
        ours, theirs = found.get((case, "ag.source")), found.get((case, "autograd"))
        if ours and theirs:
            met = theirs >= TARGET * ours
            tell(f"{case}: {theirs / ours:.1f}x, {'met' if met else 'MISSED'} (>= {TARGET:g}x)")
            targets.append({"case": case, "limit": TARGET, "met": met})
    write_json("source", asked, figures, {"targets": targets})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
