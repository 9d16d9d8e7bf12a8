"""Machine code of matrix products and convolutions of fixed sizes: tiles whose sums are registers.

A *tile* is some rows of a result by some vectors beside each other.  Its sums begin at zero or at
what is there; each step of its loops spreads one number of every row over a vector, and adds its
products with the vectors of the other operand.  A matrix product is tiles as it is.  So is a
convolution, of a copy of an image with its padding, in which an entry of the kernel is a shift: no
columns are written.  What lies the other way round is turned, in blocks that fit into registers.

Sums are fused with products, so last bits may change, but in an order that follows from the sizes:
a result does not depend on who computes which *part* of it.  No floating-point error is told of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil, gcd, inf, prod
from typing import NamedTuple, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.helpers import SHARE
from actorgraph.devices.vectors import VectorLines, registers

VECTORS = 2
MOST_THREADS = 4
_TALL, _PARTS = 4, 8
"""Tiles one above the other for which columns are copied together, and parts that there should be.
"""
_LEAST_LANES, _AT_ONCE = 4, 4
"""Numbers and vectors of a row that are computed at once, at least and at most."""
_ONCE = 1, 0, 0
_DEPTH = 384
"""Steps of a tile after which it is stored: what it reads has stayed in the nearest cache."""


@dataclass(frozen=True)
class Tile:
    """A part of a result.

    Attributes
    ----------
    rows : tuple of int
        Bytes from the begin of the first operand to what each row of the result reads.
    loops : tuple of tuple
        Two loops, the inner one last: how often, and by how many bytes operands move on.
    taps : tuple of tuple
        Bytes by which both lie further, of the products of each step.
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


@dataclass
class _Loop:
    """The index of a loop, what it carries as its begin has it, and as its end leaves it."""

    index: str
    before: list[str]
    after: list[str]


