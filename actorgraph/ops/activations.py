"""Activation functions, in forms that neither overflow nor cancel.

At a kink each has the gradient that PyTorch gives it: that of the side which is flat, or of the
negative side.  Values beyond which a factor is exactly 0 are clipped before it is applied, so that
an infinite argument makes no NaN.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.op import IN_PLACE, KEPT_OUT, LoopRule
from actorgraph.ops._declare import Binary, binary, unary
from actorgraph.ops._docs import NO_FLOAT, raises
from actorgraph.ops._quick import all_finite, at_least, exp_without_warning, logistic
from actorgraph.ops._scalars import highest, one, scalar, zero
from actorgraph.ops.arithmetic import reciprocal
from actorgraph.ops.complex import is_complex
from actorgraph.ops.exponential import exp, expm1
from actorgraph.ops.selection import clip, select_positive, where
from actorgraph.ops.splitting import split
from actorgraph.ops.trigonometric import tanh

__all__ = [
    "expit", "glu", "logsigmoid", "mish", "relu", "sigmoid", "silu", "softplus", "softsign",
    "tanhshrink",
]  # fmt: skip

_FLOAT = "f[*s] -> f[*s]"
# Beyond this sigmoid and tanh are exactly 0 or 1 in every dtype.
_FAR = 1000


def _sigmoid_forward(xp: Any, x: Any, out: Any = None) -> Any:
    negated = xp.negative(x, out=out)
    return logistic(xp, negated, negated if negated.ndim else None)


def _softplus_forward(xp: Any, x: Any, out: Any = None) -> Any:
    result = exp_without_warning(xp, x, out)
    result = xp.log1p(result, out=result if result.ndim else None)
    # Where exp(x) overflows, x differs from the result by less than half a bit.
    if xp is np and all_finite(result):
        return result
    return _replaced(xp, result, result == inf, x)


def _logsigmoid_forward(xp: Any, x: Any, out: Any = None) -> Any:
    result = xp.negative(x, out=out)
    out = result if result.ndim else None
    result = xp.log1p(exp_without_warning(xp, result, out), out=out)
    result = xp.negative(result, out=out)
    if xp is np and all_finite(result):
        return result
    return _replaced(xp, result, result == -inf, x)


def _replaced(xp: Any, result: Any, where: Any, x: Any) -> Any:
    if not result.ndim:
        return xp.where(where, x, result)
    xp.copyto(result, x, where=where)
    return result


_sigmoid = unary(
    "sigmoid", _sigmoid_forward, lambda t, y, x: t * (y * (1 - y)), "1 / (1 + exp(-x)).",
    scheme=_FLOAT, flops=8, memory=IN_PLACE,
)  # fmt: skip


@raises(types="`x` is an int or bool.")
def sigmoid(x: Any) -> Node:
    """Return ``1 / (1 + exp(-x))``, of complex numbers too.

    Type ``x[*s] -> x[*s]``.

    Parameters
    ----------
    x : node
        Any shape.
    """
    return reciprocal(exp(-x) + 1) if is_complex(x) else _sigmoid(x)


expit = sigmoid


_softplus = unary(
    "softplus", _softplus_forward, lambda t, y, x: -(t * expm1(-y)),
    "log(1 + exp(x)), which is x where exp(x) overflows.", scheme=_FLOAT, flops=12, memory=KEPT_OUT,
)  # fmt: skip
logsigmoid = unary(
    "logsigmoid", _logsigmoid_forward, lambda t, y, x: -(t * expm1(y)),
    "log(sigmoid(x)), computed as -log(1 + exp(-x)).", scheme=_FLOAT, flops=12, memory=KEPT_OUT,
)  # fmt: skip


@raises(types=NO_FLOAT)
def softplus(x: Node, beta: float = 1.0, threshold: float = inf) -> Node:
    """``log(1 + exp(beta x)) / beta``, and x where ``beta x`` is above the threshold.

    Type ``f[*s] -> f[*s]``.

    Parameters
    ----------
    x : node
    beta : float
    threshold : float
        PyTorch's is 20, from where on float32 sees no difference.
    """
    steep = x if beta == 1 else x * float(beta)
    y = _softplus(steep) if beta == 1 else _softplus(steep) / float(beta)
    return y if threshold == inf else where(steep > float(threshold), x, y)


where_positive: Binary = binary(
    "where_positive", select_positive, (lambda t, z, x, y: where_positive(t, y), None),
    "x where y > 0, else 0.", scheme="r[*s] -> r[*t] -> r[*s|t]", flops=2,
    loop=LoopRule("value", "where(greater(y, 0), x, 0)"), memory=IN_PLACE,
    notes="What is not chosen may be infinite or NaN; a NaN in y chooses 0.",
)  # fmt: skip
relu = unary(
    "relu", lambda xp, x, out=None: at_least(xp, x, zero(xp, x), out),
    lambda t, y, x: where_positive(t, y), "max(x, 0).", scheme="r[*s] -> r[*s]",
    loop=LoopRule("value", "maximum(x, 0)"), memory=IN_PLACE,
    notes="The gradient at 0 is 0.  An inactive unit gets 0 also of an infinite cotangent, as "
    "``where(y > 0, ct, 0)`` gives it.",
)  # fmt: skip


# -- x times a gate ---------------------------------------------------------------------------


def _near(x: Node) -> Node:
    """Return x, clipped where the factor that it meets is 0 anyway."""
    return clip(x, -_FAR, _FAR)


def _not_far_below(xp: Any, x: Any) -> Any:
    return at_least(xp, x, scalar(x, -_FAR))


def _silu_forward(xp: Any, x: Any) -> Any:
    return xp.multiply(_not_far_below(xp, x), _sigmoid_forward(xp, x))


def _silu_slope(x: Node) -> Node:
    gate = sigmoid(x)
    return gate * (_near(x) * (1 - gate) + 1)


def _mish_forward(xp: Any, x: Any) -> Any:
    return xp.multiply(_not_far_below(xp, x), xp.tanh(_softplus_forward(xp, x)))


def _mish_slope(x: Node) -> Node:
    gate = tanh(softplus(x))
    return gate + _near(x) * ((1 - gate * gate) * sigmoid(x))


silu = unary(
    "silu", _silu_forward, lambda t, y, x: t * _silu_slope(x), "x * sigmoid(x), also called swish.",
    scheme=_FLOAT, flops=10,
)  # fmt: skip
mish = unary(
    "mish", _mish_forward, lambda t, y, x: t * _mish_slope(x), "x * tanh(softplus(x)).",
    scheme=_FLOAT, flops=20,
)  # fmt: skip


# -- others without parameters ----------------------------------------------------------------


def _softsign_forward(xp: Any, x: Any) -> Any:
    top = scalar(x, highest(x.dtype))
    size = xp.minimum(xp.absolute(x), top)
    # The largest number plus 1 is the largest number, so that infinity gives 1.
    return xp.copysign(xp.divide(size, xp.add(size, one(xp, x))), x)


softsign = unary(
    "softsign", _softsign_forward, lambda t, y, x: t * (1 / (abs(x) + 1)) ** 2,
    "x / (1 + abs(x)).", scheme=_FLOAT, flops=4,
)  # fmt: skip
tanhshrink = unary(
    "tanhshrink", lambda xp, x: xp.subtract(x, xp.tanh(x)), lambda t, y, x: t * tanh(x) ** 2,
    "x - tanh(x).", scheme="x[*s] -> x[*s]", flops=6,
)  # fmt: skip


@raises(shapes="The axis cannot be halved.")
def glu(x: Node, axis: int = -1) -> Node:
    """Return one half of an axis times the sigmoid of the other, as ``torch.nn.functional.glu``.

    Source: Y. Dauphin et al., Language modeling with gated convolutional networks, 2016.

    Parameters
    ----------
    x : node
        Float; the axis has an even size.
    axis : int
    """
    values, gates = split(x, 2, axis)
    return values * sigmoid(gates)
