"""`Tally`: large results that somebody holds, counted as they come and go.

It holds none of them.  Smaller ones are not counted: their runs would take measurably longer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final
from weakref import ref

import numpy as np

from actorgraph.node import Parameter

if TYPE_CHECKING:
    from actorgraph.machines.run import Run

COUNTED_BYTES = 1 << 20
"""Arrays from this size on are counted, which takes 1.5 us; what makes one takes 80 us and more."""


@final
class Tally:
    """The large results of a machine's runs, and the most bytes that there were at once."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, ref[Any]]] = {}  # by size, then by id
        self.most = self.fed = 0  # bytes of results at once, and of feeds of runs under way

    def note(self, run: Run, under_way: int) -> None:
        """Count the results of a run that has ended, so many being under way just before."""
        self.fed = max(self.fed, under_way * run.binding.fed_bytes)
        for node, dual in run.duals.items():
            # A parameter's value is the array that the run has read.
            value = None if isinstance(node, Parameter) else dual.value
            for array in (value, dual.grad, dual.tangent):
                if isinstance(array, np.ndarray) and array.nbytes >= COUNTED_BYTES:
                    self._add(array)

    def _add(self, array: Any) -> None:
        held, key = self._held.setdefault(array.nbytes, {}), id(array)
        if key not in held:  # else one that the machine had kept for later results
            # To forget it is one call of C, whichever thread lets go of the array.
            held[key] = ref(array, partial(held.pop, key))
            there = sum([size * len(one) for size, one in [*self._held.items()]])
            self.most = max(self.most, there)

    def arrays(self) -> list[Any]:
        """Return what is there, held by somebody or kept for later results."""
        found = [one() for held in [*self._held.values()] for one in [*held.values()]]
        return [array for array in found if array is not None]
