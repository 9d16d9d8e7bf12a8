"""Checks of arguments: each returns the value, or raises with what was got and expected."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from math import inf
from numbers import Integral, Real
from operator import index
from typing import Any, TypeVar

import numpy as np

from actorgraph.errors import GraphTypeError, shown

NATIVE = "ACTORGRAPH_NATIVE"
"""Environment variable: 0 switches machine code off, 1 makes tables the default, wait waits."""

MOST = 1_000_000
"""Largest count, since memory is allocated for each item."""

_F = TypeVar("_F", bound=Callable[[], object])
_S = TypeVar("_S", bound=str)
_LAST = (1 << 63) - 1
_COUNTED = ("epochs", "every", "every_steps", "max_bytes", "steps")  # they allocate nothing
_MOST = {**dict.fromkeys(_COUNTED, _LAST), "workers": 1 << 16}


@cache
def has_llvmlite() -> bool:
    """Return whether llvmlite is installed."""
    from importlib.util import find_spec  # late: a first import takes a millisecond

    try:
        return find_spec("llvmlite") is not None
    except ImportError:  # of an import hook that forbids it
        return False


def has_global_lock() -> bool:
    """Return whether this is CPython with its global lock, which calls of machine code may keep."""
    # `sysconfig` would tell as well, but takes 3 ms of the first run.
    return sys.implementation.name == "cpython" and "free-threading build" not in sys.version


def proves_tables() -> bool:
    """Return whether tables are proved on this platform; `devices.structs` looks closer."""
    return sys.platform == "linux" and os.uname().machine == "x86_64"


def in_child_of_fork(function: _F) -> _F:
    """Have a function called in each child of a fork, on platforms that fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


def is_masked(value: object) -> bool:
    """Return whether it is a masked array, without importing `numpy.ma`, which takes long."""
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def positive(what: str, value: Any) -> int:
    """Return an int, perhaps NumPy's, of at least 1, or raise `ValueError`."""
    number = int(value) if isinstance(value, Integral) and value is not True else 0
    if number < 1:
        raise ValueError(f"{what} must be an int of at least 1, got {shown(value)}")
    if number > (most := _MOST.get(what, MOST)):
        raise ValueError(f"{what} must be at most {most:,}, got {shown(value)}")
    return number


def whole(what: str, value: Any) -> int:
    """Return an int, perhaps NumPy's, of 64 bits, or raise `ValueError`."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{what} must be an int, got {shown(value)}") from None
    if isinstance(value, bool) or not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{what} must be an int of 64 bits, got {shown(value)}")
    return number


def flag(what: str, value: Any) -> bool:
    """Return True or False, or raise `ValueError`; ``"no"`` would be true."""
    if value is not True and value is not False:
        raise ValueError(f"{what} must be True or False, got {shown(value)}")
    return bool(value)


def seconds(what: str, value: Any) -> float:
    """Return a number of seconds of at least 0, or raise `ValueError`."""
    if isinstance(value, Real) and value is not True and value is not False:
        with suppress(OverflowError):  # an int beyond floats
            number = float(value)
            if number >= 0:
                return number
    raise ValueError(f"{what} is a number of seconds of at least 0, got {shown(value)}")


def choice(what: str, value: _S, known: tuple[str, ...]) -> _S:
    """Return one of the known words, or raise `ValueError`."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}, got {shown(value)}")
    return value


def choices(what: str, words: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return one or several of the known words as a tuple, or raise `ValueError`."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        words = (words,)
    return tuple(choice(what, word, known) for word in several(f"a tuple of {what}", words))


def real(what: str, value: Any, below: float = inf) -> float:
    """Return a number from 0 to below a bound, or raise `ValueError`."""
    if isinstance(value, Real):
        with suppress(OverflowError):
            number = float(value)
            if 0 <= number < below:
                return number
    to = "of at least 0" if below == inf else f"from 0 to below {below:g}"
    raise ValueError(f"{what} is {shown(value)}, expected a finite number {to}")


def text(what: str, value: Any) -> str:
    """Return a str, or raise `GraphTypeError`."""
    if not isinstance(value, str):
        raise GraphTypeError(f"{what} has to be a str, got {shown(value)}")
    return value


def several(what: str, value: Any) -> list[Any]:
    """Return the items of an iterable that is no text, or raise `GraphTypeError`."""
    iterator = None
    if not isinstance(value, (str, bytes)):
        with suppress(TypeError):
            iterator = iter(value)
    if iterator is None:
        raise GraphTypeError(f"expected {what}, got {shown(value)}")
    return list(iterator)
