"""Memory of a run for values that travel between tasks, which lie where earlier ones lay.

A place is given only if whoever lay there is dead, as its reference count says.  So a plan may be
made for one order of tasks; in another order a value that finds its place taken gets an array of
its own.

Invariants:

- Two arrays that share bytes are never referred to at once by anybody but their run's memory.
- The memory of a run is reused as soon as nobody refers to an array in it (`free_lists`).
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from sys import getrefcount
from threading import Lock
from typing import Any, TypeAlias, final

import numpy as np

from actorgraph.memory.free_lists import FreeList
from actorgraph.memory.packing import Place
from actorgraph.store import CACHE_LINE

_Where: TypeAlias = tuple[int, int, range, int | None]
"""The array that a value lies in, the first byte, its cells, and the operand that it overwrites."""


def _references(values: dict[int, Any], number: int) -> int:
    return getrefcount(values[number])


_IDLE = _references({0: np.empty(0)}, 0)
"""References to an array that only its run's memory holds, as `RunArrays` counts them."""


@final
class Places:
    """Where values lie: in an array of the run, number 0, or in the array of a result.

    `values` have sizes and places by id.  `hosts` are the ids of the results that lend their
    arrays, numbered from 1.  The ends of values cut arrays into *cells*, numbered through all
    arrays; `whole` has the cells of each.  `overwrites` has the operand that a value lies over.
    Bytes that the steps of a turn borrow one after another are a value; `lent` has its number,
    which is negative, and its size by the ids of these steps.
    """

    def __init__(
        self, total: int, values: Mapping[int, tuple[int, Place]], loans: Sequence[int],
        overwrites: Mapping[int, int],
        lent: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        self.total_bytes = total
        self.lent = lent or {}
        used = sorted({place.loan for _, place in values.values()} - {-1})
        self.hosts = [loans[one] for one in used]
        number = {loan: place for place, loan in enumerate([-1, *used])}
        ends: list[set[int]] = [{0} for _ in number]
        for size, place in values.values():
            ends[number[place.loan]] |= {place.begin, place.begin + size}
        edges = [sorted(some) for some in ends]
        firsts = [*accumulate(map(len, edges), initial=0)]
        self.cells = firsts[-1]
        self.whole = [range(*both) for both in pairwise(firsts)]
        self.where: dict[int, _Where] = {}
        for value, (size, (loan, begin)) in values.items():
            array = number[loan]
            covered = [
                firsts[array] + bisect_left(edges[array], at) for at in (begin, begin + size)
            ]
            self.where[value] = array, begin, range(*covered), overwrites.get(value)


@final
class RunMemory:
    """Takes memory for runs: arrays of `places.total_bytes` from `room`, those of `hosts`."""

    def __init__(self, places: Places, room: FreeList | None, hosts: Sequence[FreeList]) -> None:
        self.places, self._room, self._hosts = places, room, hosts

    def take(self) -> RunArrays:
        """Return memory for a run."""
        raw: Any = self._room.take() if self._room is not None else np.empty(0, np.uint8)
        return RunArrays(self.places, raw, [one.take() for one in self._hosts])

    def free_lists(self) -> list[FreeList]:
        """Return the free lists of its arrays."""
        return [*self._hosts] if self._room is None else [self._room, *self._hosts]


@final
class RunArrays:
    """The memory of one run."""

    __slots__ = ("_buffers", "_hosts", "_lock", "_occupant", "_places", "_shift", "_values")

    def __init__(self, places: Places, raw: Any, hosts: Sequence[Any]) -> None:
        self._places, self._hosts = places, hosts
        # A view of an array refers to that array only if the array's own base is no array.
        self._buffers = [(ctypes.c_char * one.nbytes).from_buffer(one) for one in (raw, *hosts)]
        self._shift = -ctypes.addressof(self._buffers[0]) % CACHE_LINE
        self._occupant: list[int | None] = [None] * places.cells
        self._values: dict[int, Any] = {}
        self._lock = Lock()

    def take(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return the array for a value at its place, or None if that is taken."""
        array, begin, cells, part = self._places.where[number]
        occupant, values = self._occupant, self._values
        with self._lock:
            if part is not None and occupant[cells[0]] == part:
                if getrefcount(values[part]) != _IDLE + 1:  # its reader refers to it, too
                    return None
                made = values.pop(part)
            else:
                if not self._are_idle(cells):
                    return None
                begin += 0 if array else self._shift
                made = np.ndarray(shape, dtype, self._buffers[array], begin)
            values[number] = made
            for cell in cells:
                occupant[cell] = number
        return made

    def host(self, place: int) -> Any:
        """Return the array of a result for itself, or None if a value still lies in it."""
        cells, number = self._places.whole[place + 1], self._places.hosts[place]
        with self._lock:
            if not self._are_idle(cells):
                return None
            self._values[number] = None  # never idle
            for cell in cells:
                self._occupant[cell] = number
        return self._hosts[place]

    def _are_idle(self, cells: range) -> bool:
        occupant, values = self._occupant, self._values
        for cell in cells:
            one = occupant[cell]
            if one is not None and getrefcount(values[one]) != _IDLE:
                return False
        return True
