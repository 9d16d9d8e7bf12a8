"""Checking the options of a machine."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from numbers import Integral, Real
from operator import index
from typing import Any

from actorgraph.errors import GraphError, shown
from actorgraph.rewrite import Pass, chosen

__all__ = [
    "MOST_BYTES",
    "MOST_WORKERS",
    "allowed",
    "choice",
    "choices",
    "compiling",
    "flag",
    "positive",
    "seconds",
    "whole",
]

MOST = 1_000_000
"""What is counted is at most this: memory is taken for each."""

MOST_BYTES = (1 << 63) - 1
"""Of a limit on memory."""

MOST_WORKERS = 1 << 16
"""Of a machine: each is a place of its scheduler."""


def positive(what: str, value: Any, most: int = MOST) -> int:
    """Return an int of at least 1, NumPy's too, or raise `ValueError`."""
    number = int(value) if isinstance(value, Integral) and value is not True else 0
    if number < 1:
        raise ValueError(f"{what} must be an int of at least 1, got {shown(value)}")
    if number > most:
        raise ValueError(f"{what} must be at most {most:,}, got {shown(value)}")
    return number


def whole(what: str, value: Any) -> int:
    """Return an int of 64 bits, NumPy's too, or raise `ValueError`."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{what} must be an int, got {shown(value)}") from None
    if isinstance(value, bool) or not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{what} must be an int of 64 bits, got {shown(value)}")
    return number


def flag(what: str, value: Any) -> bool:
    """Return True or False, or raise `ValueError`: ``"no"`` would count as True."""
    if value is not True and value is not False:
        raise ValueError(f"{what} must be True or False, got {shown(value)}")
    return bool(value)


def seconds(what: str, value: Any) -> float:
    """Return a number of seconds of at least 0, or raise `ValueError`."""
    if isinstance(value, Real) and value is not True and value is not False:
        with suppress(OverflowError):  # an int that no float can be
            found = float(value)
            if found >= 0:
                return found
    raise ValueError(f"{what} is a number of seconds of at least 0, got {shown(value)}")


def choice(what: str, value: str, known: tuple[str, ...]) -> str:
    """Return one of the known words, or raise `ValueError`."""
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}, got {shown(value)}")
    return value


def choices(what: str, given: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return a word or several, each a known one."""
    words = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    return tuple(choice(what, word, known) for word in words)


def compiling(jit: bool | str, exact: bool) -> bool | str:
    """Return whether steps are compiled: False, True or ``"wait"``.

    Raises
    ------
    GraphError
        `exact` forbids it, or Numba is not installed.
    """
    if jit is not False and jit is not True and jit != "wait":
        raise ValueError(f"jit must be False, True or 'wait', got {shown(jit)}")
    if jit and exact:
        raise GraphError("jit may change last bits; ask for it with exact=False")
    if jit:
        from actorgraph.devices.jit import is_installed

        if not is_installed():
            raise GraphError(f"jit={jit!r} needs Numba: pip install 'actorgraph[jit]'")
    return jit


def allowed(given: Iterable[Pass | str] | Pass | str | None, exact: bool) -> tuple[Pass, ...]:
    """Return the chosen passes, default all; where `exact`, those that change no bits.

    Raises
    ------
    GraphError
        There is no pass of a name, or one that was named changes bits and `exact` forbids it.
    """
    found = chosen(given)
    changing = [one for one in found if one.changes_bits]
    if exact and changing and given is not None:
        raise GraphError(f"{changing[0]!r} may change bits; ask for it with exact=False")
    return tuple([one for one in found if not (exact and one.changes_bits)])
