"""Packing: offsets in one memory for values with known lifetimes (offset assignment).

A *span* is memory of some size that is needed from one step to another.  Spans lie in one room that
grows, or in a *loan*: an array that leaves the program, but exists from the beginning of the turn
and is not written before a certain step.  Large spans that end before that step lie in it, so that
results and intermediate values share memory.

Invariant: spans whose lifetimes overlap share no byte.

Spans are placed by time, each into the smallest gap that is free then (best fit): linear, and
mostly optimal.  Where the memory is large and clearly above the lower bound, they are placed again
by size.  Source: Y. Pisarchyk, J. Lee, Efficient memory management for deep neural net inference,
2020.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from actorgraph.graph import Node
from actorgraph.memory.buffers import (
    LENT_BYTES,
    VIEWS,
    Buffers,
    Usage,
    borrowers,
    usage,
)
from actorgraph.store import CACHE_LINE

_GOOD = 1.02
_WORTH_BYTES = 1 << 20
_MOST_SPANS = 500
"""Spans are placed again, which is quadratic, if the total is above this multiple of the bound and
above these bytes, and there are no more spans than this."""


class Span:
    """Memory of `size` bytes that is needed from step `begin` to step `end`, inclusive."""

    __slots__ = ("begin", "end", "size")

    def __init__(self, size: int, begin: int, end: int) -> None:
        self.size, self.begin, self.end = size, begin, end


class Loan(NamedTuple):
    """An array of `size` bytes that others may use before the step `written_at`, which fills it."""

    size: int
    written_at: int


class Place(NamedTuple):
    """Where a span begins: in the loan with that number, or in the room that grows (-1)."""

    loan: int
    begin: int


def pack(spans: Sequence[Span], loans: Sequence[Loan]) -> tuple[int, list[Place]]:
    """Return the size of the room, and the place of each span.

    Spans are sorted by `begin`, loans by `written_at`.
    """
    total, places = _by_time(spans, loans)
    if _WORTH_BYTES < total > _GOOD * _bound(spans, loans) and len(spans) <= _MOST_SPANS:
        again = _by_size(spans, loans)
        if again[0] < total:
            return again
    return total, places


def assign(
    steps: Sequence[Node], kept: Collection[Node], planned: Collection[int],
    symbols: Mapping[str, int], preallocated: Collection[int] = (),
    together: Collection[tuple[int, int]] = (), lends: bool = False,
) -> Buffers:  # fmt: skip
    """Plan the buffers of the `planned` steps for one binding.

    The steps `preallocated` write into arrays that leave the turn but exist from its beginning;
    they serve as loans.  What a range of steps `together` reads stays until its end, if that takes
    no more memory.  If the plan `lends`, steps outside of such ranges borrow what is idle.
    """
    lives, borrowing = usage(steps, kept, symbols), []
    if lends:
        walked = {place for one in together for place in range(*one)}
        borrowing = [place for place in borrowers(steps, symbols) if place not in walked]
    found = _laid(steps, lives, planned, preallocated, borrowing)
    within = {place: one for one in together if one[0] for place in range(*one)}
    lengthened = False
    for i, step in enumerate(steps if within else ()):
        begin, end = within.get(lives.last[step.id], (0, 0))
        if i < begin and step.id in planned:
            lives.last[step.id], lengthened = end, True
    if not lengthened:
        return found
    longer = _laid(steps, lives, planned, preallocated, borrowing)
    return longer if longer.total_bytes <= found.total_bytes else found


def idle(
    total: int, spans: Sequence[Span], places: Sequence[Place], turns: Iterable[range]
) -> list[tuple[int, int]]:
    """Return the begin and end of the largest gap in the room during each of the `turns`.

    `spans` and `turns` are sorted by their begin.
    """
    found, alive, number = list[tuple[int, int]](), list[int](), 0
    for turn in turns:
        while number < len(spans) and spans[number].begin < turn.stop:
            if places[number].loan < 0:
                alive.append(number)
            number += 1
        alive = [one for one in alive if spans[one].end >= turn.start]
        taken = sorted([
            (places[one].begin, padded(spans[one].size))
            for one in alive if spans[one].begin < turn.stop  # the turn before may end later
        ])  # fmt: skip
        begin, gaps = 0, []
        for at, size in (*taken, (total, 0)):
            gaps.append((at - begin, begin))
            begin = max(begin, at + size)
        size, begin = max(gaps)
        found.append((begin, begin + max(0, size)))
    return found


def _laid(
    steps: Sequence[Node], lives: Usage, planned: Collection[int], preallocated: Collection[int],
    borrowing: Sequence[int],
) -> Buffers:  # fmt: skip
    spans: list[Span] = []
    loans: list[Loan] = []
    hosts: list[int] = []
    span_of: dict[int, int] = {}
    in_place: set[int] = set()
    for i, step in enumerate(steps):
        if step.id in planned:
            over = overwritten(step, i, lives, span_of)
            if over is None:
                span_of[step.id] = len(spans)
                spans.append(Span(lives.bytes[step.id], i, lives.last[step.id]))
            else:
                found = span_of[step.id] = span_of[over]
                spans[found].end = lives.last[step.id]
                in_place.add(step.id)
        elif step.id in preallocated:
            loans.append(Loan(lives.bytes[step.id], i))
            hosts.append(step.id)
    total, places = pack(spans, loans)
    return Buffers(
        total,
        {number: places[span].begin for number, span in span_of.items()},
        in_place,
        {
            number: hosts[places[span].loan]
            for number, span in span_of.items()
            if places[span].loan >= 0
        },
        {
            steps[place].id: gap
            for place, gap in zip(
                borrowing,
                idle(total, spans, places, [range(one, one + 1) for one in borrowing]),
                strict=True,
            )
            if gap[1] - gap[0] >= LENT_BYTES
        },
    )


def overwritten(step: Node, position: int, lives: Usage, span_of: Mapping[int, int]) -> int | None:
    """Return the id of an operand that a step may overwrite: of its type, and dead afterwards.

    NumPy detects overlapping operands of a ufunc; for other ops no other operand may be a view of
    it.  Complex values are never overwritten: NumPy rounds a product of one element otherwise when
    it is computed in place.
    """
    op = step.op
    if step.dtype.kind == "c":
        return None
    if op.ufunc is not None and not op.memory.takes_out:
        parts = step.inputs
    elif op.memory.in_place and not any(part.op.memory.layout in VIEWS for part in step.inputs):
        parts = tuple([step.inputs[number] for number in op.memory.in_place])
    else:
        return None
    for part in parts:
        if (
            part.id in span_of
            and lives.last[part.id] == position
            and part.dims == step.dims
            and part.dtype == step.dtype
            and (op.ufunc is not None or sum([one is part for one in step.inputs]) == 1)
        ):
            return part.id
    return None


def padded(size: int) -> int:
    """Return a size in bytes that leaves what lies behind it aligned."""
    return size + -size % CACHE_LINE


def _capacity(loan: Loan) -> int:
    return loan.size - loan.size % CACHE_LINE


def _last(spans: Sequence[Span]) -> int:
    return max([span.end for span in spans], default=0)


def _bound(spans: Sequence[Span], loans: Sequence[Loan]) -> int:
    """Return a lower bound of the room's size: the most live bytes beyond the open loans."""
    last = _last(spans)
    change = [0] * (last + 2)
    for span in spans:
        change[span.begin] += padded(span.size)
        change[span.end + 1] -= padded(span.size)
    for loan in loans:
        change[0] -= _capacity(loan)
        change[min(loan.written_at, last + 1)] += _capacity(loan)
    live = most = 0
    for one in change:
        live += one
        most = max(most, live)
    return most


