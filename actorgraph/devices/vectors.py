"""Machine code for fixed sizes: elementwise functions in one loop, and products of small matrices.

It may change last bits: products are fused with sums, exponentials and `tanh` are polynomials.
Neither tells of floating-point errors.  It is called as NumPy's inner loops are, by a walk of rows
(`devices.native`), and finds its arrays in the bases of the walk.

Source of the polynomials: S. Moshier, Cephes mathematical library, 1992 (`expf`, `tanhf`).
"""

from __future__ import annotations

import ast
import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import gcd
from typing import Any, NamedTuple, final

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.background import BACKGROUND


class Pointer(NamedTuple):
    """An array of a walk: its base, offset, and the bytes from row to row, and along a row."""

    base: int
    offset: int
    outer: int
    inner: int


_BINARY = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_TESTS = {
    "greater": "ogt", "greater_equal": "oge", "less": "olt", "less_equal": "ole", "equal": "oeq",
    "not_equal": "une",
}  # fmt: skip
_TEXTS = {
    "positive": "x", "negative": "subtract(-0.0, x)", "square": "multiply(x, x)",
    "reciprocal": "divide(1, x)",
    "maximum": "where(greater_equal(x, y), x, where(not_equal(x, x), x, y))",
    "minimum": "where(less_equal(x, y), x, where(not_equal(x, x), x, y))",
}  # fmt: skip
"""Functions by others, of x and y."""

_ONLY_FLOAT32 = frozenset({"exp", "tanh"})
_KNOWN = frozenset({*_BINARY, *_TESTS, *_TEXTS, *_ONLY_FLOAT32, "where"})
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.44269504088896341, 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
        5.0000001201e-1)  # fmt: skip
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
         -3.33332819422e-1)  # fmt: skip
_MOST_CODES = 256
"""Products of different shapes that machine code is made for."""

_ROUNDING = 12582912.0
"""1.5 * 2 ** 23: a small number plus this has its nearest integer in the last bits."""


@cache
def can_write(text: str, char: str) -> bool:
    """Return whether an expression of NumPy's functions can be written, for floats of a dtype."""
    calls = [one for one in ast.walk(_parsed(text)) if isinstance(one, ast.Call)]
    names = {ast.unparse(one.func) for one in calls}
    return names <= (_KNOWN if char == "f" else _KNOWN - _ONLY_FLOAT32)


@lru_cache(1024)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@cache
def _registers() -> tuple[int, int]:
    """Return the bytes of a vector of this processor, and how many there are."""
    import llvmlite.binding as llvm

    return (64, 32) if llvm.get_host_cpu_features().get("avx512f") else (32, 16)


