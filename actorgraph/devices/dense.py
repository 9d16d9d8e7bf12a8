"""Machine code of matrix products, and of sums along rows, for fixed sizes.

A product is computed in *tiles*: some rows of the result by some adjacent vectors, whose sums stay
in registers.  Sums begin at zero or at the result's old values.  Each step of a tile's loops
broadcasts one number of every row to a vector, and adds its products with the vectors of the other
operand (FMA).  Convolutions use the same tiles (`convolving`).  An operand in the other order is
transposed in blocks that fit into registers.  For few rows that takes longer than the product, so
sums are vectors then, and their numbers are added up last.

Invariant: a result does not depend on the number of threads.  The code is cut into *parts*, which
threads draw by number (`helpers`), and the order of sums follows from the sizes alone.  FMA may
change last bits against NumPy, and no floating-point error is reported.

`lower.quick_rows` compiles and calls these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, gcd, inf, prod
from typing import NamedTuple, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.helpers import SHARE
from actorgraph.devices.vectors import VectorLines, lanes_of, registers

VECTORS = 2
MOST_THREADS = 4
_TALL, _PARTS = 4, 8
"""Least tiles on top of each other for which columns are packed; desired number of parts."""
_LEAST_LANES, _AT_ONCE = 4, 4
"""Least numbers, and most vectors, of a row that are computed at once."""
_FEW, _ROWS = 7, 2
"""Most rows of a product whose sums are vectors; how many of them are computed at once."""
_ONCE = 1, 0, 0
_DEPTH = 384
"""Steps after which a tile is stored, so that its operands stay in the L1 cache."""


@dataclass(frozen=True)
class Tile:
    """Rows by vectors of a result, whose sums stay in registers.

    - `rows`: byte offsets in the first operand, one for each row of the result
    - `loops`: the outer and the inner loop: trips, and byte strides of both operands
    - `taps`: byte offsets in both operands, one pair for each product of a step
    - `down`: byte stride from row to row of the result
    - `adds`: whether sums begin at the result's old values
    """

    char: str
    lanes: int
    rows: tuple[int, ...]
    vectors: int
    loops: tuple[tuple[int, int, int], tuple[int, int, int]]
    taps: tuple[tuple[int, int], ...]
    down: int
    adds: bool

    def text(self, name: str) -> str:
        """Return a function of the addresses of both operands and the result."""
        text = TileCode(name, self.char, self.lanes)
        places = [
            (i, j, text.at("%z", by=i * self.down + j * text.wide))
            for i in range(len(self.rows)) for j in range(self.vectors)
        ]  # fmt: skip
        first = [text.load(at) if self.adds else "zeroinitializer" for _, _, at in places]
        (outer, *by_outer), (inner, *by_inner) = self.loops
        with text.loop(outer, *first) as o:
            x, y = [
                text.at(at, (o.index, by)) for at, by in zip(("%x", "%y"), by_outer, strict=True)
            ]
            with text.loop(inner, *o.before) as k:
                x, y = [text.at(at, (k.index, by)) for at, by in zip((x, y), by_inner, strict=True)]
                for by_x, by_y in self.taps:
                    others = [
                        text.load(text.at(y, by=by_y + j * text.wide)) for j in range(self.vectors)
                    ]
                    ones = [text.spread(text.at(x, by=row + by_x)) for row in self.rows]
                    before = k.after
                    k.after = [
                        text.fma(ones[i], others[j], one)
                        for (i, j, _), one in zip(places, before, strict=True)
                    ]
            o.after = k.after
        for (_, _, at), one in zip(places, o.after, strict=True):
            text.store(one, at)
        head = f"define internal void @{name}(ptr %x, ptr %y, ptr %z) {{"
        return "\n".join([head, "work:", *text.lines, "  ret void", "}"])


class TileCode(VectorLines):
    """Writes a function with branches and calls of tiles."""

    def __init__(self, name: str, char: str, lanes: int) -> None:
        super().__init__(char, lanes)
        self.name, self.block = name, "work"
        self._tiles: dict[Tile, str] = {}

    def pieces(self, total: int, size: int, write: Callable[[int, tuple[str, int]], None]) -> None:
        """Write code for pieces of a size, and for the rest: ``write(count, (i, unit))``.

        The piece of `count` begins at ``i * unit``.
        """
        whole, rest = divmod(total, size)
        if whole:
            with self.each(whole) as i:
                write(size, (i, size))
        if rest:
            write(rest, ("1", whole * size))

    def either(
        self, index: str, last: int, one: Callable[[], None], other: Callable[[], None]
    ) -> None:
        """Write `one` for an index less than the last, and `other` for the last."""
        if not last:
            other()
            return
        label = self.labelled("either")
        test = self.new(f"icmp slt i64 {index}, {last}")
        self.lines.append(f"  br i1 {test}, label %{label}.yes, label %{label}.no")
        for name, write in (("yes", one), ("no", other)):
            self.label(f"{label}.{name}")
            write()
            self.lines.append(f"  br label %{label}.over")
        self.label(f"{label}.over")

    def divided(self, number: str, *counts: int) -> list[str]:
        """Return the multi-index of a number, last axis fastest, with an unbounded first axis."""
        result = []
        for count in reversed(counts):
            result.append("0" if count == 1 else self.new(f"urem i64 {number}, {count}"))
            number = number if count == 1 else self.new(f"udiv i64 {number}, {count}")
        return [number, *reversed(result)]

    def tile(self, tile: Tile, x: str, y: str, z: str) -> None:
        """Call a tile."""
        called = self._tiles.setdefault(tile, f"{self.name}.{len(self._tiles)}")
        self.lines.append(f"  call void @{called}(ptr {x}, ptr {y}, ptr {z})")

    def across(self, value: str, how: str) -> str:
        """Return a vector of copies of the sum, or the maximum, of a vector's numbers."""
        kind = f"v{self.lanes}f{8 * self.size}"
        if how == "add":
            called = f"reassoc {self.kind} @llvm.vector.reduce.fadd.{kind}({self.kind} -0.0, "
        else:
            called = f"{self.kind} @llvm.vector.reduce.fmax.{kind}("
        return self.spread_out(self.new(f"call {called}{self.type} {value})"))

    def copy(self, into: str, of: str, size: int) -> None:
        """Copy bytes."""
        self.lines.append(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {into}, ptr {of}, i64 {size}, i1 false)"
        )

    def clear(self, into: str, size: int) -> None:
        """Set bytes to zero."""
        self.lines.append(
            f"  call void @llvm.memset.p0.i64(ptr {into}, i8 0, i64 {size}, i1 false)"
        )

    def turned(self, of: str, by: int, into: str, to: int, rows: int, columns: int) -> None:
        """Copy rows, `by` bytes apart, transposed to lines that are `to` bytes apart."""
        lanes = self.lanes
        blocks = rows // lanes, columns // lanes
        if all(blocks):
            with self.each(blocks[0]) as i, self.each(blocks[1]) as j:
                begin = self.at(of, (i, lanes * by), (j, self.wide))
                lines = [self.load(self.at(begin, by=k * by)) for k in range(lanes)]
                end = self.at(into, (i, self.wide), (j, lanes * to))
                for k, line in enumerate(self._transposed(lines)):
                    self.store(line, self.at(end, by=k * to))
        done, begun = lanes * blocks[0], lanes * blocks[1]
        for low, high, left, right in ((done, rows, 0, columns), (0, done, begun, columns)):
            if low < high and left < right:
                with self.each(high - low) as i, self.each(right - left) as j:
                    first = self.at(of, (i, by), (j, self.size), by=low * by + left * self.size)
                    one = self.new(f"load {self.kind}, ptr {first}, align {self.size}")
                    to_ = self.at(into, (i, self.size), (j, to), by=low * self.size + left * to)
                    self.lines.append(f"  store {self.kind} {one}, ptr {to_}, align {self.size}")

    def strided(self, of: str, by: int, into: str, to: int, count: int) -> None:
        """Copy numbers between strides, which are counted in numbers."""
        if by == to == 1:
            self.copy(into, of, count * self.size)
            return
        with self.each(count) as i:
            one = self.new(f"load {self.kind}, ptr {self.at(of, (i, by * self.size))}")
            place = self.at(into, (i, to * self.size))
            self.lines.append(f"  store {self.kind} {one}, ptr {place}")

    def _transposed(self, lines: list[str]) -> list[str]:
        """Return the transposed square block of vectors."""
        apart = 1
        while apart < self.lanes:
            mixed = list(lines)
            for i in range(self.lanes):
                if not i & apart:
                    mixed[i], mixed[i + apart] = self._mixed(lines[i], lines[i + apart], apart)
            lines, apart = mixed, 2 * apart
        return lines

    def _mixed(self, one: str, other: str, apart: int) -> list[str]:
        """Return two vectors with a 2 x 2 transposition of all pairs of numbers so far apart."""
        lanes = self.lanes
        low = [k if not k & apart else lanes + k - apart for k in range(lanes)]
        high = [k + apart if not k & apart else lanes + k for k in range(lanes)]
        return [self.shuffled(one, other, places) for places in (low, high)]

    def totals(self, lines: list[str]) -> str:
        """Return a vector of the sums of the numbers of each of `lanes` vectors."""
        apart = 1
        while apart < self.lanes:
            pairs = zip(lines[::2], lines[1::2], strict=True)
            lines = [self.call("add", *self._mixed(*pair, apart)) for pair in pairs]
            apart *= 2
        return lines[0]

    def function(
        self, arrays: int, room: int, parts: int, end: TileCode | None = None, kept: int = 0
    ) -> tuple[str, int]:
        """Return the written code as a function of several parts, and its bytes of scratch memory.

        The function has the signature of NumPy's inner loops.  Its arguments are the addresses of
        `arrays`, the result last, then of the scratch memory; its data are words of helpers.  In
        the code they are ``%p0`` and so on; ``%part`` is the number of the part, and ``%room``
        points to `room` bytes of the thread's own.  Behind those of all threads the scratch memory
        has `kept` bytes that parts share.  The code in `end` runs once, after all parts.
        """
        total = room * MOST_THREADS + kept
        given = [f"  %g{k} = getelementptr ptr, ptr %args, i64 {k}\n  %p{k} = load ptr, ptr %g{k}"
                 for k in range(arrays + bool(total))]  # fmt: skip
        text = "\n".join([
            *[tile.text(name) for tile, name in self._tiles.items()],
            f"define internal void @{self.name}.parts(ptr %block) {{", "entry:",
            "  %args = load ptr, ptr %block", *given,
            "  %rooms = getelementptr i64, ptr %block, i64 2",
            "  %number = atomicrmw add ptr %rooms, i64 1 seq_cst",
            f"  %room.by = mul i64 %number, {room}",
            f"  %room = getelementptr i8, ptr %p{len(given) - 1}, i64 %room.by",
            "  %drawn = getelementptr i64, ptr %block, i64 1", "  br label %draw", "draw:",
            "  %part = atomicrmw add ptr %drawn, i64 1 seq_cst",
            f"  %more = icmp slt i64 %part, {parts}", "  br i1 %more, label %work, label %end",
            "work:", *self.lines, "  br label %draw", "end:", "  ret void", "}",
            f"define void @{self.name}(ptr %args, ptr %dims, ptr %steps, ptr %data) {{", "entry:",
            "  %block = alloca [3 x i64]", "  store ptr %args, ptr %block",
            *[f"  %w{k} = getelementptr i64, ptr %block, i64 {k}\n  store i64 0, ptr %w{k}"
              for k in (1, 2)],
            f"  call void @share(ptr %data, ptr @{self.name}.parts, ptr %block)",
            "  br label %work", "work:", *(() if end is None else (*given, *end.lines)),
            "  ret void", "}",
        ])  # fmt: skip
        return text, total


