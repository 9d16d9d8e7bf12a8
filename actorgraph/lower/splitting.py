"""Rows of a table, and a row in parts: rows that each write some of its elements, with its bits.

Any row is parted along an axis on which its result moves: what is summed up stays together, in its
order.  NumPy's loops give an element the same bits wherever it stands, and stacks of products are
products one after another.  One product may be of other bits when it has fewer rows or columns, as
BLAS chooses how it multiplies by the shape: so parts are compared with the whole, on other numbers,
once for a shape and layout, and where a bit differs there are none.

What has its bits from a flag, or may find that the walk is to decline, has no parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.loops import Routine, call
from actorgraph.lower.multiplying import numbers

_LINE = 64
"""Bytes that two threads should not write beside each other."""

_TILES = 16, 4
"""Rows or columns of which a product has a multiple in its parts: registers hold so many."""

_UNEVEN = 1.25
"""So many times its share the largest part may have at most."""

_BY_NATURE = 3
"""Axes along which no part has to be compared: those of calls, and the first of a loop."""


class TableRow(NamedTuple):
    """A loop with its dims and strides, called along two axes; and the flags that are heard.

    `places` has base, offset, and strides along both axes of each argument, `sizes` their bytes an
    element.  The last argument is written, the others are read.
    """

    loop: Routine
    times: tuple[int, int]
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    heard: int


class _Along(NamedTuple):
    """How many there are along it, and how far each argument moves."""

    size: int
    steps: Sequence[int]


def _axes(row: TableRow) -> list[_Along] | None:
    """Return the axes of calls, then those of the loop, None where the loop is not known."""
    if row.heard == native.REFUSES:
        return None
    s, count = row.strides, len(row.sizes)
    kind = len(row.dims), len(s), count
    if kind == (1, count, count):  # elements
        own: list[Sequence[int]] = [s]
    elif kind == (2, 5, 3):  # `vecdot`
        own = [s[:3], (s[3], s[4], 0)]
    elif kind == (4, 9, 3):  # `matmul`: entries of a stack, rows, what is summed up, columns
        own = [s[:3], (s[3], 0, s[7]), (s[4], s[5], 0), (0, s[6], s[8])]
    else:
        return None
    called = zip(row.times, (row.places[2::4], row.places[3::4]), strict=True)
    return [_Along(*one) for one in (*called, *zip(row.dims, own, strict=True))]


def touched(row: TableRow) -> list[tuple[int, int, int]] | None:
    """Return base, first byte and end of what each argument shows, None where that is not known."""
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


def split(row: TableRow, parts: int) -> list[TableRow] | None:
    """Return rows that together do what one does, and may do it beside each other, or None.

    They part what lies farthest apart in the result, so that mostly each writes bytes that follow
    each other.
    """
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


def beside(rows: Sequence[TableRow], parts: int) -> Iterator[list[Sequence[TableRow]]]:
    """Yield what follows each other of rows: each time lists of rows that may be beside each other.

    There is one list where a row has no parts, else one a part.
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
    """Return what rows have in common that one step has become as its operands have gaps."""
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
    """Return where parts end, which begin at multiples of a unit, None where they are uneven."""
    ends = *[round(count * part / parts / unit) * unit for part in range(1, parts)], count
    widest = max([end - begin for begin, end in zip((0, *ends), ends)])
    return ends if widest * parts <= _UNEVEN * count else None


def _parts(row: TableRow, number: int, ends: Sequence[int]) -> list[TableRow]:
    """Return the parts of a row along an axis."""
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
    """Return the first product of a stack, in memory of its own, as far as it is of one array."""
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
    """Return whether a product has the same bits in parts."""
    spans = touched(row)
    assert spans is not None, "it is a product"
    length = [max([end for base, _, end in spans if base == one], default=1) for one in range(3)]
    char = {4: "f", 8: "d"}[row.sizes[0]]
    # Apart in memory: NumPy has another routine for a matrix and its own transpose.
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
