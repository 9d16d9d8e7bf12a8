"""`Sum`: a gradient that lanes add up, microbatch by microbatch."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Sum"]


class Sum:
    """A sum over microbatches in their order, whatever order they come in."""

    __slots__ = ("_count", "_owned", "_waiting", "total")

    def __init__(self) -> None:
        self.total: Any = None
        self._count = 0
        self._owned = False
        self._waiting: dict[int, Any] = {}

    def add(self, number: int, value: Any) -> None:
        """Take the term of a microbatch."""
        self._waiting[number] = value
        while self._count in self._waiting:
            value = self._waiting.pop(self._count)
            if not self._count:
                self.total = value
            elif self._owned:
                np.add(self.total, value, out=self.total)
            else:
                # The first term may be needed elsewhere; from the second on the sum is ours.
                self.total = self.total + value
                self._owned = type(self.total) is np.ndarray
            self._count += 1
