"""Bits of integers, and divisors: of bools the same names are logic."""

from __future__ import annotations

from typing import Any

from actorgraph.graph import Node
from actorgraph.op import Sample
from actorgraph.ops import comparison
from actorgraph.ops._declare import Binary, Unary, binary, unary

__all__ = [
    "bitwise_and", "bitwise_count", "bitwise_not", "bitwise_or", "bitwise_xor", "gcd", "lcm",
    "left_shift", "right_shift",
]  # fmt: skip

_SHAPES: Any = (((3, 4), (3, 4)), ((3, 4), (4,)), ((), (3,)), ((0, 2), (2,)))


def _ints(name: str, doc: str, notes: str = "") -> Binary:
    samples = tuple(Sample(shapes, ints={0: 40, 1: 7}) for shapes in _SHAPES)
    return binary(
        name, name, (None, None), doc, scheme="i[*s] -> i[*t] -> i[*s|t]", samples=samples,
        notes=notes,
    )  # fmt: skip


def _one_int(name: str, ufunc: str, doc: str, result: str) -> Unary:
    samples = tuple(Sample((shape,), ints={0: 40}) for shape in ((3, 4), (), (0, 2)))
    return unary(name, ufunc, None, doc, scheme=f"i[*s] -> {result}[*s]", samples=samples)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _or_logic(bits: Any, logic: Any) -> Any:
    """Return the op on bits that of bools is logic."""

    def either(*values: Any) -> Node:
        result: Node = (logic if all(map(_is_bool, values)) else bits)(*values)
        return result

    either.__name__ = either.__qualname__ = bits.__name__
    either.__module__, either.__doc__ = bits.__module__, bits.__doc__
    return either


_BOOLS = "Of bools it is `logical_{}`."

bitwise_and: Binary = _or_logic(
    _ints("bitwise_and", "Bits that both integers have.", _BOOLS.format("and")),
    comparison.logical_and,
)
bitwise_or: Binary = _or_logic(
    _ints("bitwise_or", "Bits that one of two integers has.", _BOOLS.format("or")),
    comparison.logical_or,
)
bitwise_xor: Binary = _or_logic(
    _ints("bitwise_xor", "Bits in which two integers differ.", _BOOLS.format("xor")),
    comparison.logical_xor,
)
bitwise_not: Unary = _or_logic(
    _one_int("bitwise_not", "invert", "All bits the other way; of bools `logical_not`.", "i"),
    comparison.logical_not,
)
left_shift = _ints("left_shift", "x times 2 ** y, without the bits that are shifted out.")
right_shift = _ints("right_shift", "x divided by 2 ** y, rounded down.")
bitwise_count = _one_int(
    "bitwise_count", "bitwise_count", "Number of bits that are 1 in abs(x).", "uint8"
)
gcd = _ints("gcd", "Greatest common divisor.")
lcm = _ints("lcm", "Least common multiple.")
