"""The rows of a table, written by columns for the sizes of a run; see `table`.

Steps of one class (`kernels.class_numbers`) whose operands are laid out alike have the same rows,
but for where their arguments begin.  So `row_writing` writes these once for each `_StepKind`, with
every argument in a base of its own.  A step then takes the note of its kind and its arguments, and
all rows become words at once, by NumPy: `Written.lines`.

Invariant: every access of a row lies within its base's memory.  The rows of a kind stay within
their arguments, which is checked as they are written, and arguments lie within their bases, which
`Written` checks for all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from time import sleep
from typing import Any, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.graph import Node
from actorgraph.lower.kernels import class_numbers
from actorgraph.lower.row_writing import RowWriter
from actorgraph.lower.splitting import TableRow
from actorgraph.lower.spots import Spot, Unfit, strides_of
from actorgraph.lower.walkable import may_overwrite
from actorgraph.memory.buffers import Memory, aligned, usage
from actorgraph.memory.packing import Span, pack, padded

_HANDED_OVER = 128
"""Steps whose rows are written before the GIL is offered to other threads: some 0.5 ms."""

_SMALL_BYTES = 16 * 1024
"""Most bytes of constants that kinds of steps share."""


_Place: TypeAlias = tuple[int, int, int, int, tuple[int, ...], int]
"""Where a value lies: its base, its first byte there and the end; then the offset, strides and size
of its elements.  Plain tuples, as there is one for each value."""


@dataclass(slots=True)
class _StepKind:
    """The rows of all steps that are alike.

    In `rows` a base is the number of an argument, and an offset counts from where that begins.  The
    arguments are the operands, the result unless it is a view, `scratch` bytes, and `constants`,
    which have bases of their own.
    Of a view `shown` is the place, in terms of an argument, and the shape.
    """

    name: str
    rows: Sequence[TableRow]
    number: int
    scratch: int = 0
    constants: Sequence[int] = ()
    arguments: int = 0
    shown: tuple[_Place, tuple[int, ...]] | None = None


class _Columns:
    """The rows of steps as they are taken, and as words.

    - `kinds`: all, `kind_of` those of many steps, by what makes steps alike
    - `constants`: bases of those that kinds read, by value or identity
    - `steps`: of each with rows the number of its kind and where its arguments begin, -1 for rows
      of one step alone, whose bases and offsets are those of the table
    - `bases`, `offsets`: of all arguments
    - `functions`: addresses of functions that were compiled after their rows were written
    - `made`: the words, where they are not simply all rows in turn
    """

    def __init__(self) -> None:
        self.kinds: list[_StepKind] = []
        self.kind_of: dict[Any, _StepKind] = {}
        self.constants: dict[Any, int] = {}
        self.steps: Any = []
        self.bases: Any = []
        self.offsets: Any = []
        self.functions: dict[int, int] = {}
        self.made: native.Words | None = None
        self._arrays: dict[tuple[int, ...], tuple[int, Any]] = {}

    def complete(self) -> None:
        """Forget what only adding steps needs, and objects that the collector would go through."""
        self.kind_of, self.constants = {}, {}
        self.bases, self.offsets = map(np.array, (self.bases, self.offsets))
        self.steps = np.array(self.steps, np.int64).reshape(-1, 2)

    @property
    def notes(self) -> list[tuple[str, TableRow]]:
        """Each row with the name of its op."""
        found = []
        for number, first in self.steps:
            kind = self.kinds[number]
            found += [(kind.name, row) for row in self.moved(kind, first)]
        return found

    def moved(self, kind: _StepKind, first: int) -> Sequence[TableRow]:
        """Return the rows of a step whose arguments begin at `first`."""
        if first < 0:
            return kind.rows
        own = slice(first, first + kind.arguments)
        return [row.moved(self.bases[own], self.offsets[own]) for row in kind.rows]

    def words(self, count: int) -> tuple[native.Words, np.ndarray[Any, Any]]:
        """Return the rows as words, with the flags that each hears; and whether it keeps flags.

        So many bases may be those of rows of one step alone.
        """
        every = [row for kind in self.kinds for row in kind.rows]
        words, keeps = self.words_of(every)
        of, first = self.steps.T
        counts = np.array([len(kind.rows) for kind in self.kinds], np.int64)
        times = counts[of]
        step = np.repeat(np.arange(len(of)), times)
        rows = np.arange(len(step)) + (np.cumsum(counts)[of] - np.cumsum(times))[step]
        lines = words[rows]
        # The first arguments are bases as they are, for rows of one step alone.
        bases = np.array([*range(count), *self.bases], np.int64)
        offsets = np.array([*[0] * count, *self.offsets], np.int64)
        shift = np.where(first < 0, 0, first + count)[step]
        for word in range(6, native.ROW_WORDS - 1, 4):
            argument = lines[:, word] + shift
            lines[:, word] = bases[argument]
            lines[:, word + 1] += offsets[argument]
        return lines, keeps[rows]

    def words_of(self, rows: Sequence[TableRow]) -> tuple[native.Words, np.ndarray[Any, Any]]:
        """Return rows as machine code reads them, and whether each keeps flags."""
        found = []
        for row in rows:
            function = self.functions.get(row.loop.function, row.loop.function)
            words = [function, row.loop.data, self._words(row.dims), self._words(row.strides)]
            none = [0] * (native.ROW_WORDS - 7 - len(row.places))
            found.append([*words, *row.times, *row.places, *none, row.heard])
        keeps = np.array([row.loop.keeps_flags for row in rows], bool)
        return np.array(found, np.int64).reshape(-1, native.ROW_WORDS), keeps

    def _words(self, numbers: Sequence[int]) -> int:
        """Return the address of an array of these numbers, which stays."""
        key = tuple(numbers)
        found = self._arrays.get(key)
        if found is None:
            array = np.array(key, np.int64)
            found = self._arrays[key] = array.ctypes.data, array
        return found[0]


class _OfKind(RowWriter):
    """Writes the rows of a kind of steps."""

    def __init__(
        self, symbols: Mapping[str, int], code_row: Callable[[Any, Node], bool] | None, parts: int
    ) -> None:
        super().__init__(symbols, code_row)
        self._number = parts

    def parts(self, step: Node) -> int:
        return self._number


class Written(RowWriter):
    """Writes the rows of a stretch for one binding of its dims.

    Values lie in *bases*, which a row addresses by number and offset.  The bases are, in this
    order: inputs, results and other arrays of the run (`objects`), the table's memory (one base a
    room), constants.  `stretch` is a `table.Stretch` for that binding, or has its attributes.
    Subclasses override `in_another_row`, `parts`, `room`, `stays` and `wrote`.
    """

    rooms = 1
    """Parts of the memory; a value reuses only memory of its own room."""

    pieces: Any = None
    """The `strands.Pieces` of rows that several threads may walk."""

    overwrites = True
    """Whether a step may write over an operand; other steps of a group might still read that."""

    def __init__(self, stretch: Any, symbols: Mapping[str, int]) -> None:
        super().__init__(symbols, stretch.code_row)
        self.others, self._odd = stretch.others, stretch.odd
        self.columns = _Columns()
        self._layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...], int]] = {}
        self._at: dict[int, _Place] = {}
        self._classes, self.count = stretch.classes or class_numbers(stretch.steps), 0
        self._views = stretch.views
        apart = [step for step, of in stretch.shared.items() if step is of]
        self.objects: list[Node] = [*stretch.given, *stretch.results, *apart]
        for base, node in enumerate(self.objects):
            self.sizes.append(self._layout(node)[2])
            if node.id not in stretch.copied:
                self._whole(node, base, 0)
        self.places |= {step.id: self.places[of.id] for step, of in stretch.shared.items()}
        self._lay(stretch)
        self._write(stretch.steps)
        self.bytes = sum([self._layout(step)[2] for step in stretch.steps])
        self.given_bytes = sum(self.sizes[: len(stretch.given)])
        self.computing = self.count  # rows behind it copy, unless there were errors
        for base, node in enumerate(self.objects):
            if node.id in stretch.copied:
                self.bytes_copied(self.places[node.id], Spot(base, 0, (), (), 1), self.sizes[base])
        self._take("copy")
        self._check(stretch.steps)
        self.columns.complete()
        self._at, self._classes = {}, {}

    def _write(self, steps: Sequence[Node]) -> None:
        for position, step in enumerate(steps):
            if position % _HANDED_OVER == 0:
                sleep(0)
            begin = self.count
            try:
                self._step(step)
            except Unfit as unfit:
                unfit.position = position
                raise
            if self.count > begin:
                self.wrote(step, begin)

    def in_another_row(self, step: Node) -> bool:
        """Write a step's rows in a way of the subclass's own; return whether that was done."""
        return False

    @property
    def story(self) -> str:
        """How the rows are walked, for `comments`; empty for one thread."""
        return ""

    @property
    def total(self) -> int:
        """The bytes of the table's memory."""
        return self.begins[-1]

    @property
    def begins(self) -> list[int]:
        """Where each room begins in the table's memory, and the end."""
        begins, end = [], 0
        for size in self.sizes[self._first_room : self._first_room + self.rooms]:
            begins.append(padded(end))
            end = begins[-1] + size
        return [*begins, end]

    def room(self, step: Node) -> int:
        """Return the number of the room that a step writes into."""
        return 0

    def stays(self, step: Node) -> int:
        """Return for how many steps after its last use a value keeps its memory."""
        return 0

    def wrote(self, step: Node, begin: int) -> None:
        """Take note of a step's rows, which start at row `begin`."""

    # -- rows as words ----------------------------------------------------------------------------

    @property
    def lines(self) -> native.Words:
        """The rows as words for machine code."""
        if self.columns.made is not None:
            return self.columns.made
        return later(*self.columns.words(len(self.sizes)), {self.computing})

    def specs(self, writable: Container[int], moving: Container[int] = ()) -> native.Words:
        """Return `native.spec` of each input and result; `moving` ones advance each iteration."""
        found = [
            native.spec(
                node.dtype, size // node.dtype.itemsize, writable=base in writable,
                further=size * (base in moving),
            )
            for base, (node, size) in enumerate(zip(self.objects, self.sizes))
        ]  # fmt: skip
        return np.array(found, np.int64)

    def block(
        self, specs: native.Words, lines: native.Words, lent: bool = False
    ) -> tuple[native.Words, Memory, Any]:
        """Return a block, its memory and strand words; the caller keeps them, specs and lines.

        If its memory is `lent`, a walk is given that behind the arrays, one for each room.
        """
        memory, strands = aligned(1 if lent else max(self.total, 1)), None
        bases = [] if lent else [memory.ctypes.data + begin for begin in self.begins[:-1]]
        bases += [value.ctypes.data for value in self.kept]
        block = native.block(specs, lines[: self.count], bases, self.computing)
        if self.pieces is not None:
            strands = self.pieces.words()
            block[native.STRANDS] = strands[0].ctypes.data
        return block, memory, strands

    # -- the rows of a step -----------------------------------------------------------------------

    def _step(self, step: Node) -> None:
        room = self.room(step) if self.rooms > 1 else 0
        self.scratch_base = self._first_room + room
        self.scratch_end = self._room_begin = self._within[room]
        write = self.others.get(step.op) if self.others else None
        if write is not None:
            write(self, step)
        elif not self.in_another_row(step):
            self._alike(step)
            return
        self._take(step.op.name)

    def _take(self, name: str) -> None:
        """Take the rows that were written for one step alone."""
        if self.rows:
            kind = _StepKind(name, self.rows, len(self.columns.kinds))
            self.columns.kinds.append(kind)
            self.columns.steps.append((kind.number, -1))
            self.count, self.rows = self.count + len(self.rows), []

    def _alike(self, step: Node) -> None:
        """Take note of a step's kind and arguments; the place of a view follows from these."""
        number, at = step.id, self._at
        nodes = (*step.inputs, step) if number in self.places else step.inputs
        try:
            places = [at[node.id] for node in nodes]
        except KeyError:
            places = [*map(self.lies, nodes)]
        parts, meetings = self.parts(step), _meetings(places)
        key = self._classes.get(number, ~number), parts, meetings, *[one[4] for one in places]
        kind = self.columns.kind_of.get(key)
        if kind is None:
            kind = self.columns.kind_of[key] = self._written(step, nodes, places, meetings)
        begin = self.scratch_end
        if kind.rows:
            self.columns.steps.append((kind.number, len(self.columns.bases)))
            self.columns.bases += [*[one[0] for one in places], self.scratch_base, *kind.constants]
            self.columns.offsets += [*[one[3] for one in places], begin, *[0] * len(kind.constants)]
            self.count += len(kind.rows)
            if kind.scratch:
                end = self.scratch_end = begin + kind.scratch
                self.sizes[self.scratch_base] = max(self.sizes[self.scratch_base], end)
        if kind.shown is not None:
            (of, first, end, offset, strides, itemsize), shape = kind.shown
            base, by = self.scratch_base, begin
            if of < len(places):
                base, _, _, by, *_ = places[of]
            self.places[number] = Spot(base, offset + by, shape, strides, itemsize)
            at[number] = base, first + by, end + by, offset + by, strides, itemsize
            # A copy outlives its step.
            self._within[self.scratch_base - self._first_room] = self.scratch_end

    def lies(self, node: Node) -> _Place:
        """Return where a value lies."""
        if node.id not in self._at:
            self._at[node.id] = _place_of(self.place(node))
        return self._at[node.id]

    def _written(
        self, step: Node, nodes: Sequence[Node], places: Sequence[_Place],
        meetings: Sequence[tuple[int, int, int]],
    ) -> _StepKind:  # fmt: skip
        """Write the rows of a step for all of its kind; arguments that meet lie in one base."""
        rows, count = _OfKind(self.symbols, self._code_row, self.parts(step)), len(places)
        lead, shifts = [*range(count)], [0] * count
        for one, other, shift in meetings:
            lead[one], shifts[one] = lead[other], shifts[other] + shift
        rows.sizes, rows.scratch_base = [0] * (count + 1), count
        for base in {*lead}:
            own = [(one, places[one]) for one in range(count) if lead[one] == base]
            first = min([shifts[one] + at[1] - at[3] for one, at in own])
            for one, _ in own:
                shifts[one] -= first
            rows.sizes[base] = max([shifts[one] + at[2] - at[3] for one, at in own])
        for node, base, shift in zip(nodes, lead, shifts, strict=True):
            spot = self.places[node.id]
            rows.places[node.id] = spot._replace(base=base, offset=shift)
        rows.step(step)
        back = [*[-one for one in shifts], *[0] * (1 + len(rows.kept))]
        found = [row.moved(range(len(back)), back) for row in rows.rows]
        kind = _StepKind(step.op.name, found, len(self.columns.kinds), rows.scratch_end)
        kind.constants, kind.arguments = [*map(self._shared, rows.kept)], len(back)
        if count == len(step.inputs):
            shown = rows.places[step.id]
            shown = shown._replace(offset=shown.offset + back[shown.base])
            kind.shown = _place_of(shown), shown.shape
        self.columns.kinds.append(kind)
        return kind

    def _shared(self, value: np.ndarray[Any, Any]) -> int:
        """Return the base of a constant that a kind of steps reads; equal small ones share it."""
        key: Any = id(value)
        if value.nbytes <= _SMALL_BYTES:
            key = value.dtype, value.shape, value.tobytes()
        if key not in self.columns.constants:
            self.columns.constants[key] = self.constant(value).base
        return self.columns.constants[key]

    def _check(self, steps: Sequence[Node]) -> None:
        """Raise `Unfit` if a value leaves its base or is misaligned."""
        if not self._at:
            return
        base, first, end, offset, _, itemsize = zip(*self._at.values(), strict=True)
        sizes = np.array(self.sizes, np.int64)[[*base]]
        wrong = (np.array(first) < 0) | (np.array(end) > sizes)
        wrong |= np.array(offset) % np.array(itemsize) != 0
        if wrong.any():
            number, unfit = [*self._at][wrong.argmax()], Unfit()
            touches = [number in [one.id for one in (step, *step.inputs)] for step in steps]
            unfit.position = touches.index(True)
            raise unfit

    # -- memory -----------------------------------------------------------------------------------

    def _layout(self, node: Node) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return shape, strides and bytes of a node's contiguous array."""
        found = self._layouts.get(id(node.type))
        if found is None:
            shape, size = self.shape(node), node.dtype.itemsize
            steps = strides_of(shape, size)
            found = self._layouts[id(node.type)] = shape, steps, prod(shape) * size
        return found

    def _whole(self, node: Node, base: int, offset: int) -> None:
        shape, strides, size = self._layout(node)
        strides = self._odd.get(node.id, strides)
        itemsize = node.dtype.itemsize
        self.places[node.id] = Spot(base, offset, shape, strides, itemsize)
        self._at[node.id] = base, offset, offset + size, offset, strides, itemsize

    def _lay(self, stretch: Any) -> None:
        """Plan the memory of values that stay inside, and of results copied at the end."""
        lives = usage(stretch.steps, stretch.results, self.symbols)
        inner: list[list[tuple[int, Node]]] = [[] for _ in range(self.rooms)]
        for position, step in enumerate(stretch.steps):
            if step.id not in self.places and step.id not in self._views:
                inner[self.room(step) if self.rooms > 1 else 0].append((position, step))
        self._first_room, self._within = len(self.sizes), list[int]()
        for own in inner:
            spans, span_of = list[Span](), dict[int, Span]()
            for at, one in own:
                end = lives.last[one.id] + (self.stays(one) if self.rooms > 1 else 0)
                span = self._overwritten(one, at, span_of) if self.overwrites else None
                if span is None:
                    span = Span(lives.bytes[one.id], at, end)
                    spans.append(span)
                span_of[one.id], span.end = span, end
            total, places = pack(spans, ())
            begin_of = {id(span): place.begin for span, place in zip(spans, places, strict=True)}
            for _, step in own:
                self._whole(step, len(self.sizes), begin_of[id(span_of[step.id])])
            self._within.append(padded(total))
            self.sizes.append(total)

    def _overwritten(self, step: Node, position: int, span_of: Mapping[int, Span]) -> Span | None:
        """Return the span of an operand that ends at a step which may write there.

        Both have one layout, and no other operand shows the same memory.  The cache then holds
        fewer bytes: 500 steps on 400 kB take 0.7 of the time.
        """
        for part in step.inputs:
            span = span_of.get(part.id)
            if (
                span is not None
                and span.end == position
                and (part.dims, part.dtype) == (step.dims, step.dtype)
                and self._odd.get(part.id) == self._odd.get(step.id)
            ):
                may = step.op not in self.others and may_overwrite(step, self._views)
                return span if may else None
        return None


