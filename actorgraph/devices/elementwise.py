"""Lines of arithmetic on the elements of arrays, as machine code with NumPy's bits.

A line is an assignment with sums, products, quotients and a few functions.  Invariant: each
operation is rounded as by NumPy's loops; nothing is contracted, reordered or approximated.  One
call computes all lines for all elements of any number of *places* (parameters with their states),
without the GIL; in a long call helper threads take pieces (`helpers`).  llvmlite compiles the code
in the background; without it there is none.  Solvers call it (`solvers._formula`).

If the arrays of a call do not fit into the caches, results are stored past them (non-temporal
stores): then a cache line that is written whole is not read first.
"""

from __future__ import annotations

import ast
import ctypes
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias, final

import numpy as np

from actorgraph.devices import native, structs
from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.helpers import HELPERS, SHARE
from actorgraph.devices.vectors import VectorLines
from actorgraph.devices.walk_text import loaded

Array: TypeAlias = np.ndarray[Any, Any]

_CACHE_BYTES = 24 << 20
"""Bytes of a call above which results are stored past the caches."""

_FUNCTIONS = frozenset({"abs", "maximum", "sign", "sqrt"})
"""Functions that lines may call."""

_TEXTS = {
    "abs": "absolute(x)",
    "sign": "where(unordered(x, x), x, where(greater(where(unordered(x, x), 0, x), 0), 1, "
            "where(less(where(unordered(x, x), 0, x), 0), -1, 0)))",
    "maximum": "where(unordered(x, y), where(unordered(x, x), x, y), where(greater_equal("
               "where(unordered(x, y), 0, x), where(unordered(x, y), 0, y)), x, y))",
}  # fmt: skip
"""Definitions that compare no NaN in order, which would raise a flag that NumPy does not raise."""

_PIECE_BYTES, _LONGER, _SHARED_BYTES = 1 << 17, 4, 4 << 20
"""Bytes of an array's piece; how many times as long a piece is past the caches, where a core begins
to prefetch anew in each; bytes of a call above which helpers share it."""

_TOGETHER = 4
"""Past the caches so many vectors are loaded before one is stored.  A load waits for a store before
it whose address is the same modulo 4096, and arrays may lie so that there is one each time."""

_BRIEF_ELEMENTS = 1 << 15
"""Elements of all arrays together below which a call keeps the GIL: it takes some 5 us."""

_BLOCK = "count drawn raised is.past *shared *clear *tell"
"""Words of a block: number of places, pieces drawn by threads, error flags raised, whether to store
past the caches, address of the helpers' words, `feclearexcept`, `fetestexcept`; then the numbers as
doubles, and the elements of each place."""
_RAISED, _NUMBERS = _BLOCK.split().index("raised"), len(_BLOCK.split())


class ElementLines(Protocol):
    """Assignments to ``p``, ``g`` and `arrays`, of these and `numbers`; hashable."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The assignments, in order."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of arrays beside ``p``, which is written too, and ``g``, which is only read."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of numbers."""


def _rounds_as_numpy(part: ast.expr, arrays: Collection[str], numbers: Collection[str]) -> bool:
    """Return whether an expression has NumPy's bits if all of it has the dtype of the arrays."""
    match part:
        case ast.Name(id=name):
            return name in arrays or name in numbers
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            parts = [left, right]
            names = {one.id for one in ast.walk(part) if isinstance(one, ast.Name)}
            if names.issubset(numbers):  # NumPy would compute it in doubles
                return False
        case ast.Call(func=ast.Name(id=name), args=parts) if name in _FUNCTIONS:
            pass
        case _:
            return False
    return all(_rounds_as_numpy(one, arrays, numbers) for one in parts)


