"""ElementLines of arithmetic on the elements of arrays, as machine code with NumPy's bits.

A line is an assignment of sums, products, quotients and a few functions, each of which IEEE 754
rounds as NumPy's loops do: nothing is contracted, reordered or approximated.  One call of the code
computes all lines for all elements of any number of places, each with arrays of its own, and holds
no lock; where it is long, other threads take pieces of it (`helpers`).  It is made by llvmlite in
the background; where that is missing, nothing is.

Results are stored past the caches where the arrays of a call do not fit into them: a line that is
written whole is not read first then.
"""

from __future__ import annotations

import ast
import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Protocol, TypeAlias, final

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.helpers import HELPERS, SHARE

Array: TypeAlias = np.ndarray[Any, Any]

_CACHE_BYTES = 24 << 20
"""Bytes of a call from which on results are stored past the caches."""

_KINDS = {"f": ("float", 16), "d": ("double", 8)}
"""What LLVM calls a dtype, and how many elements of it fill a line of the cache."""

_OPERATORS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_INTRINSICS = {"sqrt": "sqrt", "abs": "fabs"}

_PIECE_BYTES, _SHARED_BYTES, _AHEAD_BYTES = 1 << 17, 4 << 20, 2048
"""Bytes of an array that a thread computes at once, of a call from which on others help, and that
are asked for before they are read where the caches do not hold them."""

_DRAWN, _RAISED, _PAST, _SHARED, _CLEAR, _TELL, _NUMBERS = range(1, 8)
"""Words of a block: places, pieces that threads have drawn, flags of errors that were raised,
whether to store past the caches, the words of helpers, addresses of functions of the flags; then
the numbers as doubles, and the elements of each place."""


class ElementLines(Protocol):
    """Assignments to ``p``, ``g`` and `arrays`, of these and `numbers`; it can be hashed."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The assignments, in order."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of arrays beside ``p``, which is one, and ``g``, which is only read."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of numbers."""


class _ElementWriter:
    """Writes lines as instructions on one element, or on as many as fill a line of the cache."""

    def __init__(self, lines: ElementLines, kind: str, width: int) -> None:
        self.type = f"<{width} x {kind}>" if width > 1 else kind
        self.bits = f"<{width} x i1>" if width > 1 else "i1"
        self.suffix = f"v{width}f{32 if kind == 'float' else 64}"[0 if width > 1 else 2 :]
        self.text: list[str] = []
        self.zero = "zeroinitializer" if width > 1 else "0.0"
        self.values = {name: f"%{name}.in" for name in ("p", "g", *lines.arrays)}
        self._numbers = {name: f"%{name}" for name in lines.numbers}
        for line in lines.lines:
            (one,) = ast.parse(line).body
            if not isinstance(one, ast.Assign) or not isinstance(one.targets[0], ast.Name):
                raise NotImplementedError(line)
            self.values[one.targets[0].id] = self._write(one.value)

    def _new(self, instruction: str) -> str:
        name = f"%t{len(self.text)}"
        self.text.append(f"  {name} = {instruction}")
        return name

    def _write(self, part: ast.expr) -> str:
        """Write what computes a part, and return its name."""
        match part:
            case ast.Name(id=name) if name in self.values or name in self._numbers:
                return self.values.get(name) or self._numbers[name]
            case ast.BinOp() if all(
                one.id in self._numbers for one in ast.walk(part) if isinstance(one, ast.Name)
            ):  # NumPy computes it as doubles, not in the dtype of the arrays
                pass
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._new(
                    f"{_OPERATORS[type(op)]} {self.type} {self._write(left)}, {self._write(right)}"
                )
            case ast.Call(func=ast.Name(id=name), args=[one]) if name in _INTRINSICS:
                value, called = self._write(one), f"llvm.{_INTRINSICS[name]}.{self.suffix}"
                return self._new(f"call {self.type} @{called}({self.type} {value})")
            case ast.Call(func=ast.Name(id="sign"), args=[one]):
                return self._sign(self._write(one))
            case ast.Call(func=ast.Name(id="maximum"), args=[one, two]):
                return self._maximum(self._write(one), self._write(two))
        raise NotImplementedError(ast.unparse(part))

    def _choose(self, test: str, one: str, two: str) -> str:
        return self._new(f"select {self.bits} {test}, {self.type} {one}, {self.type} {two}")

    def _compare(self, how: str, one: str, two: str) -> str:
        return self._new(f"fcmp {how} {self.type} {one}, {two}")

    def _sign(self, value: str) -> str:
        # Ordered comparisons of NaN raise a flag, which NumPy's do not.
        known = self._choose(self._compare("uno", value, value), self.zero, value)
        one, minus = [
            self._new(f"fadd {self.type} {self.zero}, {self._splat(number)}")
            for number in ("1.0", "-1.0")
        ]
        below = self._choose(self._compare("olt", known, self.zero), minus, self.zero)
        sign = self._choose(self._compare("ogt", known, self.zero), one, below)
        return self._choose(self._compare("uno", value, value), value, sign)

    def _maximum(self, one: str, two: str) -> str:
        odd = self._compare("uno", one, two)
        known = [self._choose(odd, self.zero, value) for value in (one, two)]
        larger = self._choose(self._compare("oge", *known), one, two)
        first = self._choose(self._compare("uno", one, one), one, two)
        return self._choose(odd, first, larger)

    def _splat(self, number: str) -> str:
        if not self.type.startswith("<"):
            return number
        count, _, kind = self.type[1:-1].split()
        return "<" + ", ".join([f"{kind} {number}"] * int(count)) + ">"


