"""Activation functions, in forms that neither overflow nor cancel.

At a kink each has PyTorch's gradient: that of the flat side, or of the negative side.  Arguments
are clipped where a factor is exactly 0 anyway, so that infinity times 0 makes no NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi, sqrt
from typing import Any

from actorgraph.errors import GraphError, ShapeError
from actorgraph.graph import Node, build, is_weak
from actorgraph.op import IN_PLACE, KEPT_OUT, Op, Sample
from actorgraph.ops._arrays import (
    all_finite,
    at_least,
    at_most,
    exp_without_warning,
    highest,
    limited,
    logistic,
    one,
    scalar,
    through_float32,
    zero,
)
from actorgraph.ops._declare import Binary, binary, nary_elementwise, unary
from actorgraph.ops._rules import NO_FLOAT, as_of, declare, each, on, raises, returns, tangents
from actorgraph.ops.arithmetic import is_complex, reciprocal
from actorgraph.ops.broadcasting import along_axis, expand_dims, squeeze, sum
from actorgraph.ops.elementwise import (
    astype,
    chosen,
    clip,
    exp,
    expm1,
    maximum,
    minimum,
    select_positive,
    where,
)
from actorgraph.ops.shaping import one_axis, split
from actorgraph.ops.special import erfc, need_scipy, special_function, tanh

__all__ = [
    "celu", "elu", "expit", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu",
    "softplus", "softshrink", "softsign", "sparsemax", "tanhshrink", "threshold",
]  # fmt: skip

_FLOAT = "f[*s] -> f[*s]"
# Beyond this sigmoid and tanh are exactly 0 or 1 in every dtype.
_FAR = 1000
_GATE = "divide(1, add(exp(negative(x)), 1))"
_LOG_OF_SUM = "log1p(exp(negative(absolute(x))))"
_SOFT = f"add(maximum(x, 0), {_LOG_OF_SUM})"


def _sigmoid_forward(xp: Any, x: Any, out: Any = None) -> Any:
    negated = xp.negative(x, out=out)
    return logistic(xp, negated, negated if negated.ndim else None)


def _softplus_forward(xp: Any, x: Any, out: Any = None) -> Any:
    result = exp_without_warning(xp, x, out)
    result = xp.log1p(result, out=result if result.ndim else None)
    # Where exp(x) overflows, x differs from the result by less than half a bit.
    if all_finite(xp, result):
        return result
    return _replaced(xp, result, result == inf, x)


def _logsigmoid_forward(xp: Any, x: Any, out: Any = None) -> Any:
    result = xp.negative(x, out=out)
    out = result if result.ndim else None
    result = xp.log1p(exp_without_warning(xp, result, out), out=out)
    result = xp.negative(result, out=out)
    if all_finite(xp, result):
        return result
    return _replaced(xp, result, result == -inf, x)


def _replaced(xp: Any, result: Any, where: Any, x: Any) -> Any:
    if not result.ndim:
        return xp.where(where, x, result)
    xp.copyto(result, x, where=where)
    return result


_sigmoid = unary(
    "sigmoid", lambda t, y, x: t * (y * (1 - y)), "1 / (1 + exp(-x)).", forward=_sigmoid_forward,
    scheme=_FLOAT, flops=8, memory=IN_PLACE, rule=_GATE,
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
    "softplus", lambda t, y, x: -(t * expm1(-y)),
    "log(1 + exp(x)), which is x where exp(x) overflows.", forward=_softplus_forward, scheme=_FLOAT,
    flops=12, memory=KEPT_OUT, rule=_SOFT,
)  # fmt: skip
logsigmoid = unary(
    "logsigmoid", lambda t, y, x: -(t * expm1(y)),
    "log(sigmoid(x)), computed as -log(1 + exp(-x)).", forward=_logsigmoid_forward, scheme=_FLOAT,
    flops=12, memory=KEPT_OUT, rule=f"subtract(minimum(x, 0), {_LOG_OF_SUM})",
)  # fmt: skip


@raises(types=NO_FLOAT)
def softplus(x: Node, beta: float = 1.0, threshold: float = inf) -> Node:
    """``log(1 + exp(beta x)) / beta``, and x where ``beta x`` is above the threshold.

    Type ``f[*s] -> f[*s]``.

    Parameters
    ----------
    threshold : float
        PyTorch's is 20, from where on float32 sees no difference.
    """
    steep = x if beta == 1 else x * float(beta)
    y = _softplus(steep) if beta == 1 else _softplus(steep) / float(beta)
    return y if threshold == inf else where(steep > float(threshold), x, y)


where_positive: Binary = binary(
    "where_positive", (lambda t, z, x, y: where_positive(t, y), None), "x where y > 0, else 0.",
    forward=select_positive, scheme="r[*s] -> r[*t] -> r[*s|t]", flops=2,
    rule="where(greater(y, 0), x, 0)", memory=IN_PLACE._replace(scratch=True),
    notes="What is not chosen may be infinite or NaN; a NaN in y chooses 0.",
)  # fmt: skip
relu = unary(
    "relu", lambda t, y, x: where_positive(t, y), "max(x, 0).",
    forward=lambda xp, x, out=None: at_least(xp, x, zero(xp, x), out), scheme="r[*s] -> r[*s]",
    rule="maximum(x, 0)", memory=IN_PLACE,
    notes="The gradient at 0 is 0.  An inactive unit gets 0 also of an infinite cotangent, as "
    "``where(y > 0, ct, 0)`` gives it.",
)  # fmt: skip


def _near(x: Node) -> Node:
    """Return x, clipped where the factor that it meets is 0 anyway."""
    return clip(x, -_FAR, _FAR)


def _not_far_below(xp: Any, x: Any) -> Any:
    return at_least(xp, x, scalar(x, -_FAR))


def _mish_slope(x: Node) -> Node:
    gate = tanh(softplus(x))
    return gate + _near(x) * ((1 - gate * gate) * sigmoid(x))


silu = unary(
    "silu", lambda t, y, x: t * (sigmoid(x) * (_near(x) * (1 - sigmoid(x)) + 1)),
    "x * sigmoid(x), also called swish.",
    forward=lambda xp, x: xp.multiply(_not_far_below(xp, x), _sigmoid_forward(xp, x)),
    scheme=_FLOAT, flops=10, rule=f"multiply(maximum(x, {-_FAR}), {_GATE})",
)  # fmt: skip
mish = unary(
    "mish", lambda t, y, x: t * _mish_slope(x), "x * tanh(softplus(x)).",
    forward=lambda xp, x: xp.multiply(_not_far_below(xp, x), xp.tanh(_softplus_forward(xp, x))),
    scheme=_FLOAT, flops=20, rule=f"multiply(maximum(x, {-_FAR}), tanh({_SOFT}))",
)  # fmt: skip


def _softsign_forward(xp: Any, x: Any) -> Any:
    top = scalar(x, highest(x.dtype))
    size = xp.minimum(xp.absolute(x), top)
    # The largest number plus 1 is the largest number, so that infinity gives 1.
    return xp.copysign(xp.divide(size, xp.add(size, one(xp, x))), x)


softsign = unary(
    "softsign", lambda t, y, x: t * (1 / (abs(x) + 1)) ** 2, "x / (1 + abs(x)).",
    forward=_softsign_forward, scheme=_FLOAT, flops=4,
    rule="where(less(absolute(x), 1e30), divide(x, add(absolute(x), 1)), sign(x))",
)  # fmt: skip
tanhshrink = unary(
    "tanhshrink", lambda t, y, x: t * tanh(x) ** 2, "x - tanh(x).", forward="subtract(x, tanh(x))",
    scheme="x[*s] -> x[*s]", flops=6,
)  # fmt: skip


@raises(shapes="The axis cannot be halved.")
def glu(x: Node, axis: int = -1) -> Node:
    """Return one half of an axis times the sigmoid of the other, as ``torch.nn.functional.glu``.

    Source: Y. Dauphin et al., Language modeling with gated convolutional networks, 2016.

    Parameters
    ----------
    x : node
        Float; the axis has an even size.
    """
    values, gates = split(x, 2, axis)
    return values * sigmoid(gates)


@through_float32
def _forward(xp: Any, x: Any, axis: int) -> Any:
    if not x.size:
        return x.copy()
    # Adding a number to all entries does not change the result; this one keeps sums small.
    x = xp.subtract(x, x.max(axis=axis, keepdims=True))
    ordered = xp.flip(xp.sort(x, axis=axis), axis)
    totals = xp.cumsum(ordered, axis=axis, dtype=x.dtype)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    rank = xp.arange(1, x.shape[axis] + 1).astype(x.dtype).reshape(shape)
    count = (1 + rank * ordered > totals).sum(axis=axis, keepdims=True)
    total = xp.take_along_axis(totals, xp.maximum(count - 1, 0), axis)
    x -= (total - 1) / xp.maximum(count, 1).astype(x.dtype)
    return xp.maximum(x, x.dtype.type(0), out=x)


def _derivative(t: Node, y: Node, x: Node, axis: int) -> Node:
    """Apply the Jacobian, which is symmetric: on the support, subtract the mean over it."""
    support = astype(y > 0, y.dtype)
    chosen = support * t
    count = maximum(sum(support, axis, keepdims=True), 1)
    return chosen - support * (sum(chosen, axis, keepdims=True) / count)


_SPARSEMAX = declare(
    "sparsemax", "f[*s] -> f[*s]", _forward, vjp=(_derivative,),
    jvp=tangents(_derivative), cost=each(60),
    samples=(
        Sample(((3, 4),), {"axis": 1}, -0.6, 0.6), on((2, 4, 3), axis=1), on((3, 4), axis=0),
        on((0, 2), axis=1), on((2, 0), axis=1),
    ),
)  # fmt: skip


@returns("Node of the shape of `x`")
@raises(types=NO_FLOAT, shapes="There is no such axis.")
@along_axis("x")
def sparsemax(x: Node, axis: int = -1) -> Node:
    """Return the probabilities nearest to `x` along an axis, small ones exactly 0.

    ``max(x - tau, 0)`` with the tau that makes them sum to 1.  The gradient is that of the support:
    ``ct`` minus its mean over the entries above 0, there, and 0 elsewhere.

    Parameters
    ----------
    x : node
        Float, rank 1 or more.
    axis : int
        Along which the result sums to 1.
    """
    return build(_SPARSEMAX, x, axis=one_axis(axis, x.ndim))


def _op(
    name: str, forward: Callable[..., Any], slope: Callable[..., Node], doc: str, rule: str, /,
    **attrs: float,
) -> Op:  # fmt: skip
    """Declare an elementwise op of floats by ``slope(t, y, x, **attrs)``; laws try these attrs."""
    samples = tuple(on(shape, **attrs) for shape in ((3, 4), (), (0, 2)))
    return nary_elementwise(
        name, _FLOAT, forward, (slope,), flops=6, samples=samples, doc=doc, rule=rule
    )  # fmt: skip


_HARDTANH = _op(
    "hardtanh", lambda xp, x, low, high: limited(xp, x, scalar(x, low), scalar(x, high)),
    lambda t, y, x, low, high: where((x > low) & (x < high), t, 0), "x limited to an interval.",
    "minimum(maximum(x, low), high)", low=-1.0, high=1.0,
)  # fmt: skip


@raises(types=NO_FLOAT, other="``min_val > max_val``.")
def hardtanh(x: Node, min_val: float = -1.0, max_val: float = 1.0) -> Node:
    """Limit to an interval: ``clip(x, min_val, max_val)``, with gradient 0 at the bounds.

    Type ``f[*s] -> f[*s]``.  `clip` has gradient 1 at its bounds; this one is PyTorch's hardtanh.
    """
    if min_val > max_val:
        raise GraphError(f"min_val {min_val!r} is above max_val {max_val!r}")
    return build(_HARDTANH, x, low=float(min_val), high=float(max_val))


@raises(types=NO_FLOAT)
def relu6(x: Node) -> Node:
    """``min(max(x, 0), 6)``, built as ``hardtanh(x, 0, 6)``: gradient 0 at 0 and 6.

    Type ``f[*s] -> f[*s]``.
    """
    return hardtanh(x, 0.0, 6.0)


_SIXTH = "divide(minimum(maximum(add(x, 3), 0), 6), 6)"
hardsigmoid = unary(
    "hardsigmoid", lambda t, y, x: where((x > -3) & (x < 3), t / 6, 0), "clip(x + 3, 0, 6) / 6.",
    forward=_SIXTH, scheme=_FLOAT, flops=6, notes="The gradient is 0 at -3 and 3.",
)  # fmt: skip
hardswish = unary(
    "hardswish", lambda t, y, x: t * where(x >= 3, 1, where(x > -3, clip(x, -3, 3) / 3 + 0.5, 0)),
    "x * hardsigmoid(x).", forward=f"multiply(maximum(x, -3), {_SIXTH})", scheme=_FLOAT, flops=6,
    notes="The gradient is 0 at -3 and 1 at 3.  Source: Howard et al., Searching for MobileNetV3, "
    "2019.",
)  # fmt: skip
_LEAKY = _op(
    "leaky_relu",
    lambda xp, x, slope: chosen(xp, xp.greater(x, zero(xp, x)), x, x * scalar(x, slope)),
    lambda t, y, x, slope: where(x > 0, t, t * slope), "x where x > 0, else slope * x.",
    "where(greater(x, 0), x, multiply(x, slope))", slope=0.1,
)  # fmt: skip
_prelu = binary(
    "prelu", (lambda t, y, x, w: where(x > 0, t, t * w), lambda t, y, x, w: where(x > 0, 0, t * x)),
    "x where x > 0, else weight * x.",
    forward=lambda xp, x, w: chosen(xp, xp.greater(x, zero(xp, x)), x, xp.multiply(x, w)),
    scheme="f[*s] -> f[*t] -> f[*s|t]", flops=4, rule="where(greater(x, 0), x, multiply(x, y))",
)  # fmt: skip


@raises(types=NO_FLOAT)
def leaky_relu(x: Node, negative_slope: float = 0.01) -> Node:
    """``x`` where x > 0, else ``negative_slope * x``; the gradient at 0 is `negative_slope`.

    Type ``f[*s] -> f[*s]``.
    """
    return build(_LEAKY, x, slope=float(negative_slope))


@raises(both="The dtypes differ, or the weight has not one element per channel.")
def prelu(x: Node, weight: Any) -> Node:
    """``x`` where x > 0, else ``weight * x``, with a slope that is learnt.

    Type ``f[*s] -> f[*t] -> f[*s]``.  The gradient of x at 0 is `weight`.

    Parameters
    ----------
    weight : node, array or scalar
        One slope, or a vector with one per channel, which is axis 1 of x.
    """
    if not is_weak(weight):
        weight = x.graph.lift(weight)
        if weight.ndim > 1:
            raise ShapeError(f"takes one slope or one per channel, got {weight!r}")
        if weight.ndim and x.ndim == 0:
            weight = squeeze(weight, 0)
        elif weight.ndim and x.ndim > 2:
            weight = expand_dims(weight, tuple(range(1, x.ndim - 1)))
    return _prelu(x, weight)


def _elu_forward(xp: Any, x: Any, alpha: float, scale: float, rate: float) -> Any:
    below = xp.expm1(at_most(xp, x, zero(xp, x)) * scalar(x, rate)) * scalar(x, alpha * scale)
    return chosen(xp, xp.greater(x, zero(xp, x)), x * scalar(x, scale), below)


_ELU = _op(
    "elu", _elu_forward, lambda t, y, x, alpha, scale, rate: t
    * where(x > 0, scale, exp(minimum(x, 0) * rate) * (alpha * scale * rate)),
    "scale * x where x > 0, else scale * alpha * expm1(rate * x).",
    "where(greater(x, 0), x * scale, expm1(minimum(x, 0) * rate) * (alpha * scale))",
    alpha=0.7, scale=1.1, rate=1.3,
)  # fmt: skip


@raises(types=NO_FLOAT)
def elu(x: Node, alpha: float = 1.0) -> Node:
    """``x`` where x > 0, else ``alpha * expm1(x)``; the gradient at 0 is `alpha`.

    Type ``f[*s] -> f[*s]``.  Source: Clevert et al., Exponential linear units, 2015.
    """
    return build(_ELU, x, alpha=float(alpha), scale=1.0, rate=1.0)


@raises(types=NO_FLOAT)
def selu(x: Node) -> Node:
    """``scale * elu(x, alpha)`` with the two constants that keep mean 0 and variance 1.

    Type ``f[*s] -> f[*s]``.  Source: Klambauer et al., Self-normalizing neural networks, 2017.
    """
    return build(_ELU, x, alpha=1.6732632423543772, scale=1.0507009873554805, rate=1.0)


@raises(types=NO_FLOAT, other="`alpha` is 0.")
def celu(x: Node, alpha: float = 1.0) -> Node:
    """``x`` where x > 0, else ``alpha * expm1(x / alpha)``: its slope has no kink at 0.

    Type ``f[*s] -> f[*s]``.  Source: Barron, Continuously differentiable ELU, 2017.

    Parameters
    ----------
    alpha : float
        Not 0.
    """
    if not alpha:
        raise GraphError("alpha divides x and cannot be 0")
    return build(_ELU, x, alpha=float(alpha), scale=1.0, rate=1.0 / float(alpha))


# Below -40 the gate is exactly 0 in every dtype, and above 40 it is 1; 40 cubed fits in float16.
_EDGE = 40
_ROOT, _CUBIC = sqrt(8 / pi), 0.044715


def _normal_forward(xp: Any, x: Any) -> Any:
    gate = special_function(xp, "erfc", x * scalar(x, -sqrt(0.5))) * scalar(x, 0.5)
    return xp.multiply(at_least(xp, x, scalar(x, -_EDGE)), gate)


def _normal_slope(t: Node, y: Node, x: Node) -> Node:
    near = clip(x, -_EDGE, _EDGE)
    density = exp(near * near * -0.5) * (1 / sqrt(2 * pi))
    return t * (erfc(x * -sqrt(0.5)) * 0.5 + near * density)


def _tanh_forward(xp: Any, x: Any) -> Any:
    near = limited(xp, x, scalar(x, -_EDGE), scalar(x, _EDGE))
    # (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its digits where it is small.
    inner = near * near
    inner *= scalar(x, _CUBIC)
    inner += one(xp, x)
    inner *= near
    inner *= scalar(x, -_ROOT)
    out = inner if inner.ndim else None
    gate = logistic(xp, inner, out)
    return xp.multiply(at_least(xp, x, scalar(x, -_EDGE)), gate, out=out)


def _tanh_slope(t: Node, y: Node, x: Node) -> Node:
    near = clip(x, -_EDGE, _EDGE)
    square = near * near
    gate = sigmoid(near * (square * _CUBIC + 1) * _ROOT)
    return t * (gate + gate * (1 - gate) * near * (square * (3 * _CUBIC) + 1) * _ROOT)


_NOT_BELOW = f"maximum(x, {-_EDGE})"
_NEAR = f"minimum({_NOT_BELOW}, {_EDGE})"
_INNER = f"add(multiply(multiply({_NEAR}, {_NEAR}), {_CUBIC}), 1)"
_GELU = _op(
    "gelu", _normal_forward, _normal_slope, "x times the normal distribution at x.",
    f"multiply({_NOT_BELOW}, multiply(erfc(multiply(x, {-sqrt(0.5)})), 0.5))",
)  # fmt: skip
_GELU_TANH = _op(
    "gelu_tanh", _tanh_forward, _tanh_slope,
    "x * sigmoid(sqrt(8 / pi) * (x + 0.044715 * x**3)).",
    f"divide({_NOT_BELOW}, add(exp(multiply(multiply({_INNER}, {_NEAR}), {-_ROOT})), 1))",
)  # fmt: skip


@raises(types=NO_FLOAT, other="SciPy is missing, or `approximate` is neither name.")
def gelu(x: Node, approximate: str = "none") -> Node:
    """Gaussian error linear unit: x times the normal distribution function at x.

    Type ``f[*s] -> f[*s]``.  Source: Hendrycks and Gimpel, Gaussian error linear units, 2016.

    Parameters
    ----------
    approximate : {"none", "tanh"}
        "none" is exact, by SciPy's erfc, an extra: ``pip install 'actorgraph[special]'``.
        "tanh" is ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``.
    """
    if approximate not in ("none", "tanh"):
        raise GraphError(f"approximate is 'none' or 'tanh', got {approximate!r}")
    if approximate == "tanh":
        return build(_GELU_TANH, x)
    need_scipy()
    return build(_GELU, x)


_SOFTSHRINK = _op(
    "softshrink",
    lambda xp, x, lambd: xp.subtract(x, limited(xp, x, scalar(x, -lambd), scalar(x, lambd))),
    lambda t, y, x, lambd: where((x > lambd) | (x < -lambd), t, 0),
    "x drawn towards 0 by lambd, 0 where that is nearer.",
    "subtract(x, minimum(maximum(x, negative(lambd)), lambd))", lambd=0.5,
)  # fmt: skip
_HARDSHRINK = _op(
    "hardshrink",
    lambda xp, x, lambd: chosen(xp, xp.absolute(x) <= scalar(x, lambd), zero(xp, x), x),
    lambda t, y, x, lambd: where((x > lambd) | (x < -lambd), t, 0),
    "x where abs(x) > lambd, else 0.", "where(less_equal(absolute(x), lambd), 0, x)", lambd=0.5,
)  # fmt: skip
_THRESHOLD = _op(
    "threshold",
    lambda xp, x, threshold, value: chosen(xp, x <= scalar(x, threshold), scalar(x, value), x),
    lambda t, y, x, threshold, value: where(x > threshold, t, 0),
    "x where x > threshold, else value.", "where(less_equal(x, threshold), value, x)",
    threshold=0.25, value=-3.0,
)  # fmt: skip


@raises(types=NO_FLOAT, other="`lambd` is negative.")
def softshrink(x: Node, lambd: float = 0.5) -> Node:
    """``x - lambd``, 0 or ``x + lambd``: x drawn towards 0; the gradient is 0 up to `lambd`.

    Type ``f[*s] -> f[*s]``.

    Parameters
    ----------
    lambd : float
        At least 0.
    """
    return build(_SOFTSHRINK, x, lambd=_not_negative(lambd))


@as_of(softshrink)
def hardshrink(x: Node, lambd: float = 0.5) -> Node:
    """``x`` where abs(x) > lambd, else 0; the gradient is 0 up to `lambd`.

    Type ``f[*s] -> f[*s]``.  `softshrink` has no jump.
    """
    return build(_HARDSHRINK, x, lambd=_not_negative(lambd))


def _not_negative(lambd: float) -> float:
    if not lambd >= 0:
        raise GraphError(f"lambd has to be at least 0, got {lambd!r}")
    return float(lambd)


@raises(types=NO_FLOAT)
def threshold(x: Node, threshold: float, value: float) -> Node:
    """``x`` where x > threshold, else `value`; the gradient at the threshold is 0.

    Type ``f[*s] -> f[*s]``.  NaN stays NaN, with gradient 0.
    """
    return build(_THRESHOLD, x, threshold=float(threshold), value=float(value))
