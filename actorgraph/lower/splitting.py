"""Rows of a table, and how a row is split: each part writes some of its elements, with its bits.

A row is split along an axis along which its result moves, so sums keep all terms in their order.
NumPy's loops give an element the same bits at any position, and a stack of products is computed one
product after another.  A single product may have other bits if it has fewer rows or columns, as
BLAS chooses its algorithm by the shape.  So its parts are compared with the whole, on other
numbers, once for each shape and layout; where a bit differs the row is not split.

Rows that take their result from a flag, or that may make the walk decline, are not split.  Machine
code of ours is split by whoever writes its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.loops import Routine, call
from actorgraph.lower.multiplying import numbers

_LINE = 64
"""Bytes of a cache line: two threads should not write to the same one."""

_TILES = 16, 4
"""Units of rows or columns for parts of a product, tried in turn: sizes of register tiles."""

_UNEVEN = 1.25
"""Most size of the largest part, as a multiple of an equal share."""

_BY_NATURE = 3
"""The first axes need no comparison of bits: the two of calls, and the first of a loop."""


Touch: TypeAlias = tuple[int, int, int, bool]
"""A base, the first byte and the end of a range in it, and whether it is written."""


class TableRow(NamedTuple):
    """A loop with its dims and strides, called along two axes; `heard` are the flags it checks.

    `places` has for each argument its base, its offset and its strides along both axes; `sizes` has
    the bytes of its elements.  The last argument is written, the others are read.  A row of our own
    machine code has what it `touches`, and its `parts` for the threads of its table, if any.
    """

    loop: Routine
    times: tuple[int, int]
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    heard: int
    touches: Sequence[Touch] = ()
    parts: Sequence[TableRow] = ()

    def moved(self, bases: Sequence[int], offsets: Sequence[int]) -> TableRow:
        """Return the row with each of its bases replaced, and moved by an offset there."""
        places = [*self.places]
        for word in range(0, len(places), 4):
            base = places[word]
            places[word : word + 2] = bases[base], places[word + 1] + offsets[base]
        touched = tuple([
            (bases[base], begin + offsets[base], end + offsets[base], writes)
            for base, begin, end, writes in self.touches
        ])  # fmt: skip
        parts = tuple([one.moved(bases, offsets) for one in self.parts])
        return self._replace(places=tuple(places), touches=touched, parts=parts)


class _Along(NamedTuple):
    """The size of an axis, and the stride of each argument along it, in bytes."""

    size: int
    steps: Sequence[int]


def _axes(row: TableRow) -> list[_Along] | None:
    """Return the axes of the calls, then those of the loop; None for other kinds of loops."""
    if row.heard == native.REFUSES:
        return None
    s, count = row.strides, len(row.sizes)
    kind = len(row.dims), len(s), count
    if kind == (1, count, count):  # elements
        own: list[Sequence[int]] = [s]
    elif kind == (2, 5, 3):  # `vecdot`
        own = [s[:3], (s[3], s[4], 0)]
    elif kind == (4, 9, 3):  # `matmul`: entries of a stack, rows, terms of the sums, columns
        own = [s[:3], (s[3], 0, s[7]), (s[4], s[5], 0), (0, s[6], s[8])]
    else:
        return None
    called = zip(row.times, (row.places[2::4], row.places[3::4]), strict=True)
    return [_Along(*one) for one in (*called, *zip(row.dims, own, strict=True))]


def touched(row: TableRow) -> list[tuple[int, int, int]] | None:
    """Return the base, first byte and end of each argument, None if the loop is not known."""
    axes = _axes(row)
    if axes is None:
        return None
    found = []
    for number, size in enumerate(row.sizes):
        base, offset = row.places[4 * number : 4 * number + 2]
        reach = [(count - 1) * steps[number] for count, steps in axes]
        begin, end = sum([min(0, one) for one in reach]), sum([max(0, one) for one in reach])
        found.append((base, offset + begin, offset + end + size))
    return found


def touches(row: TableRow) -> Sequence[Touch] | None:
    """Return what a row touches, None if that is not known."""
    if row.touches:
        return row.touches
    spans = touched(row)
    if spans is None:
        return None
    return [*[(*one, False) for one in spans[:-1]], (*spans[-1], True)]


def split(row: TableRow, parts: int) -> Sequence[TableRow] | None:
    """Return rows that together do what one does and may run in parallel, None if there are none.

    The axis with the longest stride of the result is tried first, so that the bytes that a part
    writes are mostly consecutive.
    """
    if row.parts:
        return row.parts
    axes = _axes(row) or []
    far = [abs(axis.steps[-1]) for axis in axes]
    for number in sorted(range(len(axes)), key=far.__getitem__, reverse=True):
        if not far[number]:
            break
        units = (max(1, _LINE // far[number]), 1) if number < _BY_NATURE else _TILES
        ends = next(filter(None, [_ends(axes[number].size, parts, unit) for unit in units]), None)
        if ends is None:
            continue
        if number < _BY_NATURE or _have_its_bits(_alone(row), number, ends):
            return _parts(row, number, ends)
    return None


def spans(count: int, parts: int) -> list[tuple[int, int]]:
    """Return the begin and end of each part of so many rows; none if there is one, or too few."""
    ends = [round(count * part / parts) for part in range(parts + 1)]
    return [*pairwise(ends)] if 1 < parts <= count else []


def beside(rows: Sequence[TableRow], parts: int) -> Iterator[list[Sequence[TableRow]]]:
    """Yield groups of lists of rows, in the order of `rows`; lists of a group may run in parallel.

    A group has one list per part, or a single list if a row cannot be split.
    """
    for _, group in groupby(rows, _without_offsets):
        alike = [*group]
        if len(alike) % parts == 0 and _are_apart(alike):
            size = len(alike) // parts
            yield [alike[begin : begin + size] for begin in range(0, len(alike), size)]
        else:
            for row in alike:
                yield [[one] for one in split(row, parts) or [row]]


def _without_offsets(row: TableRow) -> TableRow:
    """Return a row without offsets: what the rows of a step whose operands have gaps share."""
    places = [0 if number % 4 == 1 else word for number, word in enumerate(row.places)]
    return row._replace(places=tuple(places))


def _are_apart(rows: Sequence[TableRow]) -> bool:
    """Return whether no row touches what another one writes."""
    spans = [touched(row) or [] for row in rows]
    return all(spans) and not any(
        base == wrote and begin < written_end and written < end
        for (wrote, written, written_end), writer in [(some[-1], some) for some in spans]
        for some in spans
        if some is not writer
        for base, begin, end in some
    )


def _ends(count: int, parts: int, unit: int) -> tuple[int, ...] | None:
    """Return where parts end, which begin at multiples of `unit`; None if they are too uneven."""
    ends = *[round(count * part / parts / unit) * unit for part in range(1, parts)], count
    widest = max([end - begin for begin, end in zip((0, *ends), ends)])
    return ends if widest * parts <= _UNEVEN * count else None


def _parts(row: TableRow, number: int, ends: Sequence[int]) -> list[TableRow]:
    axes = _axes(row)
    assert axes is not None, "who knows an axis knows the loop"
    found = []
    for begin, end in zip((0, *ends), ends):
        counts = [axis.size for axis in axes]
        counts[number] = end - begin
        places = [*row.places]
        for argument, step in enumerate(axes[number].steps):
            places[4 * argument + 1] += begin * step
        found.append(
            row._replace(times=(counts[0], counts[1]), dims=tuple(counts[2:]), places=tuple(places))
        )
    return found


def _alone(row: TableRow) -> TableRow:
    """Return the first product of a stack in bases 0 to 2; operands of one base share base 0."""
    places, spans = [*row.places], touched(row._replace(dims=(1, *row.dims[1:])))
    assert spans is not None, "it is a product"
    (x_base, x, _), (y_base, y, _), (_, z, _) = spans
    same = x_base == y_base
    for argument, first in enumerate((min(x, y) if same else x, min(x, y) if same else y, z)):
        places[4 * argument] = (0, 0 if same else 1, 2)[argument]
        places[4 * argument + 1] -= first
    return row._replace(dims=(1, *row.dims[1:]), places=tuple(places))


@lru_cache(1024)
def _have_its_bits(row: TableRow, number: int, ends: Sequence[int]) -> bool:
    """Return whether the parts of a product have the bits of the whole."""
    spans = touched(row)
    assert spans is not None, "it is a product"
    length = [max([end for base, _, end in spans if base == one], default=1) for one in range(3)]
    char = {4: "f", 8: "d"}[row.sizes[0]]
    # Other bases share no memory: NumPy has another routine for a matrix and its own transpose.
    drawn = numbers(char, sum(length[:2])).view(np.uint8)
    memory = [drawn[: length[0]], drawn[length[0] :]]
    found = []
    for rows in ([row], _parts(row, number, ends)):
        result = np.zeros(length[2], np.uint8)
        for one in rows:
            at = zip(one.places[::4], one.places[1::4], strict=True)
            call(one.loop, [[*memory, result][base][offset:] for base, offset in at],
                 one.dims, one.strides)  # fmt: skip
        found.append(result.tobytes())
    return found[0] == found[1]