def _loop(lines: ElementLines, name: str, kind: str, width: int, past: bool) -> list[str]:
    """Return the text of a function that computes elements ``from`` to ``to`` of a place."""
    writer = _ElementWriter(lines, kind, width)
    type_, given = writer.type, ["p", "g", *lines.arrays]
    written = ["p", *lines.arrays]
    text = [f"define internal void @{name}(ptr %args, ptr %numbers, i64 %from, i64 %to) {{",
            "entry:"]  # fmt: skip
    # Arrays of a place: p, g, the result; then each other array and its result.
    places = {"p": 0, "g": 1, **{one: 3 + 2 * i for i, one in enumerate(lines.arrays)}}
    results = {"p": 2, **{one: 4 + 2 * i for i, one in enumerate(lines.arrays)}}
    pointers = [(f"{one}.from", places[one]) for one in given]
    pointers += [(f"{one}.into", results[one]) for one in written]
    for pointer, place in pointers:
        text += [f"  %{pointer}.at = getelementptr ptr, ptr %args, i64 {place}",
                 f"  %{pointer} = load ptr, ptr %{pointer}.at"]  # fmt: skip
    for place, number in enumerate(lines.numbers):
        text += [f"  %{number}.at = getelementptr double, ptr %numbers, i64 {place}"]
        wide = kind == "double"
        one = f"%{number}.one" if width > 1 else f"%{number}"
        text += [f"  {one if wide else f'%{number}.wide'} = load double, ptr %{number}.at"]
        text += [] if wide else [f"  {one} = fptrunc double %{number}.wide to float"]
        if width > 1:
            spread = f"{type_} poison, <{width} x i32> zeroinitializer"
            text += [f"  %{number}.first = insertelement {type_} poison, {kind} {one}, i32 0",
                     f"  %{number} = shufflevector {type_} %{number}.first, {spread}"]  # fmt: skip
    text += ["  br label %test", "test:", "  %i = phi i64 [%from, %entry], [%next, %body]",
             "  %more = icmp slt i64 %i, %to", "  br i1 %more, label %body, label %over",
             "body:"]  # fmt: skip
    item = 4 if kind == "float" else 8
    for one in given:
        text += [f"  %{one}.read = getelementptr {kind}, ptr %{one}.from, i64 %i",
                 f"  %{one}.in = load {type_}, ptr %{one}.read, align {item}"]  # fmt: skip
        if past:  # the processor does not look far enough ahead where it has to wait for memory
            far = f"%{one}.far"
            text += [f"  {far} = getelementptr i8, ptr %{one}.read, i64 {_AHEAD_BYTES}",
                     f"  call void @llvm.prefetch.p0(ptr {far}, i32 0, i32 3, i32 1)"]  # fmt: skip
    text += writer.text
    for one in written:
        how = "64, !nontemporal !0" if past and one == "p" else item
        text += [
            f"  %{one}.write = getelementptr {kind}, ptr %{one}.into, i64 %i",
            f"  store {type_} {writer.values[one]}, ptr %{one}.write, align {how}",
        ]
    return [*text, f"  %next = add i64 %i, {width}", "  br label %test", "over:", "  ret void", "}"]


