"""Kernels of our own for a GPU, written as CUDA C: several elementwise steps in one, and sums.

Sums, products, quotients and roots are written as functions of CUDA that round each result and are
never contracted, so they have the bits that one kernel a step has.  Exponentials and the like are
CUDA's, too, but may differ in the last bit from those that CuPy compiles: machines have to
allow that (``exact=False``).

A segmented sum adds what goes to a place one after the other, in order, as NumPy does; no atomics.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, final

import numpy as np

Line: TypeAlias = tuple[str, str, tuple[str, ...]]
"""A name, and the function of which names or numbers it is the value."""

_TYPES = {"f": ("float", "f", "f"), "d": ("double", "", "d"), "?": ("bool", "", "")}
"""By dtype: what C calls it, the end of its literals and functions, the kind of its arithmetic."""

_ROUNDED = {
    "add": "__{k}add_rn({0}, {1})", "subtract": "__{k}sub_rn({0}, {1})",
    "multiply": "__{k}mul_rn({0}, {1})", "divide": "__{k}div_rn({0}, {1})",
    "sqrt": "__{k}sqrt_rn({0})", "square": "__{k}mul_rn({0}, {0})",
    "reciprocal": "__{k}div_rn(1.0{e}, {0})", "negative": "-({0})", "absolute": "fabs{e}({0})",
    "where": "choose({0}, {1}, {2})",
}  # fmt: skip
_TESTS = {
    "greater": "({0} > {1})", "greater_equal": "({0} >= {1})", "less": "({0} < {1})",
    "less_equal": "({0} <= {1})", "equal": "({0} == {1})", "not_equal": "({0} != {1})",
}  # fmt: skip
_OTHERS = {
    "maximum": "choose(({0} >= {1}) | ({0} != {0}), {0}, {1})",
    "minimum": "choose(({0} <= {1}) | ({0} != {0}), {0}, {1})",
} | {
    name: f"{name}{{e}}({{0}})"
    for name in ("exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "sinh", "cosh")
}

EXACT = frozenset({*_ROUNDED, *_TESTS})
"""Functions of NumPy's whose bits are those of a kernel of their own."""

FUNCTIONS = {**_ROUNDED, **_TESTS, **_OTHERS}
"""What kernels know: NumPy's functions in C, of operands, literals' ends and kinds."""

_THREADS, _BLOCKS = 256, 1 << 16

_EACH = (
    "for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; "
    "i += (long long)gridDim.x * blockDim.x) {"
)


@cache
def functions_of(text: str) -> frozenset[str]:
    """Return the functions of NumPy's in an expression; it has a ``?`` for anything else."""
    found = set()
    for part in ast.walk(ast.parse(text, mode="eval")):
        match part:
            case ast.Call(func=ast.Name(id=name)):
                found.add(name)
            case ast.Name(id=name) if name not in ("x", "y", "z") and name not in FUNCTIONS:
                found.add("?")
    return frozenset(found)


@final
@dataclass(frozen=True)
class ElementKernel:
    """Elementwise steps that are computed as one.

    The lines are computed in order, of operands ``a0``, ``a1`` and so on; the last is the result.
    """

    dtype: str  # character of that of the result and of all floats between
    kinds: str  # characters of the operands' dtypes
    single: tuple[bool, ...]  # of each operand whether it is one number
    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        """The kernel in CUDA C."""
        kind, end, letter = _TYPES[self.dtype]
        operands = [f"const {_TYPES[one][0]}* a{i}" for i, one in enumerate(self.kinds)]
        at = {f"a{i}": f"a{i}[{'0' if one else 'i'}]" for i, one in enumerate(self.single)}
        body = []
        for name, function, given in self.lines:
            args = [
                at.get(one, one) if one[0].isalpha() else f"{float(one)!r}{end}" for one in given
            ]
            value = FUNCTIONS[function].format(*args, e=end, k=letter)
            body.append(f"{'bool' if function in _TESTS else kind} {name} = {value};")
        lines = "\n        ".join([*body, f"out[i] = {self.lines[-1][0]};"])
        listing = ", ".join([*operands, f"{kind}* out", "long long n"])
        return f"""\
__device__ {kind} choose(bool test, {kind} one, {kind} other) {{ return test ? one : other; }}

extern "C" __global__ void kernel({listing}) {{
    {_EACH}
        {lines}
    }}
}}
"""

    def __call__(self, xp: Any, *arrays: Any) -> Any:
        """Return the result of CuPy's arrays; step by step where they have gaps."""
        full = [a for a, single in zip(arrays, self.single, strict=True) if not single]
        if all(one.flags.c_contiguous for one in arrays):
            out = xp.empty(full[0].shape, np.dtype(self.dtype))
            _launch(xp, self.text, out.size, *arrays, out)
            return out
        values = {f"a{place}": one for place, one in enumerate(arrays)}
        for name, function, given in self.lines:
            args = [values[one] if one in values else full[0].dtype.type(one) for one in given]
            values[name] = getattr(xp, function)(*args)
        return values[self.lines[-1][0]]