def _loop(lines: ElementLines, name: str, char: str, lanes: int, past: bool) -> list[str]:
    """Return the text of a function that computes elements ``from`` to ``to`` of a place.

    They are whole vectors of so many lanes, several of them if it stores `past` the caches.
    """
    text = VectorLines(char, lanes, texts=_TEXTS)

    def pointer(place: int) -> str:
        return text.new(f"load ptr, ptr {text.new(f'getelementptr ptr, ptr %args, i64 {place}')}")

    # Arrays of a place: p, g, the result; then each other array and its result.
    sources = {"p": pointer(0), "g": pointer(1)}
    results = {"p": pointer(2)}
    for i, one in enumerate(lines.arrays):
        sources[one], results[one] = pointer(3 + 2 * i), pointer(4 + 2 * i)
    values = {}
    for place, number in enumerate(lines.numbers):
        at = text.new(f"getelementptr double, ptr %numbers, i64 {place}")
        value = text.new(f"load double, ptr {at}")
        value = text.new(f"fptrunc double {value} to float") if char == "f" else value
        values[number] = text.spread_out(value)
    text.lines += ["  br label %test", "test:", "  %i = phi i64 [%from, %entry], [%next, %body]",
                   "  %more = icmp slt i64 %i, %to", "  br i1 %more, label %body, label %over",
                   "body:"]  # fmt: skip
    firsts = [text.new(f"add i64 %i, {k * lanes}") for k in range(_TOGETHER if past else 1)]

    def element(array: str, number: str) -> str:
        return text.new(f"getelementptr {text.kind}, ptr {array}, i64 {number}")

    # Asking for what lies ahead brings nothing; from 1 KB on it hinders the hardware's own
    # prefetching, and a step of Adam takes a sixth longer (Zen 4).
    loaded = [
        values | {one: text.load(element(source, first)) for one, source in sources.items()}
        for first in firsts
    ]
    for first, values in zip(firsts, loaded, strict=True):
        arrays = {*values}.difference(lines.numbers)
        for line in lines.lines:
            match ast.parse(line).body:
                case [ast.Assign(targets=[ast.Name(id=into)], value=part)] if _rounds_as_numpy(
                    part, arrays, lines.numbers
                ):
                    values[into] = text.write(part, values)
                    arrays.add(into)
                case _:
                    raise NotImplementedError(line)
        for one, result in results.items():
            how = "64, !nontemporal !0" if past and one == "p" else text.size
            at = element(result, first)
            text.lines.append(f"  store {text.type} {values[one]}, ptr {at}, align {how}")
    return [
        f"define internal void @{name}(ptr %args, ptr %numbers, i64 %from, i64 %to) {{", "entry:",
        *text.lines, f"  %next = add i64 %i, {len(firsts) * (lanes or 1)}", "  br label %test",
        "over:", "  ret void", "}",
    ]  # fmt: skip


_DRIVER = """
define internal void @part(ptr %tuple) {{
entry:
  %args = alloca [{each} x ptr]
{block}
  %items = getelementptr i8, ptr %tuple, i64 {items}
  %past = icmp ne i64 %is.past, 0
  %times = select i1 %past, i64 {longer}, i64 1
  %most = mul i64 %times, {piece}
  %numbers = getelementptr i64, ptr %a0, i64 {numbers}
  %sizes = getelementptr i64, ptr %a0, i64 {sizes}
  %cleared = call i32 %clear(i32 {mask})
  %mine.begin = atomicrmw add ptr %drawn.at, i64 1 seq_cst
  br label %test
test:
  %q = phi i64 [0, %entry], [%q.next, %piece]
  %number.first = phi i64 [0, %entry], [%number, %piece]
  %mine.first = phi i64 [%mine.begin, %entry], [%mine, %piece]
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
  %from = phi i64 [0, %measure], [%to, %look], [%to, %cached]
  %number = phi i64 [%number.first, %measure], [%number.next, %look], [%number.next, %cached]
  %mine = phi i64 [%mine.first, %measure], [%mine, %look], [%drawn.next, %cached]
  %left = icmp slt i64 %from, %size
  br i1 %left, label %look, label %test
look:
  %far = add i64 %from, %most
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
  %most.past = and i64 %whole, {together}
  %end.past = add i64 %begin, %most.past
  call void @past(ptr %args, ptr %numbers, i64 %begin, i64 %end.past)
  fence seq_cst
  br label %cached
cached:
  %begin.cached = phi i64 [%begin, %work], [%end.past, %uncached]
  call void @many(ptr %args, ptr %numbers, i64 %begin.cached, i64 %end)
  call void @one(ptr %args, ptr %numbers, i64 %end, i64 %to)
  %drawn.next = atomicrmw add ptr %drawn.at, i64 1 seq_cst
  br label %piece
over:
  %told = call i32 %tell(i32 {mask})
  %told.long = zext i32 %told to i64
  %raised.before = atomicrmw or ptr %raised.at, i64 %told.long seq_cst
  ret void
}}
define i64 @update(ptr %tuple) {{
{block}
  call void @share(ptr %shared, ptr @part, ptr %tuple)
  ret i64 0
}}
!0 = !{{i32 1}}
"""


