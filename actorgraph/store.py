"""`Held`, a value that outlives graphs, and `Store`, the values that one graph has bound.

A step changes many values, all at once or none.  Readers take `Store.arrays`, one tuple, and refer
to its arrays; they count nothing, release nothing, and lock only for the first read after a change.
Writers fill other arrays, and `switch` replaces the tuples of all graphs.  So

- a reader has a consistent snapshot, never half of a step, and it does not change: an array in a
  tuple is never written here, and a former one only when nobody refers to it;
- an interrupt, an error or a fork at any point leaves either all old tuples or all new ones.

Reference counts tell whether somebody refers to an array.  Each has two views: one in the tuples,
which runs read and return, and one that `Held.value` returns for writing.  Both are views of a
`_Memory`.  NumPy's chain of bases ends where the type changes, so a view of either counts as a
reference to it, and all of them as references to the memory.  A stale reference, in a traceback or
in a frame of a thread that a fork did not copy, costs a copy.

A value may still be on a device; then its array is filled when the host first reads it (`promised`,
`present`).
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import starmap
from operator import call, setitem
from sys import getrefcount
from typing import Any, TypeAlias, final
from weakref import ref

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.options import in_child_of_fork

Array: TypeAlias = np.ndarray[Any, Any]

_COUNTED = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether reference counts are exact; if not, every array counts as referenced."""


CACHE_LINE = 64
"""Bytes of a cache line and of the widest vector, at which arrays begin: a step that stores across
lines takes longer, up to twice as long for additions."""


class _Memory(np.ndarray[Any, Any]):
    """The owner of an array's memory, of a type of its own, so that chains of bases end here.

    If `promised` is not None, the memory has yet to be filled by its `fetch()`.
    """

    __slots__ = ("promised",)

    promised: Any


@final
class Promises:
    """Whether this process has promised any array; if not, `present` need not be called."""

    __slots__ = ("given",)

    def __init__(self) -> None:
        self.given = False


PROMISES = Promises()
"""Of this process; every run reads it."""


def promise(array: Array, value: Any) -> None:
    """Let an array of `Held.room` be filled by ``value.fetch()`` when it is first read."""
    PROMISES.given = True
    array.base.promised = value  # type: ignore[union-attr]


def promised(array: Array) -> Any:
    """Return what fills an array by its `fetch()`, None if it is filled."""
    return getattr(array.base, "promised", None)


def present(array: Array) -> Array:
    """Return an array, filled."""
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
    """Take the spare memory; return it, and the count of references to it."""
    memory = spares.pop("memory", None)
    return memory, getrefcount(memory)


