"""`Held`, a value that outlives graphs, and `Store`, those that one graph has bound.

A step changes many, all at once or none.  Readers take `Store.arrays`, one tuple, and hold the
arrays that they read; they count nothing, give nothing back, and lock only where they are the first
after a change.  Writers fill other arrays, and `switch` changes what all graphs read next.  So

- who has read arrays has those of one moment, never half of a step, and they stay as they are: an
  array of a tuple is never written here, and one that was only when nobody refers to it;
- an interrupt, an error or a fork, wherever it strikes, leaves the tuples before or those after.

The counts of references tell who refers to an array.  Each is seen through two objects: the one in
the tuples, which runs read and hand out, and the one that `Held.value` hands out to be written.
Both are views of a `_Memory`.  NumPy's chain of bases ends where the type changes, so a view of
either counts as a reference to it, and all together as references to the memory.  A reference that
is left over, in a traceback or a frame of a thread that a fork did not copy, costs a copy.

A value may still be on a device: its array is one that is filled when the host first asks for it
(`promised`, `present`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from operator import call, setitem
from sys import getrefcount
from typing import Any, TypeAlias, final
from weakref import ref

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError

Array: TypeAlias = np.ndarray[Any, Any]

_COUNTED = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether counts of references are exact; elsewhere an array counts as referred to."""


class _Memory(np.ndarray[Any, Any]):
    """What owns the memory of an array: another type, at which chains of bases end.

    Where `promised` is not None, its `fetch()` is what the memory is to be filled with.
    """

    __slots__ = ("promised",)

    promised: Any


@final
@dataclass(slots=True)
class Promises:
    """Whether this process has promised any array, so that others need not be looked at."""

    given: bool = False


PROMISES = Promises()
"""Of this process; every run looks."""


def promise(array: Array, value: Any) -> None:
    """Have an array of `Held.room` filled by ``value.fetch()`` where somebody asks for it."""
    PROMISES.given = True
    array.base.promised = value  # type: ignore[union-attr]


def promised(array: Array) -> Any:
    """Return what an array is to be filled by, None where it is there."""
    return getattr(array.base, "promised", None)


def present(array: Array) -> Array:
    """Return an array when it is filled."""
    value = promised(array)
    if value is not None:
        found = value.fetch()
        with _lock:
            if promised(array) is value:
                memory: Any = array.base
                memory[...] = found
                memory.promised = None
    return array


def _references(held: Held) -> int:
    return getrefcount(held.array)


def _popped(spares: dict[str, Any]) -> tuple[Any, int]:
    """Return a spare memory, which nobody else gets, and the count of references to it."""
    memory = spares.pop("memory", None)
    return memory, getrefcount(memory)


