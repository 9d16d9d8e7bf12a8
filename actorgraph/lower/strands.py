"""Rows of a table in strands: list scheduling of a stretch for several threads.

A step that takes long is divided into parts, one a thread, as far as its rows can be split
(`splitting`).  Steps and parts are scheduled by their predicted costs: each begins as early as
possible, in a strand that is free by then.  Memory is planned, and rows are written, in the order
in which steps begin, which is a topological order of the steps.

Dependences follow from memory alone.  A *unit* is a step, or one part of its rows.  If two units
touch the same bytes and one of them writes there, the later one waits.  So a part that reads only
what the same part wrote before waits for no other thread, and every order in which pieces may be
taken (`devices.strands`) gives the bits of the sequential order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from itertools import accumulate, cycle, pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np

from actorgraph.devices.helpers import HELPERS
from actorgraph.devices.strands import Pieces
from actorgraph.errors import counted
from actorgraph.graph import Node
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.rates import rates
from actorgraph.lower.splitting import TableRow, Touch, beside, touches
from actorgraph.lower.spots import Unfit
from actorgraph.lower.table_rows import Written, later
from actorgraph.memory.buffers import size_in_bytes

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

_PARTED_US, _FOLLOWING_US, _PARTED_ROOMS = 10.0, 1.0, 2
"""Least predicted time of a step that is divided into parts, and of one that reads such a step;
rooms that these write into in turn, so that a part seldom waits for another strand that still uses
the memory of the step before."""


def timed(
    before: Sequence[Sequence[int]], costs: Sequence[float], sizes: Sequence[int], threads: int
) -> tuple[list[int], list[float], float]:
    """Schedule steps on threads; return each one's strand and start, and when the last one ends.

    `before` has the numbers of each step's operands, which are earlier in the order, and `sizes`
    the bytes that it writes.  A step's *home* is the strand that holds most of the bytes it reads;
    steps that read nothing have their neighbours' home.  Of equal candidates a strand prefers one
    whose home it is.
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
    free, every = [0.0] * threads, range(threads)
    strands, begins, ended = [0] * len(left), [0.0] * len(left), [0.0] * len(left)
    moved_us = [_CROSSED_US + size / rates().bytes_per_us for size in sizes]
    # When a strand may have what a step that is ready reads, and how long it reads from others.
    known: dict[int, list[tuple[float, float]]] = {one: [(0.0, 0.0)] * threads for one in first}
    for _ in before:
        best = inf, False, 0, 0, 0
        for home, some in enumerate(ready):
            for number in some[:_LOOKED_AT]:
                for strand, (at, spent) in enumerate(known[number]):
                    since = max(at, free[strand]) + spent
                    if since <= best[0]:
                        best = min(best, (since, home != strand, number, strand, home))
        since, _, number, strand, home = best
        ready[home].remove(number)
        del known[number]
        strands[number], begins[number] = strand, since
        ended[number] = free[strand] = since + costs[number]
        for one in after[number]:
            left[one] -= 1
            if not left[one]:
                has = [0.0] * threads
                for part in before[one]:
                    has[strands[part]] += moved_us[part]
                home = min([(-has[s], free[s], s) for s in every])[2]
                insort(ready[home], one)
                known[one] = [
                    (
                        max([ended[p] + _CROSSING_US * (strands[p] != s) for p in before[one]]),
                        sum([moved_us[p] for p in before[one] if strands[p] != s]),
                    )
                    for s in every
                ]
    return strands, begins, max(free)


class _Bytes(NamedTuple):
    """The units that last wrote a range of bytes, and those that have read it since."""

    wrote: list[int]
    read: list[int]


