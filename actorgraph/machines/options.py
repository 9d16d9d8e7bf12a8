"""Checking the options of a machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["choice", "choices", "positive"]


def positive(what: str, value: Any) -> int:
    """Return an int of at least 1, or raise `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} must be an int of at least 1, got {value!r}")
    return value


def choice(what: str, value: str, known: tuple[str, ...]) -> str:
    """Return one of the known words, or raise `ValueError`."""
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}, got {value!r}")
    return value


def choices(what: str, given: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return a word or several, each a known one."""
    words = (given,) if isinstance(given, str) else given
    return tuple(choice(what, word, known) for word in words)