_DRIVER = """
define internal void @part(ptr %tuple) {{
entry:
  %args = alloca [{each} x ptr]
  %items = getelementptr i8, ptr %tuple, i64 {items}
  %object = load ptr, ptr %items
  %block.at = getelementptr i8, ptr %object, i64 {data}
  %block = load ptr, ptr %block.at
  %count = load i64, ptr %block
  %drawn.at = getelementptr i64, ptr %block, i64 {drawn}
  %raised.at = getelementptr i64, ptr %block, i64 {raised}
  %past.at = getelementptr i64, ptr %block, i64 {past}
  %past.word = load i64, ptr %past.at
  %past = icmp ne i64 %past.word, 0
  %numbers = getelementptr i64, ptr %block, i64 {numbers}
  %sizes = getelementptr i64, ptr %block, i64 {sizes}
  %clear.at = getelementptr i64, ptr %block, i64 {clear}
  %clear = load ptr, ptr %clear.at
  %tell.at = getelementptr i64, ptr %block, i64 {tell}
  %tell = load ptr, ptr %tell.at
  %cleared = call i32 %clear(i32 {mask})
  %drawn = atomicrmw add ptr %drawn.at, i64 1 seq_cst
  br label %test
test:
  %q = phi i64 [0, %entry], [%q.next, %piece]
  %number.first = phi i64 [0, %entry], [%number, %piece]
  %mine.first = phi i64 [%drawn, %entry], [%mine, %piece]
  %more = icmp slt i64 %q, %count
  br i1 %more, label %place, label %over
place:
  %first = mul i64 %q, {each}
  br label %fetch
fetch:
  %k = phi i64 [0, %place], [%k.next, %fetch]
  %item.number = add i64 %first, %k
  %item.place = add i64 %item.number, 1
  %item.at = getelementptr ptr, ptr %items, i64 %item.place
  %item = load ptr, ptr %item.at
  %data.at = getelementptr i8, ptr %item, i64 {data}
  %data = load ptr, ptr %data.at
  %arg = getelementptr ptr, ptr %args, i64 %k
  store ptr %data, ptr %arg
  %k.next = add i64 %k, 1
  %fetching = icmp slt i64 %k.next, {each}
  br i1 %fetching, label %fetch, label %measure
measure:
  %size.at = getelementptr i64, ptr %sizes, i64 %q
  %size = load i64, ptr %size.at
  %into.at = getelementptr ptr, ptr %args, i64 2
  %into = load i64, ptr %into.at
  %minus = sub i64 0, %into
  %odd = and i64 %minus, 63
  %odd.items = udiv i64 %odd, {item}
  %q.next = add i64 %q, 1
  br label %piece
piece:
  %from = phi i64 [0, %measure], [%to, %look], [%to, %tail]
  %number = phi i64 [%number.first, %measure], [%number.next, %look], [%number.next, %tail]
  %mine = phi i64 [%mine.first, %measure], [%mine, %look], [%drawn.next, %tail]
  %left = icmp slt i64 %from, %size
  br i1 %left, label %look, label %test
look:
  %far = add i64 %from, {piece}
  %to = call i64 @llvm.smin.i64(i64 %far, i64 %size)
  %number.next = add i64 %number, 1
  %is.mine = icmp eq i64 %number, %mine
  br i1 %is.mine, label %work, label %piece
work:
  %after.odd = add i64 %from, %odd.items
  %begin = call i64 @llvm.smin.i64(i64 %after.odd, i64 %to)
  %rest = sub i64 %to, %begin
  %whole = and i64 %rest, {whole}
  %end = add i64 %begin, %whole
  call void @one(ptr %args, ptr %numbers, i64 %from, i64 %begin)
  br i1 %past, label %uncached, label %cached
uncached:
  call void @past(ptr %args, ptr %numbers, i64 %begin, i64 %end)
  fence seq_cst
  br label %tail
cached:
  call void @many(ptr %args, ptr %numbers, i64 %begin, i64 %end)
  br label %tail
tail:
  call void @one(ptr %args, ptr %numbers, i64 %end, i64 %to)
  %drawn.next = atomicrmw add ptr %drawn.at, i64 1 seq_cst
  br label %piece
over:
  %told = call i32 %tell(i32 {mask})
  %told.long = zext i32 %told to i64
  %raised = atomicrmw or ptr %raised.at, i64 %told.long seq_cst
  ret void
}}
define i64 @update(ptr %tuple) {{
  %object.at = getelementptr i8, ptr %tuple, i64 {items}
  %object = load ptr, ptr %object.at
  %block.at = getelementptr i8, ptr %object, i64 {data}
  %block = load ptr, ptr %block.at
  %shared.at = getelementptr i64, ptr %block, i64 {shared}
  %shared = load ptr, ptr %shared.at
  call void @share(ptr %shared, ptr @part, ptr %tuple)
  ret i64 0
}}
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
!0 = !{{i32 1}}
"""