class Touched:
    """The latest readers and writers of all bytes, for units that are added in sequential order."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[list[int], list[_Bytes]]] = {}  # where each range begins, by base

    def touch(self, first: int, several: Sequence[Sequence[Touch]]) -> list[set[int]]:
        """Add units, numbered from `first`, with what they touch; return what each one waits for.

        They do not wait for each other: none touches a byte that another one writes.
        """
        waits = [set[int]() for _ in several]
        if len(several) == 1:
            self._touch(first, several[0], waits[0])
            return waits
        for own, some in zip(waits, several, strict=True):
            for base, begin, end, writes in some:
                _, found, since, until = self._between(base, begin, end)
                for one in found[since:until]:
                    own.update(one.wrote, one.read if writes else ())
        for who, some in enumerate(several, first):
            for base, begin, end, writes in some:
                begins, found, since, until = self._between(base, begin, end)
                for one in found[since:until]:
                    if not writes:
                        one.read.append(who)
                    else:  # this unit supersedes earlier ones, but not those that are added with it
                        one.wrote[:] = [*[other for other in one.wrote if other >= first], who]
                        one.read[:] = [other for other in one.read if other >= first]
                if writes and all(one == found[since] for one in found[since:until]):
                    del begins[since + 1 : until], found[since + 1 : until]
        return waits

    def _touch(self, who: int, some: Sequence[Touch], own: set[int]) -> None:
        """Do as `touch` for one unit, in a single pass."""
        for base, begin, end, writes in some:
            begins, found, since, until = self._between(base, begin, end)
            for wrote, read in found[since:until]:
                own.update(wrote)
                if writes:
                    own.update(read)
                else:
                    read.append(who)
            if writes:
                begins[since:until], found[since:until] = [begin], [_Bytes([who], [])]
        own.discard(who)

    def _between(self, base: int, begin: int, end: int) -> tuple[list[int], list[_Bytes], int, int]:
        """Return the begins and ranges of a base, and the first and end of those in these bytes."""
        if base not in self._of:
            self._of[base] = [0], [_Bytes([], [])]
        begins, found = self._of[base]
        since, until = [self._place(begins, found, at) for at in (begin, end)]
        return begins, found, since, until

    @staticmethod
    def _place(begins: list[int], found: list[_Bytes], at: int) -> int:
        """Return the index of the range that begins at a byte; split the one before if needed."""
        place = bisect_left(begins, at)
        if place == len(begins) or begins[place] != at:
            begins.insert(place, at)
            found.insert(place, _Bytes(*map(list, found[place - 1])))
        return place


def one_by_one(begins: Sequence[int], waits: Sequence[Collection[int]]) -> list[int]:
    """Return the order in which one thread does all pieces: it leaves a strand only if that waits.

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
    """When a step begins, the strand of each of its parts, and their predicted time in total.

    Then the room that it writes into, and whether another strand reads its value.
    """

    begin: float
    strands: Sequence[int]
    us: float
    room: int
    crosses: bool


_FIRST = _Placed(-1.0, (0,), _ROW_US, 0, False)


def stranded(stretch: Any, symbols: Mapping[str, int], workers: int) -> StrandRows | None:
    """Return the rows of a stretch in strands, or None where that is predicted to gain too little.

    `stretch` is a `table.Stretch`.
    """
    steps, threads = stretch.steps, min(workers, HELPERS.count + 1)
    if threads < 2 or len(steps) > _MOST_STEPS:
        return None
    known: dict[int, tuple[float, int]] = {}
    costs, sizes, before = list[float](), list[int](), list[list[int]]()
    place_of: dict[int, int] = {}  # number of the step with rows; for a view, of its base
    unwritten = set[int]()
    for step in steps:
        some = {place_of[part.id] for part in step.inputs if part.id in place_of}
        if step.id in stretch.views:
            place_of.update([(step.id, one) for one in some])
            continue
        if not step.inputs:  # memory that its first reader writes
            unwritten.add(step.id)
            continue
        key = ~step.id if step.op.predicted else stretch.classes.get(step.id, ~step.id)
        if key not in known:
            us = _ROW_US + predicted_us(step, symbols, walked=True)
            known[key] = us, size_in_bytes(step, symbols)
        us, size = known[key]
        if unwritten:
            written = unwritten.intersection([one.id for one in step.inputs])
            unwritten -= written
            place_of.update(dict.fromkeys(written, len(costs)))
        place_of[step.id] = len(costs)
        costs.append(us)
        sizes.append(size)
        before.append(sorted(some))
    if sum(costs) < _LEAST_US:
        return None
    laid = _laid(before, costs, sizes, threads)
    if laid is None:
        return None
    places = {step.id: place_of.get(step.id) for step in steps}  # None for views of inputs
    of = {one: _FIRST if place is None else laid[place] for one, place in places.items()}
    since = [of[step.id].begin for step in steps]
    ordered = copy(stretch)
    ordered.steps = [steps[one] for one in sorted(range(len(steps)), key=since.__getitem__)]
    try:
        rows = StrandRows(ordered, symbols, of, threads)
    except Unfit:
        return None
    return rows if rows.total < _MOST_BYTES else None


