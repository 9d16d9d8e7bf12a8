"""`Tally`: the bytes of large results that are still referenced.

It refers to them weakly.  Smaller results are not counted, for that would slow down their runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final
from weakref import ref

import numpy as np

from actorgraph.machines.compiled import COUNTED_BYTES
from actorgraph.node import Parameter

if TYPE_CHECKING:
    from actorgraph.machines.run import Run


@final
class Tally:
    """The large results of a machine's runs, and the most bytes of them at once."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, ref[Any]]] = {}  # by size, then by id
        self.most = self.fed = 0  # most bytes of results, and of feeds of runs under way

    def note(self, run: Run, under_way: int) -> None:
        """Count the results of an ended run; `under_way` runs, this one included, had not ended."""
        self.fed = max(self.fed, under_way * run.binding.fed_bytes)
        for node, dual in run.duals.items():
            # A parameter's value is the array that the run has read.
            value = None if isinstance(node, Parameter) else dual.value
            for array in (value, dual.grad, dual.tangent):
                if isinstance(array, np.ndarray) and array.nbytes >= COUNTED_BYTES:
                    self._add(array)

    def _add(self, array: Any) -> None:
        held, key = self._held.setdefault(array.nbytes, {}), id(array)
        if key not in held:  # an array from a free list may be counted already
            # The callback is one call of C, so any thread may drop the array.
            held[key] = ref(array, partial(held.pop, key))
            there = sum([size * len(one) for size, one in [*self._held.items()]])
            self.most = max(self.most, there)

    def arrays(self) -> list[Any]:
        """Return the arrays that still exist, also those on free lists."""
        arrays = [one() for held in [*self._held.values()] for one in [*held.values()]]
        return [array for array in arrays if array is not None]