# -- by time ----------------------------------------------------------------------------------


def _by_time(spans: Sequence[Span], loans: Sequence[Loan]) -> tuple[int, list[Place]]:
    own, lent = _Room(), [_Room(_capacity(loan)) for loan in loans]
    ending: list[list[tuple[_Room, int, int]]] = [[] for _ in range(_last(spans) + 1)]
    places: list[Place] = []
    released = 0
    for span in spans:
        for room, begin, size in chain.from_iterable(ending[released : span.begin]):
            room.give(begin, size)
        released = span.begin
        room, size, chosen = own, padded(span.size), -1
        if size >= LENT_BYTES and not own.fits(size):
            for index, loan in enumerate(loans):
                if span.end < loan.written_at and lent[index].fits(size):
                    room, chosen = lent[index], index
                    break
        begin = room.take(size)
        places.append(Place(chosen, begin))
        ending[span.end].append((room, begin, size))
    return own.end, places


class _Room:
    """Memory that grows at its end, or an array of `size` bytes, with an index of its gaps.

    Gaps never touch.  `free` is sorted by size, then begin; `from_begin` and `to_end` have the
    sizes of gaps by their begin and by their end.
    """

    def __init__(self, size: int = 0) -> None:
        self.free: list[tuple[int, int]] = []
        self.from_begin: dict[int, int] = {}
        self.to_end: dict[int, int] = {}
        self.end = size
        self.give(0, size)

    def fits(self, size: int) -> bool:
        """Return whether there is a gap of at least `size` bytes."""
        return bool(self.free) and self.free[-1][0] >= size

    def take(self, size: int) -> int:
        """Take `size` bytes of the smallest gap that fits, else of the end; return the begin."""
        if not size:
            return 0
        index = bisect(self.free, (size, -1))
        if index < len(self.free):
            free, begin = self.free.pop(index)
            del self.from_begin[begin], self.to_end[begin + free]
            if free > size:
                self._add(begin + size, free - size)
            return begin
        last = self.to_end.get(self.end, 0)
        begin = self.end - last
        if last:
            self._remove(begin, last)
        self.end = begin + size
        return begin

    def give(self, begin: int, size: int) -> None:
        """Free bytes, merging them with the gaps that they touch."""
        if not size:
            return
        after = self.from_begin.get(begin + size, 0)
        if after:
            self._remove(begin + size, after)
        before = self.to_end.get(begin, 0)
        if before:
            self._remove(begin - before, before)
        self._add(begin - before, before + size + after)

    def _add(self, begin: int, size: int) -> None:
        insort(self.free, (size, begin))
        self.from_begin[begin] = self.to_end[begin + size] = size

    def _remove(self, begin: int, size: int) -> None:
        del self.free[bisect(self.free, (size, begin)) - 1]
        del self.from_begin[begin], self.to_end[begin + size]


