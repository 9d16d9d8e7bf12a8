"""Laps: a loop's rows in parts, one a thread; threads synchronise once a phase, not an iteration.

Most steps of a recurrent net treat the rows of a batch independently.  If no thread's parts touch a
byte that the parts of another thread write, all threads run through all iterations without waiting.
A row that needs more of an iteration than its own part, such as the gradient of a weight, belongs
to a later *phase*, whose iterations begin when the phase before has ended.  What it reads of an
earlier phase must be in an array that has an element for each iteration.

Results have the bits of the whole rows: parts of a row do (`splitting`; machine code of groups and
products computes each row of an array independently), and each thread keeps the order of its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.strands import Pieces
from actorgraph.graph import Node
from actorgraph.lower.quick_rows import QuickRows
from actorgraph.lower.splitting import TableRow, Touch, split, touches
from actorgraph.lower.spots import Unfit
from actorgraph.lower.table_rows import later

_MOST_ROWS, _MOST_STEPS, _MOST_BYTES = 100, 1000, 1 << 20
"""Most rows, as the analysis is quadratic in their number; most steps, with views, for which values
are sure to keep their memory; and most bytes of a table's memory."""

_PAGE = 4096


class _Share(NamedTuple):
    """A row, or a part of it, and the bytes that it touches."""

    row: TableRow
    touches: Sequence[Touch]

    def meets(self, other: _Share, apart: Collection[int] = ()) -> bool:
        """Return whether one writes what the other touches, bases in `apart` not counted."""
        return any(
            base == other_base and begin < other_end and other_begin < end and (writes or wrote)
            for base, begin, end, writes in self.touches
            for other_base, other_begin, other_end, wrote in other.touches
            if base not in apart
        )

    @property
    def written(self) -> _Share:
        """The same row with only the bytes that it writes."""
        return _Share(self.row, [touch for touch in self.touches if touch[3]])


_Phase: TypeAlias = dict[int, list[_Share]]
"""By row number what each thread computes: its part, or the whole row, mostly by thread 0 alone."""


class PartedRows(QuickRows):
    """Rows of an iteration in `parts`, one a thread.

    No two values share memory.  Bases from `fixed` on are arrays with an element for each
    iteration.  Raises `Unfit` if that cannot be done or too few rows can be split.
    """

    def __init__(self, one: Any, symbols: Mapping[str, int], parts: int, fixed: int) -> None:
        self.rooms, self._fixed = parts, fixed
        super().__init__(one, symbols)
        lines, self.pieces = self._laid()
        self.columns.made, self.computing = lines, len(lines)
        self.count = len(lines)

    def stays(self, step: Node) -> int:
        """Keep the memory of every value: parts of a value that reused it would overlap others."""
        return _MOST_STEPS

    def wrote(self, step: Node, begin: int) -> None:
        """Keep later steps from reusing the scratch memory of this one."""
        self._within[self.scratch_base - self._first_room] = self.scratch_end

    def parts(self, step: Node) -> int:
        return self.rooms

    def wrote_all(self) -> None:
        """Divide the rows into parts and phases, before anything is compiled."""
        for room in range(1, self.rooms):
            self.sizes[self._first_room + room] = self.sizes[self._first_room]
        if self.count > _MOST_ROWS or self.total > _MOST_BYTES:
            raise Unfit
        every = [self._shares(row) for _, row in self.columns.notes]
        self.phases = _Phases(self, every).found

    def carry(self, base: int) -> np.ndarray[Any, Any]:
        """Return memory for a carry, aligned so that the second thread's part begins a page.

        A core prefetches the lines that follow on a page, even from the other core's cache.
        """
        node = self.objects[base]
        shape, _, size = self._layout(node)
        raw = np.empty(size + _PAGE, np.uint8)
        begin = -(raw.ctypes.data + self._second(base)) % _PAGE
        return raw[begin : begin + size].view(node.dtype).reshape(shape)

    def _second(self, base: int) -> int:
        """Return the first byte of a base that the second thread writes, 0 if there is none."""
        begins = [
            begin for phase in self.phases for some in phase.values() for one in some[1:2]
            for other, begin, _, writes in one.touches if writes and other == base
        ]  # fmt: skip
        return min(begins, default=0)

    def _shares(self, row: TableRow) -> tuple[_Share, list[_Share]]:
        """Return the shares of a row and of its parts; no parts if it cannot be split."""

        def share(row: TableRow) -> _Share:
            touched = touches(row)
            if touched is None:
                raise Unfit
            return _Share(row, touched)

        return share(row), [*map(share, split(row, self.rooms) or ())]

    @property
    def moving(self) -> range:
        """The bases of arrays that have an element for each iteration."""
        return range(self._fixed, len(self.objects))

    def is_own(self, base: int, writes: bool) -> bool:
        """Return whether a row writes into a room of the table, or reads a constant."""
        return base >= self._first_room + (0 if writes else self.rooms)

    def _of_own_room(self, thread: int) -> TableRow:
        """Return the row that redirects the base of the first room to the thread's own room."""
        rooms, routine = self._first_room, self.routine("rebase")
        return TableRow(routine, (1, 1), (rooms, rooms + thread), (), (), (), native.LATER)

    def _laid(self) -> tuple[native.Words, Pieces]:
        """Return the rows of all parts, and the pieces that they form."""
        lines: list[TableRow] = []
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for number, phase in enumerate(self.phases):
            for thread in range(self.rooms):
                own = [some[thread].row for some in phase.values() if thread < len(some)]
                begin = len(lines)
                if own and thread:
                    lines.append(self._of_own_room(thread))
                lines += own
                if own:
                    spans[thread, number] = begin, len(lines)
        keys = sorted(spans)
        begins = [sum([thread < one for thread, _ in keys]) for one in range(self.rooms + 1)]
        waits = [
            [place for place, (_, before) in enumerate(keys) if before == number - 1]
            for _, number in keys
        ]
        pieces = Pieces(begins, [spans[key] for key in keys], waits, walks="laps")
        return later(*self.columns.words_of(lines), {end for _, end in spans.values()}), pieces


class _Phases:
    """Divides rows into phases, within which no thread waits for another."""

    def __init__(self, rows: PartedRows, every: Sequence[tuple[_Share, list[_Share]]]) -> None:
        self._rows, self._every = rows, every
        numbers = range(len(every))
        self._near = [[m for m in numbers if every[n][0].meets(every[m][0])] for n in numbers]
        # Rows that do the same in all iterations; all threads have them, in phases that read them.
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
        """Return whether a row is the same in all iterations, and no other row writes its bytes."""
        rows, own = self._rows, self._every[number][0].touches
        return (
            all(rows.is_own(base, writes) for base, _, _, writes in own)
            and not any(
                self._every[number][0].meets(self._every[near][0].written)
                for near in self._near[number] if near != number
            )
        )  # fmt: skip

    def _beside(self) -> _Phase:
        """Return rows that may precede all others left, and in which no two threads conflict."""
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
        """Return whether a row must follow one that is left for a later phase.

        Arrays with an element for each iteration order rows only within an iteration.
        """
        own = self._every[number][0]
        for other in self._near[number]:
            if other in self._left and other not in phase:
                apart = self._rows.moving if number < other else ()
                if own.meets(self._every[other][0], apart):
                    return True
        return False

    def _crosses(self, number: int, phase: _Phase) -> bool:
        """Return whether a thread touches in this row what another thread writes in the phase."""
        for thread, one in enumerate(phase[number]):
            for other in self._near[number]:
                for place, share in enumerate(phase.get(other, ())):
                    if place != thread and one.meets(share.written):
                        return True
        return False
