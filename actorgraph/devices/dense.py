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
from math import ceil, gcd, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.helpers import SHARE
from actorgraph.devices.vectors import Lines, Pointer, registers

_VECTORS = 2
_MOST_TAPS, MOST_THREADS = 49, 4
_DEPTH = 384
"""Steps of a tile after which it is stored: what it reads has stayed in the nearest cache."""


@dataclass(frozen=True)
class _Tile:
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
        text = Lines(self.char, self.lanes)
        many = [(i, j) for i in range(len(self.rows)) for j in range(self.vectors)]
        wide = self.lanes * text.size

        def at(base: str, by: int | str) -> str:
            return text.new(f"getelementptr i8, ptr %{base}, i64 {by}")

        places = [i * self.down + j * wide for i, j in many]
        first = [text.load(at("z", by)) if self.adds else "zeroinitializer" for by in places]
        before, text.lines = text.lines, [""] * len(text.lines)
        sums = {one: f"%k{one[0]}.{one[1]}" for one in many}
        for by_x, by_y in self.taps:
            others = [text.load(at("y.k", by_y + j * wide)) for j in range(self.vectors)]
            for i, row in enumerate(self.rows):
                one = text.spread(at("x.k", row + by_x))
                for j, other in enumerate(others):
                    sums[i, j] = text.fma(one, other, sums[i, j])
        inside, text.lines = [*filter(None, text.lines)], [""] * len(text.lines)
        for place, by in zip(many, places, strict=True):
            to = at("z", by)
            text.lines.append(f"  store {text.type} {sums[place]}, ptr {to}, align {text.size}")
        (outer, *by_outer), (inner, *by_inner) = self.loops
        lines = [f"define internal void @{name}(ptr %x, ptr %y, ptr %z) {{", "entry:", *before]
        lines += ["  br label %outer", "outer:", "  %o = phi i64 [0, %entry], [%o.next, %last]"]
        for (i, j), one in zip(many, first, strict=True):
            lines.append(
                f"  %o{i}.{j} = phi {text.type} [{one}, %entry], [{sums[i, j]}, %last]")  # fmt: skip
        for base, by in zip("xy", by_outer, strict=True):
            lines += [f"  %{base}.by = mul i64 %o, {by}",
                      f"  %{base}.o = getelementptr i8, ptr %{base}, i64 %{base}.by"]  # fmt: skip
        lines += ["  br label %inner", "inner:", "  %k = phi i64 [0, %outer], [%k.next, %inner]"]
        for i, j in many:
            lines.append(
                f"  %k{i}.{j} = phi {text.type} [%o{i}.{j}, %outer], [{sums[i, j]}, %inner]")
        for base, by in zip("xy", by_inner, strict=True):
            lines += [f"  %{base}.far = mul i64 %k, {by}",
                      f"  %{base}.k = getelementptr i8, ptr %{base}.o, i64 %{base}.far"]  # fmt: skip
        for label, index, count, following in (
            ("inner", "k", inner, "last"), ("outer", "o", outer, "over"),
        ):  # fmt: skip
            lines += inside if label == "inner" else []
            lines += [f"  %{index}.next = add i64 %{index}, 1",
                      f"  %{index}.more = icmp slt i64 %{index}.next, {count}",
                      f"  br i1 %{index}.more, label %{label}, label %{following}",
                      f"{following}:"]  # fmt: skip
        return "\n".join([*lines, *filter(None, text.lines), "  ret void", "}"])


Layout: TypeAlias = Callable[[int], Sequence[Pointer]]
"""Returns where both operands, the result, a room of so many bytes and words of helpers lie."""


