"""LLVM text of elementwise functions on vectors, for fixed sizes; products are in `dense`.

`VectorLines` writes instructions; `elements_text` a loop for a group of steps (`lower.quick_rows`),
which has the signature of NumPy's inner loops and finds its arrays in the bases of a walk
(`devices.native`).

By default last bits may differ from NumPy's: exponentials and `tanh` are polynomials, and no
floating-point error is reported.  If it shall be `exact`, only functions are allowed that IEEE 754
rounds as NumPy's loops do.  LLVM then sees no constants and may fold no load into an operation, so
it keeps the operations as written: they raise their flags, and the bits are NumPy's.  (Of two NaN
it keeps the one that NumPy keeps, except in the remainder of NumPy's loops.)

Source of most polynomials: S. Moshier, Cephes mathematical library, 1992 (`expf`, `logf`, `tanhf`).
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from math import factorial, gcd, nan
from typing import NamedTuple

import numpy as np

from actorgraph.devices.listed import MOST_ARGUMENTS


class Pointer(NamedTuple):
    """An array of a walk: base, offset, and byte strides between rows and along a row."""

    base: int
    offset: int
    outer: int
    inner: int


_BINARY = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_TESTS = {
    "greater": "ogt", "greater_equal": "oge", "less": "olt", "less_equal": "ole", "equal": "oeq",
    "not_equal": "une", "unordered": "uno",
}  # fmt: skip
_TEXTS = {
    "positive": "x", "negative": "subtract(-0.0, x)", "square": "multiply(x, x)",
    "reciprocal": "divide(1, x)",
    "maximum": "where(greater_equal(x, y), x, where(not_equal(x, x), x, y))",
    "minimum": "where(less_equal(x, y), x, where(not_equal(x, x), x, y))",
    "sign": "where(greater(x, 0), 1, where(less(x, 0), -1, where(not_equal(x, x), x, 0)))",
    "isfinite": "equal(subtract(x, x), 0)", "isnan": "not_equal(x, x)",
    "isinf": "equal(absolute(x), 1e999)",
}  # fmt: skip
"""Functions of x and y that are expressed by others."""

_OPERATORS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
_LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_INTRINSICS = {
    "absolute": "fabs", "ceil": "ceil", "floor": "floor", "sqrt": "sqrt", "trunc": "trunc"
}  # fmt: skip
_ONLY_FLOAT32 = frozenset({"erf", "erfc", "exp", "expm1", "log", "log1p", "sigmoid", "tanh"})
_KNOWN = frozenset({
    *_BINARY, *_TESTS, *_LOGIC, *_TEXTS, *_INTRINSICS, *_ONLY_FLOAT32, "where", "logical_not"
})  # fmt: skip
"""Functions in rules of ops; `VectorLines` also writes `log` of doubles, and `exp` below 0."""
_EXACT = frozenset({*_BINARY, "negative", "positive", "reciprocal", "sqrt", "square"})
_TELLING = frozenset({*_TESTS, *_LOGIC, "logical_not", "isfinite", "isinf", "isnan"})
"""Functions with a bool as value."""

_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.44269504088896341, 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
        5.0000001201e-1)  # fmt: skip
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_ERF = (-5.6253962e-4, 4.9160235e-3, -2.6709950e-2, 1.1280131e-1, -3.7612319e-1, 1.1283791)
"""``erf(x) / x`` as a series in the square of x, up to 1: a fit at the Chebyshev points."""
_ERFC = (-6.0154941e-2, 2.8966594e-1, -4.9727187e-1, 2.8900510e-1, -3.3724613e-2, 2.0549279e-1,
         2.4244736e-1, 2.8245804e-1, 2.8208214e-1)  # fmt: skip
"""``exp(x * x) * erfc(x) / t`` as a series in ``t = 1 / (1 + x / 2)``, from 0 on: such a fit."""
_HALF_ROOT = 0x3F3504F3
"""The bits of the root of 1/2."""
_ROUNDING = 12582912.0
"""1.5 * 2 ** 23: a small number plus this has its nearest integer in the last bits."""


@cache
def functions_of(text: str) -> list[str]:
    """Return the names of the functions that an expression calls."""
    return [ast.unparse(n.func) for n in ast.walk(_parsed(text)) if isinstance(n, ast.Call)]


@cache
def can_write(text: str, char: str, tells: bool = False, exact: bool = False) -> bool:
    """Return whether an expression of NumPy's functions can be written, for floats of a dtype.

    Its value is a float, or a bool with `tells`; with `exact` it must have NumPy's bits.
    """
    names = functions_of(text)
    known = _EXACT if exact else _KNOWN if char == "f" else _KNOWN - _ONLY_FLOAT32
    return known.issuperset(names) and tells == (not _TELLING.isdisjoint(names[:1]))


@lru_cache(1024)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@cache
def registers() -> tuple[int, int]:
    """Return the bytes of a vector register of this processor, and the number of registers."""
    import llvmlite.binding as llvm

    return (64, 32) if llvm.get_host_cpu_features().get("avx512f") else (32, 16)


def lanes_of(char: str, count: int) -> int:
    """Return the lanes of a vector of a dtype that divide `count` elements evenly."""
    return gcd(count, registers()[0] // np.dtype(char).itemsize)


@dataclass
class WrittenLoop:
    """The index of a loop, and its carried values at the begin and at the end of the body."""

    index: str
    before: list[str]
    after: list[str]


class VectorLines:
    """Writes instructions on vectors of `lanes` numbers, or on single numbers if that is 0.

    `texts` override definitions of functions of x and y.  With `exact`, `constants` collects the
    instructions that load constants at the begin of the function, hidden from LLVM.
    """

    def __init__(
        self, char: str, lanes: int, lines: list[str] | None = None,
        texts: Mapping[str, str] | None = None, exact: bool = False,
    ) -> None:  # fmt: skip
        self.char, self.kind = char, "float" if char == "f" else "double"
        self.lanes, self.size = lanes, np.dtype(char).itemsize
        self.wide = lanes * self.size
        types = self.kind, "i1", "i32"
        self.type, self.bits, self.whole = [f"<{lanes} x {k}>" for k in types] if lanes else types
        self._suffix = f"{f'v{lanes}' if lanes else ''}f{8 * self.size}"
        self.lines = [] if lines is None else lines
        self._texts = {**_TEXTS, **(texts or {})}
        self._is_widest = char == "f" and 4 * lanes == registers()[0] == 64
        self._exact, self._load = exact, "load volatile" if exact else "load"
        self.constants: dict[str, str] = {}
        self.block = "entry"  # the label of the block that is written
        self._labels: list[str] = []

    def new(self, instruction: str) -> str:
        """Add an instruction; return the name of its result."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def number(self, value: float) -> str:
        """Return a constant."""
        rounded = float(np.float32(value)) if self.kind == "float" else value
        text = f"0x{struct.pack('>d', rounded).hex().upper()}"
        if not self._exact:
            return self._filled(self.kind, text)
        name, same = f"%c{text}", f"{self.whole} zeroinitializer"
        self.constants[text] = "\n".join([
            f"  {name}.at = alloca {self.kind}",
            f"  store {self.kind} {text}, ptr {name}.at",
            f"  {name}.one = load volatile {self.kind}, ptr {name}.at",
            f"  {name}.first = insertelement {self.type} poison, {self.kind} {name}.one, i32 0",
            f"  {name} = shufflevector {self.type} {name}.first, {self.type} poison, {same}",
        ])  # fmt: skip
        return name

    def integer(self, value: int) -> str:
        """Return an integer constant."""
        return self._filled("i32", str(value))

    def _filled(self, kind: str, one: str) -> str:
        return f"<{', '.join([f'{kind} {one}'] * self.lanes)}>" if self.lanes else one

    def spread(self, address: str) -> str:
        """Load a number; return a vector of copies of it."""
        return self.spread_out(
            self.new(f"{self._load} {self.kind}, ptr {address}, align {self.size}")
        )

    def spread_out(self, one: str) -> str:
        """Return a vector of copies of a loaded number."""
        if not self.lanes:
            return one
        first = self.new(f"insertelement {self.type} poison, {self.kind} {one}, i32 0")
        return self.new(f"shufflevector {self.type} {first}, {self.type} poison, "
                        f"{self.whole} zeroinitializer")  # fmt: skip

    def load(self, address: str) -> str:
        """Load a vector."""
        return self.new(f"{self._load} {self.type}, ptr {address}, align {self.size}")

    def store(self, value: str, at: str) -> None:
        """Store a vector."""
        self.lines.append(f"  store {self.type} {value}, ptr {at}, align {self.size}")

    def shuffled(self, one: str, other: str, places: Sequence[int]) -> str:
        """Return the numbers at some places of two vectors, which are one behind the other."""
        mask = ", ".join([f"i32 {place}" for place in places])
        pair = f"{self.type} {one}, {self.type} {other}"
        return self.new(f"shufflevector {pair}, <{len(places)} x i32> <{mask}>")

    def fma(self, x: str, y: str, z: str) -> str:
        """Return ``x * y + z``."""
        called = f"@llvm.fma.{self._suffix}"
        return self.new(f"call {self.type} {called}({self.type} {x}, {self.type} {y}, "
                        f"{self.type} {z})")  # fmt: skip

    def call(self, name: str, *given: str) -> str:
        """Return the value of a function, by NumPy's name, of vectors."""
        if name in _BINARY:
            return self.new(f"{_BINARY[name]} {self.type} {given[0]}, {given[1]}")
        if name in _TESTS:
            return self.new(f"fcmp {_TESTS[name]} {self.type} {given[0]}, {given[1]}")
        if name == "where":
            test, one, other = given
            return self.new(f"select {self.bits} {test}, {self.type} {one}, {self.type} {other}")
        if name == "negative" and self._exact:  # LLVM might merge `fneg` into a difference
            kind = self.type.replace(self.kind, f"i{8 * self.size}")
            mask, x = [self.new(f"bitcast {self.type} {one} to {kind}")
                       for one in (self.number(-0.0), *given)]  # fmt: skip
            flipped = self.new(f"xor {kind} {x}, {mask}")
            return self.new(f"bitcast {kind} {flipped} to {self.type}")
        if name in self._texts:
            return self.write(self._texts[name], dict(zip("xy", given, strict=False)))
        if name in _INTRINSICS or (name == "log" and self.kind == "double"):
            function = _INTRINSICS.get(name, name)
            called = f"@llvm.{function}.{self._suffix}({self.type} {given[0]})"
            return self.new(f"call {self.type} {called}")
        if name in _LOGIC:
            return self.new(f"{_LOGIC[name]} {self.bits} {given[0]}, {given[1]}")
        if name == "logical_not":
            return self.new(f"xor {self.bits} {given[0]}, {self._filled('i1', 'true')}")
        if name == "exp" and self.kind == "double":
            return self._exp_of_double(*given)
        written: str = getattr(self, f"_{name}")(*given)
        return written

    def write(self, text: str | ast.expr, names: Mapping[str, str]) -> str:
        """Return the value of an expression."""
        match _parsed(text) if isinstance(text, str) else text:
            case ast.Name(id=name):
                return names[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self.call(
                    _OPERATORS[type(op)], self.write(left, names), self.write(right, names)
                )
            case ast.Call(func=ast.Name(id=name), args=parts):
                return self.call(name, *[self.write(part, names) for part in parts])
            case part:
                return self.number(float(ast.literal_eval(part)))

    def at(self, base: str, *terms: tuple[str, int | str], by: int = 0) -> str:
        """Return the address ``base + sum(index * size) + by``; sizes may be names of values."""
        for index, size in terms:
            if index.isdigit() and isinstance(size, int):
                by += int(index) * size
            elif size:
                far = self.new(f"mul i64 {index}, {size}")
                base = self.new(f"getelementptr i8, ptr {base}, i64 {far}")
        return self.new(f"getelementptr i8, ptr {base}, i64 {by}") if by else base

    @contextmanager
    def loop(
        self, end: int | str, *begin: str, first: str = "0", step: int = 1
    ) -> Iterator[WrittenLoop]:
        """Write a loop around the code of the `with` block, which carries values.

        Its index goes by steps from `first` to an end, perhaps names of values, and takes at least
        one value.
        """
        state = WrittenLoop("0", [*begin], [*begin])
        if end == step:
            yield state
            return
        i, before = f"%i{len(self._labels)}", self.block
        label = self.labelled("loop")
        state.index, place = i, len(self.lines)
        state.before = [f"{i}.c{k}" for k in range(len(begin))]
        state.after = [*state.before]
        self.lines += [""] * (1 + len(begin))
        yield state
        self.lines += [
            f"  {i}.next = add i64 {i}, {step}",
            f"  {i}.more = icmp slt i64 {i}.next, {end}",
            f"  br i1 {i}.more, label %{label}, label %{label}.over",
        ]  # fmt: skip
        starts = [(i, first, f"{i}.next", "i64")]
        starts += [(*one, self.type) for one in zip(state.before, begin, state.after, strict=True)]
        self.lines[place : place + len(starts)] = [
            f"  {one} = phi {kind} [{start}, %{before}], [{after}, %{self.block}]"
            for one, start, after, kind in starts
        ]
        self.label(f"{label}.over")

    @contextmanager
    def each(self, end: int | str, *, first: str = "0", step: int = 1) -> Iterator[str]:
        """Write a loop without carried values; its index is a name or a number."""
        with self.loop(end, first=first, step=step) as state:
            yield state.index

    def labelled(self, name: str) -> str:
        """Begin a block after what was written; return its label."""
        label = f"{name}{len(self._labels)}"
        self._labels.append(label)
        self.lines.append(f"  br label %{label}")
        self.label(label)
        return label

    def label(self, label: str) -> None:
        """Begin a block, which earlier code branches to."""
        self.lines.append(f"{label}:")
        self.block = label

    def _series(self, numbers: Sequence[float], x: str) -> str:
        result = self.number(numbers[0])
        for one in numbers[1:]:
            result = self.fma(result, x, self.number(one))
        return result

    def _exp(self, x: str) -> str:
        # Arguments that give 0 are replaced: denormal intermediates take 100 times as long.
        near = self.write("where(greater(x, 89), 89, where(less(x, -104), 0, x))", {"x": x})
        power, rest = self._parted(near)
        result = self._scaled(self.call("add", rest, self.number(1)), power)
        return self.write("where(less(x, -104), 0, y)", {"x": x, "y": result})

    def _parted(self, x: str) -> tuple[str, str]:
        """Return k and ``exp(r) - 1`` for ``x = k log(2) + r``, k whole and r small."""
        rounding = self.number(_ROUNDING)
        shifted = self.fma(x, self.number(_LOG2_E), rounding)
        power = self.call("subtract", shifted, rounding)
        r = self.fma(power, self.number(-_LN2_HIGH), x)
        r = self.fma(power, self.number(-_LN2_LOW), r)
        return power, self.fma(self._series(_EXP, r), self.call("multiply", r, r), r)

    def _scaled(self, x: str, power: str, *, far: bool = True) -> str:
        """Return ``x * 2 ** power``; if `far`, even where the factor itself would overflow."""
        if self._is_widest:
            given = f"{self.type} {x}, {self.type} {power}, {self.type} {x}, i16 -1, i32 4"
            return self.new(f"call {self.type} @llvm.x86.avx512.mask.scalef.ps.512({given})")
        shifted = self.call("add", power, self.number(_ROUNDING))
        bits, zero = self._bits_of(shifted), self._bits_of(self.number(_ROUNDING))
        parts = [self.new(f"sub {self.whole} {bits}, {zero}")]
        if far:  # by its root, twice
            half = self.new(f"ashr {self.whole} {parts[0]}, {self.integer(1)}")
            parts = [half, self.new(f"sub {self.whole} {parts[0]}, {half}")]
        for part in parts:
            raised = self.new(f"add {self.whole} {part}, {self.integer(127)}")
            placed = self.new(f"shl {self.whole} {raised}, {self.integer(23)}")
            x = self.call("multiply", x, self._of_bits(placed))
        return x

    def _ratio(self, x: str, y: str) -> str:
        """Return ``x / y`` for y that is neither large nor small.

        A division takes as long as an exponential, so an estimate is refined instead.
        """
        if not self._is_widest:
            return self.call("divide", x, y)
        given = f"{self.type} {y}, {self.type} {y}, i16 -1"
        estimate = self.new(f"call {self.type} @llvm.x86.avx512.rcp14.ps.512({given})")
        quotient = self.call("multiply", x, estimate)
        return self.fma(self.fma(self.call("subtract", self.number(-0.0), quotient), y, x),
                        estimate, quotient)  # fmt: skip

    def _bits_of(self, x: str) -> str:
        return self.new(f"bitcast {self.type} {x} to {self.whole}")

    def _of_bits(self, x: str) -> str:
        return self.new(f"bitcast {self.whole} {x} to {self.type}")

    def _expm1(self, x: str) -> str:
        _, small = self._parted(x)
        large = self.call("subtract", self._exp(x), self.number(1))
        test = "where(less(absolute(x), 0.34), y, z)"
        return self.write(test, {"x": x, "y": small, "z": large})

    def _log(self, x: str) -> str:
        denormal = self.call("less", x, self.number(2.0**-126))
        raised = self.call("multiply", x, self.number(2.0**23))
        bits = self._bits_of(self.call("where", denormal, raised, x))
        above = self.new(f"sub {self.whole} {bits}, {self.integer(_HALF_ROOT)}")
        power = self.new(f"ashr {self.whole} {above}, {self.integer(23)}")
        exponent_bits = self.new(f"shl {self.whole} {power}, {self.integer(23)}")
        root = self._of_bits(self.new(f"sub {self.whole} {bits}, {exponent_bits}"))
        k = self.new(f"sitofp {self.whole} {power} to {self.type}")
        k = self.write("where(d, k - 23.0, k)", {"d": denormal, "k": k})
        r = self.call("subtract", root, self.number(1))
        square = self.call("multiply", r, r)
        y = self.call("multiply", self.call("multiply", self._series(_LOG, r), r), square)
        y = self.fma(k, self.number(_LN2_LOW), y)
        y = self.call("add", r, self.fma(square, self.number(-0.5), y))
        y = self.fma(k, self.number(_LN2_HIGH), y)
        ends = "where(equal(x, 0), -1e999, none)"
        text = f"where(greater(x, 0), where(less(x, 1e999), y, x), {ends})"
        return self.write(text, {"x": x, "y": y, "none": self.number(nan)})

    def _log1p(self, x: str) -> str:
        # Kahan's correction: the factor x / (u - 1) undoes the rounding of u = 1 + x.
        above = self.call("add", x, self.number(1))
        names = {"x": x, "u": above, "y": self._log(above)}
        near = "where(less(u, 1e30), y * (x / (u - 1)), y)"
        return self.write(f"where(equal(u, 1), x, {near})", names)

    def _erfc(self, x: str) -> str:
        size = self.call("absolute", x)
        t = self.write("1 / (z * 0.5 + 1)", {"z": size})
        square = self.call("multiply", size, size)
        bell = self._exp(self.call("negative", square))
        y = self.call("multiply", self.call("multiply", self._series(_ERFC, t), t), bell)
        rest = self.fma(size, size, self.call("negative", square))  # rounding error of the square
        y = self.write("where(less(z, 1e30), y - y * r, y)", {"z": square, "y": y, "r": rest})
        return self.write("where(less(x, 0), 2 - y, y)", {"x": x, "y": y})

    def _erf(self, x: str) -> str:
        square = self.call("multiply", x, x)
        small = self.call("multiply", self._series(_ERF, square), x)
        large = self.write("1 - y", {"y": self._erfc(x)})
        return self.write("where(less(z, 1), x, y)", {"z": square, "x": small, "y": large})

    def _exp_of_double(self, x: str) -> str:
        """Return the exponential of a single double that is at most 0, or NaN.

        It is 2 ** k times the Taylor series of the rest r, accurate to the last bit for |r| < 0.35.
        """
        b = self.write("where(greater(x, -708.0), x, -708.0)", {"x": x})
        k = self.write("floor(b * 1.4426950408889634 + 0.5)", {"b": b})
        r = self.write("b - k * 0.693145751953125", {"b": b, "k": k})
        r = self.write("r - k * 1.4286068203094172e-06", {"r": r, "k": k})
        series = self.number(1 / factorial(12))
        for power in range(11, -1, -1):
            series = self.call("multiply", series, r)
            series = self.call("add", series, self.number(1 / factorial(power)))
        short = self.new(f"fptosi double {k} to i32")
        exponent = self.new(f"add i64 {self.new(f'sext i32 {short} to i64')}, 1023")
        scale = self.new(f"bitcast i64 {self.new(f'shl i64 {exponent}, 52')} to double")
        product = self.call("multiply", series, scale)
        small = "where(greater(x, -708.0), e, where(less_equal(x, -708.0), 0, x))"
        return self.write(small, {"x": x, "e": product})

    def _tanh(self, x: str) -> str:
        """Return m / (m + 2) for m = exp(2 |x|) - 1, with the sign of x."""
        twice = self.call("absolute", self.call("add", x, x))
        power, rest = self._parted(self.write("where(greater(x, 20.0), 20.0, x)", {"x": twice}))
        scale = self._scaled(self.number(1), power, far=False)
        m = self.fma(scale, rest, self.call("subtract", scale, self.number(1)))
        result = self._ratio(m, self.call("add", m, self.number(2)))
        called = f"@llvm.copysign.{self._suffix}({self.type} {result}, {self.type} {x})"
        return self.new(f"call {self.type} {called}")

    def _sigmoid(self, x: str) -> str:
        """Return 1 / (1 + e) or e / (1 + e), as the sign of x is, for e = exp(-|x|)."""
        one, e = self.number(1), self._exp(self.call("negative", self.call("absolute", x)))
        above = self.write("where(less(x, 0), e, 1)", {"x": x, "e": e})
        return self._ratio(above, self.call("add", e, one))


def elements_text(
    name: str, char: str, sizes: tuple[int, int], read: Mapping[str, Pointer | float],
    lines: Sequence[tuple[str, str, Mapping[str, str]]], written: Mapping[str, Pointer],
    exact: bool = False,
) -> str:  # fmt: skip
    """Return a function that computes lines for each element of arrays of a dtype.

    - `sizes`: rows, and elements of a row; the function computes a range of rows, given by its dims
    - `read`: arrays to read, and numbers, by name
    - `lines`: name, expression, and the expression's names for earlier values
    - `written`: where values are stored, by name
    - `exact`: whether bits must be NumPy's
    """
    columns = sizes[1]
    text = VectorLines(char, lanes_of(char, columns), exact=exact)
    arrays = {key: one for key, one in {**read, **written}.items() if isinstance(one, Pointer)}
    bases = text.new(f"load ptr, ptr {text.at('%args', by=8 * MOST_ARGUMENTS)}")
    begins = {
        key: text.at(text.new(f"load ptr, ptr {text.at(bases, by=8 * one.base)}"), by=one.offset)
        for key, one in arrays.items()
    }
    first, last = [text.new(f"load i64, ptr {text.at('%dims', by=8 * place)}") for place in (0, 1)]
    entry, values = len(text.lines), dict[str, str]()
    with text.each(last, first=first) as r:
        rows = {key: text.at(begins[key], (r, one.outer)) for key, one in arrays.items()}
        with text.each(columns, step=text.lanes) as i:
            now = {
                key: text.at(rows[key], (i, text.size if one.inner else 0))
                for key, one in arrays.items()
            }
            for key, given in read.items():
                if isinstance(given, Pointer):
                    values[key] = (text.load if given.inner else text.spread)(now[key])
                else:
                    values[key] = text.number(given)
            for key, expression, names in lines:
                known = {short: values[long] for short, long in names.items()}
                values[key] = text.write(expression, known)
            for key in written:
                text.store(values[key], now[key])
    return "\n".join([
        f"define void @{name}(ptr %args, ptr %dims, ptr %steps, ptr %data) {{", "entry:",
        *text.lines[:entry], *text.constants.values(), *text.lines[entry:], "  ret void", "}",
    ])  # fmt: skip