def _laid(
    before: Sequence[Sequence[int]], costs: Sequence[float], sizes: Sequence[int], threads: int
) -> list[_Placed] | None:
    """Return the placement of steps, with long ones in one part a thread if that pays off.

    It does not if whole steps keep all threads about as busy.  Return None if the strands are not
    predicted to end much earlier than one thread would.
    """
    parts = list[int]()
    for us, some in zip(costs, before, strict=True):
        is_long = us >= _PARTED_US or (us >= _FOLLOWING_US and any(parts[one] > 1 for one in some))
        parts.append(threads if is_long else 1)
    found, ends_us = _in_parts(before, costs, sizes, threads, [1] * len(parts))
    if max(parts) > 1:
        parted = _in_parts(before, costs, sizes, threads, parts)
        if parted[1] < _WORTH * ends_us:
            found, ends_us = parted
    return found if ends_us <= _WORTH * sum(costs) else None


def _in_parts(
    before: Sequence[Sequence[int]], costs: Sequence[float], sizes: Sequence[int], threads: int,
    parts: Sequence[int],
) -> tuple[list[_Placed], float]:  # fmt: skip
    """Return the placement of steps that have these numbers of parts, and when the last one ends.

    A part is assumed to need only the same part of operands in parts, which is mostly true.
    """
    units = [*accumulate(parts, initial=0)]
    needed = list[list[int]]()
    for some, count in zip(before, parts, strict=True):
        for part in range(count):
            one_each = [units[one] + part for one in some if parts[one] == count]
            others = [one for one in some if parts[one] != count]
            every = [unit for one in others for unit in range(units[one], units[one + 1])]
            needed.append([*one_each, *every])
    of = [number for number, count in enumerate(parts) for _ in range(count)]
    each_us = [costs[number] / parts[number] for number in of]
    each_size = [sizes[number] // parts[number] for number in of]
    strands, begins, ends_us = timed(needed, each_us, each_size, threads)
    crosses = [count > 1 for count in parts]
    for unit, some in enumerate(needed):
        for one in some:
            crosses[of[one]] |= strands[one] != strands[unit]
    found, rooms = list[_Placed](), cycle(range(threads, threads + _PARTED_ROOMS))
    for number, (begin, end) in enumerate(pairwise(units)):
        own = strands[begin:end]
        room = own[0] if len(own) == 1 else next(rooms)
        found.append(_Placed(begins[begin], own, costs[number], room, crosses[number]))
    return found, ends_us


class _Unit(NamedTuple):
    """Rows that one thread executes: strand, predicted time, and the units that they wait for.

    `rows` are the numbers of rows of whole steps, or a part of the step with the id `part_of`.
    """

    strand: int
    us: float
    rows: range | Sequence[TableRow]
    waits: set[int]
    part_of: int | None = None


class StrandRows(Written):
    """Writes the rows of a stretch in strands.

    Rows of whole steps come first, for one thread (see `table._ALONE`).  Those of pieces follow,
    with steps in parts; one thread would need longer for these.
    """

    def __init__(
        self, stretch: Any, symbols: Mapping[str, int], placed: Mapping[int, _Placed], threads: int,
    ) -> None:  # fmt: skip
        self._placed, self.threads, self.rooms = placed, threads, threads + _PARTED_ROOMS
        self._touched, self._made = Touched(), list[_Unit]()
        self._first_made = len(stretch.given)
        super().__init__(stretch, symbols)
        self._cut()

    @property
    def story(self) -> str:
        """How many threads walk the rows, and the measured times that decided it."""
        trial = self.pieces.trial
        who = (
            f"{self.threads} threads walk"
            if trial.gains
            else f"one thread walks, not {self.threads},"
        )
        split = {unit.part_of for unit in self._made}
        parts = f", {counted(len(split), 'step')} split between them" if split else ""
        return (
            f"{who} {counted(len(self.pieces.waits), 'piece')} in {self.threads} strands{parts}: "
            f"{trial.timing(self.threads)}"
        )

    def room(self, step: Node) -> int:
        return self._placed[step.id].room

    def stays(self, step: Node) -> int:
        return _SLACK if self._placed[step.id].crosses else 0

    def parts(self, step: Node) -> int:
        """Return the number of parts of a step's rows."""
        return len(self._placed[step.id].strands)

    def wrote(self, step: Node, begin: int) -> None:
        """Record the rows of a step from `begin` on, in parts, and what each part waits for."""
        strands, us = self._placed[step.id].strands, self._placed[step.id].us
        number, first = self.columns.steps[-1]
        kind = self.columns.kinds[number]
        whole = self.columns.moved(kind, first) if len(strands) > 1 or kind.rows[0].touches else ()
        every = [one for row in whole for one in row.touches]
        if not whole or any(not row.touches for row in whole):
            read = [self.lies(one) for one in step.inputs if one.id in self.places]
            every += [(base, begin, end, False) for base, begin, end, *_ in read]
            every.append((*self.lies(step)[:3], True))
            every.append((self.scratch_base, self._room_begin, self.scratch_end, True))
        every = self._made_ones(every)
        if len(strands) == 1:
            [waits] = self._touched.touch(len(self._made), [every])
            self._made.append(_Unit(strands[0], us, range(begin, self.count), waits))
            return
        for several in beside(whole, len(strands)):
            own_touches = [
                [one for row in rows for one in self._touches(row, every)] for rows in several
            ]
            behind = self._touched.touch(len(self._made), own_touches)
            for strand, rows, own in zip(strands, several, behind, strict=False):
                part_of = step.id if len(several) > 1 else None
                self._made.append(_Unit(strand, us / len(whole), rows, own, part_of))

    def _touches(self, row: TableRow, every: Sequence[Touch]) -> Sequence[Touch]:
        """Return what a row touches; if that is not known, what all rows of its step touch."""
        found = touches(row)
        return every if found is None else self._made_ones(found)

    def _made_ones(self, found: Sequence[Touch]) -> list[Touch]:
        """Leave out empty ranges, and constants and inputs, as they are never written."""
        end = self._first_room + self.rooms
        return [one for one in found if self._first_made <= one[0] < end and one[1] < one[2]]

    def _cut(self) -> None:
        """Cut strands into pieces, and write their rows.

        Only the first unit of a piece waits for other strands, and these wait only for its last.
        """
        made, strand = self._made, [unit.strand for unit in self._made]
        across = [
            {one for one in unit.waits if strand[one] != own}
            for own, unit in zip(strand, made, strict=True)
        ]
        asked = {one for some in across for one in some}
        longest = max(_PIECE_US, sum([unit.us for unit in made]) / (16 * self.threads))
        strands: list[list[list[int]]] = [[] for _ in range(self.threads)]
        room = [0.0] * self.threads  # the time left in each strand's last piece
        for number, unit in enumerate(made):
            own, us = strand[number], unit.us
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
        spans = [(0, 0)] * len(pieces)
        taken, parts, end = list[int](), list[TableRow](), self.count
        for place in in_turn:
            begin = len(taken)
            for one in pieces[place]:
                rows = made[one].rows
                if not isinstance(rows, range):
                    first = self.count + len(parts)
                    parts += rows
                    rows = range(first, first + len(rows))
                taken += rows
            spans[place] = end + begin, end + len(taken)
        lines, keeps = map(
            np.concatenate,
            zip(self.columns.words(len(self.sizes)), self.columns.words_of(parts), strict=True),
        )
        lines, keeps = [np.concatenate([one[:end], one[taken]]) for one in (lines, keeps)]
        self.columns.made = later(lines, keeps, {self.computing, *[stop for _, stop in spans]})
        self.pieces = Pieces(begins, spans, nearest(waits, in_turn))
        # Thousands of objects, which the collector would go through as long as the table lives.
        self._made = [unit for unit in made if unit.part_of is not None]
        del self._touched
