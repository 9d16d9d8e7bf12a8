"""Memory that turns of tasks write into: as many arenas as turns that run at once.

One memory a task would grow with the number of tasks and be cold in the cache; an arena is taken at
the beginning of a turn, is as large as the largest task that it has served, and serves whoever
comes next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from typing import Any, TypeAlias, final
from weakref import ref

import numpy as np

from actorgraph.graph import Node
from actorgraph.memory.buffers import Buffers, Memory, Unallocated, aligned
from actorgraph.memory.free_lists import FreeList, Recycling
from actorgraph.types import bind_shape

_CROWDED = 64
"""Layouts above which those are looked for that are gone."""


class _Arena:
    """Bytes that one turn at a time owns."""

    __slots__ = ("memory",)

    def __init__(self, size: int) -> None:
        self.memory: Memory = aligned(size)


@final
class Arenas:
    """The arenas of a machine; who takes one of those that are `idle` does so atomically.

    Invariant: what is counted is what is there, however a turn or an allocation has ended.
    """

    def __init__(self) -> None:
        self.idle: deque[_Arena] = deque()
        self._all: list[_Arena] = []
        self._layouts: list[ref[Layout | Recycling]] = []
        self._most = 0  # bytes of a layout
        self._crowded = _CROWDED

    @property
    def bytes(self) -> int:
        """How large the largest arena is."""
        return max([arena.memory.nbytes for arena in self._all], default=0)

    @property
    def count(self) -> int:
        """How many arenas there are."""
        return len(self._all)

    def kept(self) -> tuple[list[Any], list[Any]]:
        """Return arenas and the idle arrays of free lists, and their arrays in use."""
        layouts = [layout for held in self._layouts if (layout := held()) is not None]
        lists = {id(one): one for layout in layouts for one in layout.free_lists()}
        found = [one.kept() for one in lists.values()]
        idle = [array for one, _ in found for array in one]
        lent = [array for _, one in found for array in one]
        return [*[arena.memory for arena in self._all], *idle], lent

    def add(self, layout: Layout | Recycling) -> None:
        """Note what has arrays, which are to go with the memory that they show."""
        if len(self._layouts) >= self._crowded:
            self._layouts = [held for held in self._layouts if held() is not None]
            self._crowded = max(_CROWDED, 2 * len(self._layouts))
        self._layouts.append(ref(layout))
        self._most = max(self._most, layout.bytes)

    def reserve(self, count: int) -> None:
        """Have so many arenas, large enough for every layout; without memory have fewer."""
        if any(arena.memory.nbytes < self._most for arena in self._all):
            self.clear()
        with suppress(MemoryError):  # the step that needs one tells of it
            while self._most and self.count < count:
                made = _Arena(self._most)
                made.memory.fill(0)
                self._all.append(made)
                self.idle.append(made)

    def clear(self) -> None:
        """Give up the memory of the arenas that no turn owns."""
        while self.idle:
            try:
                self._drop(self.idle.pop())
            except IndexError:  # a turn has taken it in between
                break

    def _drop(self, arena: _Arena) -> None:
        """Forget an arena, and the arrays that show its memory."""
        self._all.remove(arena)
        for held in self._layouts:
            layout = held()
            if layout is not None:
                layout.forget(arena)

    def take(self, size: int) -> _Arena:
        """Return an arena of at least so many bytes; one that is too small goes before."""
        try:
            arena = self.idle.pop()
        except IndexError:
            pass
        else:
            if arena.memory.nbytes >= size:
                return arena
            self._drop(arena)
            del arena
        made = _Arena(size)
        self._all.append(made)
        return made


_View: TypeAlias = tuple[int, tuple[int, ...], np.dtype[Any], int]
"""Place of the array that it lies in, shape, dtype, and the byte where it begins."""


def _shown(view: _View, arrays: Sequence[Any]) -> np.ndarray[Any, Any]:
    outer, shape, dtype, begin = view
    return np.ndarray(shape, dtype, arrays[outer], begin)


@final
class _PartArrays(list[Any]):
    """Arrays for a part; those inside of others are shown when one is asked for.

    A part that machine code walks never does.
    """

    __slots__ = ("_arrays", "_inside")

    def __init__(
        self, part: list[Any], arrays: list[Any], inside: Iterable[tuple[int, _View]]
    ) -> None:
        super().__init__(part)
        self._arrays, self._inside = arrays, inside

    def _show(self) -> None:
        for place, view in self._inside:
            self[place] = _shown(view, self._arrays)
        self._inside = ()

    def __iter__(self) -> Iterator[Any]:
        self._show()
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if found is None:
            self._show()
            found = super().__getitem__(place)
        return found


@final
class Layout:
    """Where the steps of one task write, for one binding.

    Of `buffers`, whose results stay inside of the turn, some may lie in arrays that leave it.
    `free_lists` are of the steps whose results leave it, by id; None for small ones, which are made
    afresh.  `sizes` are those of the task's parts, see `in_parts`; its arena needs so many `bytes`.
    """

    def __init__(
        self,
        arenas: Arenas,
        buffers: Buffers,
        steps: Sequence[Node],
        symbols: Mapping[str, int],
        free_lists: Mapping[int, FreeList | None],
        sizes: Sequence[int] = (),
    ) -> None:
        self._arenas, self._sizes = arenas, sizes
        self._buffers, self._steps, self._symbols = buffers, steps, symbols
        self._writing = [
            step for step in steps if step.id in buffers.place_of or step.id in free_lists
        ]
        written = {step.id: place for place, step in enumerate(self._writing)}
        self._kept = [
            place
            for number, place in written.items()
            if number not in free_lists and number not in buffers.inside_of
        ]
        # Shown anew every turn: a view that is kept would look to the free list like somebody's.
        self._inside: list[tuple[int, _View]] = []
        self._inside_parts: dict[int, list[tuple[int, _View]]] = {}
        ends = list(accumulate(map(abs, sizes)))
        for step in self._writing:
            if step.id in buffers.inside_of:
                outer, begin = written[buffers.inside_of[step.id]], buffers.place_of[step.id]
                view = outer, bind_shape(step.dims, symbols, 0), step.dtype, begin
                place = written[step.id]
                part = bisect_right(ends, place)
                if part == len(sizes) or sizes[part] < 0:
                    self._inside.append((place, view))
                else:
                    within = place - ends[part] + sizes[part]
                    self._inside_parts.setdefault(part, []).append((within, view))
        self._free_lists = [
            (place, free_list)
            for number, place in written.items()
            if (free_list := free_lists.get(number)) is not None
        ]
        self._count = len(written)
        self._laid: dict[_Arena, tuple[list[Any], list[Any]]] = {}
        self.bytes = buffers.total_bytes if self._kept else 0
        arenas.add(self)

    def lease(self) -> list[Any]:
        """Return an array (or None) for each step that writes and, last, the arena or None.

        Where the task has parts, these arrays are in lists, one a part.  The arena is to be given
        back at the end of the turn.  Where there is no memory, `Unallocated` is raised and nothing
        is taken.
        """
        arena: _Arena | None = None
        place: int | None = None
        try:
            if self._kept:
                arena = self._arenas.take(self.bytes)
                laid = self._laid.get(arena)
                if laid is None:
                    laid = self._lay(arena)
                if not self._free_lists:
                    return laid[1]
                found = laid[0].copy()
            else:
                found = [None] * (self._count + 1)
            for place, free_list in self._free_lists:
                found[place] = free_list.take()
            for place, view in self._inside:
                found[place] = _shown(view, found)
            if not self._sizes:
                return found
            parts = in_parts(found, self._sizes)
            for part, inside in self._inside_parts.items():
                parts[part] = _PartArrays(parts[part], found, inside)
            return parts
        except BaseException as error:
            if arena is not None:
                self._arenas.idle.append(arena)
            at_fault = self._kept if place is None else [place]
            raise Unallocated([self._writing[one] for one in at_fault], self._symbols) from error

    def _lay(self, arena: _Arena) -> tuple[list[Any], list[Any]]:
        arrays = self._buffers.arrays(self._steps, self._symbols, arena.memory)
        found: list[Any] = [None] * (self._count + 1)
        for place, array in zip(self._kept, arrays, strict=True):
            found[place] = array
        found[-1] = arena
        laid = self._laid[arena] = found, in_parts(found, self._sizes)
        return laid

    def free_lists(self) -> list[FreeList]:
        """Return those of the steps whose results leave the task."""
        return [free_list for _, free_list in self._free_lists]

    def forget(self, arena: _Arena) -> None:
        """Drop the arrays that show this arena's memory."""
        self._laid.pop(arena, None)


def in_parts(arrays: list[Any], sizes: Sequence[int]) -> list[Any]:
    """Return arrays in lists of these sizes, -1 for one by itself, and what is left as it is.

    Examples
    --------
    >>> in_parts([1, 2, 3, 4], [1, -1])
    [[1], 2, 3, 4]
    """
    given = iter(arrays)
    found = [next(given) if size < 0 else list(islice(given, size)) for size in sizes]
    return [*found, *given]
