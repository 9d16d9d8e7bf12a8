"""Free lists: arrays that leave a turn, reused when nobody else refers to them.

A fresh large array costs a page fault for every 4 KB, 1.1 us each.  An array that travels in
messages or is returned to the user cannot have a fixed place, so it is reused when its reference
count says that only its free list holds it.

Invariant: an array that anybody else holds is never written: a view, a message and a user's
variable are references.  Two threads that look at one array at the same moment count each other,
and both pass on; so no lock is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from math import prod
from sys import getrefcount
from types import MappingProxyType
from typing import Any, final

import numpy as np

RECYCLED_BYTES = 32 * 1024
"""Least size of arrays that are reused: malloc has memory for smaller ones at hand."""

_MOST_LAYOUTS = 16
"""Layouts of operands for which a `Recycling` keeps arrays."""

_SHARE = 16
"""A list grows by one in so many arrays before all are looked at again, so that a take looks at few
on average; it then has at most a fifteenth more than were in use at once, and one."""


def _references(arrays: list[Any], place: int) -> int:
    array = arrays[place]
    return getrefcount(array)


_IDLE = _references([np.empty(0)], 0)
"""References to an array that only its list holds, as counted where `FreeList.take` counts."""


@final
class FreeList:
    """Arrays of one shape, dtype and layout, by default in C order.

    At most `limit` arrays are kept; each user of the list adds to it what it holds at once.
    `_idle` iterates over places that were idle when all were looked at, `_spare` is the number of
    arrays to make before that is done again.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None
    ) -> None:
        self._shape, self._dtype = shape, dtype
        self._strides = strides or tuple(
            [prod(shape[i:]) * dtype.itemsize for i in range(1, len(shape) + 1)]
        )
        self._arrays: list[Any] = []
        self._place = self._spare = self.limit = 0
        self._idle: Iterator[int] = iter(())

    def take(self) -> Any:
        """Return an array that nobody else holds, with the layout of a fresh one.

        The one taken last, which is warm in the cache if it is idle again, comes first, and then
        the one after it, which is the oldest where arrays die in order.
        """
        arrays, place = self._arrays, self._place
        count = len(arrays)
        near = (place, (place + 1) % count) if count else ()
        for place in chain(near, self._idle):
            array = arrays[place]
            if getrefcount(array) == _IDLE:
                self._place = place
                if not self._is_usable(array):
                    arrays[place] = array = self._fresh()
                return array
        if self._spare > 0:
            self._spare -= 1
        else:
            found = self._idle_places()
            self._spare = count // _SHARE - len(found)
            if found:
                self._idle = iter(found)
                return self.take()
        array = self._fresh()
        if count < self.limit:
            self._place = count
            arrays.append(array)
        return array

    def reserve(self, count: int) -> None:
        """Allocate and touch arrays until there are `count`, as far as memory goes."""
        with suppress(MemoryError):  # the turn that needs one raises it
            for _ in range(len(self._arrays), count):
                self._arrays.append(self._fresh())
                self._arrays[-1].fill(0)

    def _fresh(self) -> np.ndarray[Any, Any]:
        return np.ndarray(self._shape, self._dtype, strides=self._strides)

    def kept(self) -> tuple[list[Any], list[Any]]:
        """Return the idle arrays, and those that somebody else holds."""
        arrays, idle = self._arrays, {*self._idle_places()}
        held = [array for place, array in enumerate(arrays) if place not in idle]
        return [arrays[place] for place in idle], held

    def _idle_places(self) -> list[int]:
        arrays = self._arrays
        return [place for place in range(len(arrays)) if _references(arrays, place) == _IDLE]

    def _is_usable(self, array: np.ndarray[Any, Any]) -> bool:
        """Return whether nobody who held the array has changed more than its elements."""
        return (
            array.shape == self._shape
            and array.strides == self._strides
            and array.dtype == self._dtype
            and array.flags.writeable
        )


class FreeLists(dict[Any, FreeList]):
    """The free lists of a machine's networks for one binding, by shape, dtype and use.

    With `live`, arrays must die in the order in which they are made, at most `live` existing at
    once.  Then each step has a free list of its own, whose oldest array is the idle one; it begins
    with as many arrays as are `reserved` for the step's number.
    """

    def __init__(
        self, live: int | None = None, reserved: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        super().__init__()
        self._live, self._reserved = live, reserved

    def of(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], handed_out: bool, use: int,
        number: int = -1,
    ) -> FreeList | None:  # fmt: skip
        """Return the free list of such arrays, and let it keep `use` more; None for small arrays.

        Arrays handed out to users have lists of their own, as users may keep any number of them.
        `number` is the id of the step that writes them.
        """
        if prod(shape) * dtype.itemsize < RECYCLED_BYTES:
            return None
        # A list of its own has a unique key.
        key = (shape, dtype, handed_out) if self._live is None else len(self)
        free_list = self.get(key)
        if free_list is None:
            free_list = self[key] = FreeList(shape, dtype)
            free_list.reserve(self._reserved.get(number, 0))
        free_list.limit += use if self._live is None else self._live
        return free_list


@final
class Recycling:
    """A kernel with free lists for its results, one for each layout of its operands.

    It serves steps that have no planned memory because the layout of their result depends on that
    of their operands in a run.  The layout of a result is the one that the kernel chose when it
    first met operands of the same layout.  The kernel takes ``out=``; whether its result is a view
    of an operand must depend on layouts alone.
    """

    bytes = 0  # that it needs of an arena

    __slots__ = ("__weakref__", "_kernel", "_lists", "_live", "_reserved")

    def __init__(self, kernel: Callable[..., Any], live: int, reserved: int = 0) -> None:
        self._kernel, self._live, self._reserved = kernel, live, reserved
        self._lists: dict[Any, FreeList | None] = {}

    def __call__(self, *arrays: Any) -> Any:
        """Return the kernel's result, in an array of a free list where there is one."""
        key = tuple([(one.shape, one.strides) for one in arrays])
        try:
            free_list = self._lists[key]
        except KeyError:
            return self._first(key, arrays)
        return self._kernel(*arrays, out=free_list.take()) if free_list else self._kernel(*arrays)

    def _first(self, key: Any, arrays: Any) -> Any:
        result, found = self._kernel(*arrays), None
        if result.nbytes >= RECYCLED_BYTES and not any(
            np.may_share_memory(result, one) for one in arrays
        ):
            found = FreeList(result.shape, result.dtype, result.strides)
            found.limit = self._live
            found.reserve(self._reserved)
            np.copyto(out := found.take(), result)
            result = out
        if len(self._lists) >= _MOST_LAYOUTS:
            self._lists.clear()
        self._lists[key] = found
        return result

    def free_lists(self) -> list[FreeList]:
        """Return the free lists made so far."""
        return [one for one in self._lists.values() if one is not None]

    def forget(self, arena: Any) -> None:
        """Do nothing: it keeps no views of an arena."""
