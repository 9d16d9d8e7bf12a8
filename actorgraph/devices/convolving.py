"""Machine code of convolutions over two axes, and of their adjoints, for fixed sizes; see `dense`.

Each channel of an image is copied, with its padding of zeros, into a *plane*, or into one plane for
each phase of a stride.  In a plane an entry of the kernel (a *tap*) is a shift.  So the result is
tiles of a matrix product whose second operand has another begin for every tap, and no columns are
written.  Lines of a tile run over the ends of lines of the image; what they compute there is
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any, NamedTuple

from actorgraph.devices.dense import MOST_THREADS, VECTORS, Tile, TileCode, most_rows
from actorgraph.devices.vectors import lanes_of, registers

_MOST_TAPS = 49
"""Most entries of a kernel: a step of a tile has code for each."""


class Extent(NamedTuple):
    """Geometry of a convolution along an axis: sizes of input, result and kernel; the steps.

    `low` is the padding before the input.
    """

    size: int
    out: int
    width: int
    stride: int
    dilation: int
    low: int


class _Phase(NamedTuple):
    """Entries of a source in a plane: the first, their step, its place there, their number."""

    first: int
    step: int
    begin: int
    entries: int


class _Tap(NamedTuple):
    """An entry of the kernel, the number of the plane that it reads, and the shift in it."""

    entry: int
    plane: int
    shift: int


class _Field(NamedTuple):
    """Entries of a result that read the same taps: the first, their step and number."""

    first: int
    step: int
    entries: int
    taps: list[_Tap]


class _Axis(NamedTuple):
    """Along an axis: where a source lies in planes, their length, and the fields of the result."""

    phases: list[_Phase]
    length: int
    fields: list[_Field]


def _forward_axis(extent: Extent) -> _Axis:
    size, out, width, stride, dilation, low = extent
    shifts = [divmod(dilation * k, stride) for k in range(width)]
    length = out + max([shift for shift, _ in shifts])
    phases = []
    for phase in range(stride):
        first = (phase - low) % stride
        begin = (first + low) // stride
        count = min(max(0, -(-(size - first) // stride)), max(0, length - begin))
        phases.append(_Phase(first, stride, begin, count))
    taps = [_Tap(k, phase, shift) for k, (shift, phase) in enumerate(shifts)]
    return _Axis(phases, length, [_Field(0, 1, out, taps)])


def _backward_axis(extent: Extent) -> _Axis:
    size, out, width, stride, dilation, low = extent
    fields: list[_Field] = []
    bounds: list[int] = []
    for phase in range(stride):
        first = -(-(low - phase) // stride)
        begin = stride * first + phase - low
        count = max(0, -(-(size - begin) // stride))
        taps = [
            _Tap(k, 0, first - (dilation * k - phase) // stride)
            for k in range(width) if (dilation * k) % stride == phase
        ]  # fmt: skip
        if count:
            fields.append(_Field(begin, stride, count, taps))
            bounds += [end for tap in taps for end in (tap.shift, tap.shift + count)]
    low_end, high = min(bounds, default=0), max(bounds, default=1)
    first = max(0, low_end)
    phases = [_Phase(first, 1, first - low_end, max(0, min(out, high) - first))]
    for field in fields:  # shifts count from the begin of the plane
        field.taps[:] = [tap._replace(shift=tap.shift - low_end) for tap in field.taps]
    return _Axis(phases, high - low_end, fields)


class Convolution(NamedTuple):
    """A convolution over two axes, or its adjoint in the input or in the weight."""

    kind: str  # "forward", "backward" or "weight"
    char: str
    batch: int
    channels: int
    features: int
    frames: tuple[Extent, Extent]


class _Planes:
    """The planes of one image, with their padding of zeros."""

    def __init__(self, code: TileCode, axes: Sequence[_Axis], sizes: tuple[int, int]) -> None:
        self._code, self._axes, self._sizes = code, axes, sizes
        down, across = axes
        self.width = across.length
        # A shifted read goes beyond the last line, where it needs zeros, too.
        beyond = max([tap.shift for field in across.fields for tap in field.taps], default=0)
        self.plane = (down.length * across.length + max(code.lanes, beyond)) * code.size
        self.each = self.plane * len(down.phases) * len(across.phases)

    def shift(self, down: _Tap, across: _Tap) -> int:
        """Return the byte offset of the first element that a tap reads."""
        plane = down.plane * len(self._axes[1].phases) + across.plane
        return plane * self.plane + (down.shift * self.width + across.shift) * self._code.size

    def write(self, image: str, count: int, into: str) -> None:
        """Write code that copies the read parts of that many channels of an image."""
        code, size, width = self._code, self._code.size, self._sizes[1]
        read = [{tap.plane for field in axis.fields for tap in field.taps} for axis in self._axes]
        code.clear(into, count * self.each)
        with code.each(count) as c:
            for p, (y, down, top, rows) in enumerate(self._axes[0].phases):
                for q, (x, right, left, columns) in enumerate(self._axes[1].phases):
                    if not (rows and columns and p in read[0] and q in read[1]):
                        continue
                    begin = self.shift(_Tap(0, p, top), _Tap(0, q, left))
                    with code.each(rows) as i:
                        of = code.at(
                            image, (c, prod(self._sizes) * size), (i, down * width * size),
                            by=(y * width + x) * size,
                        )  # fmt: skip
                        to = code.at(into, (c, self.each), (i, self.width * size), by=begin)
                        code.strided(of, right, to, 1, columns)


def _taps(fields: tuple[_Field, _Field]) -> list[tuple[_Tap, _Tap]]:
    return [(down, across) for down in fields[0].taps for across in fields[1].taps]


def convolution_code(name: str, conv: Convolution) -> tuple[str, int] | None:
    """Return a function for a convolution, and the bytes of its scratch memory; None if unfit."""
    if conv.kind == "weight":
        return _weight_code(name, conv)
    size = 4 if conv.char == "f" else 8
    forward = conv.kind == "forward"
    axes = [(_forward_axis if forward else _backward_axis)(frame) for frame in conv.frames]
    entries = prod([frame.width for frame in conv.frames])
    outs, sizes = [tuple([getattr(f, key) for f in conv.frames]) for key in ("out", "size")]
    before, after = (conv.channels, conv.features) if forward else (conv.features, conv.channels)
    source, result = (sizes, outs) if forward else (outs, sizes)
    code = TileCode(name, conv.char, registers()[0] // size)
    planes = _Planes(code, axes, source)
    halves = 1 + (conv.batch == 1 and after % (2 * most_rows()) == 0)
    rows, plane = after // halves, prod(result) * size
    # Byte strides of the weight from row to row of a tile, and from step to step.
    by = (entries * size, entries * size * conv.channels)[:: -1 if forward else 1]
    fields = [(a, b) for a in axes[0].fields for b in axes[1].fields]
    line = max(
        [-(-a.entries * planes.width // code.lanes) * code.wide for a, _ in fields], default=0
    )
    if not (line and rows) or entries > _MOST_TAPS:
        return None
    image, half = code.divided("%part", halves)
    w = code.at("%p1", (half, rows * by[0]))
    z = code.at("%p2", (image, after * plane), (half, rows * plane))
    planes.write(code.at("%p0", (image, before * prod(source) * size)), before, "%room")
    made = code.at("%room", by=before * planes.each)
    if not all(map(_taps, fields)):
        code.clear(z, rows * plane)
    for field in filter(_taps, fields):
        taps = tuple([
            ((a.entry * conv.frames[1].width + b.entry) * size, planes.shift(a, b))
            for a, b in _taps(field)
        ])  # fmt: skip

        def panel(vectors: int, column: tuple[str, int], taps: Any = taps) -> None:
            def strip(count: int, row: tuple[str, int]) -> None:
                heights = tuple([i * by[0] for i in range(count)])
                loops = (1, 0, 0), (before, by[1], planes.each)
                move = column[0], column[1] * code.wide
                code.tile(
                    Tile(conv.char, code.lanes, heights, vectors, loops, taps, line, False),
                    code.at(w, (row[0], row[1] * by[0])), code.at("%room", move),
                    code.at(made, (row[0], row[1] * line), move),
                )  # fmt: skip

            code.pieces(rows, most_rows(), strip)

        (y, down, high, _), (x, right, wide, _) = field
        code.pieces(-(-high * planes.width // code.lanes), VECTORS, panel)
        with code.each(rows) as o, code.each(high) as i:
            of = code.at(made, (o, line), (i, planes.width * size))
            begin = (y * result[1] + x) * size
            to = code.at(z, (o, plane), (i, down * result[1] * size), by=begin)
            code.strided(of, 1, to, right, wide)
    room = -(-(before * planes.each + rows * line + VECTORS * code.wide) // 64) * 64
    return code.function(3, room, conv.batch * halves)


def _weight_code(name: str, conv: Convolution) -> tuple[str, int] | None:
    lanes = lanes_of(conv.char, conv.features)
    code = TileCode(name, conv.char, lanes)
    size = code.size
    axes = [_forward_axis(frame) for frame in conv.frames]
    planes = _Planes(code, axes, (conv.frames[0].size, conv.frames[1].size))
    (*_, high, down), (*_, wide, right) = axes[0].fields[0], axes[1].fields[0]
    entries = len(down) * len(right)
    if lanes < 2 or entries > _MOST_TAPS or not high * wide * conv.channels:
        return None
    parts = max([count for count in range(1, 9) if conv.batch % count == 0])
    line, deep = conv.features * size, high * planes.width
    total, before, after = [
        -(-count // 64) * 64
        for count in (conv.channels * entries * line, conv.channels * planes.each, deep * line)
    ]
    places = MOST_THREADS * (before + after)
    result = code.at("%p3", ("%part", total), by=places)
    code.clear(result, total)
    with code.each(conv.batch // parts) as i:
        image = code.new(f"add i64 {code.new(f'mul i64 %part, {conv.batch // parts}')}, {i}")
        each = conv.channels * conv.frames[0].size * conv.frames[1].size * size
        planes.write(code.at("%p0", (image, each)), conv.channels, "%room")
        given = code.at("%room", by=before)
        code.clear(given, deep * line)
        with code.each(high) as y:
            of = code.at("%p1", (image, conv.features * high * wide * size), (y, wide * size))
            to = code.at(given, (y, planes.width * line))
            code.turned(of, high * wide * size, to, line, conv.features, wide)
        if not _weight_tiles(code, conv, planes, (down, right), deep, given, result):
            return None
    done = TileCode(name, conv.char, lanes)
    first = done.at("%p3", by=places)
    with done.each(total // code.wide) as i:
        place = done.at(first, (i, code.wide))
        summed = done.load(place)
        for k in range(1, parts):
            summed = done.call("add", summed, done.load(done.at(place, by=k * total)))
        done.store(summed, place)
    count = conv.channels * entries
    done.turned(first, line, "%p2", count * size, count, conv.features)
    return code.function(3, before + after, parts, done, parts * total)


def _weight_tiles(
    code: TileCode, conv: Convolution, planes: _Planes, taps: Any, deep: int, given: str,
    result: str,
) -> bool:  # fmt: skip
    """Write tiles that add an image's share of the transposed weight; return whether they fit.

    Rows of a tile are the kernel's entries: those of several channels if the kernel is small, or
    those of one of its lines if it is large.
    """
    down, right = taps
    line, vectors = conv.features * code.size, conv.features // code.lanes
    at_once = min(vectors, VECTORS)
    most = registers()[1] * 3 // 4 // at_once
    several, begins = 1, [planes.shift(a, right[0]) for a in down]
    shifts = [planes.shift(down[0], b) - begins[0] for b in right]
    if len(down) * len(right) <= most:
        every = [planes.shift(a, b) for a in down for b in right]
        several = max([n for n in range(1, most // len(every) + 1) if conv.channels % n == 0])
        shifts, begins = [c * planes.each + at for c in range(several) for at in every], [0]
    elif any(
        planes.shift(a, b) != begin + shift
        for a, begin in zip(down, begins, strict=True)
        for b, shift in zip(right, shifts, strict=True)
    ):
        return False
    steps = gcd(deep, 4 if len(shifts) < most else 2)
    loops = (1, 0, 0), (deep // steps, steps * code.size, steps * line)
    moves = tuple([(k * code.size, k * line) for k in range(steps)])
    with code.each(conv.channels // several) as c:
        for k, begin in enumerate(begins):
            x = code.at("%room", (c, several * planes.each), by=begin)
            row = len(shifts) * len(begins)
            z = code.at(result, (c, row * line), by=k * len(shifts) * line)
            for j in range(0, vectors, at_once):
                wide = min(at_once, vectors - j)
                code.tile(
                    Tile(conv.char, code.lanes, tuple(shifts), wide, loops, moves, line, True), x,
                    code.at(given, by=j * code.wide), code.at(z, by=j * code.wide),
                )  # fmt: skip
    return True