def sums_text(dtype: str) -> str:
    """Return the kernel of segmented sums in CUDA C, for floats of a dtype."""
    kind, _, letter = _TYPES[dtype]
    return f"""\
extern "C" __global__ void kernel(const {kind}* values, const long long* order, \
const long long* starts, {kind}* out, long long n) {{
    {_EACH}
        {kind} total = out[i];
        for (long long j = starts[i]; j < starts[i + 1]; ++j) {{
            total = __{letter}add_rn(total, values[order[j]]);
        }}
        out[i] = total;
    }}
}}
"""


def combine_in_order(xp: Any, name: str | None, out: Any, places: Any, values: Any) -> None:
    """Do ``ufunc.at(out, places, values)`` of CuPy's arrays of rank 1, without atomics.

    So the bits do not differ from run to run.  Floats are added in order, by a kernel of our own,
    and have NumPy's bits; other values are sorted by place, and combined by a segmented scan that
    doubles its stride.  Without a name the last value is written.
    """
    count = values.shape[0]
    if not count:
        return
    places = xp.where(places < 0, places + out.shape[0], places)
    order = xp.argsort(places, kind="stable")
    places = places[order]
    if name == "add" and out.dtype.char in "fd" and values.dtype == out.dtype:
        starts = xp.searchsorted(places, xp.arange(out.size + 1))
        total = xp.ascontiguousarray(out)
        given = xp.ascontiguousarray(values), order, starts, total
        _launch(xp, sums_text(out.dtype.char), out.size, *given)
        if total is not out:
            out[...] = total
        return
    values, step = values[order], 1
    while name is not None and step < count:
        alike = places[step:] == places[:-step]
        both = getattr(xp, name)(values[:-step], values[step:])
        values = xp.concatenate([values[:step], xp.where(alike, both, values[step:])])
        step *= 2
    is_last = xp.ones(count, bool)
    is_last[:-1] = places[1:] != places[:-1]
    # What is not the last of its place goes behind the end: no place is written to twice.
    room = xp.concatenate([out, xp.zeros(count, out.dtype)])
    into = xp.where(is_last, places, out.shape[0] + xp.arange(count))
    room[into] = values if name is None else getattr(xp, name)(room[into], values)
    out[...] = room[: out.shape[0]]


def lines_of(rules: Sequence[tuple[str, str, Sequence[str]]]) -> tuple[Line, ...]:
    """Return lines for expressions: each of a name, and of operands by names."""
    found: list[Line] = []

    def named(part: ast.expr, names: dict[str, str]) -> str:
        match part:
            case ast.Name(id=name):
                return names[name]
            case ast.Call(func=ast.Name(id=function), args=args):
                given = tuple([named(one, names) for one in args])
                found.append((f"t{len(found)}", function, given))
                return found[-1][0]
        return ast.unparse(part)

    made: dict[str, str] = {}
    for name, text, operands in rules:
        known = [made.get(one, one) for one in operands]
        made[name] = named(ast.parse(text, mode="eval").body, dict(zip("xyz", known, strict=False)))
    return tuple(found)


@cache
def _raw(maker: Any, text: str) -> Any:
    return maker(text, "kernel")


def _launch(xp: Any, text: str, count: int, *arrays: Any) -> None:
    if count:
        blocks = min(-(-count // _THREADS), _BLOCKS)
        _raw(xp.RawKernel, text)((blocks,), (_THREADS,), (*arrays, np.int64(count)))


def can_fuse(text: str, functions: Collection[str]) -> bool:
    """Return whether an expression has only functions that are known, and one at least."""
    return bool(functions_of(text)) and functions_of(text) <= frozenset(functions)
