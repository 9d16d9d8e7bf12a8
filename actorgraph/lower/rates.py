"""The speed of this computer: measured by ``actorgraph calibrate``, else that of a middling core.

The file is in the user's cache directory and valid for one computer (by its network name) and one
version of NumPy.  An unusable file is ignored; `actorgraph doctor` says why.  Rates decide where
nodes run, never what they compute.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from actorgraph.devices.files import cache_path, write_whole
from actorgraph.errors import shown

_FORMAT = 1
_SLOWEST, _FASTEST = 1e-9, 1e30
_MIDDLING = ((2.0**16, 20_000.0), (2.0**20, 60_000.0), (2.0**24, 80_000.0))


class Rates(NamedTuple):
    """The speed of calls, elements, bytes and products on one thread.

    - `call_us`: a call of NumPy on a tiny array
    - `additions_per_us`: float32 elements added, in the cache
    - `transcendental_flops_per_us`: float32 elements of tanh times the flops that its op states
    - `bytes_per_us`: bytes read and written by a pass over memory
    - `wake_us`: waking another thread
    - `products`: by provider, (flops, flops per us) of matrix products, from the smallest
    """

    call_us: float = 0.5
    additions_per_us: float = 8_000.0
    transcendental_flops_per_us: float = 8_000.0
    bytes_per_us: float = 16_000.0
    wake_us: float = 50.0
    products: Mapping[str, Sequence[tuple[float, float]]] = {"numpy": _MIDDLING}

    def product_us(self, flops: float, provider: str) -> float:
        """Return the predicted microseconds of a matrix product.

        Examples
        --------
        >>> round(Rates(products={"numpy": [(1e3, 10.0), (1e5, 990.0)]}).product_us(1e4, "numpy"))
        20
        """
        table = self.products.get(provider) or self.products.get("numpy") or _MIDDLING
        sizes = [math.log2(size) for size, _ in table]
        return flops / float(np.interp(math.log2(flops), sizes, [rate for _, rate in table]))


@cache
def rates() -> Rates:
    """Return the rates of this process, read once."""
    return stored()[0]


def stored() -> tuple[Rates, str]:
    """Return the stored or default rates, and a line that says which they are and why."""
    where = path()
    if not os.path.exists(where):
        return Rates(), "those of a middling core; `actorgraph calibrate` measures this one"
    import json

    try:
        with open(where, encoding="utf-8") as file:
            content = json.load(file)
        return _checked(content), f"measured on this machine on {content['date']}"
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        return Rates(), f"{where} is ignored ({why}); run `actorgraph calibrate` again"


def store(measured: Rates, date: str) -> str:
    """Write the rates where `rates` of later processes finds them; return the path."""
    import json

    where = path()
    content = {
        "format": _FORMAT,
        "numpy": np.__version__,
        "date": date,
        "rates": measured._asdict(),
    }
    write_whole(where, json.dumps(content, indent=1).encode())
    return where


def path() -> str:
    """Return the path of this machine's file, whether it exists or not."""
    return cache_path("rates")


def _checked(found: Any) -> Rates:
    if found["format"] != _FORMAT or found["numpy"] != np.__version__:
        raise ValueError(f"it is of format {found['format']} for NumPy {found['numpy']}")
    if not isinstance(found["date"], str):
        raise ValueError(f"{shown(found['date'])} is no date")
    given = dict(found["rates"])
    tables = {
        str(name): sorted((_positive(size), _positive(rate)) for size, rate in table)
        for name, table in given.pop("products").items()
    }
    if not all(tables.values()):
        raise ValueError("a provider has no products")
    return Rates(**{name: _positive(value) for name, value in given.items()}, products=tables)


def _positive(value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and _SLOWEST < value < _FASTEST):
        raise ValueError(f"{shown(value)} is no rate")
    return float(value)
