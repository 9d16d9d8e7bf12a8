"""Rows of a table in strands: list scheduling of a stretch for several threads.

`stranded` assigns each step a strand and a start time by its predicted cost: each step starts as
early as it can, in the strand that is free first.  Memory is planned, and rows are written, in the
order of start times, which is a topological order of the steps.

Invariant: dependencies between pieces follow from memory alone.  Of two steps that touch the same
bytes, at least one of them writing, the later one waits.  So every order in which threads take the
pieces (`devices.strands`) gives the bits of the sequential order.
"""

from __future__ import annotations

import os
from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, zip_longest
from types import SimpleNamespace
from typing import Any, NamedTuple

from actorgraph.devices import native
from actorgraph.devices.helpers import HELPERS
from actorgraph.devices.strands import Pieces
from actorgraph.graph import Node
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.kernels import alike
from actorgraph.lower.rates import path, rates
from actorgraph.lower.spots import Spot, Unfit
from actorgraph.lower.table_rows import Written
from actorgraph.memory.buffers import is_view, size_in_bytes

_LEAST_US, _MOST_BYTES = 15.0, 64 * 1024 * 1024
"""Below that many microseconds of rows no helper arrives in time; strands that need more memory
than that are given up."""

_WORTH = 0.8
"""Strands must be predicted to take less than this share of the sequential time."""

_ROW_US, _CROSSING_US, _CROSSED_US, _PIECE_US = 0.05, 0.5, 0.3, 2.0
"""Overhead of a row; delay until another core sees a result; cost of reading a result of another
strand, without the transfer of its bytes; length at which pieces are cut, at least."""

_MOST_STEPS, _LOOKED_AT, _SLACK = 4000, 4, 16
"""Most steps of a stretch that is scheduled (20 us a step); ready steps of a strand that are
candidates at once; steps for which the memory of a value read by other strands is not reused."""


_PAGE = 4096
"""Granularity in bytes of the index in `Touched`."""


