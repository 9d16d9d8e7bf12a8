"""CUDA kernels of our own: fused elementwise steps, and segmented sums.

Sums, products, quotients and roots are written as CUDA functions that round each result and are
never contracted, so they have the bits of one kernel for each step.  Exponentials and the like may
differ in the last bit from those that CuPy compiles; they need ``exact=False``.

A segmented sum adds the values of each place in order, as NumPy does, without atomics.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, final

import numpy as np

Line: TypeAlias = tuple[str, str, tuple[str, ...]]
"""A name, the function whose value it is, and the function's arguments: names or numbers."""

_TYPES = {"f": ("float", "f", "f"), "d": ("double", "", "d"), "?": ("bool", "", "")}
"""By dtype: the type in C, the suffix of literals and functions, the prefix of arithmetic."""

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
"""NumPy functions whose bits in a fused kernel are those of a kernel of their own."""

FUNCTIONS = {**_ROUNDED, **_TESTS, **_OTHERS}
"""NumPy functions in C, as formats of the operands, the suffix ``e`` and the prefix ``k``."""

_THREADS, _BLOCKS = 256, 1 << 16

_EACH = (
    "for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; "
    "i += (long long)gridDim.x * blockDim.x) {"
)


@cache
def functions_of(text: str) -> frozenset[str]:
    """Return the NumPy functions in an expression, and a ``?`` if there is anything else."""
    names = set()
    for part in ast.walk(ast.parse(text, mode="eval")):
        match part:
            case ast.Call(func=ast.Name(id=name)):
                names.add(name)
            case ast.Name(id=name) if name not in ("x", "y", "z") and name not in FUNCTIONS:
                names.add("?")
    return frozenset(names)


@final
@dataclass(frozen=True)
class ElementKernel:
    """Elementwise steps that are fused into one kernel.

    Lines are computed in order, from operands ``a0``, ``a1`` and so on; the last is the result.
    """

    dtype: str  # character of the dtype of the result and of all floats between
    kinds: str  # characters of the operands' dtypes
    single: tuple[bool, ...]  # for each operand whether it is one number
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
        """Return the result for CuPy arrays; step by step if they are not C-contiguous."""
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
    """Return the kernel of segmented sums for floats of a dtype in CUDA C."""
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
    """Do ``ufunc.at(out, places, values)`` for CuPy arrays of rank 1, without atomics.

    So bits are the same in every run.  Floats are added in order by a kernel of our own and have
    NumPy's bits.  Other values are sorted by place and combined by a segmented scan with doubling
    strides.  Without a name the last value of each place is written.
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
        arguments = xp.ascontiguousarray(values), order, starts, total
        _launch(xp, sums_text(out.dtype.char), out.size, *arguments)
        if total is not out:
            out[...] = total
        return
    values, step = values[order], 1
    while name is not None and step < count:
        same_place = places[step:] == places[:-step]
        both = getattr(xp, name)(values[:-step], values[step:])
        values = xp.concatenate([values[:step], xp.where(same_place, both, values[step:])])
        step *= 2
    is_last = xp.ones(count, bool)
    is_last[:-1] = places[1:] != places[:-1]
    # Other values than the last of a place go behind the end: no place is written twice.
    room = xp.concatenate([out, xp.zeros(count, out.dtype)])
    into = xp.where(is_last, places, out.shape[0] + xp.arange(count))
    room[into] = values if name is None else getattr(xp, name)(room[into], values)
    out[...] = room[: out.shape[0]]


def lines_of(rules: Sequence[tuple[str, str, Sequence[str]]]) -> tuple[Line, ...]:
    """Return lines for rules: each a name, an expression of x, y, z, and the operands' names."""
    lines: list[Line] = []

    def named(part: ast.expr, names: dict[str, str]) -> str:
        match part:
            case ast.Name(id=name):
                return names[name]
            case ast.Call(func=ast.Name(id=function), args=args):
                given = tuple([named(one, names) for one in args])
                lines.append((f"t{len(lines)}", function, given))
                return lines[-1][0]
        return ast.unparse(part)

    made: dict[str, str] = {}
    for name, text, operands in rules:
        known = [made.get(one, one) for one in operands]
        made[name] = named(ast.parse(text, mode="eval").body, dict(zip("xyz", known, strict=False)))
    return tuple(lines)


@cache
def _raw(maker: Any, text: str) -> Any:
    return maker(text, "kernel")


def _launch(xp: Any, text: str, count: int, *arrays: Any) -> None:
    if count:
        blocks = min(-(-count // _THREADS), _BLOCKS)
        _raw(xp.RawKernel, text)((blocks,), (_THREADS,), (*arrays, np.int64(count)))


def can_fuse(text: str, functions: Collection[str]) -> bool:
    """Return whether an expression has at least one function, and only those given."""
    return bool(functions_of(text)) and functions_of(text) <= frozenset(functions)