# -- by size ----------------------------------------------------------------------------------


_Laid: TypeAlias = list[tuple[int, int, Span]]
"""Placed spans: begin and end in memory, and the span."""


def _by_size(spans: Sequence[Span], loans: Sequence[Loan]) -> tuple[int, list[Place]]:
    """Place the largest spans first, each in the smallest gap between those that it overlaps."""
    own: _Laid = []
    lent: list[_Laid] = [[] for _ in loans]
    places = [Place(-1, 0)] * len(spans)
    total = 0
    for number in sorted(range(len(spans)), key=[-span.size for span in spans].__getitem__):
        span, size = spans[number], padded(spans[number].size)
        chosen, begin = -1, None
        for index, loan in enumerate(loans if size >= LENT_BYTES else ()):
            if span.end < loan.written_at:
                begin = _gap(lent[index], span, size, _capacity(loan))
                if begin is not None:
                    chosen = index
                    break
        if begin is None:
            begin = _gap(own, span, size, None)
            assert begin is not None
            total = max(total, begin + size)
        places[number] = Place(chosen, begin)
        (own if chosen < 0 else lent[chosen]).append((begin, begin + size, span))
    return total, places


def _gap(laid: _Laid, span: Span, size: int, limit: int | None) -> int | None:
    """Return the begin of the smallest gap of `size` bytes, else the end if the limit allows it."""
    beside = [
        (begin, end)
        for begin, end, other in laid
        if other.begin <= span.end and span.begin <= other.end
    ]
    best = found = None
    free = 0
    for begin, end in sorted(beside):
        gap = begin - free
        if gap >= size and (best is None or gap < best):
            best, found = gap, free
        free = max(free, end)
    if found is None and (limit is None or limit - free >= size):
        return free
    return found
