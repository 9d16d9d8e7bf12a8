"""Rows of a loop in parts: threads make all iterations of theirs at the same time, and meet once.

Most of a recurrent net goes by the rows of its batch.  Where the first part of each row of the
table touches no byte that the others' later parts write, and the other way round, nobody waits for
anybody from the first iteration to the last.  What needs more of an iteration than its own part,
such as the gradient of a weight, comes in a later *phase*: all its iterations are made when those
before have ended, if it reads only what an iteration leaves to nobody but to it.

Bits are those of the whole, as parts of a row have them (`splitting`; groups and products of
machine code compute each row of theirs by itself) and each thread keeps the order of its rows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.strands import Pieces
from actorgraph.graph import Node
from actorgraph.lower.quick_rows import QuickRows
from actorgraph.lower.rates import path
from actorgraph.lower.splitting import TableRow, split, touched
from actorgraph.lower.spots import Spot, Unfit

_MOST_ROWS, _MOST_BYTES = 100, 1 << 20
"""Rows that are looked into, which takes the square of their number, and memory that they have."""

_PAGE = 4096

_Touch: TypeAlias = tuple[int, int, int, bool]
"""A base, the first byte and the end, and whether these are written."""


class _Share(NamedTuple):
    """A row or a part of it, and what it touches."""

    row: TableRow
    touches: Sequence[_Touch]

    def meets(self, other: _Share, apart: Collection[int] = ()) -> bool:
        """Return whether one writes what the other touches, but for bases that are `apart`."""
        return any(
            base == other_base and begin < other_end and other_begin < end and (writes or wrote)
            for base, begin, end, writes in self.touches
            for other_base, other_begin, other_end, wrote in other.touches
            if base not in apart
        )

    @property
    def written(self) -> _Share:
        """The same as far as it writes."""
        return _Share(self.row, [touch for touch in self.touches if touch[3]])


_Phase: TypeAlias = dict[int, list[_Share]]
"""By the number of a row what each thread computes of it: its part, or the first one all."""


@dataclass(slots=True)
class Laps:
    """How rows are parted.

    Bases from `fixed` on move, and there are so many `steps`; `own` has shares of rows that are no
    loops of NumPy's, `called` those of the call that is being written; then what follows from all.
    """

    fixed: int
    steps: int
    own: dict[int, tuple[_Share, list[_Share]]] = field(default_factory=dict)
    called: list[_Share] = field(default_factory=list)
    phases: Sequence[_Phase] = ()
    lines: Any = None
    pieces: Any = None


class PartedRows(QuickRows):
    """Rows of an iteration, and the same in `parts` for as many threads, where there are some.

    Values lie beside each other, none in the place of another.  Bases from `fixed` on are arrays of
    which each iteration has another element.  `Unfit` says that there are no parts.
    """

    def __init__(self, one: Any, symbols: Mapping[str, int], parts: int, fixed: int) -> None:
        self.rooms = parts
        self.laps = Laps(fixed, len(one.steps))
        super().__init__(one, symbols)
        lines, self.laps.pieces = self._laid()
        self.laps.lines, self.computing = np.array(lines, np.int64), len(lines)

    def stays(self, step: Node) -> int:
        """Return that nothing lies in the place of a value: its parts would lie elsewhere."""
        return self.laps.steps

    def wrote(self, step: Node, begin: int) -> None:
        """Leave what a step has used for itself to it alone."""
        self._within[self._room] = self._scratch

    def wrote_group(self, rows: int, pointers: Sequence[Any], written: int) -> None:
        """Take note of the row of a group, and its parts."""
        row = self.notes[-1][1]

        def share(begin: int, end: int) -> _Share:
            touches = []
            for place, (one, wide) in enumerate(pointers):
                low, high = sorted((begin * one.outer, (end - 1) * one.outer))
                writes = place >= len(pointers) - written
                touches.append((one.base, one.offset + low, one.offset + high + wide, writes))
            return _Share(row._replace(dims=(begin, end)), touches)

        self.laps.own[len(self.rows) - 1] = (
            share(0, rows),
            [share(*one) for one in self._spans(rows)],
        )

    def _spans(self, count: int) -> list[tuple[int, int]]:
        """Return where parts of so many rows begin and end, none where these are too few."""
        ends = [round(count * part / self.rooms) for part in range(self.rooms + 1)]
        return [*pairwise(ends)] if count >= self.rooms else []

    def wrote_call(self, step: Node, describe: Any, inputs: Sequence[Node], adds: bool) -> None:
        """Take note of the row of machine code for a step, and its parts, which are such rows."""
        laps, number = self.laps, len(self.rows) - 1
        laps.called.append(self._called_share(inputs, step))
        if len(laps.called) > 1:
            return  # that of a part
        x, z = self.place(inputs[0]), self.places[step.id]
        if step.op.ufunc == "matmul" and len(x.shape) == len(z.shape) == 2 and x != z:
            for begin, end in self._spans(z.shape[0]) if inputs[0] is not inputs[1] else ():
                self.places[inputs[0].id] = _rows_of(x, begin, end)
                self.places[step.id] = _rows_of(z, begin, end)
                self._called(step, describe, inputs, 0, adds)
            self.places[inputs[0].id], self.places[step.id] = x, z
        del self.rows[number + 1 :], self.notes[number + 1 :]
        whole, *parts = laps.called
        laps.own[number] = whole, parts if len(parts) == self.rooms else []
        laps.called = []

    def _called_share(self, inputs: Sequence[Node], step: Node) -> _Share:
        """Return the row that was written last, of machine code for a step."""
        row, result = self.notes[-1][1], self.places[step.id]
        touches = [(one.base, one.begin, one.end, False) for one in map(self.place, inputs)]
        touches.append((result.base, result.begin, result.end, True))
        if room := self._codes[-1].room:
            base, begin = row.places[-4:-2]
            touches.append((base, begin, begin + room, True))
        return _Share(row, touches)

    def wrote_all(self) -> None:
        """Find the parts, and what waits for what, before anything is compiled."""
        for room in range(1, self.rooms):
            self.sizes[self._first_room + room] = self.sizes[self._first_room]
        if len(self.rows) > _MOST_ROWS or self.total > _MOST_BYTES:
            raise Unfit
        every = [self._shares(number) for number in range(len(self.rows))]
        self.laps.phases = _Phases(self, every).found

    def carry(self, base: int) -> np.ndarray[Any, Any]:
        """Return memory for a carry in which what a second thread writes begins a page.

        A core fetches what follows on a page before it is asked for, from the other one's cache.
        """
        node = self.objects[base]
        shape, _, size = self._layout(node)
        raw = np.empty(size + _PAGE, np.uint8)
        begin = -(raw.ctypes.data + self._second(base)) % _PAGE
        return raw[begin : begin + size].view(node.dtype).reshape(shape)

    def _second(self, base: int) -> int:
        """Return the first byte that the second thread writes of a base, 0 for none."""
        begins = [
            begin for phase in self.laps.phases for some in phase.values() for one in some[1:2]
            for other, begin, _, writes in one.touches if writes and other == base
        ]  # fmt: skip
        return min(begins, default=0)

    def strand_words(self) -> Any:
        """Return the words of the strands of a block, first of all that it is to keep."""
        return self.laps.pieces.words()

    def _shares(self, number: int) -> tuple[_Share, list[_Share]]:
        """Return a row and its parts, of which there may be none."""
        if number in self.laps.own:
            return self.laps.own[number]

        def share(row: TableRow) -> _Share:
            spans = touched(row)
            if spans is None:
                raise Unfit
            return _Share(row, [(*one, False) for one in spans[:-1]] + [(*spans[-1], True)])

        row = self.notes[number][1]
        return share(row), [*map(share, split(row, self.rooms) or ())]

    @property
    def moving(self) -> range:
        """The bases of arrays of which each iteration has another element."""
        return range(self.laps.fixed, len(self.objects))

    def is_room(self, base: int) -> bool:
        """Return whether values are in memory of the table."""
        return self._first_room <= base < self._first_room + self.rooms

    def is_constant(self, base: int) -> bool:
        """Return whether nobody writes there."""
        return base >= self._first_room + self.rooms

    def _of_own_room(self, thread: int) -> list[int]:
        """Return the row that has a thread write into a room of its own."""
        rooms, routine = self._first_room, self.routine("rebase")
        row = TableRow(routine, (1, 1), (rooms, rooms + thread), (), (), (), native.LATER)
        return self.words_of(row)

    def _laid(self) -> tuple[list[list[int]], Pieces]:
        """Return the rows of all parts, and the pieces that they are."""
        lines: list[list[int]] = []
        spans: dict[tuple[int, int], tuple[int, int, int]] = {}
        for number, phase in enumerate(self.laps.phases):
            for thread in range(self.rooms):
                own = [(row, some[thread]) for row, some in phase.items() if thread < len(some)]
                begin = len(lines)
                if own and thread:
                    lines.append(self._of_own_room(thread))
                for (row, one), after in zip_longest(own, [one for _, one in own[1:]]):
                    heard = one.row.heard
                    later = after and after.row.heard == heard and after.row.loop.keeps_flags
                    words = self.words_of(one.row)
                    if one.row.loop.function == self.notes[row][1].loop.function:
                        words[0] = self.rows[row][0]  # which may have come since
                    lines.append([*words[:-1], native.LATER if later else heard])
                if own:
                    spans[thread, number] = begin, len(lines), own[-1][1].row.heard
        keys = sorted(spans)
        begins = [sum([thread < one for thread, _ in keys]) for one in range(self.rooms + 1)]
        waits = [
            [place for place, (_, before) in enumerate(keys) if before == number - 1]
            for _, number in keys
        ]
        pieces = Pieces(
            begins, [spans[key] for key in keys], waits, os.path.dirname(path()), walks="laps"
        )
        return lines, pieces


def _rows_of(place: Spot, begin: int, end: int) -> Spot:
    return place._replace(
        offset=place.offset + begin * place.strides[0], shape=(end - begin, *place.shape[1:])
    )


class _Phases:
    """Puts rows into phases, in which no thread waits for another."""

    def __init__(self, rows: PartedRows, every: Sequence[tuple[_Share, list[_Share]]]) -> None:
        self._rows, self._every = rows, every
        numbers = range(len(every))
        self._near = [[m for m in numbers if every[n][0].meets(every[m][0])] for n in numbers]
        # What is the same in all iterations each thread makes for itself, in each phase.
        constant = {n: [every[n][0]] * rows.rooms for n in numbers if self._is_constant(n)}
        self.found: list[_Phase] = []
        self._left = [n for n in numbers if n not in constant]
        while self._left:
            phase = self._beside() or {n: [every[n][0]] for n in self._left}
            self._left = [n for n in self._left if n not in phase]
            read = {near for n in phase for near in self._near[n]}
            phase |= {n: some for n, some in constant.items() if n in read}
            self.found.append(dict(sorted(phase.items())))
        parted = sum([len(some) > 1 for phase in self.found for some in phase.values()])
        if 2 * parted < len(every):
            raise Unfit

    def _is_constant(self, number: int) -> bool:
        """Return whether a row does the same in all iterations, where nobody else writes."""
        rows, own = self._rows, self._every[number][0].touches
        return (
            all(rows.is_room(base) if writes else rows.is_constant(base)
                for base, _, _, writes in own)
            and not any(
                self._every[number][0].meets(self._every[near][0].written)
                for near in self._near[number] if near != number
            )
        )  # fmt: skip

    def _beside(self) -> _Phase:
        """Return rows that come before all others that are left, and meet at no byte."""
        phase = {n: self._every[n][1] or [self._every[n][0]] for n in self._left}
        again = True
        while again:
            again = False
            for n in [*phase]:
                if self._is_behind(n, phase):
                    del phase[n]
                elif not self._crosses(n, phase):
                    continue
                elif len(phase[n]) > 1:
                    phase[n] = [self._every[n][0]]
                else:
                    del phase[n]
                again = True
        return phase

    def _is_behind(self, number: int, phase: _Phase) -> bool:
        """Return whether a row needs that one of a later phase has been before it.

        Of an array with another element for each iteration only the order in an iteration counts.
        """
        own = self._every[number][0]
        for other in self._near[number]:
            if other in self._left and other not in phase:
                apart = self._rows.moving if number < other else ()
                if own.meets(self._every[other][0], apart):
                    return True
        return False

    def _crosses(self, number: int, phase: _Phase) -> bool:
        """Return whether a thread reads in a row what another writes, or both write it."""
        for thread, one in enumerate(phase[number]):
            for other in self._near[number]:
                for place, share in enumerate(phase.get(other, ())):
                    if place != thread and one.meets(share.written):
                        return True
        return False
