"""Tables: steps as rows that call NumPy's own inner loops, walked without Python and its lock.

A step from Python costs 0.2 us beside its arithmetic, a row some nanoseconds, and both call the
same loop (`devices.loops`, `devices.native`).  A *stretch* is a run of steps of which each is a row
or a view.  It becomes one step; its other results that are needed are steps before, as memory.

A table declines where an array is not as it was planned for, or where a loop has told of a
floating-point error that is not ignored: then the Python form computes all of it again, which warns
or fails as ever.  So it is a form of programs without side effects.

Invariants: what a row writes overlaps nothing that it reads, but for sums, which add to what a row
before has written; every row lies within its memory, as `Written` checks; blocks and constants are
owned by the table that says where they are, which the kernel owns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.loops import Routine, call, loop_of, product_loop, sum_loop
from actorgraph.graph import Node
from actorgraph.lower.kernels import kernel
from actorgraph.lower.matmul import product
from actorgraph.lower.slices import SLICES
from actorgraph.memory.buffers import VIEWS, aligned, regular, usage
from actorgraph.memory.packing import Span, pack
from actorgraph.op import CONSTANT, FRESH_OUT, REGISTRY, Op, bind_attrs
from actorgraph.ops._arrays import are_columns, at_least
from actorgraph.rewrite.exact import is_pure, restated
from actorgraph.types import UNKNOWN, bind_shape

__all__ = [
    "Declined", "OWN", "ROOM", "Stretch", "TABLE", "Unfit", "Written", "row_kind", "table_kernel",
    "with_tables",
]  # fmt: skip

FEWEST = 3
"""Rows of a stretch that is worth its call."""

LARGEST_BYTES = 128 * 1024
"""Values above which a call from Python costs nothing beside the arithmetic."""

_MOST_EXPANDED = 64
"""Rows that one step becomes where its operands have gaps in more than two dims."""


class Declined(Exception):
    """A table has not computed its results; the Python form does."""


def _never(xp: Any, *arrays: Any, **attrs: Any) -> Any:
    raise AssertionError("a table has a kernel of its own")


TABLE = Op("table", "a[*s]", _never, memory=FRESH_OUT, doc="Steps walked as rows.")
"""The op of stretches."""

_SUM, _SIGMOID, _ADJOINT = REGISTRY["sum"], REGISTRY["sigmoid"], REGISTRY["getitem_adjoint"]
_RELU, _WHERE_POSITIVE = REGISTRY["relu"], REGISTRY["where_positive"]
_SHOWING = frozenset({REGISTRY["getitem"], REGISTRY["reshape"]})  # mostly, told by the result

ROOM = Op("table_room", "a[*s]", _never, memory=FRESH_OUT, doc="What a stretch writes, too.")
"""The op of results of stretches that come before them, as memory."""

OWN = frozenset({TABLE, ROOM})
"""The ops whose kernels are `table_kernel`."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Steps in order, what they are given, and which results others need, the step's own last."""

    steps: tuple[Node, ...]
    given: tuple[Node, ...]
    results: tuple[Node, ...]
    written: list[tuple[Mapping[str, int], Written]] = field(default_factory=list)

    def rows(self, symbols: Mapping[str, int]) -> Written:
        """Return the rows for these sizes; those that were written last are kept."""
        if not self.written or self.written[0][0] != symbols:
            self.written[:] = [(dict(symbols), Written(self, symbols))]
        return self.written[0][1]


# -- which steps ----------------------------------------------------------------------------------


def with_tables(
    steps: Sequence[Node], kept: Collection[int], symbols: Mapping[str, int]
) -> Sequence[Node]:
    """Return the steps with stretches as one step each; the same object where there are none.

    Parameters
    ----------
    steps : sequence of Node
        In order.
    kept : collection of int
        Ids of what is needed after the last step.
    symbols : mapping
        Sizes that tell which arrays are small enough.
    """
    regular_ids = regular(steps)
    kinds = [row_kind(step, regular_ids, symbols) for step in steps]
    needed = set(kept)
    found: list[Node] = []
    end = len(steps)
    while end:
        begin = end
        while begin and kinds[begin - 1]:
            begin -= 1
        if kinds[begin:end].count("row") >= FEWEST:
            try:
                made = _as_one(steps[begin:end], kinds[begin:end], needed, symbols)
            except Unfit as unfit:
                kinds[begin + unfit.position] = ""
                continue
        else:
            begin = begin if begin < end else end - 1
            made = list(steps[begin:end])
        for step in steps[begin:end]:
            needed.update([part.id for part in step.inputs])
        found += reversed(made)
        end = begin
    found.reverse()
    return found if any(step.op is TABLE for step in found) else steps


