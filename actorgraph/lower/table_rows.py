"""Rows of tables: which steps have them, and what they are for the sizes of a run; see `table`.

Invariants: what a row writes overlaps nothing that it reads, but for sums, which add to what a row
before has written; every row lies within its memory, as `Written` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from math import prod
from operator import itemgetter
from time import sleep
from typing import Any, NamedTuple, Protocol

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.loops import Routine, call, loop_of, product_loop, sum_loop
from actorgraph.graph import Node
from actorgraph.lower.kernels import kernel
from actorgraph.lower.matmul import is_small, product
from actorgraph.lower.slices import SLICES
from actorgraph.memory.buffers import VIEWS, usage
from actorgraph.memory.packing import Span, pack
from actorgraph.op import CONSTANT, REGISTRY, bind_attrs
from actorgraph.ops._arrays import are_columns, at_least
from actorgraph.rewrite.exact import is_pure
from actorgraph.types import UNKNOWN, bind_shape

__all__ = ["RESHAPE", "Unfit", "Written", "broadcast", "coalesced", "is_view", "kind_of"]

LARGEST_BYTES, READ_BYTES = 128 * 1024, 1024 * 1024
"""Results above which a call from Python costs nothing beside the arithmetic, and operands."""

_MOST_EXPANDED = 64
"""Rows that one step becomes where its operands have gaps in more than two dims."""

_HANDED_OVER = 32
"""Steps that are written before another thread may have the GIL: some 0.5 ms."""

_SUM, _SIGMOID, _ADJOINT = REGISTRY["sum"], REGISTRY["sigmoid"], REGISTRY["getitem_adjoint"]
_RELU, _WHERE_POSITIVE = REGISTRY["relu"], REGISTRY["where_positive"]
_STACK, _CONCATENATE = REGISTRY["stack"], REGISTRY["concatenate"]
_AS_INTEGERS = str.maketrans("fd", "il")  # copies of floats take longer
_JOINING = frozenset({_STACK, _CONCATENATE})
_MEAN, _DIVIDE_BY_SIZE = REGISTRY["mean"], REGISTRY["divide_by_size"]
RESHAPE = REGISTRY["reshape"]
"""The op whose results are views of what is in order, else copies."""
_SHOWING = frozenset({REGISTRY["getitem"], RESHAPE})  # mostly, told by the result


# -- which steps ----------------------------------------------------------------------------------


def kind_of(step: Node, symbols: Mapping[str, int]) -> str:
    """Return whether a step may be a ``"row"`` or is a ``"view"``, else nothing."""
    if not is_pure(step.op) or step.op.kernel is not None:
        return ""
    operands = [_is_small(one, symbols, READ_BYTES) for one in step.inputs]
    if not all(operands) or not _is_small(step, symbols, LARGEST_BYTES):
        return ""
    if is_view(step):
        shows = step.op.memory.is_view or step.op in _SHOWING
        return "view" if shows and [part.op is CONSTANT for part in step.inputs] == [False] else ""
    return "row" if _has_loop(step, symbols) else ""


def is_view(step: Node) -> bool:
    """Return whether a step shows memory of its operand, or may."""
    return step.op.memory.layout_with(step.attrs) in VIEWS


def _is_small(node: Node, symbols: Mapping[str, int], most: int) -> bool:
    """Return whether a value is of known, small size."""
    if UNKNOWN in node.dims:
        return False
    return 0 < prod(bind_shape(node.dims, symbols, 0)) * node.dtype.itemsize <= most


def _has_loop(step: Node, symbols: Mapping[str, int]) -> bool:
    if step.op in (_SUM, _MEAN):
        axes, rank = step.attrs["axis"], len(step.inputs[0].dims)
        last = bool(axes) and axes == tuple(range(rank - len(axes), rank))
        columns = step.op is _SUM and _are_columns(step)
        return (last or columns) and sum_loop(step.dtype.char) is not None
    if step.op.ufunc == "matmul":
        return is_small(step, symbols) and product_loop(step.dtype.char) is not None
    if step.op in _JOINING:
        chars = {one.dtype.char for one in (step, *step.inputs)}
        return len(chars) == 1 and chars <= set("?fdil")
    if step.op in (_SIGMOID, _RELU, _DIVIDE_BY_SIZE, _WHERE_POSITIVE, SLICES, _ADJOINT):
        return step.dtype.char in "fd" and (step.op is not _ADJOINT or len(step.inputs) == 1)
    return _loop(step) is not None


def _are_columns(step: Node) -> bool:
    of = step.inputs[0]
    return are_columns(len(of.dims), step.dtype, step.attrs["axis"], step.attrs["keepdims"])


def _loop(step: Node) -> Routine | None:
    if step.op.ufunc is None or step.attrs or len(step.inputs) >= native.MOST_ARGUMENTS:
        return None
    chars = "".join([one.dtype.char for one in (*step.inputs, step)])
    return loop_of(
        step.op.ufunc, chars.translate(_AS_INTEGERS if step.op.ufunc == "positive" else {})
    )


# -- rows -----------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where a value lies: number of the base, offset, shape and strides in bytes."""

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def end(self) -> int:
        """The byte behind the last."""
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + sum([(n - 1) * stride for n, stride in pairs]) + self.itemsize

    @property
    def begin(self) -> int:
        """The first byte."""
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + sum([(n - 1) * min(stride, 0) for n, stride in pairs])


