"""The command `actorgraph calibrate`: measures this machine for the cost model.

Every figure is the best of many on one thread.  Where two libraries can multiply, the faster one is
the provider of later processes (`devices.fastest`).
"""

from collections.abc import Callable
from datetime import date
from math import exp, log
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from actorgraph.devices import blas
from actorgraph.devices.cpu import answer_us
from actorgraph.devices.fastest import keep
from actorgraph.lower.rates import Rates, store

_SECONDS = 0.25
"""Time for each figure."""

_ELEMENTS = 8192
_TANH_FLOPS = 5  # the op's cost
_MEMORY = 2**22
_PRODUCTS = ((8, 64, 64), (64, 256, 256), (128, 512, 512), (512, 512, 512))
_WEIGHTS = 4
Tell = Callable[[str], None]


def calibrate(tell: Tell) -> dict[str, Any]:
    """Measure, store the rates, and recommend a provider; blocks for some 5 seconds.

    `tell` gets a line after each measurement.  The result can be written by `json`.
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        measured = _rates(tell)
    advice = _advice(measured)
    file = store(measured, date.today().isoformat())
    for line in advice:
        tell(f"advice           {line}")
    tell(f"stored in {file}")
    return {"rates": measured._asdict(), "file": file, "advice": advice}


def _rates(tell: Tell) -> Rates:
    one, many = np.ones(1, "f"), np.linspace(0.1, 2.0, _ELEMENTS, dtype="f")
    call_us = _best_us(np.add, one, one)
    tell(f"call             {call_us:.2f} us")
    additions = _ELEMENTS / max(_best_us(np.add, many, many) - call_us, call_us / 10)
    tell(f"additions        {additions:,.0f} per us")
    tanh_us = max(_best_us(np.tanh, many) - call_us, call_us / 10)
    tell(f"tanh             {_ELEMENTS / tanh_us:,.0f} per us")
    memory = np.ones(_MEMORY, "f")
    moved = 3 * memory.nbytes / _best_us(np.add, memory, memory)
    tell(f"memory           {moved:,.0f} bytes per us")
    wake_us = answer_us()
    tell(f"another thread   {wake_us:.0f} us")
    products = {name: _product_rates(name, one, tell) for name, one in _providers().items()}
    return Rates(call_us, additions, _TANH_FLOPS * _ELEMENTS / tanh_us, moved, wake_us, products)


def _best_us(call: Callable[..., object], *args: object) -> float:
    call(*args)
    best, end = float("inf"), perf_counter() + _SECONDS
    while (started := perf_counter()) < end:
        call(*args)
        best = min(best, perf_counter() - started)
    return best * 1e6


def _providers() -> dict[str, blas.Provider]:
    providers = {"numpy": blas.NUMPY}
    path = blas.library()
    if path is not None:
        try:
            providers["mkl"] = blas.load_mkl(path)
        except (OSError, AttributeError):
            pass  # `actorgraph doctor` reports it
    return providers


def _product_rates(name: str, provider: blas.Provider, tell: Tell) -> list[tuple[float, float]]:
    rates = []
    for m, k, n in _PRODUCTS:
        if 2.0 * m * k * n >= blas.LEAST_FLOPS or name == "numpy":
            rates.append((2.0 * m * k * n, _product_rate(provider.multiply, m, k, n)))
            tell(f"matmul by {name:<6} {rates[-1][1] / 1e3:.1f} Gflop/s at {m}x{k}x{n}")
    return rates


def _product_rate(multiply: Callable[..., object], m: int, k: int, n: int) -> float:
    x, out = np.ones((m, k), "f"), np.empty((m, n), "f")
    weights = [np.full((k, n), i, "f") for i in range(_WEIGHTS)]

    def products() -> None:
        for w in weights:
            multiply(x, w, out)

    return 2.0 * m * k * n * _WEIGHTS / _best_us(products)


def _advice(measured: Rates) -> list[str]:
    """Choose the faster provider; return who multiplies from now on, and what overrides that."""
    path = blas.library()
    if "mkl" not in measured.products or path is None:
        return []
    tables = {name: dict(table) for name, table in measured.products.items()}
    both = [size for size in tables["mkl"] if size in tables["numpy"]]
    ratios = [log(tables["mkl"][size] / tables["numpy"][size]) for size in both]
    chosen = keep(exp(sum(ratios) / len(ratios)), path)
    name, other = ("mkl", "numpy") if chosen.other else ("numpy", "mkl")
    speed = chosen.ratio if chosen.other else 1 / chosen.ratio
    found = [f"{name} multiplies from now on, at {speed:.2f} times the speed of {other}"]
    if blas.asked() == other:
        found.append(f"unset {blas.VARIABLE}, which asks for {other}")
    return found
