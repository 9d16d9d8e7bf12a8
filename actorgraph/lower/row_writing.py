"""The rows of steps: what a table does for an op, given where operands and result lie.

`walkable.kind_of` decides which steps may be rows, and `RowWriter` writes them.  Rows of ufuncs,
sums and products are written here; those of compound ops come from running their forward on tracers
(`traced`).

Invariants: a row's output overlaps none of its inputs, except that an elementwise row may write in
place and sums accumulate into the output of an earlier row; every access of a row lies within its
base's memory, which `RowWriter` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from math import prod
from operator import itemgetter
from typing import Any

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.listed import FLOATS
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
from actorgraph.lower.walkable import AS_INTEGERS, GETITEM, RESHAPE, SUM, has_loop, sums_columns
from actorgraph.memory.buffers import is_view
from actorgraph.memory.packing import padded
from actorgraph.op import CONSTANT, bind_attrs
from actorgraph.types import bind_shape

_ZEROS = 16 * 1024
"""Most bytes of zeros that are kept as a constant; more are written by repeating it."""

_CHARS = {4: "f", 8: "d"}


class RowWriter:
    """Writes the rows of steps, whose operands and results have `places` in bases of some `sizes`.

    `code_row` writes the row of our own machine code for a step, and returns whether there is any.
    `kept` are constants; scratch memory begins in a base at `scratch_end`, which moves on.
    """

    def __init__(
        self, symbols: Mapping[str, int], code_row: Callable[[Any, Node], bool] | None
    ) -> None:
        self.symbols, self._code_row = symbols, code_row
        self.places: dict[int, Spot] = {}
        self.sizes: list[int] = []
        self.kept: list[np.ndarray[Any, Any]] = []
        self.rows: list[TableRow] = []
        self.scratch_base = self.scratch_end = 0

    def step(self, step: Node) -> None:
        """Write the rows of a step; a view, which may have none, gets its place."""
        if self._code_row is not None and self._code_row(self, step):
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

    def parts(self, step: Node) -> int:
        """Return into how many parts a row of our own machine code is to be split."""
        return 1

    def shape(self, node: Node) -> tuple[int, ...]:
        """Return the shape of a value."""
        return bind_shape(node.dims, self.symbols, 0)

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

    def bytes_copied(self, place: Spot, into: Spot, size: int, times: int = 1) -> None:
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
            self.bytes_copied(self._zeros(_ZEROS), result, _ZEROS, whole)
        if rest:
            begin = result.offset + size - rest
            self.bytes_copied(self._zeros(rest), result._replace(offset=begin), rest)

    def _zeros(self, size: int) -> Spot:
        return self.constant(np.zeros(size, np.uint8))

    def _view(self, step: Node) -> Spot:
        [of] = step.inputs
        if step.op is RESHAPE:  # it may copy, into scratch memory that outlives its step
            place = Traced(self, self.place(of), of.dtype).reshape(self.shape(step)).place
        else:
            # With an ellipsis NumPy returns a view of a single element, not a scalar.
            view = kernel(step, np, self.symbols)
            if not step.dims and step.op is GETITEM:
                view = itemgetter((*bind_attrs(step.attrs, self.symbols)["index"], ...))
            place = view_spot(self.place(of), of.dtype, view)
        if of.dtype != step.dtype or place.shape != self.shape(step):
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
        strides = [broadcast(place, result.shape) for place in places]
        others = [place for place in places if place != result]
        if self.overlaps(result, others):
            raise Unfit
        # The order of elements is free; the order of the result gives the fewest dims.
        axes = sorted(range(len(result.shape)), key=[-step for step in result.strides].__getitem__)
        shape = tuple([result.shape[axis] for axis in axes])
        strides = [[own[axis] for axis in axes] for own in strides]
        # A ufunc's loop takes a result that does not move for a reduction.
        single = [(1, [place.itemsize for place in places])]
        self._each(loop, places, coalesced(shape, strides) or single, heard)

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

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Spot:
        """Return memory for the rows of the current step alone."""
        strides = strides_of(shape, dtype.itemsize)
        base, begin = self.scratch_base, self.scratch_end
        self.scratch_end += padded(prod(shape) * dtype.itemsize)
        self.sizes[base] = max(self.sizes[base], self.scratch_end)
        return Spot(base, begin, shape, strides, dtype.itemsize)

    def copied(self, result: Spot, x: Spot, char: str) -> None:
        """Write rows that copy elements of a dtype."""
        if char == "?":
            self.row(result, loop_of("logical_or", "???"), [x, x])
        else:
            self.row(result, _copy_of(char), [x])

    def moved(
        self, x: Spot, index: Spot, result: Spot, axis: int, *, to: bool, name: str = "move"
    ) -> None:
        """Write a gather of entries of ``x`` along an axis, or a scatter of these `to` the result.

        An index out of range makes the walk decline.
        """
        many, few = (result, x) if to else (x, result)
        outer, limit = prod(many.shape[:axis]), many.shape[axis]
        width, count = prod(many.shape[axis + 1 :]), prod(index.shape)
        places = few, index, many
        if index.itemsize != 8 or not all(one.is_flat for one in places):
            raise Unfit
        if self.overlaps(result, [x, index]) or not 0 < outer * count * width == prod(few.shape):
            raise Unfit
        size = width * x.itemsize
        between, steps, apart = [count * size, 0, limit * size], [size, 8, 0], [0, size]
        if not to:
            places, between = places[::-1], between[::-1]
            steps, apart = steps[::-1], apart[::-1]
        routine = self.routine(name, keeps_flags=False)
        dims = (count, limit, size)
        self.write(routine, [(outer, between)], dims, [*steps, *apart], [
            (one, one.offset, [(prod(one.shape), one.itemsize)]) for one in places
        ], native.REFUSES)  # fmt: skip

    def touching(self, read: Sequence[Spot], written: Sequence[Spot]) -> None:
        """Note what the row that was written last touches."""
        every = [(one.base, one.begin, one.end, False) for one in read]
        every += [(one.base, one.begin, one.end, True) for one in written]
        self.rows[-1] = self.rows[-1]._replace(touches=every)

    def in_parts(self, writers: Sequence[Callable[[], object]]) -> None:
        """Give the row that was written last its parts: what `writers` write, if each does."""
        number = len(self.rows)
        for write in writers:
            write()
        parts = self.rows[number:]
        del self.rows[number:]
        if len(parts) == len(writers):
            self.rows[-1] = self.rows[-1]._replace(parts=parts)

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
        rank, vectors = len(result.shape), (len(x.shape) == 1, len(y.shape) == 1)
        if any(vectors):  # as matrices of one row or column, of which the loop has the same bits
            if vectors[1]:
                y, result = _with_axis(y, 1), _with_axis(result, rank)
            if vectors[0]:
                x, result = _with_axis(x, 0), _with_axis(result, rank - (not vectors[1]))
            self.product(x, y, result, _of_vectors(*vectors))
            return
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
        has_order = char in FLOATS
        if has_order and any(step < 0 and n > 1 for n, step in zip(x.shape, x.strides)):
            raise Unfit  # NumPy turns some axes back
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
        if has_order and len(dims) > 1 and not dims[-1][1][0] and not dims[-2][1][0]:
            raise Unfit  # NumPy gathers numbers of several rows and adds them up at once
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
        """Add a row."""
        if not loop.function:
            raise Unfit
        self.rows.append(
            TableRow(loop, times, tuple(dims), tuple(strides), tuple(places), tuple(sizes), heard)
        )


def _with_axis(place: Spot, axis: int) -> Spot:
    """Return a value with another axis, of one entry."""
    shape, strides = [*place.shape], [*place.strides]
    shape.insert(axis, 1)
    strides.insert(axis, place.itemsize)
    return place._replace(shape=tuple(shape), strides=tuple(strides))


@cache
def _of_vectors(first: bool, second: bool) -> Callable[[Any, Any], Any]:
    """Return the kernel of a product with vectors, given as matrices of one row or column."""

    def multiplied(x: Any, y: Any) -> Any:
        return np.matmul(x[0] if first else x, y[:, 0] if second else y)

    return multiplied


def _columns(row: Any, x: Any) -> Any:
    """Multiply as `column_sums` does: the kernel whose bits its row must have."""
    return row.reshape(-1).dot(x)


def _copy_of(char: str) -> Routine:
    found = loop_of("positive", 2 * char.translate(AS_INTEGERS))
    if found is None:
        raise Unfit
    return found