@final
class Store:
    """The current arrays of the values that one graph has bound."""

    __slots__ = ("__weakref__", "_arrays")

    def __init__(self) -> None:
        # A tuple from the first read until the next change, so that many changes in a row, as while
        # a graph is built, copy it only once.
        self._arrays: tuple[Array, ...] | list[Array] = ()

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The current arrays, by place: a tuple that is never changed."""
        found = self._arrays
        if type(found) is tuple:
            return found
        del found  # it would count as a reference to each
        with _lock:
            self._arrays = found = tuple(self._arrays)
            return found

    def unread(self) -> list[Array]:
        """Return the arrays as a list to change; the caller holds the lock."""
        arrays = self._arrays
        if type(arrays) is not list:
            self._arrays = arrays = list(arrays)
        return arrays

    def bind(self, held: Held) -> int:
        """Add a value, and return its place."""
        with _lock:
            homes = [home for home in held.homes if home[0]() is not None]
            arrays = self.unread()
            place = len(arrays)
            homes.append((ref(self), place))
            # Both or none: a home without the array would count as a reader.
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
        The current array, read-only; call `present` before reading it.
    grad : ndarray, optional
        A gradient; `solver.step` reads it if it gets this object instead of a result of a run.
    name : str, optional
        The name of its node in the first graph that has bound it.
    """

    __slots__ = ("__weakref__", "_spares", "_window", "array", "grad", "homes", "name")

    what = "value"
    """What errors call it."""

    def __init__(self, value: Any) -> None:
        self.array: Array = _copied(np.asarray(value))
        self.grad: Any = None
        self.name: str | None = None
        self.homes: tuple[tuple[ref[Store], int], ...] = ()
        self._spares: dict[str, _Memory] = {}
        self._window: Array | None = None

    @property
    def value(self) -> Array:
        """The current array, which may be written.

        No run, and no result of a run, shares its memory: if one did, a copy takes its place first.
        Neither steps nor setting change an array that somebody refers to, so read `value` again
        before each write.  Setting copies the given array, which must have the same shape and
        dtype.

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
            if window is None or window.base is not memory or not _lie_alike(window, self.array):
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
        """Return the current array on the host, read-only."""
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
        """Return an array for the next value, to which nobody else refers."""
        memory, references = _popped(self._spares)
        if references == _IDLE and memory is not None:
            memory.promised = None
            return memory.view(np.ndarray)  # type: ignore[no-any-return]
        return empty_like(self.array)

    def arrays(self) -> list[Any]:
        """Return all its arrays: the value, the gradient, and the spare memory."""
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
    """Return copies of new values, for `take`."""
    filled = []
    for held, value in values:
        out = held.room()
        out[...] = value
        filled.append((held, out))
    return filled


def take(filled: Sequence[tuple[Held, Array]]) -> None:
    """Make the arrays of `copies` current, all at once."""
    while switch([(held, held.array, out) for held, out in filled]):
        pass  # another thread was faster; the last switch wins


def switch(
    changes: Sequence[tuple[Held, Array, Array]], also: Iterable[tuple[Any, ...]] = ()
) -> Held | None:
    """Replace arrays, and make the calls `also`, all at once.

    A change is a value, the array that it is expected to have, and the new array (of `room`).  A
    call is a C function that calls no Python code, and its arguments.  If a value has another
    array, nothing is done, and that value is returned.
    """
    with _lock:
        calls = [*also]
        latest: Store | None = None
        arrays: list[Array] = []
        for held, before, after in changes:
            if held.array is not before:
                return held
            calls.append((setattr, held, "array", after))
            for home, place in held.homes:
                store = home()
                if store is not latest and store is not None:
                    latest, arrays = store, store.unread()
                if store is not None:
                    calls.append((setitem, arrays, place, after))
        at_once(calls)
    for held, before, _ in changes:
        held._window = None
        held._spares["memory"] = before.base  # type: ignore[assignment]
    return None


def at_once(calls: Iterable[tuple[Any, ...]]) -> None:
    """Make calls without an interrupt between them.

    Signal handlers run between two bytecode instructions, and this is one.
    """
    deque(starmap(call, calls), 0)  # by position it takes half as long


def _lie_alike(one: Array, other: Array) -> bool:
    """Return whether two arrays have one layout: whoever got one may have set another."""
    return (one.shape, one.strides, one.dtype) == (other.shape, other.strides, other.dtype)


def empty_like(array: Array) -> Array:
    """Return an array of the same shape and dtype that begins at a cache line."""
    raw = _Memory(array.nbytes + CACHE_LINE, np.uint8)
    return _Memory(array.shape, array.dtype, raw, -raw.ctypes.data % CACHE_LINE).view(np.ndarray)


def _copied(array: Array) -> Array:
    copy = empty_like(array)
    copy[...] = array
    return copy


_lock: Any = threading.RLock()
"""Held while tuples are replaced; no code of users runs under it."""


@in_child_of_fork
def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have held it


_UNREAD = _references(Held(0.0)) if _COUNTED else 0
"""References to an array that only its `Held` refers to, bound by no graph."""

_IDLE = _popped({"memory": np.empty(0)})[1] if _COUNTED else 0
"""References to a memory that only the spares refer to."""
