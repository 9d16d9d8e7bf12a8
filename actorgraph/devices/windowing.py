"""Machine code that copies windows of images to columns (im2col), and adds columns into images.

`ops.windows` does it with a call of NumPy for each entry of a kernel; this code goes plane by
plane, where a line is a few vectors.  Columns are added to each element in the same order, so the
bits are NumPy's.  `lower.asking` gives `Moves` to kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.structs import OFFSETS
from actorgraph.devices.vectors import VectorLines
from actorgraph.devices.walk_text import loaded

_WIDTHS = (8, 4, 2, 1)
"""Elements of a vector; where a line is no multiple of them, the last vector overlaps."""

_WORDS = "*clear *test {0}.batch {1}.batch {0}.channel {1}.channel {0}.step {1}.step count"
_TAP = "{0}.shift {1}.shift rows cols code {0}.row {1}.row"
_TAP_WORDS, _HEAD_WORDS = len(_TAP.split()), len(_WORDS.split())

_TEXT = """
define i64 @{name}(ptr %from.array, ptr %into.array, ptr %words, i64 %batch, i64 %channels) {{
entry:
{head}
  %from.at = getelementptr i8, ptr %from.array, i64 {data}
  %into.at = getelementptr i8, ptr %into.array, i64 {data}
  %from = load ptr, ptr %from.at
  %into = load ptr, ptr %into.at
  %taps = getelementptr i64, ptr %words, i64 {head_words}
  %cleared = call i32 %clear(i32 {mask})
  br label %image
image:
  %b = phi i64 [0, %entry], [%b.next, %image.end]
  %from.b.by = mul i64 %b, %from.batch
  %from.b = getelementptr i8, ptr %from, i64 %from.b.by
  %into.b.by = mul i64 %b, %into.batch
  %into.b = getelementptr i8, ptr %into, i64 %into.b.by
  br label %plane
plane:
  %c = phi i64 [0, %image], [%c.next, %plane.end]
  %from.c.by = mul i64 %c, %from.channel
  %from.c = getelementptr i8, ptr %from.b, i64 %from.c.by
  %into.c.by = mul i64 %c, %into.channel
  %into.c = getelementptr i8, ptr %into.b, i64 %into.c.by
  br label %tap
tap:
  %t = phi i64 [0, %plane], [%t.next, %tap.end]
  %place = mul i64 %t, {tap_words}
  %at = getelementptr i64, ptr %taps, i64 %place
{tap}
  %from.tap = getelementptr i8, ptr %from.c, i64 %from.shift
  %into.tap = getelementptr i8, ptr %into.c, i64 %into.shift
  switch i64 %code, label %lines0 [{cases}]
{lines}
tap.end:
  %t.next = add i64 %t, 1
  %more.t = icmp slt i64 %t.next, %count
  br i1 %more.t, label %tap, label %plane.end
plane.end:
  %c.next = add i64 %c, 1
  %more.c = icmp slt i64 %c.next, %channels
  br i1 %more.c, label %plane, label %image.end
image.end:
  %b.next = add i64 %b, 1
  %more.b = icmp slt i64 %b.next, %batch
  br i1 %more.b, label %image, label %over
over:
  %raised = call i32 %test(i32 {mask})
  %flags = zext i32 %raised to i64
  ret i64 %flags
}}
"""


def _code(width: int, apart: bool) -> int:
    """Return the code of a variant in the words of a rectangle."""
    return width + 16 * apart


def _write_lines(lines: list[str], char: str, adds: bool, width: int, apart: bool) -> None:
    """Write the loop over the lines of a rectangle, `width` elements at once, 0 for single ones.

    With `apart` the image has a stride of 2: two overlapping vectors hold the elements and those
    between them.  The last vector of a line is computed before anything of the line is stored, as
    earlier vectors may overlap it.
    """
    text, w = VectorLines(char, width if width > 1 else 0, lines), _code(width, apart)

    def moved(index: str, sides: Sequence[str], step: str) -> list[str]:
        shifts = [text.new(f"mul i64 {index}, %{side}.{step}") for side in ("from", "into")]
        both = zip(sides, shifts, strict=True)
        return [text.new(f"getelementptr i8, ptr {one}, i64 {shift}") for one, shift in both]

    def mixed(one: str, other: str, chosen: Sequence[int]) -> str:
        mask = ", ".join([f"i32 {lane}" for lane in chosen])
        pair = f"{text.type} {one}, {text.type} {other}"
        return text.new(f"shufflevector {pair}, <{width} x i32> <{mask}>")

    def loaded_apart(address: str) -> tuple[str, list[tuple[str, str]]]:
        """Return every other element, and both vectors that hold them with their addresses."""
        high_at = text.new(f"getelementptr i8, ptr {address}, i64 {(width - 1) * text.size}")
        low, high = text.load(address), text.load(high_at)
        even = mixed(low, high, [*range(0, width, 2), *range(width + 1, 2 * width, 2)])
        return even, [(low, address), (high, high_at)]

    def computed(source: str, into: str) -> list[tuple[str, str]]:
        """Return the vectors to store, with their addresses."""
        if not adds:
            return [(loaded_apart(source)[0] if apart else text.load(source), into)]
        new = text.load(source)
        if not apart:
            return [(text.call("add", text.load(into), new), into)]
        old, [(low, _), (high, high_at)] = loaded_apart(into)
        total, half = text.call("add", old, new), width + width // 2
        left = mixed(low, total, [i if i % 2 else width + i // 2 for i in range(width)])
        right = mixed(high, total, [half + i // 2 if i % 2 else i for i in range(width)])
        return [(left, into), (right, high_at)]

    def store(found: list[tuple[str, str]]) -> None:
        for value, into in found:
            lines.append(f"  store {text.type} {value}, ptr {into}, align {text.size}")

    lines += [f"lines{w}:", f"  %r{w} = phi i64 [0, %tap], [%r{w}.next, %line{w}.end]"]
    row = moved(f"%r{w}", ("%from.tap", "%into.tap"), "row")
    last = text.new(f"sub i64 %cols, {width or 1}")
    ends = computed(*moved(last, row, "step")) if width else []
    lines += [f"  br label %line{w}", f"line{w}:",
              f"  %i{w} = phi i64 [0, %lines{w}], [%i{w}.next, %line{w}]"]  # fmt: skip
    store(computed(*moved(f"%i{w}", row, "step")))
    lines += [f"  %i{w}.next = add i64 %i{w}, {width or 1}",
              f"  %more.i{w} = icmp sle i64 %i{w}.next, {last}",
              f"  br i1 %more.i{w}, label %line{w}, label %line{w}.end",
              f"line{w}.end:"]  # fmt: skip
    store(ends)
    lines += [f"  %r{w}.next = add i64 %r{w}, 1", f"  %more.r{w} = icmp slt i64 %r{w}.next, %rows",
              f"  br i1 %more.r{w}, label %lines{w}, label %tap.end"]  # fmt: skip


def _text(name: str, char: str, adds: bool) -> str:
    variants = [(0, False), *[(w, a) for a in (False, True) for w in _WIDTHS if w > a]]
    lines: list[str] = []
    for variant in variants:
        _write_lines(lines, char, adds, *variant)
    codes = [_code(*variant) for variant in variants[1:]]
    return _TEXT.format(
        name=name, data=OFFSETS["data"], mask=native.ALL_ERRORS,
        head_words=_HEAD_WORDS, tap_words=_TAP_WORDS,
        head=loaded("words", _WORDS.format("from", "into")),
        tap=loaded("at", _TAP.format("from", "into")),
        cases=" ".join([f"i64 {code}, label %lines{code}" for code in codes]),
        lines="\n".join(lines),
    )  # fmt: skip


class Moves:
    """Copies images to columns, and adds columns into images, for float32 and float64."""

    def __init__(self, directory: str) -> None:
        names = {(char, adds): f"move_{char}_{adds}" for char in "fd" for adds in (False, True)}
        text = "".join([_text(name, *key) for key, name in names.items()])
        self._engine = native.engine(text, directory)
        kinds: Any = *[ctypes.py_object] * 2, *[ctypes.c_int64] * 3
        self._calls: dict[Any, Callable[..., int]] = {
            key: ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(self._engine.get_function_address(name))
            for key, name in names.items()
        }

    def __call__(
        self, x: Any, columns: Any, frame: Any, taps: Callable[[Any], Any], adds: bool
    ) -> bool:
        """Copy x (batch, channels, *sizes) to columns (batch, channels, kernel, *outs), or add.

        Return False for arrays that it does not handle, and for floating-point errors that are not
        ignored.  When it adds, x must hold zeros, and does so again after False.  ``taps(frame)``
        returns indices of both arrays.
        """
        if not (_is_plain(x) and _is_plain(columns)) or x.dtype != columns.dtype:
            return False
        shape = *x.shape[:2], prod(frame.kernel), *frame.outs
        if x.shape[2:] != frame.sizes or columns.shape != shape or not columns.size:
            return False
        words = _words(frame, taps, x.strides, columns.strides, x.itemsize, adds)
        if words is None:  # all is padding
            return False
        given = (columns, x) if adds else (x, columns)
        address = words.__array_interface__["data"][0]
        flags = self._calls[x.dtype.char, adds](*given, address, *shape[:2])
        if not adds or not flags or native.is_ignored(flags):
            return True
        x.fill(0)
        return False


_FLOATS = (np.dtype("f"), np.dtype("d"))


def _is_plain(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in _FLOATS and x.flags.aligned


@lru_cache(1024)
def _words(
    frame: Any, taps: Callable[[Any], Any], x: Sequence[int], columns: Sequence[int], size: int,
    adds: bool,
) -> native.Words | None:  # fmt: skip
    """Return the words of a call for the strides of both arrays; None if nothing is moved."""

    def ordered(pair: Sequence[int]) -> Sequence[int]:
        return pair[::-1] if adds else pair

    image, column = frame.stride[-1] * x[-1], columns[-1]
    head = [ordered(pair) for pair in ((x[0], columns[0]), (x[1], columns[1]), (image, column))]
    rectangles = []
    for position, (out, part) in enumerate(taps(frame)):
        counts = [1, *[one.stop - one.start for one in out[1:]]]
        if 0 in counts:
            continue
        axes = [*zip(part[1:], out[1:], x[2:], columns[3:], strict=True)]
        steps = [(0, 0), *[(one.step * by, to) for one, _, by, to in axes]]
        begin = sum([one.start * by for one, _, by, _ in axes])
        to = position * columns[2] + sum([one.start * by for _, one, _, by in axes])
        rows, cols = counts[-2:]
        if steps[-2] == (cols * image, cols * column):
            rows, cols = 1, rows * cols
        code = 0
        if column == size and image in (size, 2 * size):
            width = max([w for w in _WIDTHS if w <= cols])
            code = _code(width, width > 1 and image > size)
        for outer in np.ndindex(*counts[:-2]):
            shifts = [
                at + sum([i * step[k] for i, step in zip(outer, steps, strict=False)])
                for k, at in enumerate((begin, to))
            ]
            rectangles.append([*ordered(shifts), rows, cols, code, *ordered(steps[-2])])
    functions = native.RUNTIME.clear, native.RUNTIME.test
    words = [*functions, *chain(*head), len(rectangles), *chain(*rectangles)]
    return np.array(words, np.int64) if rectangles else None
