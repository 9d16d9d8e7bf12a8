"""Python's operators and the array methods of `Node`.

`Node` itself knows no op; this module attaches them, once, when `actorgraph.ops` is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node
from actorgraph.ops import (
    arithmetic,
    bits,
    comparison,
    counting,
    cumulative,
    reductions,
    rounding,
    statistics,
)
from actorgraph.ops._foreign import translating
from actorgraph.ops.broadcasting import (
    conj,
    squeeze,
    sum,  # noqa: A004 - NumPy's name
)
from actorgraph.ops.casting import astype
from actorgraph.ops.complex import imag, real
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.linalg import dot, matmul
from actorgraph.ops.matrices import diagonal, trace
from actorgraph.ops.rearranging import repeat
from actorgraph.ops.reshaping import flatten, ravel, reshape
from actorgraph.ops.selection import clip
from actorgraph.ops.shaping import swapaxes, transpose
from actorgraph.ops.sorting import argsort, sort

__all__ = ["attach"]

_BINARY: dict[str, Callable[[Any, Any], Node]] = {
    "add": arithmetic.add, "sub": arithmetic.subtract, "mul": arithmetic.multiply,
    "truediv": arithmetic.divide, "floordiv": arithmetic.floor_divide, "mod": arithmetic.mod,
    "pow": arithmetic.power, "matmul": matmul, "and": bits.bitwise_and, "or": bits.bitwise_or,
    "xor": bits.bitwise_xor, "lshift": bits.left_shift, "rshift": bits.right_shift,
}  # fmt: skip

_METHODS: dict[str, Any] = {
    "__eq__": comparison.equal, "__ne__": comparison.not_equal, "__lt__": comparison.less,
    "__le__": comparison.less_equal, "__gt__": comparison.greater,
    "__ge__": comparison.greater_equal, "__neg__": arithmetic.neg, "__abs__": arithmetic.abs,
    "__invert__": bits.bitwise_not, "__getitem__": getitem, "sum": sum, "mean": reductions.mean,
    "max": reductions.max, "min": reductions.min, "prod": cumulative.prod, "var": statistics.var,
    "std": statistics.std, "any": counting.any, "all": counting.all, "argmax": counting.argmax,
    "argmin": counting.argmin, "cumsum": cumulative.cumsum, "cumprod": cumulative.cumprod,
    "round": rounding.round, "conj": conj, "reshape": reshape, "flatten": flatten, "ravel": ravel,
    "squeeze": squeeze, "swapaxes": swapaxes, "repeat": repeat, "take": take, "diagonal": diagonal,
    "trace": trace, "clip": clip, "sort": sort, "argsort": argsort, "dot": dot, "astype": astype,
}  # fmt: skip


def _positive(self: Node) -> Node:
    return self


def _transposed(self: Node, *axes: Any) -> Node:
    """Reorder the axes: ``x.transpose()`` reverses them, ``x.transpose(1, 0)`` names them."""
    return transpose(
        self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    )


def _reversed(self: Node) -> Node:
    """The node with its axes reversed."""
    return transpose(self)


def _real(self: Node) -> Node:
    """The real part, see `actorgraph.ops.real`."""
    return real(self)


def _imag(self: Node) -> Node:
    """The imaginary part, see `actorgraph.ops.imag`."""
    return imag(self)


def _matrix_transposed(self: Node) -> Node:
    """The node with its last two axes exchanged."""
    return swapaxes(self, -2, -1)


def _reflected(function: Callable[[Any, Any], Node]) -> Callable[[Any, Any], Node]:
    def reflected(self: Node, other: Any) -> Node:
        return function(other, self)

    return reflected


def _power(self: Node, other: Any, modulus: Any = None) -> Node:
    if modulus is not None:
        raise GraphTypeError(f"pow of {self!r} takes no third argument; write (x ** y) % z")
    return arithmetic.power(self, other)


def _divmod(self: Node, other: Any) -> tuple[Node, Node]:
    return arithmetic.floor_divide(self, other), arithmetic.mod(self, other)


def _rdivmod(self: Node, other: Any) -> tuple[Node, Node]:
    return arithmetic.floor_divide(other, self), arithmetic.mod(other, self)


def _rounded(self: Node, digits: int | None = None) -> Node:
    return rounding.round(self, digits or 0)


def attach() -> None:
    """Give `Node` its operators and methods."""
    for name, function in _BINARY.items():
        setattr(Node, f"__{name}__", function)
        setattr(Node, f"__r{name}__", _reflected(function))
    own = {
        "__pos__": _positive,
        "__pow__": _power,
        "__divmod__": _divmod,
        "__rdivmod__": _rdivmod,
        "__round__": _rounded,
        "__floor__": rounding.floor,
        "__ceil__": rounding.ceil,
        "__trunc__": rounding.trunc,
        "transpose": _transposed,
        "copy": _positive,
        "T": property(_reversed),
        "mT": property(_matrix_transposed),
        "real": property(_real),
        "imag": property(_imag),
    }
    for name, method in {**_METHODS, **own}.items():
        plain = name.startswith("__") or isinstance(method, property)
        setattr(Node, name, method if plain else translating(method))