def _place_of(spot: Spot) -> _Place:
    return spot.base, spot.begin, spot.end, spot.offset, spot.strides, spot.itemsize


_PAIRS = (), (), ((1, 0),), ((1, 0), (2, 0), (2, 1))
"""The pairs of so many arguments."""


def _meetings(places: Sequence[_Place]) -> tuple[tuple[int, int, int], ...]:
    """Return which arguments share bytes with another one, that one, and how far behind it.

    Groups of arguments that share none with each other have no pair between them.
    """
    if len(places) < len(_PAIRS):  # a hot loop
        pairs = [
            (one, other) for one, other in _PAIRS[len(places)]
            if (x := places[one])[0] == (y := places[other])[0] and x[1] < y[2] and y[1] < x[2]
        ]  # fmt: skip
        if len(pairs) < 2:
            return tuple([(one, other, places[one][3] - places[other][3]) for one, other in pairs])
    found = list[tuple[int, int, int]]()
    [last, *others] = sorted(range(len(places)), key=places.__getitem__)
    for one in others:
        base, first, end, offset, *_ = places[one]
        before, _, until, at, *_ = places[last]
        if base == before and first < until:
            found.append((one, last, offset - at))
        if base != before or end > until:
            last = one
    return tuple(found)


def later(lines: native.Words, keeps: np.ndarray[Any, Any], ends: Collection[int]) -> native.Words:
    """Return rows of which those test no flags whose next row tests the same and keeps flags.

    A row before one of the `ends` always tests its flags.
    """
    heard = lines[:, -1]
    waits = keeps[1:] & (heard[1:] == heard[:-1])
    waits[[end - 1 for end in ends if 0 < end < len(lines)]] = False
    heard[:-1][waits] = native.LATER
    return lines