class Unfit(Exception):
    """There is no row for a step after all, which is the one at `position`."""

    position = 0


class _AnyStretch(Protocol):
    """What rows are written for; see `table.Stretch`."""

    steps: Sequence[Node]
    given: Sequence[Node]
    results: Sequence[Node]
    copied: Collection[int]


class Written:
    """Writes the rows of a stretch for one binding of its dims.

    What the text is given and the results that it allocates come first among the bases, then where
    the other results are to be copied, then the memory of the table and constants.
    """

    def __init__(self, stretch: _AnyStretch, symbols: Mapping[str, int]) -> None:
        self.symbols = symbols
        self.kept: list[Any] = []  # constants, whose addresses are in the rows
        self.rows: list[list[int]] = []
        self.notes: list[tuple[str, int, Sequence[int], list[int]]] = []
        self.words: dict[tuple[int, ...], tuple[int, Any]] = {}
        self._zeros: dict[int, _Place] = {}
        self._layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...], int]] = {}
        self.places: dict[int, _Place] = {}
        self.sizes: list[int] = []  # bytes of what each base stands for
        self.objects = [*stretch.given, *stretch.results]
        for base, node in enumerate(self.objects):
            self.sizes.append(self._layout(node)[2])
            if node.id not in stretch.copied:
                self._whole(node, base, 0)
        self._lay(stretch)
        for position, step in enumerate(stretch.steps):
            self.of = step.op.name
            if position % _HANDED_OVER == 0:
                sleep(0)
            try:
                self._step(step)
            except Unfit as unfit:
                unfit.position = position
                raise
        self.bytes = sum([self._layout(step)[2] for step in stretch.steps])
        self.of, self.computing = "copy", len(self.rows)
        for base, node in enumerate(self.objects):
            if node.id in stretch.copied:
                self._copy(self.places[node.id], _Place(base, 0, (), (), 1), self.sizes[base])

    def _copy(self, place: _Place, into: _Place, size: int) -> None:
        """Write the row that copies bytes."""
        copy = Routine(native.RUNTIME.copy, 0, keeps_flags=True)
        given = [(one._replace(itemsize=1), one.offset, ((size, 1),)) for one in (place, into)]
        self._write(copy, (1, [0, 0]), [size], [1, 1], given)

    def _clear(self, result: _Place) -> None:
        """Write the row of zeros: to copy them takes a quarter of the time of one for all."""
        size = prod(result.shape) * result.itemsize
        if size not in self._zeros:
            self._zeros[size] = self._constant(np.zeros(size, np.uint8))
        self._copy(self._zeros[size], result, size)

    def in_another_row(self, step: Node) -> bool:
        """Return whether a step has another row than it would have by itself."""
        return False

    def _step(self, step: Node) -> None:
        if self.in_another_row(step):
            return
        if is_view(step):
            self.places[step.id] = self._view(step)
        elif step.op is _SUM and _are_columns(step):
            self._column_sum(step)
        elif step.op in (_SUM, _MEAN):
            self._sum(step)
        elif step.op is _DIVIDE_BY_SIZE:
            size = bind_attrs(step.attrs, self.symbols)["size"]
            self._divide(self.places[step.id], self._place(step.inputs[0]), size, step.dtype.char)
        elif step.op.ufunc == "matmul":
            x, y = map(self._place, step.inputs)
            self._product(x, y, self.places[step.id], product(step, self.symbols))
        elif step.op is _SIGMOID:
            self._sigmoid(self.places[step.id], self._place(step.inputs[0]), step.dtype.char)
        elif step.op in (SLICES, _ADJOINT):
            self._slices(step)
        elif step.op in _JOINING:
            self._joined(step)
        elif step.op is _RELU:
            self._relu(self.places[step.id], self._place(step.inputs[0]), step.dtype.char)
        elif step.op is _WHERE_POSITIVE:
            self._where_positive(step)
        else:
            self._row(self.places[step.id], _loop(step), map(self._place, step.inputs))

    def _shape(self, node: Node) -> tuple[int, ...]:
        return bind_shape(node.dims, self.symbols, 0)

    def _layout(self, node: Node) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return shape and strides of an array without gaps, and its bytes."""
        found = self._layouts.get(id(node.type))
        if found is None:
            shape, size = self._shape(node), node.dtype.itemsize
            found = shape, _strides(shape, size), prod(shape) * size
            self._layouts[id(node.type)] = found
        return found

    def _whole(self, node: Node, base: int, offset: int) -> None:
        shape, strides, _ = self._layout(node)
        self.places[node.id] = _Place(base, offset, shape, strides, node.dtype.itemsize)

    def _lay(self, stretch: _AnyStretch) -> None:
        """Find places for what stays inside, and for what is copied in the end."""
        lives = usage(stretch.steps, stretch.results, self.symbols)
        inner = [
            (position, step)
            for position, step in enumerate(stretch.steps)
            if step.id not in self.places and not is_view(step)
        ]
        spans = [Span(lives.bytes[step.id], at, lives.last[step.id]) for at, step in inner]
        self.total, places = pack(spans, ())
        for (_, step), place in zip(inner, places, strict=True):
            self._whole(step, len(self.objects), place.begin)
        self.sizes.append(self.total)

    def _place(self, node: Node) -> _Place:
        if node.op is CONSTANT and node.id not in self.places:
            value = np.array(node.attrs["value"], order="C")
            if value.dtype != node.dtype:
                raise Unfit
            self.places[node.id] = self._constant(value)
        return self.places[node.id]

    def _constant(self, value: np.ndarray[Any, Any]) -> _Place:
        """Return where a constant lies, which gets a base of its own."""
        self.kept.append(value)
        self.sizes.append(value.nbytes)
        return _Place(len(self.sizes) - 1, 0, value.shape, value.strides, value.itemsize)

    def _view(self, step: Node) -> _Place:
        """Return what a view shows, as its kernel shows it of memory of the same layout."""
        [of] = step.inputs
        place = self._shown(self.places[of.id], of.dtype, kernel(step, np, self.symbols))
        if of.dtype != step.dtype or place.shape != self._shape(step):
            raise Unfit
        return place

    @staticmethod
    def _shown(of: _Place, dtype: np.dtype[Any], view: Callable[..., Any]) -> _Place:
        """Return the place of a view, as NumPy makes it of memory of the same layout."""
        raw = _template()
        whole = np.ndarray(of.shape, dtype, raw, of.offset - of.begin, of.strides)
        found = view(whole)
        if type(found) is not np.ndarray or found.dtype != dtype:
            raise Unfit
        offset = found.ctypes.data - raw.ctypes.data + of.begin
        place = _Place(of.base, offset, found.shape, found.strides, found.itemsize)
        if place.begin < of.begin or place.end > of.end:
            raise Unfit  # a copy
        return place

    def _row(
        self,
        result: _Place,
        loop: Routine | None,
        operands: Iterable[_Place],
        heard: int = native.ALL_ERRORS,
    ) -> None:
        """Write the rows of an elementwise step; an operand may be what the result lies over."""
        places = [*operands, result]
        if loop is None:
            raise Unfit
        if self._flat_row(result, loop, places, heard):
            return
        strides = [broadcast(place, result.shape) for place in places]
        others = [place for place in places if place != result]
        if self._overlaps(result, others):
            raise Unfit
        dims = coalesced(result.shape, strides)
        for (outer, inner), shifts in _expanded(dims, len(places)):
            self._write(loop, outer, [inner[0]], inner[1], [
                (place, place.offset + shift, ((inner[0], inner[1][k]), (outer[0], outer[1][k])))
                for k, (place, shift) in enumerate(zip(places, shifts, strict=True))
            ], heard)  # fmt: skip

    def _flat_row(
        self, result: _Place, loop: Routine, places: Sequence[_Place], heard: int
    ) -> bool:
        """Write the row of a step on arrays without gaps and single numbers, which most are."""
        shape, count = result.shape, prod(result.shape)
        row, strides = [], []
        end = result.offset + count * result.itemsize
        for place in places:
            base, offset, own, steps, size = place
            if own == shape and _is_flat(own, steps, size):
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
            row += [base, offset, 0]
            strides.append(stride)
        self._add(loop, 1, [count], strides, row, heard)
        return True

    def _sigmoid(self, result: _Place, x: _Place, char: str) -> None:
        """Write ``1 / (1 + exp(-x))`` as `logistic` computes it, which tells of no overflow."""
        one = self._constant(np.ones((), char))
        quiet = native.ALL_ERRORS & ~native.ERRORS["over"]
        self._row(result, loop_of("negative", 2 * char), [x])
        self._row(result, loop_of("exp", 2 * char), [result], quiet)
        self._row(result, loop_of("add", 3 * char), [result, one])
        self._row(result, loop_of("divide", 3 * char), [one, result])

    def _relu(self, result: _Place, x: _Place, char: str) -> None:
        """Write ``maximum(x, 0)``, if zeros and NaN have the bits of `at_least`."""
        size = prod(x.shape)
        loop = loop_of("maximum", 3 * char)
        if loop is None or not _is_maximum(loop, char, size):
            raise Unfit
        zero = self._constant(np.zeros((), char))
        self._row(_in_order(result, (size,)), loop, [_in_order(x, (size,)), zero])

    def _where_positive(self, step: Node) -> None:
        """Write x where y > 0, else 0, as `select_positive` has it: bits of x times 0 or 1.

        The comparison writes the lowest byte of each element of zeros, which thus are integers.
        """
        x, y = map(self._place, step.inputs)
        result, char, by = self.places[step.id], step.dtype.char, step.inputs[1].dtype.char
        zero = self._constant(np.zeros((), by))
        if self._overlaps(result, [x, y]):
            raise Unfit
        self._clear(result)
        self._row(result, loop_of("greater", f"{by}{by}?"), [y, zero])
        self._row(result, loop_of("multiply", 3 * char.translate(_AS_INTEGERS)), [x, result])

    def _joined(self, step: Node) -> None:
        """Write operands beside each other."""
        result, axis = self.places[step.id], step.attrs["axis"] % len(step.dims)
        begin = 0
        for part in step.inputs:
            x, place = self._place(part), begin
            begin += 1 if step.op is _STACK else x.shape[axis]
            along: Any = place if step.op is _STACK else slice(place, begin)
            index = (*[slice(None)] * axis, along, ...)
            into = self._shown(result, step.dtype, itemgetter(index))
            if into.shape != x.shape:
                raise Unfit
            char = step.dtype.char
            if char == "?":
                self._row(into, loop_of("logical_or", "???"), [x, x])
            else:
                self._row(into, _copy_of(char), [x])

    def _slices(self, step: Node) -> None:
        """Write slices of an array, and zeros elsewhere: one, or as `lower.slices` does."""
        result, char = self.places[step.id], step.dtype.char
        zero = self._constant(np.zeros((), char))
        attrs = bind_attrs(step.attrs, self.symbols)
        alone = step.op is _ADJOINT
        if alone or not attrs["covered"]:
            self._clear(result)
        indices = [attrs["index"]] if alone else attrs["indices"]
        for part, index in zip(step.inputs, indices, strict=True):
            into = self._shown(result, step.dtype, itemgetter((*index, ...)))
            x = self._place(part)
            if self._overlaps(result, [x]) or x.shape != into.shape:
                raise Unfit
            loop = _copy_of(char) if alone else loop_of("add", 3 * char)
            self._row(into, loop, [x] if alone else [x, zero])

    @staticmethod
    def _overlaps(result: _Place, places: Iterable[_Place]) -> bool:
        return any(
            place.base == result.base and place.begin < result.end and result.begin < place.end
            for place in places
        )

    def _divide(self, result: _Place, x: _Place, size: int, char: str) -> None:
        """Write the row of a division by a number of elements, as means have it."""
        number = self._constant(np.full((), size or 1, char))
        self._row(result, loop_of("divide", 3 * char), [x, number])

    def _column_sum(self, step: Node) -> None:
        """Write a sum over all axes but the last as `column_sums` has it: a product with ones."""
        x, result, char = self._place(step.inputs[0]), self.places[step.id], step.dtype.char
        columns = (prod(x.shape[:-1]), x.shape[-1])
        ones = self._constant(np.ones((1, columns[0]), char))
        sums = _in_order(result, (1, columns[1]))
        self._product(ones, _in_order(x, columns), sums, _columns)

    def _sum(self, step: Node) -> None:
        """Write the rows of a sum or mean over the last axes of an array without gaps."""
        x, result = self._place(step.inputs[0]), self.places[step.id]
        axes, char = step.attrs["axis"], step.dtype.char
        first = len(x.shape) - len(axes)
        found = sum_loop(char)
        if found is None or axes != tuple(range(first, len(x.shape))) or not axes:
            raise Unfit
        rows, length = prod(x.shape[:first]), prod(x.shape[first:])
        loop, zero = found
        x, result = _in_order(x, (rows, length)), _in_order(result, (rows,))
        begin = self._constant(np.full((), zero, char))
        size = x.itemsize
        if self._overlaps(result, [x]):
            raise Unfit
        into = (result, result.offset, ((rows, size),))
        self._write(_copy_of(char), (1, [0, 0]), [rows], [0, size], [(begin, 0, ()), into])
        self._write(
            loop, (rows, [size, length * size, size]), [length], [0, size, 0],
            [into, (x, x.offset, ((rows, length * size), (length, size))), into],
        )  # fmt: skip
        if step.op is _MEAN:
            self._divide(result, result, length, char)

    def _product(self, x: _Place, y: _Place, result: _Place, kernel_of: Callable[..., Any]) -> None:
        """Write the row of a product of matrices, or stacks of them, if it has a kernel's bits."""
        char = {4: "f", 8: "d"}[x.itemsize]
        loop = product_loop(char)
        if loop is None or min(len(x.shape), len(y.shape)) < 2 or self._overlaps(result, [x, y]):
            raise Unfit
        places, batch = (x, y, result), result.shape[:-2]
        stacks = [
            place._replace(shape=place.shape[:-2], strides=place.strides[:-2]) for place in places
        ]
        strides = [broadcast(stack, batch) for stack in stacks]
        stack_dims = coalesced(batch, strides) or [(1, [0, 0, 0])]
        if len(stack_dims) > 1:
            if batch[0] > _MOST_EXPANDED:
                raise Unfit
            for i in range(batch[0]):
                x_i, y_i, result_i = [_entry(place, len(batch), i) for place in places]
                self._product(x_i, y_i, result_i, kernel_of)
            return
        [(count, outer)] = stack_dims
        (n, k), m = x.shape[-2:], y.shape[-1]
        dims = count, n, k, m
        steps = *outer, *[stride for place in places for stride in place.strides[-2:]]
        apart = y.offset - x.offset if x.base == y.base else None
        if not _is_product(loop, kernel_of, char, x[2:4], y[2:4], apart, dims, steps):
            raise Unfit
        sizes = ((n, k), (k, m), (n, m))
        self._write(loop, (1, [0, 0, 0]), dims, steps, [
            (place, place.offset, ((count, step), *zip(size, place.strides[-2:], strict=True)))
            for place, step, size in zip(places, outer, sizes, strict=True)
        ])  # fmt: skip

    def _write(
        self,
        loop: Routine,
        outer: _Dim,
        dims: Sequence[int],
        strides: Sequence[int],
        arguments: Sequence[tuple[_Place, int, Iterable[tuple[int, int]]]],
        heard: int = native.ALL_ERRORS,
    ) -> None:
        """Add a row.

        Parameters
        ----------
        loop : Routine
        outer : tuple
            How often it is called, and the strides from call to call.
        dims, strides : sequence of int
            What each call is given.
        arguments : sequence of tuple
            Place of a value, offset, and sizes with strides of all that is read or written from
            there: what does not stay within the bounds of its memory, or is not aligned, is
            refused.
        heard : int
            Flags of floating-point errors that count.
        """
        row: list[int] = []
        for (place, offset, spans), step in zip(arguments, outer[1], strict=True):
            reach = [(size - 1) * stride for size, stride in spans]
            first = offset + sum([min(one, 0) for one in reach])
            last = offset + sum([max(one, 0) for one in reach]) + place.itemsize
            odd = any([number % place.itemsize for number in (offset, *reach)])  # noqa: C419
            if first < 0 or last > self.sizes[place.base] or odd:
                raise Unfit
            row += [place.base, offset, step]
        self._add(loop, outer[0], dims, strides, row, heard)

    def _add(
        self,
        loop: Routine,
        times: int,
        dims: Sequence[int],
        strides: Sequence[int],
        row: list[int],
        heard: int,
    ) -> None:
        """Add a row; the one before looks for flags if this one clears them or hears of others."""
        if self.rows and loop.keeps_flags and self.rows[-1][-1] == heard:
            self.rows[-1][-1] = native.LATER
        words = [loop.function, loop.data, times, self._words(dims), self._words(strides)]
        none = [0] * (native.ROW_WORDS - 6 - len(row))
        self.rows.append([*words, *row, *none, heard])
        self.notes.append((self.of, times, dims, row))

    def _words(self, numbers: Sequence[int]) -> int:
        """Return the address of numbers, which the rows keep."""
        key = tuple(numbers)
        found = self.words.get(key)
        if found is None:
            array = np.array(key, np.int64)
            found = self.words[key] = array.ctypes.data, array
        return found[0]