class TileCode(VectorLines):
    """Writes a function with loops, and the tiles that it calls."""

    def __init__(self, name: str, char: str, lanes: int) -> None:
        super().__init__(char, lanes)
        self.name, self.char, self.wide = name, char, lanes * self.size
        self._labels: list[str] = []
        self.block = "work"
        self._tiles: dict[Tile, str] = {}

    @contextmanager
    def loop(self, count: int, *begin: str) -> Iterator[_Loop]:
        """Write a loop around what is written inside, which carries some values on."""
        found = _Loop("0", [*begin], [*begin])
        if count == 1:
            yield found
            return
        i, before = f"%i{len(self._labels)}", self.block
        label = self._labelled("loop")
        found.index, place = i, len(self.lines)
        found.before = [f"{i}.c{k}" for k in range(len(begin))]
        found.after = [*found.before]
        self.lines += [""] * (1 + len(begin))
        yield found
        self.lines += [
            f"  {i}.next = add i64 {i}, 1", f"  {i}.more = icmp slt i64 {i}.next, {count}",
            f"  br i1 {i}.more, label %{label}, label %{label}.over",
        ]  # fmt: skip
        starts = [(i, "0", f"{i}.next", "i64")]
        starts += [(*one, self.type) for one in zip(found.before, begin, found.after, strict=True)]
        self.lines[place : place + len(starts)] = [
            f"  {one} = phi {kind} [{first}, %{before}], [{after}, %{self.block}]"
            for one, first, after, kind in starts
        ]
        self._at_label(f"{label}.over")

    @contextmanager
    def each(self, count: int) -> Iterator[str]:
        """Write a loop that carries nothing on; its index is a name or number."""
        with self.loop(count) as found:
            yield found.index

    def pieces(self, total: int, size: int, write: Callable[[int, tuple[str, int]], None]) -> None:
        """Write something for pieces of so many, and for the rest: ``write(many, (i, how many))``.

        Before a piece lie ``i`` times how many.
        """
        whole, rest = divmod(total, size)
        if whole:
            with self.each(whole) as i:
                write(size, (i, size))
        if rest:
            write(rest, ("1", whole * size))

    def _labelled(self, name: str) -> str:
        label = f"{name}{len(self._labels)}"
        self._labels.append(label)
        self.lines.append(f"  br label %{label}")
        self._at_label(label)
        return label

    def _at_label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def either(
        self, index: str, last: int, one: Callable[[], None], other: Callable[[], None]
    ) -> None:
        """Write one thing where an index is less than the last, and another where it is that."""
        if not last:
            other()
            return
        label = self._labelled("either")
        test = self.new(f"icmp slt i64 {index}, {last}")
        self.lines.append(f"  br i1 {test}, label %{label}.yes, label %{label}.no")
        for name, write in (("yes", one), ("no", other)):
            self._at_label(f"{label}.{name}")
            write()
            self.lines.append(f"  br label %{label}.over")
        self._at_label(f"{label}.over")

    def at(self, base: str, *terms: tuple[str, int], by: int = 0) -> str:
        """Return an address: so many times some bytes further, and `by`."""
        for index, size in terms:
            if index.isdigit():
                by += int(index) * size
            elif size:
                far = self.new(f"mul i64 {index}, {size}")
                base = self.new(f"getelementptr i8, ptr {base}, i64 {far}")
        return self.new(f"getelementptr i8, ptr {base}, i64 {by}") if by else base

    def divided(self, number: str, *counts: int) -> list[str]:
        """Return the indices of a number, the last of which moves fastest; the first is any."""
        found = []
        for count in reversed(counts):
            found.append("0" if count == 1 else self.new(f"urem i64 {number}, {count}"))
            number = number if count == 1 else self.new(f"udiv i64 {number}, {count}")
        return [number, *reversed(found)]

    def tile(self, tile: Tile, x: str, y: str, z: str) -> None:
        """Compute a tile."""
        called = self._tiles.setdefault(tile, f"{self.name}.{len(self._tiles)}")
        self.lines.append(f"  call void @{called}(ptr {x}, ptr {y}, ptr {z})")

    def store(self, value: str, at: str) -> None:
        """Write a vector."""
        self.lines.append(f"  store {self.type} {value}, ptr {at}, align {self.size}")

    def across(self, value: str, how: str) -> str:
        """Return a vector of the sum, or the largest, of the numbers in one."""
        kind = f"v{self.lanes}f{8 * self.size}"
        if how == "add":
            called = f"reassoc {self.kind} @llvm.vector.reduce.fadd.{kind}({self.kind} -0.0, "
        else:
            called = f"{self.kind} @llvm.vector.reduce.fmax.{kind}("
        one = self.new(f"call {called}{self.type} {value})")
        first = self.new(f"insertelement {self.type} poison, {self.kind} {one}, i32 0")
        return self.new(f"shufflevector {self.type} {first}, {self.type} poison, "
                        f"<{self.lanes} x i32> zeroinitializer")  # fmt: skip

    def copy(self, into: str, of: str, size: int) -> None:
        """Copy bytes."""
        self.lines.append(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {into}, ptr {of}, i64 {size}, i1 false)"
        )

    def clear(self, into: str, size: int) -> None:
        """Write zeros."""
        self.lines.append(
            f"  call void @llvm.memset.p0.i64(ptr {into}, i8 0, i64 {size}, i1 false)"
        )

    def turned(self, of: str, by: int, into: str, to: int, rows: int, columns: int) -> None:
        """Copy so many rows, `by` bytes apart, as columns, whose entries lie `to` bytes apart."""
        many = self.lanes
        whole = rows // many, columns // many
        if all(whole):
            with self.each(whole[0]) as i, self.each(whole[1]) as j:
                begin = self.at(of, (i, many * by), (j, self.wide))
                lines = [self.load(self.at(begin, by=k * by)) for k in range(many)]
                end = self.at(into, (i, self.wide), (j, many * to))
                for k, line in enumerate(self._transposed(lines)):
                    self.store(line, self.at(end, by=k * to))
        done, begun = many * whole[0], many * whole[1]
        for low, high, left, right in ((done, rows, 0, columns), (0, done, begun, columns)):
            if low < high and left < right:
                with self.each(high - low) as i, self.each(right - left) as j:
                    first = self.at(of, (i, by), (j, self.size), by=low * by + left * self.size)
                    one = self.new(f"load {self.kind}, ptr {first}, align {self.size}")
                    to_ = self.at(into, (i, self.size), (j, to), by=low * self.size + left * to)
                    self.lines.append(f"  store {self.kind} {one}, ptr {to_}, align {self.size}")

    def strided(self, of: str, by: int, into: str, to: int, count: int) -> None:
        """Copy so many numbers, so many numbers apart on either side."""
        if by == to == 1:
            self.copy(into, of, count * self.size)
            return
        with self.each(count) as i:
            one = self.new(f"load {self.kind}, ptr {self.at(of, (i, by * self.size))}")
            place = self.at(into, (i, to * self.size))
            self.lines.append(f"  store {self.kind} {one}, ptr {place}")

    def _transposed(self, lines: list[str]) -> list[str]:
        """Return the columns of so many vectors as there are numbers in each."""
        many, apart = self.lanes, 1
        while apart < many:
            found = list(lines)
            for i in range(many):
                if not i & apart:
                    pair = f"{self.type} {lines[i]}, {self.type} {lines[i + apart]}"
                    low = [k if not k & apart else many + k - apart for k in range(many)]
                    high = [k + apart if not k & apart else many + k for k in range(many)]
                    for place, mask in ((i, low), (i + apart, high)):
                        found[place] = self.new(f"shufflevector {pair}, {self.mask(mask)}")
            lines, apart = found, 2 * apart
        return lines

    def mask(self, places: Sequence[int]) -> str:
        """Return the constant of a `shufflevector`."""
        return f"<{len(places)} x i32> <{', '.join([f'i32 {one}' for one in places])}>"

    def function(
        self, arrays: int, room: int, parts: int, end: TileCode | None = None, kept: int = 0
    ) -> tuple[str, int]:
        """Return what has been written as a function of so many parts, and the bytes of its room.

        It is called as NumPy's loops are, with the addresses of so many arrays, the last of which
        is the result, then of the room; its data are words of helpers.  Inside, these are ``%p0``
        and so on, ``%part`` is the number of the part, and ``%room`` where so many bytes lie that
        its thread has for itself.  In the room it has `kept` bytes behind those of all threads, and
        what is written for the `end` is done last.
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

    Attributes
    ----------
    sizes : tuple of int
        Rows, what is summed over, columns.
    batch : tuple of tuple
        Counts, and the bytes from matrix to matrix of all three.
    x, y, z : tuple of int
        Bytes from row to row, and from column to column.
    adds : bool
        Whether the product is added to what is there.
    """

    char: str
    sizes: tuple[int, int, int]
    x: tuple[int, int]
    y: tuple[int, int]
    z: tuple[int, int]
    batch: tuple[tuple[int, int, int, int], ...] = ()
    adds: bool = False