def _text(lines: ElementLines, char: str) -> str:
    width = 64 // np.dtype(char).itemsize
    text = _loop(lines, "one", char, 0, False) + _loop(lines, "many", char, width, False)
    text += _loop(lines, "past", char, width, True)
    block = [*native.items_text(1), loaded("a0", _BLOCK)]
    driver = _DRIVER.format(
        each=3 + 2 * len(lines.arrays), items=structs.ITEMS, data=structs.OFFSETS["data"],
        block="\n".join(block), numbers=_NUMBERS, sizes=_NUMBERS + len(lines.numbers),
        mask=native.ALL_ERRORS, item=np.dtype(char).itemsize,
        piece=_PIECE_BYTES // np.dtype(char).itemsize, whole=-width, longer=_LONGER,
        together=-width * _TOGETHER,
    )  # fmt: skip
    return "\n".join(text) + SHARE + driver + native.entry_text("update", "O")


@final
class ElementCode:
    """The machine code of some lines for a dtype.

    `call` is None until the code is compiled, and stays None if that is impossible, for the
    `reason`; `done` is set afterwards.  `brief` does the same, and keeps the GIL.
    """

    def __init__(self, lines: ElementLines, char: str) -> None:
        self.lines, self.char = lines, char
        self.call: Callable[[tuple[Any, ...]], int] | None = None
        self.brief: Callable[[tuple[Any, ...]], int] | None = None
        self.reason: str | None = structs.switched_off() or structs.expected()
        self.done = threading.Event()
        self._engine: Any = None
        self._flags, self._item = (0, 0), np.dtype(char).itemsize
        if self.reason is None:
            BACKGROUND.submit(self._make, keep=self)
        else:
            self.done.set()

    def _make(self) -> None:
        try:
            self._flags = native.flags()
            HELPERS.make()
            self._engine = native.engine(_text(self.lines, self.char))
            self.brief = native.entry(self._engine, "update")
            kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.py_object)
            self.call = kind(self._engine.get_function_address("update"))
        except Exception as error:  # noqa: BLE001 - NumPy computes the lines
            self.reason = f"{type(error).__name__}: {error}"
        self.done.set()

    def routine(self, elements: int) -> Callable[[tuple[Any, ...]], int]:
        """Return `brief` or `call`, by the elements of all arrays of a call."""
        found = self.brief if elements < _BRIEF_ELEMENTS else self.call
        assert found is not None, "it is asked for once there is code"
        return found

    def block(
        self, numbers: Sequence[float], sizes: Sequence[int], arrays: int, shared: bool = True
    ) -> Array:
        """Return the block of words, the first item of the tuple that `call` takes.

        `sizes` are the elements of each place, `arrays` the number of its different arrays.
        Helpers may share the call if it is `shared`.
        """
        count = len(numbers)
        assert count == len(self.lines.numbers), "the code finds the sizes behind the numbers"
        total = sum(sizes) * arrays * self._item
        helped = HELPERS.call() if shared and total > _SHARED_BYTES else 0
        words = len(sizes), 0, 0, total > _CACHE_BYTES, helped, *self._flags
        packed = _packer(count, len(sizes))(*words, *numbers, *sizes)
        return np.frombuffer(bytearray(packed), np.int64)

    @staticmethod
    def raised(block: Array) -> int:
        """Return the floating-point flags that a call has raised, as in `native.ERRORS`."""
        return int(block[_RAISED])


@cache
def _packer(numbers: int, places: int) -> Callable[..., bytes]:
    return struct.Struct(f"{_NUMBERS}q{numbers}d{places}q").pack


@cache
def code_of(lines: ElementLines, char: str) -> ElementCode:
    """Return the code of lines for a dtype, which is compiled in the background."""
    return ElementCode(lines, char)