def timed(
    before: Sequence[Sequence[int]], costs: Sequence[float], sizes: Sequence[int], threads: int
) -> tuple[list[int], list[float], float]:
    """Schedule steps on threads; return each one's strand and start, and when the last one ends.

    `before` has the numbers of each step's operands, which are earlier in the order, and `sizes`
    the bytes that it writes.  A step's *home* is the strand that holds most of the bytes it reads;
    steps that read nothing have their neighbours' home.  Of equal candidates a strand takes one
    that is at home there.
    """
    after: list[list[int]] = [[] for _ in before]
    left = [len(some) for some in before]
    for number, some in enumerate(before):
        for one in some:
            after[one].append(number)
    first = [number for number, count in enumerate(left) if not count]
    ready = [
        first[len(first) * s // threads : len(first) * (s + 1) // threads] for s in range(threads)
    ]
    free = [0.0] * threads
    strands, begins, ended = [0] * len(left), [0.0] * len(left), [0.0] * len(left)
    moved_us = [_CROSSED_US + size / rates().bytes_per_us for size in sizes]
    for _ in before:
        choices = []
        for strand in range(threads):
            for home in range(threads):
                for number in ready[home][:_LOOKED_AT]:
                    since, spent = free[strand], 0.0
                    for one in before[number]:
                        if strands[one] == strand:
                            since = max(since, ended[one])
                        else:
                            since, spent = (
                                max(since, ended[one] + _CROSSING_US),
                                spent + moved_us[one],
                            )
                    choices.append((since + spent, home != strand, number, strand, home))
        since, _, number, strand, home = min(choices)
        ready[home].remove(number)
        strands[number], begins[number] = strand, since
        ended[number] = free[strand] = since + costs[number]
        for one in after[number]:
            left[one] -= 1
            if not left[one]:
                has = [0.0] * threads
                for part in before[one]:
                    has[strands[part]] += moved_us[part]
                home = min([(-has[s], free[s], s) for s in range(threads)])[2]
                insort(ready[home], one)
    return strands, begins, max(free)


class Touched:
    """The latest readers and writers of all bytes, for steps that are added in sequential order."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, int], list[tuple[int, int, int, bool]]] = {}  # by page

    def touch(self, who: int, base: int, begin: int, end: int, *, writes: bool) -> set[int]:
        """Note an access by a step to bytes of a base; return the steps that it must wait for."""
        waits = set[int]()
        for page in range(begin // _PAGE, -(-end // _PAGE)):
            first, last = max(begin, page * _PAGE), min(end, (page + 1) * _PAGE)
            latest = self._latest.setdefault((base, page), [])
            for low, high, other, wrote in latest:
                if low < last and first < high and (writes or wrote):
                    waits.add(other)
            if writes:  # a later access that waits for this one waits for all that it covers
                latest[:] = [one for one in latest if one[0] < first or last < one[1]]
            latest.append((first, last, who, writes))
        return waits - {who}


def one_by_one(begins: Sequence[int], waits: Sequence[Collection[int]]) -> list[int]:
    """Return the order in which one thread does all pieces: it leaves a strand only to wait.

    Pieces are numbered strand by strand; `begins` has the first piece of each strand, and the end.
    """
    following, found, done = [*begins[:-1]], list[int](), set[int]()
    while len(found) < len(waits):
        for own, piece in enumerate(following):
            while piece < begins[own + 1] and done.issuperset(waits[piece]):
                found.append(piece)
                done.add(piece)
                piece += 1
            following[own] = piece
    return found


def nearest(waits: Sequence[Collection[int]], order: Sequence[int]) -> list[list[int]]:
    """Return the transitive reduction of `waits`; `order` is a topological order."""
    place = {number: at for at, number in enumerate(order)}
    found: list[list[int]] = [[] for _ in waits]
    behind = [0] * len(waits)  # bit sets: each one's ancestors, and itself
    for number in order:
        for one in sorted(waits[number], key=place.__getitem__, reverse=True):
            if not behind[number] >> one & 1:
                found[number].append(one)
                behind[number] |= behind[one]
        behind[number] |= 1 << number
    return found


class _Placed(NamedTuple):
    """A scheduled step: its start, strand and cost, and whether other strands read its value."""

    begin: float
    strand: int
    us: float
    crosses: bool


_FIRST = _Placed(-1.0, 0, _ROW_US, False)


def stranded(stretch: Any, symbols: Mapping[str, int], workers: int) -> StrandRows | None:
    """Return the rows of a stretch in strands, or None where that is predicted to gain too little.

    `stretch` is a `table.Stretch`.
    """
    steps, threads = stretch.steps, min(workers, HELPERS.count + 1)
    if threads < 2 or len(steps) > _MOST_STEPS:
        return None
    known: dict[Any, float] = {}
    costs, sizes, before = list[float](), list[int](), list[list[int]]()
    place_of: dict[int, int] = {}  # number of the step with rows; for a view, of its base
    for step in steps:
        some = {place_of[part.id] for part in step.inputs if part.id in place_of}
        if is_view(step):
            place_of.update([(step.id, one) for one in some])
            continue
        key: Any = (*alike(step), repr(step.attrs)) if step.attrs else alike(step)
        if key not in known:
            known[key] = _ROW_US + predicted_us(step, symbols, walked=True)
        place_of[step.id] = len(costs)
        costs.append(known[key])
        sizes.append(size_in_bytes(step, symbols))
        before.append(sorted(some))
    if sum(costs) < _LEAST_US:
        return None
    strands, begins, ends_us = timed(before, costs, sizes, threads)
    if ends_us > _WORTH * sum(costs):
        return None
    crosses = [False] * len(costs)
    for number, needed in enumerate(before):
        for one in needed:
            crosses[one] |= strands[one] != strands[number]
    laid = [_Placed(*one) for one in zip(begins, strands, costs, crosses, strict=True)]
    places = {step.id: place_of.get(step.id) for step in steps}  # None: a view of an input
    of = {one: _FIRST if place is None else laid[place] for one, place in places.items()}
    since = [of[step.id].begin for step in steps]
    in_time = [steps[one] for one in sorted(range(len(steps)), key=since.__getitem__)]
    ordered = SimpleNamespace(
        steps=in_time, given=stretch.given, others=stretch.others, results=stretch.results,
        copied=stretch.copied,
    )  # fmt: skip
    try:
        rows = StrandRows(ordered, symbols, of, threads)
    except Unfit:
        return None
    return rows if rows.total < _MOST_BYTES else None


class _Step(NamedTuple):
    """A step with rows: its place in the schedule, its rows, and the steps that it waits for."""

    placed: _Placed
    rows: tuple[int, int]
    waits: set[int]


class StrandRows(Written):
    """Writes the rows of a stretch in strands.

    The rows stand piece after piece in a topological order, so that one thread can walk them in
    sequence.
    """

    def __init__(
        self,
        stretch: Any,
        symbols: Mapping[str, int],
        placed: Mapping[int, _Placed],
        threads: int,
    ) -> None:
        self._placed, self.threads = placed, threads
        self._touched, self._made = Touched(), list[_Step]()
        self._heard: list[tuple[int, bool]] = []
        super().__init__(stretch, symbols)
        self._cut()

    @property
    def story(self) -> str:
        """How many threads walk the rows, and the measured times that decided it."""
        trial = self.pieces.trial
        alone_us, together_us = trial.medians_us
        who = (
            f"{self.threads} threads walk"
            if trial.gains
            else f"one thread walks, not {self.threads},"
        )
        return (
            f"{who} {len(self.pieces.waits)} pieces in {self.threads} strands: runs took "
            f"{alone_us:.0f} us by one thread, {together_us:.0f} us by {self.threads}"
        )

    def strand(self, step: Node) -> int:
        """Return the number of a step's strand."""
        return self._placed[step.id].strand

    def stays(self, step: Node) -> int:
        """Return for how many steps after its last use a value keeps its memory."""
        return _SLACK if self._placed[step.id].crosses else 0

    def wrote(self, step: Node, begin: int) -> None:
        """Record the rows of a step, which start at `begin`, and the steps that it waits for."""
        if begin == len(self.rows):
            return
        room, first = self._first_room + self._strand, self._room_begin
        read = [(self.places[one.id], False) for one in step.inputs if one.id in self.places]
        used = Spot(room, first, (self._scratch - first,), (1,), 1)
        waits: set[int] = set()
        who = len(self._made)
        for place, writes in (*read, (self.places[step.id], True), (used, True)):
            if place.begin < place.end:
                waits |= self._touched.touch(who, place.base, place.begin, place.end, writes=writes)
        self._made.append(_Step(self._placed[step.id], (begin, len(self.rows)), waits))

    def _add(self, loop: Any, times: Any, dims: Any, strides: Any, row: Any, heard: int) -> None:
        super()._add(loop, times, dims, strides, row, heard)
        self._heard.append((heard, loop.keeps_flags))

    def _cut(self) -> None:
        """Cut strands into pieces, and reorder the rows piece by piece.

        Only the first step of a piece waits for other strands; only its last one is waited for.
        """
        made, strand = self._made, [step.placed.strand for step in self._made]
        across = [
            {one for one in step.waits if strand[one] != own}
            for own, step in zip(strand, made, strict=True)
        ]
        asked = {one for some in across for one in some}
        longest = max(_PIECE_US, sum([step.placed.us for step in made]) / (16 * self.threads))
        strands: list[list[list[int]]] = [[] for _ in range(self.threads)]
        room = [0.0] * self.threads  # microseconds that still fit in each strand's last piece
        for number, step in enumerate(made):
            own, us = strand[number], step.placed.us
            if across[number] or room[own] < us:
                strands[own].append([])
                room[own] = longest
            strands[own][-1].append(number)
            room[own] = 0.0 if number in asked else room[own] - us
        pieces = [piece for some in strands for piece in some]
        piece_of = {number: place for place, piece in enumerate(pieces) for number in piece}
        waits = [
            {piece_of[one] for number in piece for one in made[number].waits} - {place}
            for place, piece in enumerate(pieces)
        ]
        begins = [0, *accumulate(map(len, strands))]
        in_turn = one_by_one(begins, waits)
        order: list[int] = []
        spans = [(0, 0, 0)] * len(pieces)
        for place in in_turn:
            begin = len(order)
            order += [row for one in pieces[place] for row in range(*made[one].rows)]
            spans[place] = begin, len(order), self._heard[order[-1]][0]
        assert len(order) == self.computing, "a row of no step"
        self.notes[: self.computing] = [self.notes[number] for number in order]
        self.rows[: self.computing] = [
            [*self.rows[row][:-1], self._mark(row, after)]
            for row, after in zip_longest(order, order[1:])
        ]
        self.pieces = Pieces(begins, spans, nearest(waits, in_turn), os.path.dirname(path()))
        self.walk = self.pieces.walk

    def _mark(self, row: int, after: int | None) -> int:
        """Return the flags that a row checks, `LATER` if the row after it checks for both."""
        heard = self._heard[row][0]
        later = after is not None and self._heard[after] == (heard, True)
        return native.LATER if later else heard

    def strand_words(self) -> Any:
        """Return the words of a block's strands, and the arrays that must live as long."""
        return self.pieces.words()