def most_rows() -> int:
    """Return how many rows a tile has at most."""
    return registers()[1] // 4


def product_code(name: str, one: Product) -> tuple[str, int] | None:
    """Return a function for a product, and the bytes of its room; None where there is none."""
    n, depth, m = one.sizes
    size = 4 if one.char == "f" else 8
    lanes = gcd(m, registers()[0] // size)
    turned = one.y[1] != size
    if lanes < 2 or one.z[1] != size or (turned and one.y[0] != size) or not n * depth:
        return None
    code, most = TileCode(name, one.char, lanes), most_rows()
    counts = [count for count, *_ in one.batch]
    columns = ceil(m / (VECTORS * lanes))
    packs = turned or n >= _TALL * most
    groups = min(ceil(n / most), max(1, ceil(_PARTS / (columns * prod(counts)))))
    tall = ceil(n / groups / most) * most
    groups = ceil(n / tall)
    *index, column, group = code.divided("%part", *counts, columns, groups)[1:]
    shifts = [[(i, by[k]) for i, (_, *by) in zip(index, one.batch, strict=True)] for k in range(3)]
    shifts[0].append((group, tall * one.x[0]))
    shifts[1].append((column, VECTORS * lanes * one.y[1]))
    shifts[2] += [(group, tall * one.z[0]), (column, VECTORS * code.wide)]
    x, y, z = [code.at(f"%p{k}", *shift) for k, shift in enumerate(shifts)]

    def panel(vectors: int) -> None:
        begin, down = y, one.y[0]
        if packs:
            begin, down = "%room", vectors * code.wide
            if turned:
                code.turned(y, one.y[1], begin, down, vectors * lanes, depth)
            else:
                with code.each(depth) as k:
                    code.copy(code.at(begin, (k, down)), code.at(y, (k, one.y[0])), down)

        def strip(rows: int, move: tuple[str, int]) -> None:
            left, into = [code.at(at, (move[0], move[1] * by[0])) for at, by in (
                (x, one.x), (z, one.z))]  # fmt: skip
            for low in range(0, depth, _DEPTH):
                count = min(_DEPTH, depth - low)
                many = gcd(count, 4)
                loop = count // many, many * one.x[1], many * down
                taps = tuple([(k * one.x[1], k * down) for k in range(many)])
                heights = tuple([i * one.x[0] for i in range(rows)])
                adds = one.adds or low > 0
                code.tile(
                    Tile(one.char, lanes, heights, vectors, (_ONCE, loop), taps, one.z[0], adds),
                    code.at(left, by=low * one.x[1]), code.at(begin, by=low * down), into,
                )  # fmt: skip

        last = n - (groups - 1) * tall
        code.either(group, (groups - 1) * (last != tall), partial(code.pieces, tall, most, strip),
                    partial(code.pieces, last, most, strip))  # fmt: skip

    rest = m // lanes - (columns - 1) * VECTORS
    code.either(column, (columns - 1) * (rest != VECTORS), partial(panel, VECTORS),
                partial(panel, rest))  # fmt: skip
    room = -(-depth * VECTORS * code.wide // 64) * 64 if packs else 0
    return code.function(3, room, prod(counts) * columns * groups)


# -- rows -----------------------------------------------------------------------------------------


Sums: TypeAlias = tuple[tuple[str, str, str], ...]
"""Names, how numbers are put together (``"add"`` or ``"maximum"``), and their expressions."""


class RowSums(NamedTuple):
    """What is computed along rows: sums of their elements, and from them other elements, or one.

    Attributes
    ----------
    sizes : tuple of int
        Pieces that a row is in, rows, elements of a piece: those of all rows come first.
    single : tuple of bool
        Of each operand whether it has one number a row; last of the result.
    stages : tuple
        Sums that are taken at once, then names of numbers and their expressions.
    value : str
        Expression of the result; of ``kept``, the first that is summed last, and not of operands.
    numbers : tuple
        Names and values.
    """

    char: str
    sizes: tuple[int, int, int]
    single: tuple[bool, ...]
    stages: tuple[tuple[Sums, tuple[tuple[str, str], ...]], ...]
    value: str
    numbers: tuple[tuple[str, float], ...]


def rows_code(name: str, one: RowSums) -> tuple[str, int] | None:
    """Return a function for rows, and the bytes of its room; None where there is none."""
    rows, inner = one.sizes[1:]
    lanes = gcd(inner, registers()[0] // (4 if one.char == "f" else 8))
    if lanes < _LEAST_LANES:
        return None
    code = TileCode(name, one.char, lanes)
    parts = max([count for count in range(1, _PARTS + 1) if rows % count == 0])
    with code.each(rows // parts) as i:
        row = code.new(f"add i64 {code.new(f'mul i64 %part, {rows // parts}')}, {i}")
        _Row(code, one, row).write()
    return code.function(len(one.single), 0, parts)


class _Row:
    """Writes what is computed along a row."""

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
        """Write all of it."""
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
        """Write sums, each in several vectors, and keep the elements of the first where asked."""
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
        """Write a loop over all elements of the row; return what it has carried on."""
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
"""Words of helpers whom somebody else always has: nobody helps."""


def module_text(functions: Iterable[str]) -> str:
    """Return the text of a module of functions."""
    return "\n".join([*functions, SHARE])


def called_text(name: str, arrays: int) -> str:
    """Return a function, ``call``, of a tuple of so many arrays and the words of helpers."""
    text = [f"define i64 @call(ptr %tuple) {{\n  %args = alloca [{arrays} x ptr]"]
    text += [*native.items_text(arrays + 1), *native.stored_text(arrays)]
    call = f"  call void @{name}(ptr %args, ptr null, ptr null, ptr %a{arrays})"
    return "\n".join([*text, call, "  ret i64 0", "}"])
