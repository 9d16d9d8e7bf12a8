"""Python's operators and the array methods of `Node`.

`Node` itself knows no op; this module attaches them, once, when `actorgraph.ops` is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node
from actorgraph.ops._foreign import translating
from actorgraph.ops.arithmetic import floor_divide, imag, mod, power, real
from actorgraph.ops.elementwise import round as nearest
from actorgraph.ops.shaping import swap_last, transpose

_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "mod": "mod",
    "floordiv": "floor_divide", "pow": "power", "matmul": "matmul", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
_OTHERS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "neg": "neg", "abs": "abs", "invert": "bitwise_not", "floor": "floor",
    "ceil": "ceil", "trunc": "trunc",
}  # fmt: skip
_METHODS = (
    "sum mean max min prod var std any all argmax argmin cumsum cumprod round conj reshape flatten "
    "ravel squeeze swapaxes repeat take diagonal trace clip sort argsort dot astype"
)


def _itself(self: Node) -> Node:
    return self


def _transposed(self: Node, *axes: Any) -> Node:
    """Reorder the axes: ``x.transpose()`` reverses them, ``x.transpose(1, 0)`` names them."""
    return transpose(
        self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    )


def _reflected(function: Callable[[Any, Any], Node]) -> Callable[[Any, Any], Node]:
    def reflected(self: Node, other: Any) -> Node:
        return function(other, self)

    return reflected


def _power(self: Node, other: Any, modulus: Any = None) -> Node:
    if modulus is not None:
        raise GraphTypeError(f"pow of {self!r} takes no third argument; write (x ** y) % z")
    return power(self, other)


_OWN: Mapping[str, Any] = {
    "__divmod__": lambda self, other: (floor_divide(self, other), mod(self, other)),
    "__rdivmod__": lambda self, other: (floor_divide(other, self), mod(other, self)),
    "__round__": lambda self, digits=None: nearest(self, digits or 0),
    "__pos__": _itself, "__pow__": _power,
    "T": property(transpose, doc="The node with its axes reversed."),
    "mT": property(swap_last, doc="The node with its last two axes exchanged."),
    "real": property(real), "imag": property(imag),
    "transpose": translating(_transposed), "copy": translating(_itself),
}  # fmt: skip


def attach(functions: Mapping[str, Any]) -> None:
    """Give `Node` its operators and methods: the functions of `ag.ops`, by name."""
    given: dict[str, Any] = {name: functions[name] for name in _METHODS.split()}
    for name, of in (_BINARY | _OTHERS).items():  # no argument can be wrongly named
        given[f"__{name}__"] = functions[of].__wrapped__
    for name in _BINARY:
        given[f"__r{name}__"] = _reflected(given[f"__{name}__"])
    for name, method in {**given, **_OWN, "__getitem__": functions["getitem"]}.items():
        setattr(Node, name, method)