def _entry(place: _Place, rank: int, number: int) -> _Place:
    """Return an entry along the first of so many axes of a stack of matrices, or all it has."""
    if len(place.shape) < rank + 2:
        return place
    shift = number * place.strides[0] if place.shape[0] > 1 else 0
    return place._replace(
        offset=place.offset + shift, shape=place.shape[1:], strides=place.strides[1:]
    )


def _in_order(place: _Place, shape: tuple[int, ...]) -> _Place:
    """Return a value without gaps in another shape."""
    size = place.itemsize
    if not _is_flat(place.shape, place.strides, size):
        raise Unfit
    return place._replace(shape=shape, strides=_strides(shape, size))


@lru_cache(4096)
def _strides(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the strides of an array without gaps."""
    return tuple([prod(shape[axis + 1 :]) * size for axis in range(len(shape))])


@lru_cache(4096)
def _is_flat(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Return whether an array has no gaps, and its axes are in order."""
    wanted = zip(shape, strides, _strides(shape, size), strict=True)
    return not any(n > 1 and a != b for n, a, b in wanted)


_Shown = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""


@lru_cache(1024)
def _is_product(
    loop: Routine,
    kernel_of: Callable[..., Any],
    char: str,
    x: _Shown,
    y: _Shown,
    apart: int | None,
    dims: Sequence[int],
    steps: Sequence[int],
) -> bool:
    """Return whether the loop gives the kernel's bits for operands that lie so in memory.

    `apart` says how far `y` begins behind `x` where they show one memory: that a product is of a
    matrix and itself decides who computes it.
    """
    room = 2 * READ_BYTES
    raw = _numbers(char, 4 * room)
    at = (room, room + apart) if apart is not None else (room // 2, 3 * room)
    given = [
        np.ndarray(shape, char, raw, offset, strides)
        for (shape, strides), offset in zip((x, y), at, strict=True)
    ]
    wanted = np.asarray(kernel_of(*given))
    result = np.empty(wanted.shape, char)
    call(loop, [*given, result], dims, steps)
    return wanted.tobytes() == result.tobytes()


@cache
def _numbers(char: str, size: int) -> np.ndarray[Any, Any]:
    return np.sin(np.arange(size // np.dtype(char).itemsize)).astype(char)


@lru_cache(1024)
def _is_maximum(loop: Routine, char: str, size: int) -> bool:
    """Return whether a loop with one 0 has the bits of `at_least`, which repeats it."""
    values = np.resize(np.array([-0.0, 0.0, np.nan, 1.0, -1.0, -np.nan, 2.0], char), size)
    zero, result = np.zeros((), char), np.empty(size, char)
    call(loop, [values, zero, result], [size], [values.itemsize, 0, values.itemsize])
    return bool(result.tobytes() == at_least(np, values, zero).tobytes())


def _columns(row: Any, x: Any) -> Any:
    """Return what `column_sums` does with ones."""
    return row.reshape(-1).dot(x)


def _copy_of(char: str) -> Routine:
    found = loop_of("positive", 2 * char.translate(_AS_INTEGERS))
    if found is None:
        raise Unfit
    return found


@cache
def _template() -> np.ndarray[Any, Any]:
    """Return memory that values are shown of while rows are written; nobody reads it."""
    return np.zeros(READ_BYTES + 64, np.uint8)


def broadcast(place: _Place, shape: tuple[int, ...]) -> list[int]:
    """Return the strides by which a value goes through a shape."""
    missing = len(shape) - len(place.shape)
    if missing < 0:
        raise Unfit
    found = [0] * missing
    for want, have, stride in zip(shape[missing:], place.shape, place.strides, strict=True):
        if have not in (want, 1):
            raise Unfit
        found.append(0 if have == 1 else stride)
    return found


_Dim = tuple[int, list[int]]
"""How many, and the stride of each argument."""


def coalesced(shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> list[_Dim]:
    """Return the dims in as few as there can be, outermost first."""
    found: list[_Dim] = []
    for axis, size in enumerate(shape):
        steps = [one[axis] for one in strides]
        if size == 1:
            continue
        if found and found[-1][1] == [size * step for step in steps]:
            found[-1] = (found[-1][0] * size, steps)
        else:
            found.append((size, steps))
    return found


def _expanded(dims: list[_Dim], count: int) -> list[tuple[tuple[_Dim, _Dim], list[int]]]:
    """Return the two innermost dims with what is added to offsets, for each of the outer ones."""
    nothing = (1, [0] * count)
    padded = [nothing] * (2 - len(dims)) + dims
    *outermost, outer, inner = padded
    if prod([size for size, _ in outermost]) > _MOST_EXPANDED:
        raise Unfit
    shifts = [[0] * count]
    for size, steps in outermost:
        shifts = [
            [shift + i * step for shift, step in zip(one, steps, strict=True)]
            for one in shifts
            for i in range(size)
        ]
    return [((outer, inner), one) for one in shifts]