class Product(NamedTuple):
    """A stack of products of matrices: ``z = x @ y``.

    - `sizes`: rows, summed axis, columns
    - `batch`: by axis of the stack: its size, and byte strides of all three
    - `x`, `y`, `z`: byte strides along rows and columns
    - `adds`: whether the product is added to the result
    - `dots`: whether sums are vectors along the summed axis, in which both operands are contiguous
    """

    char: str
    sizes: tuple[int, int, int]
    x: tuple[int, int]
    y: tuple[int, int]
    z: tuple[int, int]
    batch: tuple[tuple[int, int, int, int], ...] = ()
    adds: bool = False
    dots: bool = False


def most_rows() -> int:
    """Return the most rows of a tile."""
    return registers()[1] // 4


def product_code(name: str, product: Product) -> tuple[str, int] | None:
    """Return a function for a product, and the bytes of its scratch memory; None if unfit.

    It is unfit where vectors would be shorter than half a register: NumPy is faster there.
    """
    dots = product.dots and not product.adds
    return _dots_code(name, product) if dots else _tiles_code(name, product)


def _tiles_code(name: str, product: Product) -> tuple[str, int] | None:
    n, depth, m = product.sizes
    size = 4 if product.char == "f" else 8
    widest = registers()[0] // size
    lanes, turned = gcd(m, widest), product.y[1] != size
    if (
        lanes < (2 if product.adds else widest // 2)
        or product.z[1] != size
        or (turned and product.y[0] != size)
        or not n * depth
    ):
        return None
    code, most = TileCode(name, product.char, lanes), most_rows()
    counts = [count for count, *_ in product.batch]
    columns = ceil(m / (VECTORS * lanes))
    packs = turned or n >= _TALL * most
    groups = min(ceil(n / most), max(1, ceil(_PARTS / (columns * prod(counts)))))
    tall = ceil(n / groups / most) * most
    groups = ceil(n / tall)
    *index, column, group = code.divided("%part", *counts, columns, groups)[1:]
    shifts = _of_stack(product, index)
    shifts[0].append((group, tall * product.x[0]))
    shifts[1].append((column, VECTORS * lanes * product.y[1]))
    shifts[2] += [(group, tall * product.z[0]), (column, VECTORS * code.wide)]
    x, y, z = [code.at(f"%p{k}", *shift) for k, shift in enumerate(shifts)]

    def panel(vectors: int) -> None:
        begin, down = y, product.y[0]
        if packs:
            begin, down = "%room", vectors * code.wide
            if turned:
                code.turned(y, product.y[1], begin, down, vectors * lanes, depth)
            else:
                with code.each(depth) as k:
                    code.copy(code.at(begin, (k, down)), code.at(y, (k, product.y[0])), down)

        def strip(rows: int, move: tuple[str, int]) -> None:
            left, into = [code.at(at, (move[0], move[1] * by[0])) for at, by in (
                (x, product.x), (z, product.z))]  # fmt: skip
            for low in range(0, depth, _DEPTH):
                count = min(_DEPTH, depth - low)
                unroll = gcd(count, 4)
                loop = count // unroll, unroll * product.x[1], unroll * down
                taps = tuple([(k * product.x[1], k * down) for k in range(unroll)])
                heights = tuple([i * product.x[0] for i in range(rows)])
                loops, adds = (_ONCE, loop), product.adds or low > 0
                code.tile(
                    Tile(product.char, lanes, heights, vectors, loops, taps, product.z[0], adds),
                    code.at(left, by=low * product.x[1]), code.at(begin, by=low * down), into,
                )  # fmt: skip

        last = n - (groups - 1) * tall
        code.either(group, (groups - 1) * (last != tall), partial(code.pieces, tall, most, strip),
                    partial(code.pieces, last, most, strip))  # fmt: skip

    rest = m // lanes - (columns - 1) * VECTORS
    code.either(column, (columns - 1) * (rest != VECTORS), partial(panel, VECTORS),
                partial(panel, rest))  # fmt: skip
    room = -(-depth * VECTORS * code.wide // 64) * 64 if packs else 0
    return code.function(3, room, prod(counts) * columns * groups)


def _of_stack(product: Product, index: Sequence[str]) -> list[list[tuple[str, int]]]:
    """Return how far matrices of all three are from the first, by the multi-index in the stack."""
    pairs = [*zip(index, product.batch, strict=True)]
    return [[(i, by[k]) for i, (_, *by) in pairs] for k in range(3)]


def takes_dots(product: Product) -> bool:
    """Return whether a product should be computed with sums that are vectors."""
    n, depth, _ = product.sizes
    size = 4 if product.char == "f" else 8
    along = product.x[1] == product.y[0] == product.z[1] == size != product.y[1]
    return along and n <= _FEW and depth % (registers()[0] // size) == 0


def _dots_code(name: str, product: Product) -> tuple[str, int]:
    """Return a function for a product of few rows; a part has as many columns as lanes."""
    n, depth, m = product.sizes
    code = TileCode(name, product.char, registers()[0] // (4 if product.char == "f" else 8))
    lanes, counts = code.lanes, [count for count, *_ in product.batch]
    columns = ceil(m / lanes)
    *index, column = code.divided("%part", *counts, columns)[1:]
    shifts = _of_stack(product, index)
    shifts[1].append((column, lanes * product.y[1]))
    shifts[2].append((column, code.wide))
    x, y, z = [code.at(f"%p{k}", *shift) for k, shift in enumerate(shifts)]
    most = registers()[1] // 2  # sums at once

    def block(count: int) -> None:
        for low in range(0, n, _ROWS):
            rows = range(low, min(n, low + _ROWS))
            sums: dict[int, list[str]] = {i: [] for i in rows}
            for first in range(0, count, most // len(rows)):
                own = range(first, min(count, first + most // len(rows)))
                with code.loop(depth // lanes, *["zeroinitializer"] * len(rows) * len(own)) as k:
                    ones, others = [
                        [code.load(code.at(at, (k.index, code.wide), by=i * by)) for i in some]
                        for at, by, some in ((x, product.x[0], rows), (y, product.y[1], own))
                    ]
                    pairs = [(one, other) for one in ones for other in others]
                    k.after = [code.fma(*pair, one) for pair, one in zip(pairs, k.before)]
                for place, i in enumerate(rows):
                    sums[i] += k.after[place * len(own) : (place + 1) * len(own)]
            for i, lines in sums.items():
                found = code.totals(lines + ["zeroinitializer"] * (lanes - count))
                into = code.at(z, by=i * product.z[0])
                code.store(found, into if count == lanes else "%room")
                if count < lanes:
                    code.copy(into, "%room", count * code.size)

    rest = m - (columns - 1) * lanes
    code.either(column, (columns - 1) * (rest != lanes), partial(block, lanes),
                partial(block, rest))  # fmt: skip
    return code.function(3, 64, prod(counts) * columns)


# -- rows -----------------------------------------------------------------------------------------


Sums: TypeAlias = tuple[tuple[str, str, str], ...]
"""Reductions: names, ``"add"`` or ``"maximum"``, and the expressions of their elements."""


class RowSums(NamedTuple):
    """Reductions along rows, and a result made of them: new elements, or a number for each row.

    - `sizes`: pieces of a row, rows, elements of a piece, in the order of the axes in memory
    - `single`: for each operand and, last, the result: whether it has one number for each row
    - `stages`: each has reductions that are computed together, then names and expressions of
      numbers
    - `value`: expression of the result, of the operands or of ``kept``: the elements of the first
      reduction of the last stage, which the result's memory holds
    - `numbers`: names and values of constants
    """

    char: str
    sizes: tuple[int, int, int]
    single: tuple[bool, ...]
    stages: tuple[tuple[Sums, tuple[tuple[str, str], ...]], ...]
    value: str
    numbers: tuple[tuple[str, float], ...]


def rows_code(name: str, sums: RowSums) -> tuple[str, int] | None:
    """Return a function for rows, and the bytes of its scratch memory; None if unfit."""
    rows, inner = sums.sizes[1:]
    lanes = lanes_of(sums.char, inner)
    if lanes < _LEAST_LANES:
        return None
    code = TileCode(name, sums.char, lanes)
    parts = max([count for count in range(1, _PARTS + 1) if rows % count == 0])
    with code.each(rows // parts) as i:
        row = code.new(f"add i64 {code.new(f'mul i64 %part, {rows // parts}')}, {i}")
        _Row(code, sums, row).write()
    return code.function(len(sums.single), 0, parts)


class _Row:
    """Writes the code of a row."""

    def __init__(self, code: TileCode, one: RowSums, row: str) -> None:
        self._code, self._one = code, one
        self._many = gcd(one.sizes[2] // code.lanes, _AT_ONCE)
        bytes_ = [code.size * (1 if alone else one.sizes[2]) for alone in one.single]
        *given, self._result = [code.at(f"%p{k}", (row, by)) for k, by in enumerate(bytes_)]
        places = [*zip("xyz", given, one.single, strict=False)]
        self._arrays = {key: at for key, at, alone in places if not alone}
        self._known = {key: code.number(value) for key, value in one.numbers}
        self._known |= {key: code.spread(at) for key, at, alone in places if alone}

    def write(self) -> None:
        """Write the code of all stages, and of the result."""
        code, one = self._code, self._one
        for sums, numbers in one.stages:
            self._sum(sums, "kept" in one.value and sums is one.stages[-1][0])
            for key, text in numbers:
                self._known[key] = code.write(text, self._known)
        if one.single[-1]:
            value = code.write(one.value, self._known)
            first = code.new(f"extractelement {code.type} {value}, i32 0")
            code.lines.append(f"  store {code.kind} {first}, ptr {self._result}")
            return
        arrays = {"kept": self._result} if "kept" in one.value else self._arrays

        def element(at: Callable[[str], str], before: list[str], _: int) -> list[str]:
            here = self._known | {key: code.load(at(base)) for key, base in arrays.items()}
            code.store(code.write(one.value, here), at(self._result))
            return before

        self._elements(element, [])

    def _sum(self, sums: Sums, keeps: bool) -> None:
        """Write reductions, each in several vectors; with `keeps` store the elements of one."""
        code, many = self._code, self._many
        begins = [code.number(0.0 if how == "add" else -inf) for _, how, _ in sums]

        def element(at: Callable[[str], str], found: list[str], j: int) -> list[str]:
            here = self._known | {key: code.load(at(base)) for key, base in self._arrays.items()}
            values = [code.write(text, here) for _, _, text in sums]
            if keeps:
                code.store(values[0], at(self._result))
            for place, (value, (_, how, _)) in enumerate(zip(values, sums, strict=True)):
                which = place * many + j
                found[which] = code.call(how, found[which], value)
            return found

        after = self._elements(element, [one for one in begins for _ in range(many)])
        for place, (key, how, _) in enumerate(sums):
            total, *others = after[place * many : (place + 1) * many]
            for other in others:
                total = code.call(how, total, other)
            self._known[key] = code.across(total, how)

    def _elements(
        self, write: Callable[[Callable[[str], str], list[str], int], list[str]], begin: list[str]
    ) -> list[str]:
        """Write a loop over all elements of the row; return its carried values."""
        code, many = self._code, self._many
        pieces, rows, inner = self._one.sizes
        with code.loop(pieces, *begin) as o:
            with code.loop(inner // code.lanes // many, *o.before) as k:
                for j in range(many):
                    moves = (o.index, rows * inner * code.size), (k.index, many * code.wide)
                    k.after = write(partial(_moved, code, moves, j * code.wide), [*k.after], j)
            o.after = k.after
        return o.after


def _moved(code: TileCode, moves: Sequence[tuple[str, int]], by: int, base: str) -> str:
    return code.at(base, *moves, by=by)


# -- modules --------------------------------------------------------------------------------------

ALONE = np.ones(6, np.int64)
"""Words of helpers that always seem taken, so that a call runs alone."""


def module_text(functions: Iterable[str]) -> str:
    """Return the text of a module of functions."""
    return "\n".join([*functions, SHARE])


def called_text(name: str, arrays: int) -> str:
    """Return a function ``call`` of a tuple of that many arrays and the words of helpers."""
    text = [f"define i64 @call(ptr %tuple) {{\n  %args = alloca [{arrays} x ptr]"]
    text += [*native.items_text(arrays + 1), *native.stored_text(arrays)]
    call = f"  call void @{name}(ptr %args, ptr null, ptr null, ptr %a{arrays})"
    return "\n".join([*text, call, "  ret i64 0", "}"])
