"""Rows of tables, written for the sizes of a run; see `table`.

`walkable.kind_of` decides which steps may be rows, and `Written` writes these; `table`,
`loop_table`, `quick_rows` and `strands` build on it.  Rows of ufuncs, sums and products are written
here; those of compound ops come from running their forward on tracers (`traced`).

Invariants: a row's output overlaps none of its inputs, except that an elementwise row may write in
place and sums accumulate into the output of an earlier row; every access of a row lies within its
base's memory, which `Written` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from math import prod
from operator import itemgetter
from time import sleep
from typing import Any, Protocol

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.loops import (
    Routine,
    dot_loop,
    follows_memory,
    loop_of,
    product_loop,
    reducing_loop,
)
from actorgraph.graph import Node
from actorgraph.lower.kernels import kernel
from actorgraph.lower.matmul import product
from actorgraph.lower.multiplying import is_product
from actorgraph.lower.splitting import TableRow
from actorgraph.lower.spots import (
    MOST_EXPANDED,
    ONCE,
    Dimension,
    Spot,
    Unfit,
    broadcast,
    coalesced,
    entry,
    expanded,
    in_c_order,
    in_order,
    of_two_axes,
    strides_of,
    turned_to,
    view_spot,
)
from actorgraph.lower.traced import Traced, trace
from actorgraph.lower.walkable import (
    AS_INTEGERS,
    GETITEM,
    RESHAPE,
    SUM,
    has_loop,
    may_overwrite,
    sums_columns,
)
from actorgraph.memory.buffers import Memory, aligned, is_view, usage
from actorgraph.memory.packing import Span, pack
from actorgraph.op import CONSTANT, Op, bind_attrs
from actorgraph.types import bind_shape

_HANDED_OVER = 32
"""Steps whose rows are written before the GIL is offered to other threads: some 0.5 ms."""

_ZEROS = 16 * 1024
"""Most bytes of zeros that are kept as a constant; more are written by repeating it."""

_CHARS = {4: "f", 8: "d"}


class _AnyStretch(Protocol):
    """What `Written` needs of a stretch; see `table.Stretch`."""

    steps: Sequence[Node]
    given: Sequence[Node]
    others: Mapping[Op, Callable[..., None]]
    odd: Mapping[int, tuple[int, ...]]  # strides of values not in C order, by id of the step
    shared: Mapping[Node, Node]  # steps that write into an array of the run, and whose it is

    @property
    def code_row(self) -> Callable[[Any, Node], bool] | None:
        """Writes the row of our own machine code for a step, and returns whether there is any."""

    @property
    def results(self) -> Sequence[Node]:
        """Steps whose values are needed outside."""

    @property
    def copied(self) -> Collection[int]:
        """The ids of results that are copied at the end."""


class Written:
    """Writes the rows of a stretch for one binding of its dims.

    Values lie in *bases*, which a row addresses by number and offset.  The bases are, in this
    order: inputs, results and other arrays of the run (`objects`), the table's memory (one base a
    room), constants.
    Subclasses override `in_another_row`, `parts`, `room`, `stays` and `wrote`.
    """

    rooms = 1
    """Parts of the memory; a value reuses only memory of its own room."""

    pieces: Any = None
    """The `strands.Pieces` of rows that several threads may walk."""

    overwrites = True
    """Whether a step may write over an operand; other steps of a group might still read that."""

    def __init__(self, stretch: _AnyStretch, symbols: Mapping[str, int]) -> None:
        self.symbols, self.others, self._odd = symbols, stretch.others, stretch.odd
        self._code_row = stretch.code_row
        self.kept: list[Any] = []  # constants, whose addresses are in the rows
        self.rows: list[list[int]] = []
        self.notes: list[tuple[str, TableRow]] = []  # each row with the name of its op
        self.words: dict[tuple[int, ...], tuple[int, Any]] = {}
        self._zeros: dict[int, Spot] = {}
        self._layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...], int]] = {}
        self.places: dict[int, Spot] = {}
        self.sizes: list[int] = []  # bytes of each base
        apart = [step for step, of in stretch.shared.items() if step is of]
        self.objects = [*stretch.given, *stretch.results, *apart]
        for base, node in enumerate(self.objects):
            self.sizes.append(self._layout(node)[2])
            if node.id not in stretch.copied:
                self._whole(node, base, 0)
        self.places |= {step.id: self.places[of.id] for step, of in stretch.shared.items()}
        self._lay(stretch)
        for position, step in enumerate(stretch.steps):
            self.of = step.op.name
            if position % _HANDED_OVER == 0:
                sleep(0)
            begin = len(self.rows)
            try:
                self._step(step)
            except Unfit as unfit:
                unfit.position = position
                raise
            self.wrote(step, begin)
        self.bytes = sum([self._layout(step)[2] for step in stretch.steps])
        self.given_bytes = sum(self.sizes[: len(stretch.given)])
        self.of, self.computing = "copy", len(self.rows)
        for base, node in enumerate(self.objects):
            if node.id in stretch.copied:
                self._bytes(self.places[node.id], Spot(base, 0, (), (), 1), self.sizes[base])
        if self.computing:  # its flags, which may forbid the copies, are checked before them
            self.rows[self.computing - 1][-1] = self.notes[self.computing - 1][1].heard
        self._end = len(self.rows)  # rows behind it belong to pieces

    def _bytes(self, place: Spot, into: Spot, size: int, times: int = 1) -> None:
        """Write a row that copies the same `size` bytes, to so many places behind each other."""
        outer: list[Dimension] = [(times, [0, size])]
        self.write(self.routine("copy"), outer, [size], [1, 1], [
            (one._replace(itemsize=1), one.offset, ((times, step), (size, 1)))
            for one, step in ((place, 0), (into, size))
        ])  # fmt: skip

    def clear(self, result: Spot) -> None:
        """Write rows of zeros: a copy takes a tenth of the time of broadcasting one number."""
        size = prod(result.shape) * result.itemsize
        whole, rest = divmod(size, _ZEROS)
        if whole:
            self._bytes(self._no_bytes(_ZEROS), result, _ZEROS, whole)
        if rest:
            begin = result.offset + size - rest
            self._bytes(self._no_bytes(rest), result._replace(offset=begin), rest)

    def _no_bytes(self, size: int) -> Spot:
        if size not in self._zeros:
            self._zeros[size] = self.constant(np.zeros(size, np.uint8))
        return self._zeros[size]

    def in_another_row(self, step: Node) -> bool:
        """Write a step's rows in a way of the subclass's own; return whether that was done."""
        return False

    def parts(self, step: Node) -> int:
        """Return into how many parts a row of our own machine code is to be split."""
        return 1

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
            begins.append(-(-end // 64) * 64)
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

    @property
    def lines(self) -> native.Words:
        """The rows as words for machine code."""
        return np.array(self.rows, np.int64).reshape(-1, native.ROW_WORDS)

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
        block = native.block(specs, lines[: self._end], bases, self.computing)
        if self.pieces is not None:
            strands = self.pieces.words()
            block[native.STRANDS] = strands[0].ctypes.data
        return block, memory, strands

    def _step(self, step: Node) -> None:
        self._room = self.room(step)
        self._scratch = self._room_begin = self._within[self._room]
        write = self.others.get(step.op)
        if write is not None:
            write(self, step)
            return
        if self.in_another_row(step) or (self._code_row and self._code_row(self, step)):
            return
        if is_view(step):
            self.places[step.id] = self._view(step)
        elif sums_columns(step):
            self._column_sum(step)
        elif step.op is SUM:
            self._sum(step)
        elif step.op.ufunc == "matmul":
            self._product(step)
        elif step.op.traced:
            trace(self, step)
        else:
            self.row(self.places[step.id], has_loop(step), map(self.place, step.inputs))

    def _shape(self, node: Node) -> tuple[int, ...]:
        return bind_shape(node.dims, self.symbols, 0)

    def _layout(self, node: Node) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return shape, strides and bytes of a node's contiguous array."""
        found = self._layouts.get(id(node.type))
        if found is None:
            shape, size = self._shape(node), node.dtype.itemsize
            found = shape, strides_of(shape, size), prod(shape) * size
            self._layouts[id(node.type)] = found
        return found

    def _whole(self, node: Node, base: int, offset: int) -> None:
        shape, strides, _ = self._layout(node)
        strides = self._odd.get(node.id, strides)
        self.places[node.id] = Spot(base, offset, shape, strides, node.dtype.itemsize)

    def _lay(self, stretch: _AnyStretch) -> None:
        """Plan the memory of values that stay inside, and of results copied at the end."""
        lives = usage(stretch.steps, stretch.results, self.symbols)
        inner: list[list[tuple[int, Node]]] = [[] for _ in range(self.rooms)]
        for position, step in enumerate(stretch.steps):
            if step.id not in self.places and not is_view(step):
                inner[self.room(step)].append((position, step))
        self._first_room, self._within = len(self.sizes), list[int]()
        for own in inner:
            spans, span_of = list[Span](), dict[int, int]()
            for at, one in own:
                end, over = lives.last[one.id] + self.stays(one), None
                if self.overwrites:
                    over = self._overwritten(one, at, spans, span_of)
                if over is None:
                    spans.append(Span(lives.bytes[one.id], at, end))
                else:
                    spans[over].end = end
                span_of[one.id] = len(spans) - 1 if over is None else over
            total, places = pack(spans, ())
            for _, step in own:
                self._whole(step, len(self.sizes), places[span_of[step.id]].begin)
            self._within.append(-(-total // 64) * 64)
            self.sizes.append(total)

    def _overwritten(
        self, step: Node, position: int, spans: Sequence[Span], span_of: Mapping[int, int]
    ) -> int | None:
        """Return the number of the span of an operand that ends at a step which may write there.

        Both have one layout, and no other operand shows the same memory.  The cache then holds
        fewer bytes: 500 steps on 400 kB take 0.7 of the time.
        """
        if not may_overwrite(step) or step.op in self.others:
            return None
        odd = self._odd.get(step.id)
        for part in step.inputs:
            number = span_of.get(part.id)
            if (
                number is not None
                and spans[number].end == position
                and (part.dims, part.dtype) == (step.dims, step.dtype)
                and self._odd.get(part.id) == odd
            ):
                return number
        return None

    def place(self, node: Node) -> Spot:
        """Return the spot of a value."""
        if node.op is CONSTANT and node.id not in self.places:
            value = np.array(node.attrs["value"], order="C")
            if value.dtype != node.dtype:
                raise Unfit
            self.places[node.id] = self.constant(value)
        return self.places[node.id]

    def constant(self, value: np.ndarray[Any, Any]) -> Spot:
        """Return the spot of a constant, in a base of its own."""
        self.kept.append(value)
        self.sizes.append(value.nbytes)
        return Spot(len(self.sizes) - 1, 0, value.shape, value.strides, value.itemsize)

    def _view(self, step: Node) -> Spot:
        [of] = step.inputs
        if step.op is RESHAPE:  # it may copy, into scratch memory that outlives its step
            place = Traced(self, self.place(of), of.dtype).reshape(self._shape(step)).place
            self._within[self._room] = self._scratch
        else:
            # With an ellipsis NumPy returns a view of a single element, not a scalar.
            view = kernel(step, np, self.symbols)
            if not step.dims and step.op is GETITEM:
                view = itemgetter((*bind_attrs(step.attrs, self.symbols)["index"], ...))
            place = view_spot(self.place(of), of.dtype, view)
        if of.dtype != step.dtype or place.shape != self._shape(step):
            raise Unfit
        return place

    def row(
        self, result: Spot, loop: Routine | None, operands: Iterable[Spot],
        heard: int = native.ALL_ERRORS,
    ) -> None:  # fmt: skip
        """Write the rows of an elementwise step, which may be in place over an operand."""
        places = [*operands, result]
        if loop is None:
            raise Unfit
        if 0 in result.shape:
            return
        if self._flat_row(result, loop, places, heard):
            return
        strides = [broadcast(place, result.shape) for place in places]
        others = [place for place in places if place != result]
        if self.overlaps(result, others):
            raise Unfit
        # The order of elements is free; the order of the result gives the fewest dims.
        axes = sorted(range(len(result.shape)), key=[-step for step in result.strides].__getitem__)
        shape = tuple([result.shape[axis] for axis in axes])
        strides = [[own[axis] for axis in axes] for own in strides]
        self._each(loop, places, coalesced(shape, strides), heard)

    def _each(
        self, loop: Routine, places: Sequence[Spot], dims: list[Dimension],
        heard: int = native.ALL_ERRORS,
    ) -> None:  # fmt: skip
        """Write the rows of a loop over any number of dims."""
        for parts, shifts in expanded(dims, len(places)):
            *outer, inner = parts
            self.write(loop, outer, [inner[0]], inner[1], [
                (place, place.offset + shift, [(count, steps[k]) for count, steps in parts])
                for k, (place, shift) in enumerate(zip(places, shifts, strict=True))
            ], heard)  # fmt: skip

    def _flat_row(self, result: Spot, loop: Routine, places: Sequence[Spot], heard: int) -> bool:
        """Write the row of a step on contiguous arrays and single numbers: the common case."""
        shape, count = result.shape, prod(result.shape)
        row, strides = [], []
        end = result.offset + count * result.itemsize
        for place in places:
            base, offset, own, _, size = place
            if own == shape and place.is_flat:
                stride, reach = size, count * size
            elif prod(own) == 1:
                stride, reach = 0, size
            else:
                return False
            if offset < 0 or offset + reach > self.sizes[base] or offset % size:
                raise Unfit
            meets = base == result.base and offset < end and result.offset < offset + reach
            if meets and place != result:
                raise Unfit
            row += [base, offset, 0, 0]
            strides.append(stride)
        self._add(loop, (1, 1), [count], strides, row, heard, [place[4] for place in places])
        return True

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Spot:
        """Return memory for the rows of the current step alone."""
        strides = strides_of(shape, dtype.itemsize)
        base, begin = self._first_room + self._room, self._scratch
        self._scratch += -(-prod(shape) * dtype.itemsize // 64) * 64
        self.sizes[base] = max(self.sizes[base], self._scratch)
        return Spot(base, begin, shape, strides, dtype.itemsize)

    def copied(self, result: Spot, x: Spot, char: str) -> None:
        """Write rows that copy elements of a dtype."""
        if char == "?":
            self.row(result, loop_of("logical_or", "???"), [x, x])
        else:
            self.row(result, _copy_of(char), [x])

    def moved(
        self, x: Spot, index: Spot, result: Spot, *, to: bool, name: str = "move", width: int = 1
    ) -> None:
        """Write a gather from ``x`` at `index`, or a scatter of it `to` there in the result.

        `width` elements are copied at a time.
        """
        many, few = (result, x) if to else (x, result)
        routine = self.routine(name, keeps_flags=False)
        if index.itemsize != 8 or not (many.is_flat and few.is_flat and index.is_flat):
            raise Unfit
        if self.overlaps(result, [x, index]) or prod(few.shape) != width * prod(index.shape):
            raise Unfit
        count, limit = prod(index.shape), prod(many.shape) // width
        size = width * x.itemsize
        steps = [size, 8, 0, 0, size] if to else [0, 8, size, size, 0]
        spans = [
            (few, few.offset, [(count, size)]),
            (index, index.offset, [(count, 8)]),
            (many, many.offset, [(limit, size)]),
        ]
        dims = (count, limit, size)
        self.write(routine, ONCE, dims, steps, spans if to else spans[::-1], native.REFUSES)

    def touching(self, read: Sequence[Spot], written: Sequence[Spot]) -> None:
        """Note what the row that was written last touches."""
        every = [(one.base, one.begin, one.end, False) for one in read]
        every += [(one.base, one.begin, one.end, True) for one in written]
        of, row = self.notes[-1]
        self.notes[-1] = of, row._replace(touches=every)

    def in_parts(self, writers: Sequence[Callable[[], object]]) -> None:
        """Give the row that was written last its parts: what `writers` write, if each does."""
        number, heard = len(self.rows), self.rows[-1][-1]
        for write in writers:
            write()
        parts = [row for _, row in self.notes[number:]]
        del self.rows[number:], self.notes[number:]
        self.rows[-1][-1] = heard
        of, row = self.notes[-1]
        if len(parts) == len(writers):
            self.notes[-1] = of, row._replace(parts=parts)

    def refused(self, flag: Spot) -> None:
        """Write a row that makes the walk decline where a flag is set."""
        routine = self.routine("refuse", keeps_flags=False)
        self.write(routine, ONCE, [1], [1], [(flag, flag.offset, ())], native.REFUSES)

    @staticmethod
    def routine(name: str, keeps_flags: bool = True) -> Routine:
        """Return a loop of `native`, which NumPy does not have."""
        return Routine(native.RUNTIME.routine(name), 0, keeps_flags)

    def is_apart(self, result: Spot, places: Iterable[Spot]) -> bool:
        """Return whether a result in C order shares no memory with other values."""
        return result.is_flat and not self.overlaps(result, places)

    @staticmethod
    def overlaps(result: Spot, places: Iterable[Spot]) -> bool:
        """Return whether a result may share memory with other values."""
        return any(
            place.base == result.base and place.begin < result.end and result.begin < place.end
            for place in places
        )

    def _product(self, step: Node) -> None:
        """Write a product as its kernel computes it: a stack times a matrix as one tall matrix."""
        (x, y), result = map(self.place, step.inputs), self.places[step.id]
        if len(x.shape) > 2 and len(y.shape) == 2:
            if not x.is_flat:
                x = Traced(self, x, step.dtype).copy().place
            rows = prod(x.shape[:-1])
            x, result = in_order(x, (rows, x.shape[-1])), in_order(result, (rows, y.shape[-1]))
        self.product(x, y, result, product(step, self.symbols))

    def _column_sum(self, step: Node) -> None:
        """Write a sum over all axes but the last as a product with ones, as `column_sums` does."""
        x, result = self.place(step.inputs[0]), self.places[step.id]
        if len(x.shape) > 2 and not x.is_flat:
            self._sum(step)
            return
        columns = (prod(x.shape[:-1]), x.shape[-1])
        ones = self.constant(np.ones((1, columns[0]), step.dtype))
        shown = x if len(x.shape) == 2 else in_order(x, columns)
        self.product(ones, shown, in_order(result, (1, columns[1])), _columns)

    def _sum(self, step: Node) -> None:
        """Write the rows of a sum or mean."""
        x, result = self.place(step.inputs[0]), self.places[step.id]
        axes, steps = step.attrs["axis"], iter(result.strides)
        shape = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
        if result.shape != shape:
            strides = tuple([0 if i in axes else next(steps) for i in range(len(x.shape))])
            result = result._replace(shape=shape, strides=strides)
        self.reduced("add", result, x, axes, step.dtype.char)

    def reduced(
        self, name: str, result: Spot, x: Spot, axes: Collection[int], char: str,
        initial: float | None = None,
    ) -> None:  # fmt: skip
        """Write the rows of ``name.reduce(x, axes, keepdims=True, initial=initial)``."""
        found = reducing_loop(name, char)
        if found is None or self.overlaps(result, [x]) or 0 in x.shape:
            raise Unfit
        one_number = not any(step for n, step in zip(x.shape, x.strides, strict=True) if n > 1)
        order: Sequence[int] = range(len(x.shape))
        if not in_c_order(x) and not (one_number and [*axes] == [len(x.shape) - 1]):
            order = sorted(order, key=x.strides.__getitem__, reverse=True)
            # NumPy takes axes in the order of memory, if the result has the same order.
            turned = [turned_to(one, order) for one in (x, result)]
            if not (all(map(in_c_order, turned)) and follows_memory(name, char)):
                raise Unfit
        loop, rest = found[0], x
        first = found[1] if initial is None else initial
        if first is not None:
            self.row(result, _copy_of(char), [self.constant(np.full((), first, char))])
        elif len(axes) == 1:  # no identity: begin with the first entry along the axis
            [axis] = axes
            index = [slice(None)] * axis
            begin, others = (*index, slice(1)), (*index, slice(1, None))
            dtype = np.dtype(char)
            self.row(result, _copy_of(char), [view_spot(x, dtype, itemgetter(begin))])
            if x.shape[axis] == 1:
                return
            rest = view_spot(x, dtype, itemgetter(others))
        else:
            raise Unfit
        rest = turned_to(rest, order)
        through = [0 if i in axes else result.strides[i] for i in order]
        dims = coalesced(rest.shape, [through, rest.strides, through])
        self._each(loop, [result, rest, result], dims)

    def dots(self, result: Spot, x: Spot, y: Spot, heard: int) -> None:
        """Write the rows of ``vecdot(x, y)``."""
        loop, places, n = dot_loop(_CHARS[x.itemsize]), [x, y, result], x.shape[-1]
        if not n or y.shape[-1] != n or loop is None or self.overlaps(result, [x, y]):
            raise Unfit
        step, other = x.strides[-1], y.strides[-1]
        spans = [((n, step),), ((n, other),), ()]
        batches = [one._replace(shape=one.shape[:-1], strides=one.strides[:-1]) for one in (x, y)]
        strides = [broadcast(one, result.shape) for one in (*batches, result)]
        for parts, shifts in expanded(coalesced(result.shape, strides), 3):
            *outer, (count, inner) = parts
            self.write(loop, outer, [count, n], [*inner, step, other], [
                (place, place.offset + shift, [*span, *[(size, by[k]) for size, by in parts]])
                for k, (place, shift, span) in enumerate(zip(places, shifts, spans, strict=True))
            ], heard)  # fmt: skip

    def product(self, x: Spot, y: Spot, result: Spot, kernel_of: Callable[..., Any]) -> None:
        """Write the rows of a product of matrices or stacks, if it has the bits of its kernel."""
        char = _CHARS[x.itemsize]
        loop = product_loop(char)
        if loop is None or min(len(x.shape), len(y.shape)) < 2 or self.overlaps(result, [x, y]):
            raise Unfit
        places, batch = (x, y, result), result.shape[:-2]
        stacks = [
            place._replace(shape=place.shape[:-2], strides=place.strides[:-2]) for place in places
        ]
        strides = [broadcast(stack, batch) for stack in stacks]
        stack_dims = coalesced(batch, strides) or [(1, [0, 0, 0])]
        if len(stack_dims) > 1:
            if batch[0] > MOST_EXPANDED:
                raise Unfit
            for i in range(batch[0]):
                x_i, y_i, result_i = [entry(place, len(batch), i) for place in places]
                self.product(x_i, y_i, result_i, kernel_of)
            return
        [(count, outer)] = stack_dims
        (n, k), m = x.shape[-2:], y.shape[-1]
        dims = count, n, k, m
        steps = *outer, *[stride for place in places for stride in place.strides[-2:]]
        first, other = x._replace(base=0, offset=0), y._replace(base=1, offset=0)
        if x.base == y.base:
            other = other._replace(base=0, offset=y.offset - x.offset)
        if not is_product(loop, kernel_of, char, first, other, dims, steps):
            raise Unfit
        sizes = ((n, k), (k, m), (n, m))
        self.write(loop, ONCE, dims, steps, [
            (place, place.offset, ((count, step), *zip(size, place.strides[-2:], strict=True)))
            for place, step, size in zip(places, outer, sizes, strict=True)
        ])  # fmt: skip

    def write(
        self, loop: Routine, outer: Sequence[Dimension], dims: Sequence[int],
        strides: Sequence[int], arguments: Sequence[tuple[Spot, int, Iterable[tuple[int, int]]]],
        heard: int = native.ALL_ERRORS,
    ) -> None:  # fmt: skip
        """Add a row: a loop, called along at most two `outer` axes with `dims` and `strides`.

        Each argument is a spot, an offset, and the sizes and strides of the axes that the loop
        accesses from there.  `Unfit` is raised if an access leaves its memory or is misaligned.
        `heard` are the floating-point flags that count as errors.
        """
        row: list[int] = []
        times, steps = of_two_axes(outer, len(arguments))
        for (place, offset, spans), step in zip(arguments, steps, strict=True):
            reach = [(size - 1) * stride for size, stride in spans]
            first = offset + sum([min(one, 0) for one in reach])
            last = offset + sum([max(one, 0) for one in reach]) + place.itemsize
            odd = any([number % place.itemsize for number in (offset, *reach)])  # noqa: C419
            if first < 0 or last > self.sizes[place.base] or odd:
                raise Unfit
            row += [place.base, offset, *step]
        sizes = [place.itemsize for place, _, _ in arguments]
        self._add(loop, times, dims, strides, row, heard, sizes)

    def _add(
        self, loop: Routine, times: tuple[int, int], dims: Sequence[int], strides: Sequence[int],
        places: Sequence[int], heard: int, sizes: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Add a row; the one before checks its flags if this one clears them or checks others."""
        if not loop.function:
            raise Unfit
        if self.rows and loop.keeps_flags and self.rows[-1][-1] == heard:
            self.rows[-1][-1] = native.LATER
        row = TableRow(loop, times, tuple(dims), tuple(strides), tuple(places), tuple(sizes), heard)
        self.rows.append(self.words_of(row))
        self.notes.append((self.of, row))

    def words_of(self, row: TableRow) -> list[int]:
        """Return a row as machine code reads it."""
        words = [row.loop.function, row.loop.data, self._words(row.dims), self._words(row.strides)]
        none = [0] * (native.ROW_WORDS - 7 - len(row.places))
        return [*words, *row.times, *row.places, *none, row.heard]

    def _words(self, numbers: Sequence[int]) -> int:
        """Return the address of an array of these numbers, which `words` keeps."""
        key = tuple(numbers)
        found = self.words.get(key)
        if found is None:
            array = np.array(key, np.int64)
            found = self.words[key] = array.ctypes.data, array
        return found[0]


def _columns(row: Any, x: Any) -> Any:
    """Multiply as `column_sums` does: the kernel whose bits its row must have."""
    return row.reshape(-1).dot(x)


def _copy_of(char: str) -> Routine:
    found = loop_of("positive", 2 * char.translate(AS_INTEGERS))
    if found is None:
        raise Unfit
    return found