def row_kind(step: Node, regular_ids: Collection[int], symbols: Mapping[str, int]) -> str:
    """Return whether a step is a ``"row"`` or a ``"view"``, else nothing."""
    if not is_pure(step.op) or step.op.kernel is not None:
        return ""
    if not all(_is_small(one, symbols) for one in (step, *step.inputs)):
        return ""
    if _is_view(step):
        shows = step.op.memory.is_view or step.op in _SHOWING
        return "view" if shows and [part.op is CONSTANT for part in step.inputs] == [False] else ""
    return "row" if step.id in regular_ids and _has_loop(step) else ""


def _is_view(step: Node) -> bool:
    return step.op.memory.layout_with(step.attrs) in VIEWS


def _is_small(node: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether a value is of known, small size."""
    if UNKNOWN in node.dims:
        return False
    return 0 < prod(bind_shape(node.dims, symbols, 0)) * node.dtype.itemsize <= LARGEST_BYTES


def _has_loop(step: Node) -> bool:
    if step.op is _SUM:
        return sum_loop(step.dtype.char) is not None
    if step.op.ufunc == "matmul":
        return product_loop(step.dtype.char) is not None
    if step.op in (_SIGMOID, _RELU, _WHERE_POSITIVE, SLICES, _ADJOINT):
        return step.dtype.char in "fd" and (step.op is not _ADJOINT or len(step.inputs) == 1)
    return _loop(step) is not None


def _loop(step: Node) -> Routine | None:
    if step.op.ufunc is None or step.attrs or len(step.inputs) >= native.MOST_ARGUMENTS:
        return None
    if step.op.ufunc == "positive":
        return _copy_of(step.dtype.char)
    return loop_of(step.op.ufunc, "".join([one.dtype.char for one in (*step.inputs, step)]))


def _as_one(
    steps: Sequence[Node],
    kinds: Sequence[str],
    needed: Collection[int],
    symbols: Mapping[str, int],
) -> list[Node]:
    """Return what stands for a stretch: rooms, the step, and views that others need."""
    outside = set(needed)
    views: list[Node] = []
    for step, kind in zip(reversed(steps), reversed(kinds), strict=True):
        if step.id in outside and kind == "view":
            views.append(step)
            outside.add(step.inputs[0].id)
    own = {step.id for step in steps}
    given = {
        part.id: part
        for step in steps
        for part in step.inputs
        if part.id not in own and part.op is not CONSTANT
    }
    pairs = zip(steps, kinds, strict=True)
    results = [step for step, kind in pairs if kind == "row" and step.id in outside]
    if not results:
        return list(steps)
    *others, root = results
    rooms = [restated(step, ROOM, (), {"dims": step.dims}) for step in others]
    stretch = Stretch(tuple(steps), tuple(given.values()), tuple(results))
    stretch.rows(symbols)
    # The attributes may hold dims that a run binds.
    bound = tuple([(step.dims, step.attrs) for step in (*stretch.given, *steps)])
    attrs = {"stretch": stretch, "dims": root.dims, "bound": bound}
    return [*rooms, restated(root, TABLE, (*stretch.given, *rooms), attrs), *reversed(views)]


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


class Written:
    """Writes the rows of a stretch for one binding of its dims."""

    def __init__(self, stretch: Stretch, symbols: Mapping[str, int]) -> None:
        self.symbols = symbols
        self.kept: list[Any] = []  # constants, whose addresses are in the rows
        self.rows: list[list[int]] = []
        self.words: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
        self.places: dict[int, _Place] = {}
        self.sizes: list[int] = []  # bytes of what each base stands for
        self.objects = [*stretch.given, *stretch.results]
        for node in self.objects:
            self._whole(node, len(self.sizes), 0)
            self.sizes.append(self._bytes(node))
        self.given = len(stretch.given)
        self._lay(stretch)
        for position, step in enumerate(stretch.steps):
            try:
                if _is_view(step):
                    self.places[step.id] = self._view(step)
                elif step.op is _SUM:
                    self._sum(step)
                elif step.op.ufunc == "matmul":
                    x, y = map(self._place, step.inputs)
                    self._product(x, y, self.places[step.id], product(step, self.symbols))
                elif step.op is _SIGMOID:
                    self._sigmoid(
                        self.places[step.id], self._place(step.inputs[0]), step.dtype.char
                    )
                elif step.op in (SLICES, _ADJOINT):
                    self._slices(step)
                elif step.op is _RELU:
                    self._relu(self.places[step.id], self._place(step.inputs[0]), step.dtype.char)
                elif step.op is _WHERE_POSITIVE:
                    self._where_positive(step)
                else:
                    operands = map(self._place, step.inputs)
                    self._row(self.places[step.id], _loop(step), operands)
            except Unfit as unfit:
                unfit.position = position
                raise

    def _shape(self, node: Node) -> tuple[int, ...]:
        return bind_shape(node.dims, self.symbols, 0)

    def _bytes(self, node: Node) -> int:
        return prod(self._shape(node)) * node.dtype.itemsize

    def _whole(self, node: Node, base: int, offset: int) -> None:
        shape, size = self._shape(node), node.dtype.itemsize
        strides = tuple([prod(shape[axis + 1 :]) * size for axis in range(len(shape))])
        self.places[node.id] = _Place(base, offset, shape, strides, size)

    def _lay(self, stretch: Stretch) -> None:
        """Find places for what stays inside."""
        lives = usage(stretch.steps, stretch.results, self.symbols)
        inner = [
            (position, step)
            for position, step in enumerate(stretch.steps)
            if step.id not in self.places and not _is_view(step)
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
        strides = [_broadcast(place, result.shape) for place in places]
        others = [place for place in places if place != result]
        if loop is None or self._overlaps(result, others):
            raise Unfit
        dims = _coalesced(result.shape, strides)
        for (outer, inner), shifts in _expanded(dims, len(places)):
            self._write(loop, outer, [inner[0]], inner[1], [
                (place, place.offset + shift, ((inner[0], inner[1][k]), (outer[0], outer[1][k])))
                for k, (place, shift) in enumerate(zip(places, shifts, strict=True))
            ], heard)  # fmt: skip

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
        zeros = [self._constant(np.zeros((), one)) for one in (char, by)]
        if self._overlaps(result, [x, y]):
            raise Unfit
        self._row(result, _copy_of(char), [zeros[0]])
        self._row(result, loop_of("greater", f"{by}{by}?"), [y, zeros[1]])
        self._row(result, loop_of("multiply", 3 * {"f": "i", "d": "l"}[char]), [x, result])

    def _slices(self, step: Node) -> None:
        """Write slices of an array, and zeros elsewhere: one, or as `lower.slices` does."""
        result, char = self.places[step.id], step.dtype.char
        zero = self._constant(np.zeros((), char))
        attrs = bind_attrs(step.attrs, self.symbols)
        alone = step.op is _ADJOINT
        if alone or not attrs["covered"]:
            self._row(result, _copy_of(char), [zero])
        indices = attrs.get("indices") or [attrs["index"]]
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

    def _sum(self, step: Node) -> None:
        """Write the rows of a sum over the last axes of an array without gaps."""
        x, result = self._place(step.inputs[0]), self.places[step.id]
        axes, char = step.attrs["axis"], step.dtype.char
        first = len(x.shape) - len(axes)
        found = sum_loop(char)
        if are_columns(len(x.shape), step.dtype, axes, step.attrs["keepdims"]):
            # As `column_sums` has it: a product with ones.
            columns = (prod(x.shape[:-1]), x.shape[-1])
            ones = self._constant(np.ones((1, columns[0]), char))
            sums = _in_order(result, (1, columns[1]))
            self._product(ones, _in_order(x, columns), sums, _columns)
            return
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
        strides = [_broadcast(stack, batch) for stack in stacks]
        stack_dims = _coalesced(batch, strides) or [(1, [0, 0, 0])]
        if len(stack_dims) > 1:
            raise Unfit
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
        row = [loop.function, loop.data, outer[0], self._words(dims), self._words(strides)]
        for (place, offset, spans), step in zip(arguments, outer[1], strict=True):
            reach = [(size - 1) * stride for size, stride in spans]
            first = offset + sum([min(one, 0) for one in reach])
            last = offset + sum([max(one, 0) for one in reach]) + place.itemsize
            odd = any([number % place.itemsize for number in (offset, *reach)])  # noqa: C419
            if first < 0 or last > self.sizes[place.base] or odd:
                raise Unfit
            row += [place.base, offset, step]
        self.rows.append([*row, *[0] * (native.ROW_WORDS - 1 - len(row)), heard])

    def _words(self, numbers: Sequence[int]) -> int:
        """Return the address of numbers, which the rows keep."""
        key = tuple(numbers)
        found = self.words.get(key)
        if found is None:
            found = self.words[key] = np.array(key, np.int64)
        return int(found.ctypes.data)


def _in_order(place: _Place, shape: tuple[int, ...]) -> _Place:
    """Return a value without gaps in another shape."""
    size = place.itemsize
    strides = [prod(place.shape[axis + 1 :]) * size for axis in range(len(place.shape))]
    if any(n > 1 and a != b for n, a, b in zip(place.shape, place.strides, strides, strict=True)):
        raise Unfit
    strides = [prod(shape[axis + 1 :]) * size for axis in range(len(shape))]
    return place._replace(shape=shape, strides=tuple(strides))


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
    room = 2 * LARGEST_BYTES
    raw = np.sin(np.arange(4 * room // np.dtype(char).itemsize)).astype(char)
    at = (room, room + apart) if apart is not None else (room // 2, 3 * room)
    given = [
        np.ndarray(shape, char, raw, offset, strides)
        for (shape, strides), offset in zip((x, y), at, strict=True)
    ]
    wanted = np.asarray(kernel_of(*given))
    result = np.empty(wanted.shape, char)
    call(loop, [*given, result], dims, steps)
    return wanted.tobytes() == result.tobytes()


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
    found = loop_of("positive", 2 * {"f": "i", "d": "l"}.get(char, char))  # floats take longer
    if found is None:
        raise Unfit
    return found


@cache
def _template() -> np.ndarray[Any, Any]:
    """Return memory that values are shown of while rows are written; nobody reads it."""
    return np.zeros(LARGEST_BYTES + 64, np.uint8)


def _broadcast(place: _Place, shape: tuple[int, ...]) -> list[int]:
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


def _coalesced(shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> list[_Dim]:
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


# -- calls ----------------------------------------------------------------------------------------


class _Table:
    """The rows of a stretch, and blocks to walk them with."""

    def __init__(self, stretch: Stretch, symbols: Mapping[str, int]) -> None:
        made = stretch.rows(symbols)
        self._rows = np.array(made.rows, np.int64)
        self._specs = np.array(
            [
                native.spec(
                    node.dtype, made.sizes[i] // node.dtype.itemsize, writable=i >= made.given
                )
                for i, node in enumerate(made.objects)
            ],
            np.int64,
        )
        self._kept = made.kept, made.words, [node.dtype for node in made.objects]
        self._total = made.total

    def block(self) -> tuple[int, Any]:
        """Return the address of a block, and what owns it."""
        memory = aligned(self._total)
        bases = [memory.ctypes.data, *[value.ctypes.data for value in self._kept[0]]]
        block = native.block(self._specs, self._rows, bases)
        return block.ctypes.data, (block, memory, self)


def table_kernel(node: Node, symbols: Mapping[str, int]) -> Callable[..., Any]:
    """Return the kernel of one of `OWN`, which raises `Declined` where it has not done its work."""
    empty = partial(np.empty, bind_attrs(node.attrs["dims"], symbols), node.dtype)
    if node.op is ROOM:

        def room(*, out: Any = None) -> Any:
            return empty() if out is None else out

        return room
    runtime = native.RUNTIME
    table = _Table(node.attrs["stretch"], symbols)
    blocks = [table.block()]

    scalars = [i for i, part in enumerate(node.attrs["stretch"].given) if not part.dims]

    def walk(*given: Any, out: Any = None) -> Any:
        if out is None:
            out = empty()
        if scalars:
            given = (*[np.asarray(one) if i in scalars else one for i, one in enumerate(given)],)
        try:
            block = blocks.pop()
        except IndexError:
            block = table.block()
        assert runtime.walk is not None, "programs have tables only where there is a runtime"
        flags = runtime.walk((*given, out), block[0])
        blocks.append(block)
        if flags and not native.is_ignored(flags):
            raise Declined
        return out

    return walk