def _text(lines: ElementLines, char: str) -> str:
    kind, width = _KINDS[char]
    text = _loop(lines, "one", kind, 1, False) + _loop(lines, "many", kind, width, False)
    text += _loop(lines, "past", kind, width, True)
    for name in _INTRINSICS.values():
        for suffix, type_ in (
            (f"f{32 if kind == 'float' else 64}", kind),
            (f"v{width}f{32 if kind == 'float' else 64}", f"<{width} x {kind}>"),
        ):
            text.append(f"declare {type_} @llvm.{name}.{suffix}({type_})")
    driver = _DRIVER.format(
        each=3 + 2 * len(lines.arrays), items=native.ITEMS, data=native.OFFSETS["data"],
        drawn=_DRAWN, raised=_RAISED, past=_PAST, shared=_SHARED, numbers=_NUMBERS,
        sizes=_NUMBERS + len(lines.numbers), clear=_CLEAR, tell=_TELL, mask=native.ALL_ERRORS,
        item=np.dtype(char).itemsize, piece=_PIECE_BYTES // np.dtype(char).itemsize, whole=-width,
    )  # fmt: skip
    return "\n".join(text) + SHARE + driver


@final
class ElementCode:
    """The machine code of some lines for a dtype.

    Attributes
    ----------
    call : callable or None
        None until it is made, and for ever where that is not possible.
    reason : str or None
        Why it is not.
    """

    def __init__(self, lines: ElementLines, char: str, directory: str) -> None:
        self.lines, self.char = lines, char
        self.call: Callable[[tuple[Any, ...]], int] | None = None
        self.reason: str | None = native.switched_off() or native.expected()
        self.done = threading.Event()
        self._engine: Any = None
        self._flags, self._item = (0, 0), np.dtype(char).itemsize
        if self.reason is None:
            BACKGROUND.submit(partial(self._make, directory))
        else:
            self.done.set()

    def _make(self, directory: str) -> None:
        try:
            self._flags = native.flags()
            HELPERS.make(directory)
            self._engine = native.engine(_text(self.lines, self.char), directory)
            kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.py_object)
            self.call = kind(self._engine.get_function_address("update"))
        except Exception as error:  # noqa: BLE001 - NumPy computes the lines
            self.reason = f"{type(error).__name__}: {error}"
        self.done.set()

    def block(
        self, numbers: Sequence[float], sizes: Sequence[int], arrays: int, shared: bool = True
    ) -> Array:
        """Return what comes first in the tuple that is called with; `raised` reads it.

        Parameters
        ----------
        numbers : sequence of float
        sizes : sequence of int
            Elements of each place.
        arrays : int
            How many different arrays a place has.
        shared : bool
            Whether other threads may help.
        """
        count = len(numbers)
        total = sum(sizes) * arrays * self._item
        helped = HELPERS.call() if shared and total > _SHARED_BYTES else 0
        words = len(sizes), 0, 0, total > _CACHE_BYTES, helped, *self._flags
        packed = struct.pack(f"{_NUMBERS}q{count}d{len(sizes)}q", *words, *numbers, *sizes)
        return np.frombuffer(bytearray(packed), np.int64)

    @staticmethod
    def raised(block: Array) -> int:
        """Return the flags of floating-point errors of the call, as `native.ERRORS` names them."""
        return int(block[_RAISED])


@cache
def code_of(lines: ElementLines, char: str, directory: str) -> ElementCode:
    """Return the code of lines for arrays of a dtype, which is being made; does not block."""
    return ElementCode(lines, char, directory)
