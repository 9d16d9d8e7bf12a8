"""`Store`: arrays that many read while some are replaced, all at once or none.

Readers take `Store.arrays`, one tuple, and hold the arrays that they read; they lock and count
nothing, and give nothing back.  Writers fill other arrays, and `switch` replaces the tuple.  So

- who has read arrays has those of one moment, never half of a step, and they stay as they are: an
  array of the tuple is never written here, and one that was only when nobody refers to it;
- an interrupt, an error or a fork, wherever it strikes, leaves the tuple before or the tuple after.

The counts of references tell who refers to an array.  Each is seen through two objects: the one in
the tuple, which runs read and hand out, and the one that `Held.value` hands out to be written.
Both are views of a `_Memory`.  NumPy's chain of bases ends where the type changes, so a view of
either counts as a reference to it, and all together as references to the memory.  A reference that
is left over, in a traceback or a frame of a thread that a fork did not copy, costs a copy.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import starmap
from operator import call
from sys import getrefcount
from typing import Any, TypeAlias, final

import numpy as np

__all__ = ["Held", "Store", "copies", "switch", "take"]

Array: TypeAlias = np.ndarray[Any, Any]

_COUNTED = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether counts of references are exact; elsewhere an array counts as referred to."""


class _Memory(np.ndarray[Any, Any]):
    """What owns the memory of an array: another type, at which chains of bases end."""

    __slots__ = ()


def _references(arrays: Sequence[Any], place: int) -> int:
    return getrefcount(arrays[place])


def _popped(spares: dict[int, Any], place: int) -> tuple[Any, int]:
    """Return a spare memory, which nobody else gets, and the count of references to it."""
    memory = spares.pop(place, None)
    return memory, getrefcount(memory)


_UNREAD = _references((np.empty(0),), 0) if _COUNTED else 0
"""References to an array that nobody has but the tuple."""

_IDLE = _popped({0: np.empty(0)}, 0)[1] if _COUNTED else 0
"""References to a memory that nobody has but the spares."""


@final
class Store:
    """Arrays by place.

    Attributes
    ----------
    arrays : tuple of ndarray
        Those of this moment; replaced, never mutated.
    """

    __slots__ = ("_spares", "_windows", "arrays")

    def __init__(self) -> None:
        self.arrays: tuple[Array, ...] = ()
        self._spares: dict[int, _Memory] = {}
        self._windows: dict[int, Array] = {}

    def hold(self, array: Array) -> Held:
        """Add a copy of an array."""
        with _lock:
            self.arrays = (*self.arrays, _copied(array))
            return Held(self, len(self.arrays) - 1)


@final
class Held:
    """One place of a store."""

    __slots__ = ("place", "store")

    def __init__(self, store: Store, place: int) -> None:
        self.store, self.place = store, place

    @property
    def array(self) -> Array:
        """The array of this moment, to be read only."""
        return self.store.arrays[self.place]

    @property
    def value(self) -> Array:
        """The array of this moment, to be written, too.

        Where a run, or what it has returned, still shows it, a copy takes its place first.
        """
        store, place = self.store, self.place
        with _lock:
            if _references(store.arrays, place) > _UNREAD:
                switch([(self, self.array, _copied(self.array))])
            memory = self.array.base
            window = store._windows.get(place)
            if window is None or window.base is not memory:
                assert isinstance(memory, _Memory)
                window = store._windows[place] = memory.view(np.ndarray)
            return window

    @value.setter
    def value(self, new: Any) -> None:
        take(copies([(self, new)]))

    def room(self) -> Array:
        """Return an array to be filled and switched to, which nobody else refers to."""
        memory, references = _popped(self.store._spares, self.place)
        if references == _IDLE and memory is not None:
            return memory.view(np.ndarray)  # type: ignore[no-any-return]
        return _empty_like(self.array)


def copies(values: Iterable[tuple[Held, Any]]) -> list[tuple[Held, Array]]:
    """Return copies of some values, that their places can `take`."""
    filled = []
    for held, value in values:
        out = held.room()
        out[...] = value
        filled.append((held, out))
    return filled


def take(filled: Sequence[tuple[Held, Array]]) -> None:
    """Let places have the arrays that `copies` has returned, all at once."""
    while switch([(held, held.array, out) for held, out in filled]):
        pass  # another thread was faster; the last one stays


def switch(
    changes: Sequence[tuple[Held, Array, Array]], also: Iterable[tuple[Any, ...]] = ()
) -> Held | None:
    """Replace arrays, and make the calls `also`, all at once.

    Parameters
    ----------
    changes : sequence of (Held, ndarray, ndarray)
        Where, the array that has to be there still, and the one that takes its place (of `room`).
    also : iterable of tuple
        A function of C that calls nothing of Python's, and its arguments, each.

    Returns
    -------
    Held or None
        A place where another array is; then nothing was done.
    """
    with _lock:
        new: dict[Store, list[Array]] = {}
        for held, before, after in changes:
            store, place = held.store, held.place
            if store.arrays[place] is not before:
                return held
            if store not in new:
                new[store] = list(store.arrays)
            new[store][place] = after
        _at_once([*also, *[(setattr, store, "arrays", tuple(new[store])) for store in new]])
    for held, before, _ in changes:
        held.store._windows.pop(held.place, None)
        held.store._spares[held.place] = before.base  # type: ignore[assignment]
    return None


def _at_once(calls: Iterable[tuple[Any, ...]]) -> None:
    """Make calls that no interrupt comes between.

    Handlers of signals run between two instructions of Python's code, and this is one.
    """
    deque(starmap(call, calls), maxlen=0)


def _empty_like(array: Array) -> Array:
    return _Memory(array.shape, array.dtype).view(np.ndarray)


def _copied(array: Array) -> Array:
    copy = _empty_like(array)
    copy[...] = array
    return copy


_lock: Any = threading.RLock()
"""Held where tuples are replaced, and while no code of a user's runs."""


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