class _Code(Lines):
    """Writes a function with loops, and the tiles that it calls."""

    def __init__(self, name: str, char: str, lanes: int) -> None:
        super().__init__(char, lanes)
        self.name, self.char, self.wide = name, char, lanes * self.size
        self._slots: list[str] = []
        self._tiles: dict[_Tile, str] = {}

    @contextmanager
    def each(self, count: int) -> Iterator[str]:
        """Write a loop around what is written inside; its index is a name."""
        if count == 1:
            yield "0"
            return
        i = f"%i{len(self._slots)}"
        self._slots.append(f"  {i}.at = alloca i64")
        label = i[1:]
        self.lines += [
            f"  store i64 0, ptr {i}.at", f"  br label {i}.test", f"{label}.test:",
            f"  {i} = load i64, ptr {i}.at", f"  {i}.more = icmp slt i64 {i}, {count}",
            f"  br i1 {i}.more, label {i}.body, label {i}.over", f"{label}.body:",
        ]  # fmt: skip
        yield i
        self.lines += [
            f"  {i}.next = add i64 {i}, 1", f"  store i64 {i}.next, ptr {i}.at",
            f"  br label {i}.test", f"{label}.over:",
        ]  # fmt: skip

    def either(self, index: str, last: int, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Write one thing where an index is less than the last, and another where it is that."""
        k = f"c{len(self.lines)}"
        test = self.new(f"icmp slt i64 {index}, {last}")
        self.lines += [f"  br i1 {test}, label %{k}.yes, label %{k}.no", f"{k}.yes:"]
        one()
        self.lines += [f"  br label %{k}.over", f"{k}.no:"]
        other()
        self.lines += [f"  br label %{k}.over", f"{k}.over:"]

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

    def tile(self, tile: _Tile, x: str, y: str, z: str) -> None:
        """Compute a tile."""
        called = self._tiles.setdefault(tile, f"{self.name}.{len(self._tiles)}")
        self.lines.append(f"  call void @{called}(ptr {x}, ptr {y}, ptr {z})")

    def copy(self, into: str, of: str, size: int) -> None:
        """Copy bytes."""
        self.lines.append(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {into}, ptr {of}, i64 {size}, i1 false)")

    def clear(self, into: str, size: int) -> None:
        """Write zeros."""
        self.lines.append(
            f"  call void @llvm.memset.p0.i64(ptr {into}, i8 0, i64 {size}, i1 false)")

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
                    place = self.at(end, by=k * to)
                    self.lines.append(f"  store {self.type} {line}, ptr {place}, align {self.size}")
        edges = [(whole[0] * many, rows, 0, columns), (0, whole[0] * many, whole[1] * many, columns)]
        for low, high, left, right in edges:
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
        self, layout: Layout, room: int, parts: int, end: _Code | None = None, kept: int = 0
    ) -> tuple[str, int]:
        """Return what has been written as a function of so many parts, and the bytes of its room.

        Inside, ``%p0`` and so on are addresses, ``%part`` is the number of the part, and ``%room``
        where so many bytes lie that its thread has for itself.  In the room it has `kept` bytes
        behind those of all threads, and what is written for the `end` is done last.
        """
        total = room * MOST_THREADS + kept
        pointers = layout(total)
        ends = [f"  %b{k} = getelementptr ptr, ptr %bases, i64 {one.base}\n"
                f"  %a{k} = load ptr, ptr %b{k}\n"
                f"  %p{k} = getelementptr i8, ptr %a{k}, i64 {one.offset}"
                for k, one in enumerate(pointers)]  # fmt: skip
        text = "\n".join([
            *[tile.text(name) for tile, name in self._tiles.items()],
            f"define internal void @{self.name}.parts(ptr %block) {{", "entry:", *self._slots,
            "  %bases = load ptr, ptr %block", *ends,
            "  %rooms = getelementptr i64, ptr %block, i64 2",
            "  %number = atomicrmw add ptr %rooms, i64 1 seq_cst",
            f"  %room.by = mul i64 %number, {room}",
            f"  %room = getelementptr i8, ptr %p{len(pointers) - 2}, i64 %room.by",
            "  %drawn = getelementptr i64, ptr %block, i64 1", "  br label %draw", "draw:",
            "  %part = atomicrmw add ptr %drawn, i64 1 seq_cst",
            f"  %more = icmp slt i64 %part, {parts}", "  br i1 %more, label %work, label %end",
            "work:", *self.lines, "  br label %draw", "end:", "  ret void", "}",
            f"define void @{self.name}(ptr %args, ptr %dims, ptr %steps, ptr %data) {{",
            f"  %at = getelementptr ptr, ptr %args, i64 {native.MOST_ARGUMENTS}",
            "  %bases = load ptr, ptr %at", "  %block = alloca [3 x i64]",
            *(() if end is None else end._slots),
            "  store ptr %bases, ptr %block",
            *[f"  %w{k} = getelementptr i64, ptr %block, i64 {k}\n  store i64 0, ptr %w{k}"
              for k in (1, 2)],
            f"  %shared.at = getelementptr ptr, ptr %bases, i64 {pointers[-1].base}",
            "  %shared = load ptr, ptr %shared.at",
            f"  call void @share(ptr %shared, ptr @{self.name}.parts, ptr %block)",
            *(() if end is None else (*ends, *end.lines)), "  ret void", "}",
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


def _most_rows() -> int:
    return registers()[1] // 4


def product_code(name: str, one: Product, layout: Layout) -> tuple[str, int] | None:
    """Return a function for a product, and the bytes of its room; None where there is none."""
    n, depth, m = one.sizes
    size = 4 if one.char == "f" else 8
    lanes = gcd(m, registers()[0] // size)
    turned = one.y[1] != size
    if lanes < 2 or one.z[1] != size or (turned and one.y[0] != size) or not n * depth:
        return None
    code, most = _Code(name, one.char, lanes), _most_rows()
    wide = _VECTORS * code.wide
    columns = ceil(m / (_VECTORS * lanes))
    packs = turned or n >= 4 * most
    groups = min(ceil(n / most), max(1, ceil(8 / (columns * prod([b[0] for b in one.batch])))))
    tall = ceil(n / groups / most) * most
    groups = ceil(n / tall)
    *index, column, group = code.divided(
        "%part", *[b[0] for b in one.batch], columns, groups)[1:]  # fmt: skip
    shifts = [[(i, b[1 + k]) for i, b in zip(index, one.batch, strict=True)] for k in range(3)]
    x, y, z = [code.at(f"%p{k}", *shift) for k, shift in enumerate(shifts)]
    y = code.at(y, (column, _VECTORS * lanes * one.y[1]))
    z = code.at(z, (column, wide), (group, tall * one.z[0]))
    x = code.at(x, (group, tall * one.x[0]))

    def panel(vectors: int) -> None:
        begin, down = y, one.y[0]
        if packs:
            begin, down = "%room", vectors * code.wide
            if turned:
                code.turned(y, one.y[1], begin, down, vectors * lanes, depth)
            else:
                with code.each(depth) as k:
                    code.copy(code.at(begin, (k, down)), code.at(y, (k, one.y[0])), down)

        def strip(rows: int, x: str, z: str) -> None:
            for low in range(0, depth, _DEPTH):
                count = min(_DEPTH, depth - low)
                taps = gcd(count, 4)
                code.tile(
                    _Tile(
                        one.char, lanes, tuple([i * one.x[0] for i in range(rows)]), vectors,
                        ((1, 0, 0), (count // taps, taps * one.x[1], taps * down)),
                        tuple([(t * one.x[1], t * down) for t in range(taps)]), one.z[0],
                        one.adds or low > 0,
                    ),
                    code.at(x, by=low * one.x[1]), code.at(begin, by=low * down), z,
                )  # fmt: skip

        def strips(rows: int) -> None:
            whole, rest = divmod(rows, most)
            if whole:
                with code.each(whole) as i:
                    strip(most, code.at(x, (i, most * one.x[0])), code.at(z, (i, most * one.z[0])))
            if rest:
                by = whole * most
                strip(rest, code.at(x, by=by * one.x[0]), code.at(z, by=by * one.z[0]))

        last = n - (groups - 1) * tall
        if last == tall:
            strips(tall)
        else:
            code.either(group, groups - 1, lambda: strips(tall), lambda: strips(last))

    rest = m // lanes - (columns - 1) * _VECTORS
    if rest == _VECTORS:
        panel(_VECTORS)
    else:
        code.either(column, columns - 1, lambda: panel(_VECTORS), lambda: panel(rest))
    room = -(-depth * wide // 64) * 64 if packs else 0
    parts = prod([b[0] for b in one.batch]) * columns * groups
    return code.function(pointers, room, parts), room



# -- convolutions ---------------------------------------------------------------------------------


class Frame(NamedTuple):
    """Geometry of a convolution along an axis: input, result, kernel, and how they lie."""

    size: int
    out: int
    width: int
    stride: int
    dilation: int
    low: int


class _Axis(NamedTuple):
    """Which entries of a source lie where in planes, and what each field of a result reads.

    Attributes
    ----------
    phases : list of tuple
        Of each plane the first entry that it has, how far the next one is, where the first lies,
        and how many there are.
    length : int
        Of a plane.
    fields : list of tuple
        First entry of the result, how far the next one is, how many there are; and the taps, with
        the number of the entry of the kernel, of the plane, and how far on it begins.
    """

    phases: list[tuple[int, int, int, int]]
    length: int
    fields: list[tuple[int, int, int, list[tuple[int, int, int]]]]


def _forward_axis(one: Frame) -> _Axis:
    size, out, width, stride, dilation, low = one
    far = [divmod(dilation * k, stride) for k in range(width)]
    length = out + max([shift for shift, _ in far])
    phases = []
    for phase in range(stride):
        first = (phase - low) % stride
        begin = (first + low) // stride
        count = min(max(0, -(-(size - first) // stride)), max(0, length - begin))
        phases.append((first, stride, begin, count))
    taps = [(k, phase, shift) for k, (shift, phase) in enumerate(far)]
    return _Axis(phases, length, [(0, 1, out, taps)])


def _backward_axis(one: Frame) -> _Axis:
    size, out, width, stride, dilation, low = one
    found, reach = [], []
    for phase in range(stride):
        first = -(-(low - phase) // stride)
        begin = stride * first + phase - low
        count = max(0, -(-(size - begin) // stride))
        taps = [
            (k, first - (dilation * k - phase) // stride)
            for k in range(width) if (dilation * k) % stride == phase
        ]  # fmt: skip
        if count:
            found.append((begin, stride, count, taps))
            reach += [end for _, at in taps for end in (at, at + count)]
    low_end, high = min(reach, default=0), max(reach, default=1)
    first = max(0, low_end)
    phases = [(first, 1, first - low_end, max(0, min(out, high) - first))]
    fields = [
        (begin, step, count, [(k, 0, at - low_end) for k, at in taps])
        for begin, step, count, taps in found
    ]
    return _Axis(phases, high - low_end, fields)


class Convolution(NamedTuple):
    """A convolution over two axes, or its adjoint in the input or in the weight.

    Attributes
    ----------
    kind : {"forward", "backward", "weight"}
    """

    kind: str
    char: str
    batch: int
    channels: int
    features: int
    frames: tuple[Frame, Frame]


class _Planes:
    """The planes of one image, with zeros around."""

    def __init__(self, code: _Code, axes: Sequence[_Axis], sizes: tuple[int, int]) -> None:
        self._code, self._axes, self._sizes = code, axes, sizes
        down, across = axes
        self.width = across.length
        self.plane = (down.length * across.length + code.lanes) * code.size
        self.each = self.plane * len(down.phases) * len(across.phases)

    def shift(self, tap: tuple[tuple[int, int, int], tuple[int, int, int]]) -> int:
        """Return the bytes from an image's begin to what an entry of the kernel reads first."""
        (_, p, y), (_, q, x) = tap
        plane = p * len(self._axes[1].phases) + q
        return plane * self.plane + (y * self.width + x) * self._code.size

    def write(self, image: str, count: int, into: str) -> None:
        """Write so many channels of an image, as far as they are read."""
        code, size, width = self._code, self._code.size, self._sizes[1]
        read = [{tap[1] for field in axis.fields for tap in field[3]} for axis in self._axes]
        code.clear(into, count * self.each)
        with code.each(count) as c:
            for p, (y, down, top, rows) in enumerate(self._axes[0].phases):
                for q, (x, right, left, columns) in enumerate(self._axes[1].phases):
                    if not (rows and columns and p in read[0] and q in read[1]):
                        continue
                    begin = self.shift(((0, p, top), (0, q, left)))
                    with code.each(rows) as i:
                        of = code.at(
                            image, (c, prod(self._sizes) * size), (i, down * width * size),
                            by=(y * width + x) * size,
                        )  # fmt: skip
                        to = code.at(into, (c, self.each), (i, self.width * size), by=begin)
                        code.strided(of, right, to, 1, columns)


def _taps(field: Sequence[Any]) -> list[tuple[Any, Any]]:
    return [(one, other) for one in field[0][3] for other in field[1][3]]


def convolution_code(name: str, one: Convolution, layout: Layout) -> tuple[str, int] | None:
    """Return a function for a convolution, and the bytes of its room; None where there is none."""
    if one.kind == "weight":
        return _weight_code(name, one, layout)
    size = 4 if one.char == "f" else 8
    forward = one.kind == "forward"
    axes = [(_forward_axis if forward else _backward_axis)(frame) for frame in one.frames]
    entries = prod([frame.width for frame in one.frames])
    outs, sizes = [tuple([getattr(f, key) for f in one.frames]) for key in ("out", "size")]
    before, after = (one.channels, one.features) if forward else (one.features, one.channels)
    source, result = (sizes, outs) if forward else (outs, sizes)
    code, most = _Code(name, one.char, registers()[0] // size), _most_rows()
    planes = _Planes(code, axes, source)
    groups = min(2, after // most) if one.batch == 1 and after % (2 * most) == 0 else 1
    rows = after // groups
    row, inner = entries * size, entries * size
    row, inner = (row * one.channels, inner) if forward else (row, inner * one.channels)
    fields = [(a, b) for a in axes[0].fields for b in axes[1].fields]
    line = max([-(-a[2] * planes.width // code.lanes) * code.wide for a, _ in fields], default=0)
    if not (line and rows) or entries > _MOST_TAPS:
        return None
    image, group = code.divided("%part", groups)
    x = code.at("%p0", (image, before * prod(source) * size))
    w = code.at("%p1", (group, rows * row))
    z = code.at("%p2", (image, after * prod(result) * size), (group, rows * prod(result) * size))
    planes.write(x, before, "%room")
    made = code.at("%room", by=before * planes.each)
    if not all(map(_taps, fields)):
        code.clear(z, rows * prod(result) * size)
    for field in fields:
        taps = _taps(field)
        if not taps:
            continue
        moves = [
            ((a[0] * one.frames[1].width + b[0]) * size, planes.shift((a, b))) for a, b in taps
        ]
        (y0, down, high, _), (x0, right, wide, _) = field

        def panel(vectors: int, begin: str, into: str, moves: Any = moves) -> None:
            def strip(count: int, w: str, into: str) -> None:
                code.tile(
                    _Tile(
                        one.char, code.lanes, tuple([i * row for i in range(count)]), vectors,
                        ((1, 0, 0), (before, inner, planes.each)), tuple(moves), line, False,
                    ), w, begin, into,
                )  # fmt: skip

            whole, rest = divmod(rows, most)
            if whole:
                with code.each(whole) as i:
                    strip(most, code.at(w, (i, most * row)), code.at(into, (i, most * line)))
            if rest:
                by = whole * most
                strip(rest, code.at(w, by=by * row), code.at(into, by=by * line))

        vectors = -(-high * planes.width // code.lanes)
        whole, rest = divmod(vectors, _VECTORS)
        if whole:
            with code.each(whole) as j:
                move = (j, _VECTORS * code.wide)
                panel(_VECTORS, code.at("%room", move), code.at(made, move))
        if rest:
            by = whole * _VECTORS * code.wide
            panel(rest, code.at("%room", by=by), code.at(made, by=by))
        with code.each(rows) as o, code.each(high) as i:
            of = code.at(made, (o, line), (i, planes.width * size))
            to = code.at(
                z, (o, prod(result) * size), (i, down * result[1] * size),
                by=(y0 * result[1] + x0) * size,
            )  # fmt: skip
            code.strided(of, 1, to, right, wide)
    room = -(-(before * planes.each + rows * line + _VECTORS * code.wide) // 64) * 64
    return code.function(layout, room, one.batch * groups)


def _weight_code(name: str, one: Convolution, layout: Layout) -> tuple[str, int] | None:
    size = 4 if one.char == "f" else 8
    lanes = gcd(one.features, registers()[0] // size)
    axes = [_forward_axis(frame) for frame in one.frames]
    (y0, _, high, down), (_, _, wide, right) = axes[0].fields[0], axes[1].fields[0]
    entries = len(down) * len(right)
    if lanes < 2 or entries > _MOST_TAPS or not high * wide * one.channels:
        return None
    code = _Code(name, one.char, lanes)
    planes = _Planes(code, axes, (one.frames[0].size, one.frames[1].size))
    parts = max([count for count in range(1, 9) if one.batch % count == 0])
    line, deep = one.features * size, high * planes.width
    total = -(-one.channels * entries * line // 64) * 64
    before = -(-one.channels * planes.each // 64) * 64
    room = before + -(-deep * line // 64) * 64
    result = code.at("%p3", ("%part", total), by=room * MOST_THREADS)
    code.clear(result, total)
    vectors = one.features // lanes
    at_once = min(vectors, _VECTORS)
    # Rows of a tile are entries of the kernel, of several channels where these are few.
    most = registers()[1] * 3 // 4 // at_once
    if entries <= most:
        several = max([n for n in range(1, most // entries + 1) if one.channels % n == 0])
        shifts = [planes.shift((a, b)) for a in down for b in right]
        shifts = [c * planes.each + shift for c in range(several) for shift in shifts]
        begins = [0]
    else:
        several, shifts = 1, [planes.shift((down[0], b)) for b in right]
        begins = [planes.shift((a, right[0])) - shifts[0] for a in down]
        if len({planes.shift((a, b)) - planes.shift((a, right[0])) for a in down for b in right
                }) > len(right):  # fmt: skip
            return None
    with code.each(one.batch // parts) as i:
        image = code.new(f"mul i64 %part, {one.batch // parts}")
        image = code.new(f"add i64 {image}, {i}")
        x = code.at("%p0", (image, one.channels * one.frames[0].size * one.frames[1].size * size))
        pulled = code.at("%p1", (image, one.features * high * wide * size))
        planes.write(x, one.channels, "%room")
        given = code.at("%room", by=before)
        code.clear(given, deep * line)
        with code.each(high) as y:
            of = code.at(pulled, (y, wide * size))
            to = code.at(given, (y, planes.width * line))
            code.turned(of, high * wide * size, to, line, one.features, wide)
        steps = gcd(deep, 4 if len(shifts) < most else 2)

        def tile(count: int, x: str, y: str, z: str) -> None:
            code.tile(
                _Tile(
                    one.char, lanes, tuple(shifts), count,
                    ((1, 0, 0), (deep // steps, steps * size, steps * line)),
                    tuple([(k * size, k * line) for k in range(steps)]), line, True,
                ), x, y, z,
            )  # fmt: skip

        with code.each(one.channels // several) as c:
            for k, begin in enumerate(begins):
                x = code.at("%room", (c, several * planes.each), by=begin)
                z = code.at(result, (c, several * entries * line), by=k * len(shifts) * line)
                for j in range(0, vectors, at_once):
                    by = j * code.wide
                    tile(min(at_once, vectors - j), x, code.at(given, by=by), code.at(z, by=by))
    done = _Code(name, one.char, lanes)
    first = done.at("%p3", by=room * MOST_THREADS)
    with done.each(total // code.wide) as i:
        place = done.at(first, (i, code.wide))
        found = done.load(place)
        for k in range(1, parts):
            found = done.call("add", found, done.load(done.at(place, by=k * total)))
        done.lines.append(f"  store {done.type} {found}, ptr {place}, align {size}")
    done.turned(first, line, "%p2", one.channels * entries * size, one.channels * entries,
                one.features)  # fmt: skip
    return code.function(layout, room, parts, done, parts * total)


# -- modules --------------------------------------------------------------------------------------

ALONE = np.ones(6, np.int64)
"""Words of helpers whom somebody else always has: nobody helps."""

_DECLARED = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def module_text(functions: Iterable[str]) -> str:
    """Return the text of a module of functions."""
    sums = [(kind, bits, 2**k) for kind, bits in (("float", 32), ("double", 64)) for k in range(5)]
    declared = [
        f"declare <{n} x {kind}> @llvm.fma.v{n}f{bits}({', '.join([f'<{n} x {kind}>'] * 3)})"
        for kind, bits, n in sums
    ]
    return "\n".join([*functions, *declared, _DECLARED, SHARE])


def called_text(name: str, arrays: int) -> str:
    """Return a function, ``call``, that calls one with what lies in a tuple of so many arrays."""
    text = [
        "define i64 @call(ptr %tuple) {", f"  %bases = alloca [{arrays} x ptr]",
        f"  %args = alloca [{native.MOST_ARGUMENTS + 1} x ptr]",
        f"  %at = getelementptr ptr, ptr %args, i64 {native.MOST_ARGUMENTS}",
        "  store ptr %bases, ptr %at",
    ]  # fmt: skip
    for k in range(arrays):
        text += [
            f"  %i{k} = getelementptr i8, ptr %tuple, i64 {native.ITEMS + 8 * k}",
            f"  %o{k} = load ptr, ptr %i{k}",
            f"  %d{k} = getelementptr i8, ptr %o{k}, i64 {native.OFFSETS['data']}",
            f"  %a{k} = load ptr, ptr %d{k}",
            f"  %b{k} = getelementptr ptr, ptr %bases, i64 {k}",
            f"  store ptr %a{k}, ptr %b{k}",
        ]
    return "\n".join([
        *text, f"  call void @{name}(ptr %args, ptr null, ptr null, ptr null)", "  ret i64 0", "}",
    ])  # fmt: skip
