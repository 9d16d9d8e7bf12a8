"""`Sum`: a gradient that lanes add up, microbatch by microbatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Sum:
    """A sum over microbatches in their order, whatever order they come in.

    Parameters
    ----------
    owned : bool
        Whether the first term is an array that nobody else needs: the others are added to it.
    added : callable
        Returns the sum of two terms.
    """

    __slots__ = ("_added", "_owned", "_waiting", "count", "total")

    def __init__(self, owned: bool, added: Callable[[Any, Any], Any]) -> None:
        self._added = added
        self.total: Any = None
        self.count = 0  # of the terms that it has
        self._owned = owned
        self._waiting: dict[int, Any] = {}

    def add(self, number: int, value: Any) -> None:
        """Take the term of a microbatch."""
        self._waiting[number] = value
        while self.count in self._waiting:
            value = self._waiting.pop(self.count)
            if not self.count:
                self.total = value
            elif self._owned and type(self.total) is np.ndarray:
                np.add(self.total, value, out=self.total)
            else:
                # From the second term on the sum is ours.
                self.total = self._added(self.total, value)
                self._owned = type(self.total) is np.ndarray
            self.count += 1
