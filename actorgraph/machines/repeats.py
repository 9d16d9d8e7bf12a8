"""`Repeats`: feeds like those of an earlier run need no second check.

What a check of feeds finds follows from their dtypes and shapes, so arrays of dtypes and shapes
that have passed once pass again: a look of 0.4 us instead of 2.2 for one feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, final

import numpy as np

_KEPT = 64
"""Half of what a plan keeps: who is found here tells the plan nothing, so all ask it again now and
then, and sizes in use do not become its oldest."""

_T = TypeVar("_T")
Array: TypeAlias = np.ndarray[Any, Any]


@final
class Repeats(Generic[_T]):
    """What follows from feeds that have passed all checks, such as a `Binding`, by their shapes."""

    __slots__ = ("_known", "_wanted")

    def __init__(self, inputs: Iterable[tuple[str, np.dtype[Any]]]) -> None:
        self._wanted = list(inputs)
        self._known: dict[tuple[tuple[int, ...], ...], _T] = {}

    def find(self, feeds: Any) -> tuple[list[Array], _T, bool] | None:
        """Return the arrays in order, what follows and True, or None for anything unusual.

        Usual is a dict of names with C-contiguous arrays of the nodes' own dtypes.
        """
        wanted = self._wanted
        if type(feeds) is not dict or len(feeds) != len(wanted):
            return None
        arrays, shapes = [], []
        for name, dtype in wanted:
            array = feeds.get(name)
            if (
                type(array) is not np.ndarray
                or array.dtype is not dtype
                or not array.flags.c_contiguous
            ):
                return None
            arrays.append(array)
            shapes.append(array.shape)
        found = self._known.get(tuple(shapes))
        return None if found is None else (arrays, found, True)

    def keep(self, arrays: Sequence[Array], found: _T) -> None:
        """Remember arrays that have passed, in order."""
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[tuple([array.shape for array in arrays])] = found