def _lanes(char: str, count: int) -> int:
    """Return how many of `count` numbers beside each other are computed at once."""
    return gcd(count, _registers()[0] // np.dtype(char).itemsize)


class _Lines:
    """Writes instructions on vectors of numbers."""

    def __init__(self, char: str, lanes: int) -> None:
        self.kind = "float" if char == "f" else "double"
        self.lanes, self.size = lanes, np.dtype(char).itemsize
        self.type, self.bits, self.whole = [f"<{lanes} x {k}>" for k in (self.kind, "i1", "i32")]
        self.lines: list[str] = []

    def new(self, instruction: str) -> str:
        """Add an instruction; return what names its result."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def number(self, value: float) -> str:
        """Return a constant."""
        exact = float(np.float32(value)) if self.kind == "float" else value
        bits = struct.pack(">d", exact).hex().upper()
        return f"<{', '.join([f'{self.kind} 0x{bits}'] * self.lanes)}>"

    def integer(self, value: int) -> str:
        """Return a constant of integers."""
        return f"<{', '.join([f'i32 {value}'] * self.lanes)}>"

    def spread(self, address: str) -> str:
        """Return a vector of one number."""
        one = self.new(f"load {self.kind}, ptr {address}, align {self.size}")
        first = self.new(f"insertelement {self.type} poison, {self.kind} {one}, i32 0")
        return self.new(f"shufflevector {self.type} {first}, {self.type} poison, "
                        f"{self.whole} zeroinitializer")  # fmt: skip

    def load(self, address: str) -> str:
        """Return a vector of numbers beside each other."""
        return self.new(f"load {self.type}, ptr {address}, align {self.size}")

    def fma(self, x: str, y: str, z: str) -> str:
        """Return ``x * y + z``."""
        called = f"@llvm.fma.v{self.lanes}f{8 * self.size}"
        return self.new(f"call {self.type} {called}({self.type} {x}, {self.type} {y}, "
                        f"{self.type} {z})")  # fmt: skip

    def call(self, name: str, *given: str) -> str:
        """Return a function of NumPy's of vectors."""
        if name in _BINARY:
            return self.new(f"{_BINARY[name]} {self.type} {given[0]}, {given[1]}")
        if name in _TESTS:
            return self.new(f"fcmp {_TESTS[name]} {self.type} {given[0]}, {given[1]}")
        if name == "where":
            test, one, other = given
            return self.new(f"select {self.bits} {test}, {self.type} {one}, {self.type} {other}")
        if name in _TEXTS:
            return self.write(_TEXTS[name], dict(zip("xy", given, strict=False)))
        return self._exp(*given) if name == "exp" else self._tanh(*given)

    def write(self, text: str | ast.expr, names: Mapping[str, str]) -> str:
        """Return the value of an expression."""
        match _parsed(text) if isinstance(text, str) else text:
            case ast.Name(id=name):
                return names[name]
            case ast.Call(func=ast.Name(id=name), args=parts):
                return self.call(name, *[self.write(part, names) for part in parts])
            case part:
                return self.number(float(ast.literal_eval(part)))

    def _series(self, numbers: Sequence[float], x: str) -> str:
        found = self.number(numbers[0])
        for one in numbers[1:]:
            found = self.fma(found, x, self.number(one))
        return found

    def _exp(self, x: str) -> str:
        x = self.write("where(greater(x, 89.0), 89.0, where(less(x, -104.0), -104.0, x))", {"x": x})
        rounding = self.number(_ROUNDING)
        shifted = self.fma(x, self.number(_LOG2_E), rounding)
        power = self.call("subtract", shifted, rounding)
        r = self.fma(power, self.number(-_LN2_HIGH), x)
        r = self.fma(power, self.number(-_LN2_LOW), r)
        series = self.fma(self._series(_EXP, r), self.call("multiply", r, r), r)
        found = self.call("add", series, self.number(1))
        bits, zero = [self.new(f"bitcast {self.type} {one} to {self.whole}")
                      for one in (shifted, rounding)]  # fmt: skip
        whole = self.new(f"sub {self.whole} {bits}, {zero}")
        half = self.new(f"ashr {self.whole} {whole}, {self.integer(1)}")
        rest = self.new(f"sub {self.whole} {whole}, {half}")
        for part in (half, rest):  # 2 ** power, which may not be a number where its root is one
            raised = self.new(f"add {self.whole} {part}, {self.integer(127)}")
            placed = self.new(f"shl {self.whole} {raised}, {self.integer(23)}")
            scale = self.new(f"bitcast {self.whole} {placed} to {self.type}")
            found = self.call("multiply", found, scale)
        return found

    def _tanh(self, x: str) -> str:
        square = self.call("multiply", x, x)
        small = self.fma(self.call("multiply", self._series(_TANH, square), square), x, x)
        far = self._exp(self.call("add", x, x))
        large = self.write("subtract(1, divide(2, add(x, 1)))", {"x": far})
        return self.write("where(less(z, 0.390625), x, y)", {"x": small, "y": large, "z": square})


def _entry(name: str, pointers: Sequence[Pointer]) -> list[str]:
    """Return the begin of a function, which finds its arrays in the bases of a walk."""
    text = [
        f"define void @{name}(ptr %args, ptr %dims, ptr %steps, ptr %data) {{",
        "entry:",
        f"  %bases.at = getelementptr ptr, ptr %args, i64 {native.MOST_ARGUMENTS}",
        "  %bases = load ptr, ptr %bases.at",
    ]
    for k, one in enumerate(pointers):
        text += [
            f"  %p{k}.at = getelementptr ptr, ptr %bases, i64 {one.base}",
            f"  %p{k}.base = load ptr, ptr %p{k}.at",
            f"  %p{k} = getelementptr i8, ptr %p{k}.base, i64 {one.offset}",
        ]
    return text


def elements_text(
    name: str,
    char: str,
    sizes: tuple[int, int],
    read: Mapping[str, Pointer | float],
    lines: Sequence[tuple[str, str, Mapping[str, str]]],
    written: Mapping[str, Pointer],
) -> str:
    """Return a function that computes lines for each element.

    Parameters
    ----------
    name : str
    char : str
        Of the dtype of all arrays.
    sizes : tuple of int
        Rows, and elements of a row.
    read : mapping
        Names of arrays that are read, and of numbers.
    lines : sequence of tuple
        Name, expression, and what it calls the values before.
    written : mapping
        Where values go.
    """
    rows, columns = sizes
    pointers = [*[one for one in read.values() if isinstance(one, Pointer)], *written.values()]
    text = _Lines(char, _lanes(char, columns))
    head = _entry(name, pointers)
    body, values, place = [], {}, 0
    for k, one in enumerate(pointers):
        head.append(f"  %s{k} = add i64 0, {one.outer}")
        body += [f"  %p{k}.shift = mul i64 %r, %s{k}",
                 f"  %p{k}.row = getelementptr i8, ptr %p{k}, i64 %p{k}.shift"]  # fmt: skip
    for key, given in read.items():
        if isinstance(given, Pointer):
            read_by = text.load if given.inner else text.spread
            values[key] = read_by(f"%p{place}.now")
            place += 1
        else:
            values[key] = text.number(given)
    for key, expression, names in lines:
        values[key] = text.write(expression, {short: values[long] for short, long in names.items()})
    now = [
        f"  %p{k}.now = getelementptr i8, ptr %p{k}.row, i64 {'%byte' if one.inner else '0'}"
        for k, one in enumerate(pointers)
    ]
    stores = [
        f"  store {text.type} {values[key]}, ptr %p{k}.now, align {text.size}"
        for k, key in enumerate(written, place)
    ]
    return "\n".join([
        *head, "  br label %row", "row:", "  %r = phi i64 [0, %entry], [%r.next, %row.end]", *body,
        "  br label %each", "each:", "  %i = phi i64 [0, %row], [%i.next, %each]",
        f"  %byte = mul i64 %i, {text.size}", *now, *text.lines, *stores,
        f"  %i.next = add i64 %i, {text.lanes}", f"  %i.more = icmp slt i64 %i.next, {columns}",
        "  br i1 %i.more, label %each, label %row.end", "row.end:", "  %r.next = add i64 %r, 1",
        f"  %r.more = icmp slt i64 %r.next, {rows}",
        "  br i1 %r.more, label %row, label %over", "over:", "  ret void", "}",
    ])  # fmt: skip


@dataclass(frozen=True)
class _Tile:
    """A part of a product: so many rows, and so many vectors beside each other."""

    char: str
    lanes: int
    rows: int
    vectors: int

    def text(self, name: str, depth: int, x: Pointer, y: Pointer, z: Pointer, adds: bool) -> str:
        """Return a function of the addresses of both operands and the result."""
        text = _Lines(self.char, self.lanes)
        many = [(i, j) for i in range(self.rows) for j in range(self.vectors)]
        wide = self.lanes * text.size

        def address(base: str, i: int, j: int) -> str:
            outer = z.outer if base == "z" else x.outer
            return text.new(f"getelementptr i8, ptr %{base}, i64 {i * outer + j * wide}")

        first = [text.load(address("z", i, j)) if adds else "zeroinitializer" for i, j in many]
        before, text.lines = text.lines, [""] * len(text.lines)
        x_now = text.new("getelementptr i8, ptr %x, i64 %x.by")
        y_now = text.new("getelementptr i8, ptr %y, i64 %y.by")
        others = [
            text.load(text.new(f"getelementptr i8, ptr {y_now}, i64 {j * wide}"))
            for j in range(self.vectors)
        ]
        sums = []
        for i in range(self.rows):
            one = text.spread(text.new(f"getelementptr i8, ptr {x_now}, i64 {i * x.outer}"))
            sums += [text.fma(one, other, f"%z{i}.{j}") for j, other in enumerate(others)]
        inside, text.lines = [*filter(None, text.lines)], [""] * len(text.lines)
        for (i, j), value in zip(many, sums, strict=True):
            at = address("z", i, j)
            text.lines.append(f"  store {text.type} {value}, ptr {at}, align {text.size}")
        sums_before = [
            f"  %z{i}.{j} = phi {text.type} [{one}, %entry], [{value}, %each]"
            for (i, j), one, value in zip(many, first, sums, strict=True)
        ]
        return "\n".join([
            f"define internal void @{name}(ptr %x, ptr %y, ptr %z) {{", "entry:", *before,
            "  br label %each", "each:", "  %k = phi i64 [0, %entry], [%k.next, %each]",
            *sums_before, f"  %x.by = mul i64 %k, {x.inner}", f"  %y.by = mul i64 %k, {y.outer}",
            *inside, "  %k.next = add i64 %k, 1", f"  %k.more = icmp slt i64 %k.next, {depth}",
            "  br i1 %k.more, label %each, label %over", "over:", *filter(None, text.lines),
            "  ret void", "}",
        ])  # fmt: skip


def product_text(
    name: str, char: str, sizes: tuple[int, int, int], pointers: Sequence[Pointer], adds: bool
) -> str:
    """Return a function that multiplies matrices, or adds their product to its result.

    Pointers are of both and of the result; rows of the second and the result have no gaps.  Rows
    and columns are cut into tiles whose sums stay in registers.
    """
    n, depth, m = sizes
    x, y, z = pointers
    lanes, item = _lanes(char, m), np.dtype(char).itemsize
    most = _registers()[1] // 4
    tiles: dict[_Tile, str] = {}
    calls: list[str] = []
    for column in range(0, m, 2 * lanes):
        for row in range(0, n, most):
            tile = _Tile(char, lanes, min(most, n - row), min(2, (m - column) // lanes))
            places = row * x.outer, column * item, row * z.outer + column * item
            called = tiles.setdefault(tile, f"{name}.{len(tiles)}")
            given = [f"%c{len(calls)}.{k}" for k in range(3)]
            calls += [
                f"  {one} = getelementptr i8, ptr %p{k}, i64 {by}"
                for k, (one, by) in enumerate(zip(given, places, strict=True))
            ]
            calls.append(f"  call void @{called}({', '.join([f'ptr {one}' for one in given])})")
    parts = [tile.text(called, depth, x, y, z, adds) for tile, called in tiles.items()]
    return "\n".join([*parts, *_entry(name, pointers), *calls, "  ret void", "}"])


def module_text(functions: Iterable[str]) -> str:
    """Return the text of a module of functions."""
    sums = [(kind, bits, 2**k) for kind, bits in (("float", 32), ("double", 64)) for k in range(5)]
    declared = [
        f"declare <{n} x {kind}> @llvm.fma.v{n}f{bits}({', '.join([f'<{n} x {kind}>'] * 3)})"
        for kind, bits, n in sums
    ]
    return "\n".join([*functions, *declared])


@final
class QuickArrays:
    """An array module that is NumPy, but for `matmul`: by `product_text` where that is there.

    Parameters
    ----------
    directory : str
        Where machine code is kept.
    wait : bool
        Whether the first product of some shapes waits for it; else NumPy multiplies until then.
    """

    def __init__(self, directory: str, wait: bool) -> None:
        self._directory, self._wait = directory, wait
        self._codes: dict[Any, list[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def in_rows(y: Any) -> Any:
        """Return a matrix with rows without gaps, as the second of a product has to be."""
        return np.ascontiguousarray(y)

    def matmul(self, x: Any, y: Any, out: Any) -> Any:
        """Write a product of matrices."""
        key = x.dtype.char, x.shape, x.strides, y.shape, y.strides, out.strides
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = []
            work = partial(self._make, key, code)
            known = len(self._codes) < _MOST_CODES and out.size
            if known and y.dtype == x.dtype == out.dtype and x.dtype.char in "fd":
                work() if self._wait else BACKGROUND.submit(work)
        if not code:
            return np.matmul(x, y, out=out)
        bases = np.array([x.ctypes.data, y.ctypes.data, out.ctypes.data])
        args = np.array([*[0] * native.MOST_ARGUMENTS, bases.ctypes.data])
        code[0](args.ctypes.data, None, None, None)
        return out

    def _make(self, key: tuple[Any, ...], code: list[Any]) -> None:
        char, (n, depth), x, (_, m), y, out = key
        size = np.dtype(char).itemsize
        if (y[1], out[1]) == (size, size) and _lanes(char, m) > 1:
            pointers = [Pointer(k, 0, *strides) for k, strides in enumerate((x, y, out))]
            text = product_text("product", char, (n, depth, m), pointers, False)
            with suppress(Exception):  # NumPy goes on
                engine = native.engine(module_text([text]), self._directory)
                call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
                code += [call(engine.get_function_address("product")), engine]
