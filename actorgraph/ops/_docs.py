"""What docstrings of ops say in the same form: the errors, one decorator instead of a section."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "DIFFERENT", "NOT_SQUARE", "NO_AXIS", "NO_FLOAT", "NO_LAPACK", "NO_REDUCTION", "WRONG_AXIS",
    "raises",
]  # fmt: skip

_MARGIN = "" if sys.version_info >= (3, 13) else "    "
"""What docstrings are indented by: from Python 3.13 on they come without."""

F = TypeVar("F", bound=Callable[..., Any])

DIFFERENT = "Shapes differ."
NOT_SQUARE = "The matrices are not square."
NO_AXIS = "There is no such axis."
NO_FLOAT = "`x` is no float."
NO_LAPACK = "The dtype is none that LAPACK takes."
NO_REDUCTION = "Dtypes differ, or there is no such reduction."
WRONG_AXIS = "An axis is out of range or given twice."


def raises(
    *, types: str = "", shapes: str = "", both: str = "", other: str = ""
) -> Callable[[F], F]:
    """Return a decorator that says in the docstring what a function raises.

    Parameters
    ----------
    types, shapes, both, other : str
        When it raises `GraphTypeError`, `ShapeError`, one of these two, `GraphError`.
    """
    said = {
        "GraphError": other, "GraphTypeError": types, "GraphTypeError, ShapeError": both,
        "ShapeError": shapes,
    }  # fmt: skip
    lines = ["Raises", "------"]
    for name, text in said.items():
        lines += [name, f"    {text}"] if text else []
    section = f"\n{_MARGIN}".join(["", *lines])

    def document(function: F) -> F:
        text, mark, examples = (function.__doc__ or "").partition(f"\n{_MARGIN}Examples\n")
        function.__doc__ = f"{text.rstrip()}\n{section}\n{mark}{examples}"
        return function

    return document
