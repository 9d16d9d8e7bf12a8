"""Arenas: the memory that turns of tasks write into, one for each turn that runs at once.

A turn leases an arena at its beginning and gives it back at its end; the next turn, of any task,
takes the same one while it is warm in the cache.  Memory for each task would grow with the number
of tasks and be cold.

`Layout` is the plan of one task (from `packing`); `Arenas` is what all tasks of a machine share.
Invariant: a turn gets all arrays that it writes into, or `Unallocated` is raised and nothing is
taken.  This module knows neither programs nor machines nor runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from typing import Any, TypeAlias, final
from weakref import ref

import numpy as np

from actorgraph.graph import Node
from actorgraph.memory.buffers import Buffers, Memory, Unallocated, aligned
from actorgraph.memory.free_lists import FreeList, Recycling
from actorgraph.memory.travelling import RunArrays, RunMemory
from actorgraph.types import bind_shape

_CROWDED = 64
"""Layouts above which dead references to layouts are removed."""


class _Arena:
    """Bytes that at most one turn owns."""

    __slots__ = ("memory",)

    def __init__(self, size: int) -> None:
        self.memory: Memory = aligned(size)


@final
class Arenas:
    """The arenas of a machine.

    Turns take arenas from `idle` and give them back there; both are atomic.  Invariant: `_all`
    holds exactly the existing arenas, however a turn or an allocation has ended.
    """

    def __init__(self) -> None:
        self.idle: deque[_Arena] = deque()
        self._all: list[_Arena] = []
        self._layouts: list[ref[Layout | Recycling]] = []
        self._most = 0  # bytes of a layout
        self._crowded = _CROWDED

    @property
    def bytes(self) -> int:
        """The size of the largest arena."""
        return max([arena.memory.nbytes for arena in self._all], default=0)

    @property
    def count(self) -> int:
        """The number of arenas."""
        return len(self._all)

    def kept(self) -> tuple[list[Any], list[Any]]:
        """Return the idle memory (arenas, and free lists' idle arrays), and the arrays in use."""
        layouts = [layout for held in self._layouts if (layout := held()) is not None]
        lists = {id(one): one for layout in layouts for one in layout.free_lists()}
        found = [one.kept() for one in lists.values()]
        idle = [array for one, _ in found for array in one]
        lent = [array for _, one in found for array in one]
        return [*[arena.memory for arena in self._all], *idle], lent

    def add(self, layout: Layout | Recycling) -> None:
        """Register a layout, whose views are dropped together with their arena."""
        if len(self._layouts) >= self._crowded:
            self._layouts = [held for held in self._layouts if held() is not None]
            self._crowded = max(_CROWDED, 2 * len(self._layouts))
        self._layouts.append(ref(layout))
        self._most = max(self._most, layout.bytes)

    def reserve(self, count: int) -> None:
        """Allocate up to `count` arenas, large enough for every layout, as far as memory goes."""
        if any(arena.memory.nbytes < self._most for arena in self._all):
            self.clear()
        with suppress(MemoryError):  # the turn that needs one raises it
            while self._most and self.count < count:
                made = _Arena(self._most)
                made.memory.fill(0)
                self._all.append(made)
                self.idle.append(made)

    def clear(self) -> None:
        """Free the arenas that no turn owns."""
        while self.idle:
            try:
                self._drop(self.idle.pop())
            except IndexError:  # a turn has taken the last one in between
                break

    def _drop(self, arena: _Arena) -> None:
        """Free an arena, and the views of its memory."""
        self._all.remove(arena)
        for held in self._layouts:
            layout = held()
            if layout is not None:
                layout.forget(arena)

    def take(self, size: int) -> _Arena:
        """Return an arena of at least `size` bytes; one that is too small is freed first."""
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
"""A view of a part of another array: that array's place, shape, dtype, byte offset."""


def _shown(view: _View, arrays: Sequence[Any]) -> np.ndarray[Any, Any]:
    outer, shape, dtype, begin = view
    array = arrays[outer]
    return np.ndarray(shape, dtype, array[0] if type(array) is tuple else array, begin)


@final
class _PartArrays(list[Any]):
    """The arrays of a part; views of parts of other arrays are made when one is read.

    A part that machine code walks never reads one.
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
        if found is None or isinstance(place, slice):  # a part of this part takes a slice
            self._show()
            found = super().__getitem__(place)
        return found


@final
class Layout:
    """Where the steps of one task write, for one binding.

    - `buffers`: places of results that stay inside the turn: in the arena, or in arrays that leave
      the turn
    - `free_lists`: by id of a step whose result leaves the turn; None for a small one, which is
      allocated
    - `sizes`: those of the task's parts, see `in_parts`
    - `of_run`: memory that tasks of a run share
    - `bytes`: what the layout needs of an arena
    """

    def __init__(
        self, arenas: Arenas, buffers: Buffers, steps: Sequence[Node], symbols: Mapping[str, int],
        free_lists: Mapping[int, FreeList | None], sizes: Sequence[int] = (),
        of_run: RunMemory | None = None,
    ) -> None:  # fmt: skip
        self._arenas, self._sizes, self._of_run = arenas, sizes, of_run
        self._buffers, self._steps, self._symbols = buffers, steps, symbols
        self._writing = [
            step for step in steps if step.id in buffers.place_of or step.id in free_lists
        ]
        self._kept: list[int] = []  # places of steps whose array is one of the arena's
        # Views are made anew every turn: to the free list a kept one would count as a reference.
        self._inside: list[tuple[int, _View]] = []
        self._inside_parts: dict[int, list[tuple[int, _View]]] = {}
        self._free_lists: list[tuple[int, FreeList]] = []
        # Place, free list, and the method of the run's memory that gives an array, with arguments.
        self._travelling: list[tuple[int, FreeList, Callable[..., Any], Sequence[Any]]] = []
        # Places of steps that borrow: from the arena, with their ids, and values of the run.
        self._from_arena: list[tuple[int, int]] = []
        self._from_run: dict[Any, list[int]] = {}
        where = {} if of_run is None else of_run.places.where
        lent = {} if of_run is None else of_run.places.lent
        hosts = [] if of_run is None else of_run.places.hosts
        ends = list(accumulate(map(abs, sizes)))
        place_of = {step.id: place for place, step in enumerate(self._writing)}
        for place, step in enumerate(self._writing):
            number, free_list = step.id, free_lists.get(step.id)
            if number in buffers.inside_of:
                outer, begin = place_of[buffers.inside_of[number]], buffers.place_of[number]
                view = outer, bind_shape(step.dims, symbols, 0), step.dtype, begin
                part = bisect_right(ends, place)
                if part == len(sizes) or sizes[part] < 0:
                    self._inside.append((place, view))
                else:
                    within = place - ends[part] + sizes[part]
                    self._inside_parts.setdefault(part, []).append((within, view))
            elif number not in free_lists:
                self._kept.append(place)
            elif number in buffers.idle:
                self._from_arena.append((place, number))
            if number in lent and number not in buffers.idle:
                value, size = lent[number]
                bytes_of = value, (size,), np.dtype(np.uint8)
                self._from_run.setdefault(bytes_of, []).append(place)
            if free_list is None:
                continue
            if number in where:
                array_of = number, bind_shape(step.dims, symbols, 0), step.dtype
                self._travelling.append((place, free_list, RunArrays.take, array_of))
            elif number in hosts:
                host = (hosts.index(number),)
                self._travelling.append((place, free_list, RunArrays.host, host))
            else:
                self._free_lists.append((place, free_list))
        self._count = len(self._writing)
        self._laid: dict[_Arena, tuple[list[Any], list[Any]]] = {}
        self._is_new = bool(  # in each turn
            self._free_lists or self._travelling or self._from_arena or self._from_run
        )
        self.bytes = buffers.total_bytes if self._kept else 0
        arenas.add(self)

    def lease(self, run: Any) -> list[Any]:
        """Return an array (or None) for each step that writes and, last, the arena or None.

        The arrays of a part are in a list of their own.  The caller gives the arena back at the end
        of the turn.  Without memory `Unallocated` is raised, and nothing is taken.  Two threads may
        both take memory for a run, of which either will do: no array is in both.
        """
        arena: _Arena | None = None
        place: int | None = None
        try:
            if self._kept:
                arena = self._arenas.take(self.bytes)
                laid = self._laid.get(arena)
                if laid is None:
                    laid = self._lay(arena)
                if not self._is_new:
                    return laid[1]
                found = laid[0].copy()
            else:
                found = [None] * (self._count + 1)
            for place, free_list in self._free_lists:
                found[place] = free_list.take()
            for place, free_list, take, given in self._travelling:
                array = take(self._memory_of(run), *given)
                found[place] = free_list.take() if array is None else array
            for place, view in self._inside:
                found[place] = _shown(view, found)
            for place, number in self._from_arena:
                assert arena is not None
                found[place] = self._buffers.lending(number, found[place], arena.memory)
            for value, borrowing in self._from_run.items():
                lent = self._memory_of(run).take(*value)
                for place in () if lent is None else borrowing:
                    found[place] = found[place], lent
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

    def _memory_of(self, run: Any) -> RunArrays:
        held: RunArrays | None = run.memory
        if held is None:
            assert self._of_run is not None
            held = run.memory = self._of_run.take()
        return held

    def _lay(self, arena: _Arena) -> tuple[list[Any], list[Any]]:
        arrays = self._buffers.arrays(self._steps, self._symbols, arena.memory)
        found: list[Any] = [None] * (self._count + 1)
        for place, array in zip(self._kept, arrays, strict=True):
            found[place] = array
        found[-1] = arena
        laid = self._laid[arena] = found, in_parts(found, self._sizes)
        return laid

    def free_lists(self) -> list[FreeList]:
        """Return the free lists of the steps whose results leave the turn."""
        of_run = () if self._of_run is None else self._of_run.free_lists()
        others = [one for _, one, *_ in self._travelling]
        return [*[one for _, one in self._free_lists], *others, *of_run]

    def forget(self, arena: _Arena) -> None:
        """Drop the views of this arena's memory."""
        self._laid.pop(arena, None)


def in_parts(arrays: list[Any], sizes: Sequence[int]) -> list[Any]:
    """Group arrays into lists of these sizes, where -1 is a single array; the rest follows.

    Examples
    --------
    >>> in_parts([1, 2, 3, 4], [1, -1])
    [[1], 2, 3, 4]
    """
    given = iter(arrays)
    found = [next(given) if size < 0 else list(islice(given, size)) for size in sizes]
    return [*found, *given]
