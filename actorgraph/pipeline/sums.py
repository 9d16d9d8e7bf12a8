"""`Sum`: a gradient that a lane adds up over microbatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Sum:
    """A sum over microbatches, added in their order whatever order terms arrive in.

    If it is `owned`, nobody else needs the first term's array, so that others are added to it in
    place.  `added` returns the sum of two terms.
    """

    __slots__ = ("_added", "_owned", "_waiting", "count", "total")

    def __init__(self, owned: bool, added: Callable[[Any, Any], Any]) -> None:
        self._added = added
        self.total: Any = None
        self.count = 0  # of the terms added
        self._owned = owned
        self._waiting: dict[int, Any] = {}

    def add(self, number: int, value: Any) -> None:
        """Add the term of a microbatch, once those before have arrived."""
        self._waiting[number] = value
        while self.count in self._waiting:
            value = self._waiting.pop(self.count)
            if not self.count:
                self.total = value
            elif self._owned and type(self.total) is np.ndarray:
                np.add(self.total, value, out=self.total)
            else:
                # From the second term on nobody else has the sum's array.
                self.total = self._added(self.total, value)
                self._owned = type(self.total) is np.ndarray
            self.count += 1
