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
from actorgraph.devices.walk_text import field, loaded

_WIDTHS = (8, 4, 2, 1)
"""Elements of a vector; where a line is no multiple of them, the last vector overlaps."""

_WORDS = "*clear *test {0}.batch {1}.batch {0}.channel {1}.channel {0}.step {1}.step count"
_TAP = "{0}.shift {1}.shift rows cols code {0}.row {1}.row"
_TAP_WORDS, _HEAD_WORDS = len(_TAP.split()), len(_WORDS.split())

_SIDES = ("from", "into")

_TEXT = """
define i64 @{name}(ptr %from.array, ptr %into.array, ptr %words, i64 %batch, i64 %channels) {{
entry:
{head}
  %taps = getelementptr i64, ptr %words, i64 {head_words}
  %cleared = call i32 %clear(i32 {mask})
{moves}
  %raised = call i32 %test(i32 {mask})
  %flags = zext i32 %raised to i64
  ret i64 %flags
}}
"""


def _code(width: int, apart: bool) -> int:
    """Return the code of a variant in the words of a rectangle."""
    return width + 16 * apart


def _write_lines(
    code: VectorLines, begins: Sequence[str], adds: bool, width: int, apart: bool
) -> None:
    """Write the loop over the lines of a rectangle, `width` elements at once, 0 for single ones.

    With `apart` the image has a stride of 2: two overlapping vectors hold the elements and those
    between them.  The last vector of a line is computed before anything of the line is stored, as
    earlier vectors may overlap it.
    """
    lines, w = code.lines, _code(width, apart)
    text = VectorLines(code.char, width if width > 1 else 0, lines)

    def moved(index: str, bases: Sequence[str], step: str) -> list[str]:
        both = zip(bases, _SIDES, strict=True)
        return [code.at(base, (index, f"%{side}.{step}")) for base, side in both]

    def loaded_apart(address: str) -> tuple[str, list[tuple[str, str]]]:
        """Return every other element, and both vectors that hold them with their addresses."""
        high_at = code.at(address, by=(width - 1) * text.size)
        low, high = text.load(address), text.load(high_at)
        places = [*range(0, width, 2), *range(width + 1, 2 * width, 2)]
        return text.shuffled(low, high, places), [(low, address), (high, high_at)]

    def computed(source: str, into: str) -> list[tuple[str, str]]:
        """Return the vectors to store, with their addresses."""
        if not adds:
            return [(loaded_apart(source)[0] if apart else text.load(source), into)]
        new = text.load(source)
        if not apart:
            return [(text.call("add", text.load(into), new), into)]
        old, [(low, _), (high, high_at)] = loaded_apart(into)
        total, half = text.call("add", old, new), width + width // 2
        left = [i if i % 2 else width + i // 2 for i in range(width)]
        right = [half + i // 2 if i % 2 else i for i in range(width)]
        return [(text.shuffled(low, total, left), into),
                (text.shuffled(high, total, right), high_at)]  # fmt: skip

    code.label(f"lines{w}")
    with code.each("%rows") as r:
        row = moved(r, begins, "row")
        last = code.new(f"sub i64 %cols, {width or 1}")
        ends = computed(*moved(last, row, "step")) if width else []
        lines += [f"  br label %line{w}", f"line{w}:",
                  f"  %x{w} = phi i64 [0, %{code.block}], [%x{w}.next, %line{w}]"]  # fmt: skip
        for vector in computed(*moved(f"%x{w}", row, "step")):
            text.store(*vector)
        lines += [f"  %x{w}.next = add i64 %x{w}, {width or 1}",
                  f"  %x{w}.more = icmp sle i64 %x{w}.next, {last}",
                  f"  br i1 %x{w}.more, label %line{w}, label %line{w}.end"]  # fmt: skip
        code.label(f"line{w}.end")
        for vector in ends:
            text.store(*vector)
    lines.append("  br label %tap.end")


def _text(name: str, char: str, adds: bool) -> str:
    variants = [(0, False), *[(w, a) for a in (False, True) for w in _WIDTHS if w > a]]
    codes = [_code(*variant) for variant in variants[1:]]
    cases = " ".join([f"i64 {one}, label %lines{one}" for one in codes])
    code, sides = VectorLines(char, 0), [f"%{side}" for side in _SIDES]
    with code.each("%batch") as b:
        images = [code.at(side, (b, f"{side}.batch")) for side in sides]
        with code.each("%channels") as c:
            pairs = zip(images, sides, strict=True)
            planes = [code.at(image, (c, f"{side}.channel")) for image, side in pairs]
            with code.each("%count") as t:
                tap = code.at("%taps", (t, 8 * _TAP_WORDS))
                code.lines.append(loaded(tap.removeprefix("%"), _TAP.format(*_SIDES)))
                pairs = zip(planes, sides, strict=True)
                begins = [code.at(plane, (f"{side}.shift", 1)) for plane, side in pairs]
                code.lines.append(f"  switch i64 %code, label %lines0 [{cases}]")
                for variant in variants:
                    _write_lines(code, begins, adds, *variant)
                code.label("tap.end")
    arrays = [field(f"{side}.array", side, OFFSETS["data"], "ptr", "i8") for side in _SIDES]
    return _TEXT.format(
        name=name, mask=native.ALL_ERRORS, head_words=_HEAD_WORDS, moves="\n".join(code.lines),
        head="\n".join([loaded("words", _WORDS.format(*_SIDES)), *arrays]),
    )  # fmt: skip


class Moves:
    """Copies images to columns, and adds columns into images, for float32 and float64."""

    def __init__(self) -> None:
        names = {(char, adds): f"move_{char}_{adds}" for char in "fd" for adds in (False, True)}
        text = "".join([_text(name, *key) for key, name in names.items()])
        self._engine = native.engine(text)
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
