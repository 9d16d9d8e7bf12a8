"""The ops: functions on nodes, and the operators of `Node`."""

from __future__ import annotations

from actorgraph.op import Sample
from actorgraph.ops import _numpy, _operators
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
from actorgraph.ops.convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d
from actorgraph.ops.define import define
from actorgraph.ops.exponential import exp, expm1, log, log1p
from actorgraph.ops.indexing import getitem, one_hot, take
from actorgraph.ops.linalg import dot, matmul, outer
from actorgraph.ops.losses import cross_entropy, log_softmax, mse_loss, softmax
from actorgraph.ops.reductions import (
    logsumexp,
    max,  # noqa: A004 - NumPy's name
    mean,
    min,  # noqa: A004 - NumPy's name
)
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.selection import clip, maximum, minimum, where
from actorgraph.ops.shaping import concatenate, stack, swapaxes, transpose
from actorgraph.ops.trigonometric import cos, sin, tanh
from actorgraph.ops.windows import col2im, im2col

__all__ = [
    "Sample", "abs", "add", "astype", "broadcast_to", "clip", "col2im", "concatenate", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "cos", "cross_entropy", "define",
    "divide", "dot", "equal", "exp", "expand_dims", "expm1", "floor_divide", "getitem", "greater",
    "greater_equal", "im2col", "less", "less_equal", "log", "log1p", "log_softmax", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsumexp", "matmul", "max", "maximum", "mean",
    "min", "minimum", "mod", "mse_loss", "multiply", "neg", "not_equal", "one_hot", "outer",
    "power", "reciprocal", "relu", "reshape", "sigmoid", "sign", "sin", "softmax", "softplus",
    "sqrt", "square", "squeeze", "stack", "subtract", "sum", "swapaxes", "take", "tanh",
    "transpose", "where",
]  # fmt: skip

_operators.attach()
_numpy.attach({name: globals()[name] for name in __all__ if name not in ("Sample", "define")})