@final
class Store:
    """What one graph has bound."""

    __slots__ = ("__weakref__", "_arrays")

    def __init__(self) -> None:
        # A tuple from when somebody reads it until the next change, so that many changes one after
        # another, as of a graph that is being built, copy it once.
        self._arrays: tuple[Array, ...] | list[Array] = ()

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of this moment, by place: a tuple that is never changed."""
        found = self._arrays
        if type(found) is tuple:
            return found
        del found  # it would count as a reference to each
        with _lock:
            self._arrays = found = tuple(self._arrays)
            return found

    def unread(self) -> list[Array]:
        """Return the arrays to be changed, for whom holds the lock."""
        found = self._arrays
        if type(found) is not list:
            self._arrays = found = list(found)
        return found

    def bind(self, held: Held) -> int:
        """Add what is held, and return its place."""
        with _lock:
            homes = [home for home in held.homes if home[0]() is not None]
            arrays = self.unread()
            place = len(arrays)
            homes.append((ref(self), place))
            # Both or none: a home without the array would pass for a reader that there is not.
            at_once([(arrays.append, held.array), (setattr, held, "homes", tuple(homes))])
            return place


class Held:
    """A value that graphs bind and that outlives them.

    Parameters
    ----------
    value : array_like
        Is copied.

    Attributes
    ----------
    array : ndarray
        That of this moment, to be read only by who knows that it is `present`.
    grad : ndarray, optional
        Room for a gradient; `solver.step` reads it where it is given this and no result of a run.
    version : int
        Counts the arrays that there have been.
    name : str, optional
        That of its node in the first graph that has bound it.
    """

    __slots__ = ("__weakref__", "_spares", "_window", "array", "grad", "homes", "name", "version")

    what = "value"
    """What messages call it."""

    def __init__(self, value: Any) -> None:
        self.array: Array = _copied(np.asarray(value))
        self.grad: Any = None
        self.version = 0
        self.name: str | None = None
        self.homes: tuple[tuple[ref[Store], int], ...] = ()
        self._spares: dict[str, _Memory] = {}
        self._window: Array | None = None

    @property
    def value(self) -> Array:
        """The array of this moment, which may be written.

        It is never one that a run, or what a run has returned, still shows: where there is such a
        run, a copy takes its place first.  Neither steps nor setting change an array that somebody
        has, so read `value` again before each write.  Setting copies the given array, which must
        have the same shape and dtype.

        Raises
        ------
        GraphTypeError, ShapeError
            On setting another dtype or shape.
        """
        if PROMISES.given:
            present(self.array)
        with _lock:
            bound = sum([home() is not None for home, _ in self.homes])
            if _references(self) > _UNREAD + bound:
                switch([(self, self.array, _copied(self.array))])
            memory, window = self.array.base, self._window
            if window is None or window.base is not memory:
                assert isinstance(memory, _Memory)
                window = self._window = memory.view(np.ndarray)
            return window

    @value.setter
    def value(self, value: Any) -> None:
        new, old = np.asarray(value), self.array
        if new.dtype != old.dtype:
            raise GraphTypeError(
                f"{self!s} is {old.dtype}, got {new.dtype}; "
                f"convert with .astype({old.dtype.name!r})"
            )
        if new.shape != old.shape:
            raise ShapeError(f"{self!s} has shape {old.shape}, got {new.shape}")
        take(copies([(self, new)]))

    def present(self) -> Array:
        """Return the array of this moment, to be read only, when it is on the host."""
        return present(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        shape: tuple[int, ...] = self.array.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the value."""
        dtype: np.dtype[Any] = self.array.dtype
        return dtype

    def room(self) -> Array:
        """Return an array to be filled and switched to, which nobody else refers to."""
        memory, references = _popped(self._spares)
        if references == _IDLE and memory is not None:
            memory.promised = None
            return memory.view(np.ndarray)  # type: ignore[no-any-return]
        return _empty_like(self.array)

    def arrays(self) -> list[Any]:
        """Return all arrays that it holds: the value, a gradient, and memory for a next value."""
        return [self.array, self.grad, *self._spares.values()]

    def __str__(self) -> str:
        return self.what if self.name is None else f"{self.what} {self.name!r}"

    def __repr__(self) -> str:
        return f"<{self!s}: {self.dtype}{list(self.shape)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), np.array(self.present()), self.name)


def _restored(kind: type[Held], value: Array, name: str | None) -> Held:
    held = kind(value)
    held.name = name
    return held


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

    A change says where, which array has to be there still, and which takes its place (of `room`);
    a call, a function of C that calls nothing of Python's, and its arguments.  Returns a place
    where another array is; then nothing was done.
    """
    with _lock:
        calls = [*also]
        for held, before, after in changes:
            if held.array is not before:
                return held
            calls += [(setattr, held, "array", after), (setattr, held, "version", held.version + 1)]
            for home, place in held.homes:
                store = home()
                if store is not None:
                    calls.append((setitem, store.unread(), place, after))
        at_once(calls)
    for held, before, _ in changes:
        held._window = None
        held._spares["memory"] = before.base  # type: ignore[assignment]
    return None


def at_once(calls: Iterable[tuple[Any, ...]]) -> None:
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


_UNREAD = _references(Held(0.0)) if _COUNTED else 0
"""References to an array that nobody has but what holds it, in no graph."""

_IDLE = _popped({"memory": np.empty(0)})[1] if _COUNTED else 0
"""References to a memory that nobody has but the spares."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
