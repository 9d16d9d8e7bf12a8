"""The ops: functions on nodes, and the operators of `Node`."""

from __future__ import annotations

from actorgraph.op import Sample
from actorgraph.ops import _operators
from actorgraph.ops.activations import relu, sigmoid, softplus
from actorgraph.ops.arithmetic import (
    abs,  # noqa: A004 - NumPy's name
    add,
    divide,
    floor_divide,
    mod,
    multiply,
    neg,
    power,
    reciprocal,
    sign,
    sqrt,
    square,
    subtract,
)
from actorgraph.ops.broadcasting import (
    broadcast_to,
    expand_dims,
    reshape,
    squeeze,
    sum,  # noqa: A004 - NumPy's name
)
from actorgraph.ops.casting import astype
from actorgraph.ops.comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from actorgraph.ops.define import define
from actorgraph.ops.exponential import exp, expm1, log, log1p
from actorgraph.ops.reductions import (
    logsumexp,
    max,  # noqa: A004 - NumPy's name
    mean,
    min,  # noqa: A004 - NumPy's name
)
from actorgraph.ops.selection import clip, maximum, minimum, where
from actorgraph.ops.trigonometric import cos, sin, tanh

__all__ = [
    "Sample", "abs", "add", "astype", "broadcast_to", "clip", "cos", "define", "divide", "equal",
    "exp", "expand_dims", "expm1", "floor_divide", "greater", "greater_equal", "less",
    "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logsumexp", "max", "maximum", "mean", "min", "minimum", "mod", "multiply", "neg",
    "not_equal", "power", "reciprocal", "relu", "reshape", "sigmoid", "sign", "sin", "softplus",
    "sqrt", "square", "squeeze", "subtract", "sum", "tanh", "where",
]  # fmt: skip

_operators.attach()
