"""Softmax, cross entropy and losses of differences, in stable forms; distances and angles.

The row's maximum is subtracted before `exp`, so no finite logits overflow.  NumPy is slow along
short rows; so for few classes softmax and its logarithm work on a copy with the classes along the
first axis, which is 2 to 5 times faster from 128 rows of 10 classes on.

The mean over an empty batch is NaN, without a warning, and its gradients are empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH_OUT, IN_PLACE, KEPT, Along, Attrs, LoopRule, Op, Sample
from actorgraph.ops import _rules
from actorgraph.ops._arrays import is_half, largest, through_float32, tiny
from actorgraph.ops._rules import as_of, declare, each, on, raises, returns, tangents
from actorgraph.ops.arithmetic import abs, multiply, sqrt, square, subtract
from actorgraph.ops.broadcasting import along_axis, broadcast_like, expand_dims, sum
from actorgraph.ops.elementwise import astype, exp, maximum, minimum
from actorgraph.ops.gathering import places_in_rows
from actorgraph.ops.indexing import take
from actorgraph.ops.reductions import mean
from actorgraph.ops.shaping import one_axis
from actorgraph.ops.statistics import norm
from actorgraph.types import Dim, shapes_differ

__all__ = [
    "cdist", "cosine_similarity", "huber", "huber_loss", "l1", "l1_loss", "log_softmax", "mse",
    "mse_loss", "normalize", "pairwise_distance", "pdist", "smooth_l1", "smooth_l1_loss",
    "softmax", "softmin",
]  # fmt: skip

_AXIS_SAMPLES = (
    on((3, 4), axis=1), on((3, 4), axis=0), on((2, 3, 4), axis=1), on((0, 2), axis=1),
    on((2, 0), axis=1),
)  # fmt: skip


def _shifted(xp: Any, x: Any, axis: int, **more: Any) -> Any:
    """Return x minus its maximum along the axis; empty axes are allowed."""
    top = largest(xp, x, axis, True, -xp.inf)
    return xp.subtract(x, top, **more)


_FEW_CLASSES, _SEVERAL_ROWS = 16, 32


def _has_few(x: Any, axis: int) -> bool:
    """Return whether the axis is the last one, with few entries in many rows: a copy pays."""
    few = axis in (-1, x.ndim - 1) and 0 < x.shape[-1] <= _FEW_CLASSES
    return few and x.size >= _SEVERAL_ROWS * x.shape[-1]


def _by_columns(x: Any) -> Any:
    """Return a copy with the last axis first and all others merged behind it."""
    return x.reshape(-1, x.shape[-1]).T.copy()


def _by_rows(columns: Any, x: Any, out: Any) -> Any:
    """Undo `_by_columns`: return the columns in the shape of `x`."""
    if out is None:
        return columns.T.copy().reshape(x.shape)
    out.reshape(columns.shape[::-1])[...] = columns.T
    return out


@through_float32
def _softmax_forward(xp: Any, x: Any, axis: int, out: Any = None) -> Any:
    if _has_few(x, axis):
        e = _by_columns(x)
        e -= e.max(0)
        xp.exp(e, out=e)
        e /= xp.add.reduce(e, 0)
        return _by_rows(e, x, out)
    e = _shifted(xp, x, axis, out=out)
    xp.exp(e, out=e)
    e /= xp.add.reduce(e, axis=axis, keepdims=True)
    return e


def _softmax_along(t: Node, y: Node, x: Node, axis: int) -> Node:
    """Apply the Jacobian of softmax, which is symmetric, so that it serves both modes."""
    return y * (t - sum(t * y, axis, keepdims=True))


_SOFTMAX = declare(
    "softmax", "f[*s] -> f[*s]", _softmax_forward, vjp=(_softmax_along,),
    jvp=tangents(_softmax_along), cost=each(25), samples=_AXIS_SAMPLES, memory=IN_PLACE,
    loop=LoopRule("row", "exp(x - m) / e"), traced=True,
    along=Along(
        (((("h", "maximum", "x"),), ()),
         ((("s", "add", "exp(subtract(x, h))"),), (("r", "divide(1, s)"),))),
        "multiply(kept, r)", (False, False),
    ),
)  # fmt: skip


@through_float32
def _log_softmax_forward(xp: Any, x: Any, axis: int, out: Any = None) -> Any:
    if _has_few(x, axis):
        columns = _by_columns(x)
        columns -= columns.max(0)
        columns -= xp.log(xp.add.reduce(xp.exp(columns), 0))
        return _by_rows(columns, x, out)
    shifted = _shifted(xp, x, axis, out=out)
    if shifted.size:  # The log of an empty sum would warn.
        shifted -= xp.log(xp.add.reduce(xp.exp(shifted), axis=axis, keepdims=True))
    return shifted


_LOG_SOFTMAX = declare(
    "log_softmax", "f[*s] -> f[*s]", _log_softmax_forward,
    vjp=(lambda ct, y, x, axis: ct - exp(y) * sum(ct, axis, keepdims=True),),
    jvp=lambda tans, y, x, axis: tans[0] - sum(exp(y) * tans[0], axis, keepdims=True),
    cost=each(25), samples=_AXIS_SAMPLES, memory=IN_PLACE,
    loop=LoopRule("row", "x - m - log(e)"), traced=True,
)  # fmt: skip


@raises(types=_rules.NO_FLOAT, shapes=_rules.NO_AXIS)
@along_axis("x")
def softmax(x: Node, axis: int = -1) -> Node:
    """Return ``exp(x) / sum(exp(x))`` along an axis, computed from ``x - max(x)``.

    Parameters
    ----------
    x : node
        Float.
    axis : int
        Along which the result sums to 1; a scalar has axis 0.
    """
    return build(_SOFTMAX, x, axis=one_axis(axis, x.ndim))


@as_of(softmax)
@along_axis("x")
def log_softmax(x: Node, axis: int = -1) -> Node:
    """Return the logarithm of `softmax`: ``x - log(sum(exp(x)))``, computed from ``x - max(x)``."""
    return build(_LOG_SOFTMAX, x, axis=one_axis(axis, x.ndim))


@as_of(softmax)
@along_axis("x")
def softmin(x: Node, axis: int = -1) -> Node:
    """Return `softmax` of ``-x``."""
    return softmax(-x, axis)


REDUCTIONS = ("mean", "sum", "none")
"""How the losses of all targets or elements are combined."""


def _loss_type(attrs: Attrs) -> str:
    return "f[*s]" if attrs["reduction"] == "none" else "f[]"


@through_float32
def _entropy_forward(xp: Any, logs: Any, targets: Any, reduction: str) -> Any:
    chosen = logs.reshape(-1).take(places_in_rows(xp, targets, logs.shape[-1]))
    if reduction == "none":
        return xp.subtract(0, chosen).reshape(targets.shape)  # neg would make -0 of 0
    total = 0 - xp.add.reduce(chosen, None)
    if reduction == "sum":
        return total
    return total / chosen.size if chosen.size else xp.full((), xp.nan, logs.dtype)


@through_float32
def _entropy_pull(
    xp: Any, ct: Any, logs: Any, targets: Any, reduction: str, out: Any = None
) -> Any:
    slopes = xp.empty(targets.size, logs.dtype)
    slopes[...] = -(ct / max(targets.size, 1) if reduction == "mean" else ct.reshape(-1))
    out = xp.empty(logs.shape, logs.dtype) if out is None else out
    out.fill(0)
    out.reshape(-1)[places_in_rows(xp, targets, logs.shape[-1])] = slopes
    return out


_ENTROPY_PULL: Op = declare(
    "cross_entropy_pull",
    lambda arity, attrs: f"{_loss_type(attrs)} -> f[*s, c] -> i[*s] -> f[*s, c]", _entropy_pull,
    vjp=(lambda u, g, ct, *xs, **attrs: build(_ENTROPY, u, xs[1], **attrs), None, None),
    linear=(0,), shape_only=(1,), cost=each(1),
    samples=tuple(
        Sample((ct, (*rows, 4), rows), {"reduction": reduction}, ints={2: 4})
        for reduction, ct, rows in (
            ("mean", (), (3,)), ("sum", (), (2, 3)), ("none", (3,), (3,)), ("none", (), ()),
        )
    ),
    memory=FRESH_OUT, loop=LoopRule("row", "where(is_class, negative(ct), 0)", of=1, classes=True),
    doc="Gradient of cross_entropy: minus the cotangent at each target, else 0.", traced=True,
)  # fmt: skip

_ENTROPY: Op = declare(
    "cross_entropy", lambda arity, attrs: f"f[*s, c] -> i[*s] -> {_loss_type(attrs)}",
    _entropy_forward,
    vjp=(lambda ct, y, *xs, **attrs: build(_ENTROPY_PULL, ct, *xs, **attrs), None),
    linear=(0,), cost=each(1, 1),
    samples=tuple(
        Sample(((*rows, 4), rows), {"reduction": reduction}, ints={1: 4})
        for reduction in REDUCTIONS
        for rows in ((3,), (2, 3), ())
    ),
    memory=KEPT, total="reduction", loop=LoopRule("row", "negative(x)", classes=True, picks=True),
    traced=True,
)  # fmt: skip


def minus_at(log_probs: Node, targets: Any, reduction: str) -> Node:
    """Return ``-log_probs[target]``, reduced."""
    return build(_ENTROPY, log_probs, targets, reduction=reduction)


def plain_cross_entropy(logits: Node, targets: Any, reduction: str) -> Node:
    """Return cross entropy without options; floats of two bytes are rounded once."""
    wide = astype(logits, "float32") if is_half(logits.dtype) else logits
    return astype(minus_at(log_softmax(wide), targets, reduction), logits.dtype)


def reduced(losses: Node, reduction: str) -> Node:
    """Return losses, their sum or their mean."""
    if reduction == "none":
        return losses
    return mean(losses) if reduction == "mean" else sum(losses)


def check_reduction(reduction: str) -> None:
    """Raise `GraphTypeError` where there is no such reduction; called before nodes are built."""
    if reduction not in REDUCTIONS:
        raise GraphTypeError(f"reduction is one of {REDUCTIONS}, got {reduction!r}")


@raises(types="The dtypes differ, or there is no such reduction.", shapes="The shapes differ.")
def mse_loss(x: Any, y: Any, *, reduction: str = "mean") -> Node:
    """Return ``(x - y) ** 2``, reduced.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """
    check_reduction(reduction)
    difference = subtract(*same_shape(x, y))
    return reduced(multiply(difference, difference), reduction)


mse = mse_loss


@as_of(mse_loss)
def l1_loss(x: Any, y: Any, *, reduction: str = "mean") -> Node:
    """Return ``abs(x - y)``, reduced as `mse_loss`; the slope is 0 where x = y."""
    check_reduction(reduction)
    return reduced(abs(subtract(*same_shape(x, y))), reduction)


l1 = l1_loss


def _bent(x: Any, y: Any, delta: float) -> Node:
    """Return Huber's loss of each element: half a square up to delta, then a line."""
    distance = abs(subtract(*same_shape(x, y)))
    near = minimum(distance, delta)
    # Nothing is squared that is above delta, so nothing overflows.
    return 0.5 * near * near + delta * (distance - near)


def above_zero(value: Any, name: str, least: float) -> float:
    """Return an option as a float, or raise `GraphTypeError` where it is below `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise GraphTypeError(f"{name} is a float {'>=' if least == 0 else '>'} 0, got {value!r}")
    return float(value)


@raises("Dtypes differ, `delta` is not above 0, or there is no such reduction.", _rules.DIFFERENT)
@as_of(mse_loss)
def huber_loss(x: Any, y: Any, reduction: str = "mean", delta: float = 1.0) -> Node:
    """Return ``d^2 / 2`` up to ``d = abs(x - y) = delta``, then ``delta (d - delta / 2)``, reduced.

    Otherwise as `mse_loss`.  Source: P. J. Huber, Robust estimation of a location parameter, 1964.

    Parameters
    ----------
    delta : float
        Above 0.
    """
    check_reduction(reduction)
    return reduced(_bent(x, y, above_zero(delta, "delta", 1e-300)), reduction)


huber = huber_loss


@raises("Dtypes differ, `beta` is negative, or there is no such reduction.", _rules.DIFFERENT)
@as_of(mse_loss)
def smooth_l1_loss(x: Any, y: Any, *, reduction: str = "mean", beta: float = 1.0) -> Node:
    """Return ``d^2 / (2 beta)`` up to ``d = abs(x - y) = beta``, then ``d - beta / 2``, reduced.

    Huber's loss divided by beta; with ``beta = 0`` it is `l1_loss`.
    """
    check_reduction(reduction)
    width = above_zero(beta, "beta", 0)
    if not width:
        return l1_loss(x, y, reduction=reduction)
    return reduced(_bent(x, y, width) / width, reduction)


smooth_l1 = smooth_l1_loss


@raises(shapes="Their shapes can be shown to differ.")
def same_shape(x: Any, y: Any, witness: Any = None) -> tuple[Node, Node]:
    """Return both as nodes of one graph, where one of them (or the witness) is a node."""
    node = next((part for part in (x, y, witness) if isinstance(part, Node)), None)
    if node is None:
        raise GraphTypeError(f"needs at least one node, got {type(x).__name__}")
    first, other = node.graph.lift(x), node.graph.lift(y)
    if shapes_differ(first.dims, other.dims):
        raise ShapeError(f"shapes {first.shape} and {other.shape} differ")
    return first, other


@raises("Dtypes differ or are no floats.", "Shapes do not broadcast, or there is no such axis.")
@along_axis("x")
def cosine_similarity(x: Any, y: Any, axis: int = 1, eps: float = 1e-8) -> Node:
    """Return the cosine of the angle between vectors along an axis.

    ``sum(x y) / (max(norm(x), eps) max(norm(y), eps))``: of zero vectors 0, with finite gradients.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype, shapes that broadcast.
    axis : int
        Along which the vectors lie; it is removed.
    eps : float
        Least norm.
    """
    product = multiply(x, y)
    place = one_axis(axis, product.ndim)
    if product.dtype.kind not in "fV":
        raise GraphTypeError(f"{product.dtype} is not a float; convert with .astype('float32')")
    # In half precision the square of eps would be 0.
    least = max(float(eps) ** 2, tiny(product.dtype))
    for part in product.inputs:
        square_norm = sum(square(broadcast_like(part, product)), place, keepdims=True)
        product = product / sqrt(maximum(square_norm, least))
    return sum(product, place)


def pairwise_distance(
    x: Any, y: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Node:
    """Return the p-norm of ``x - y + eps`` along the last axis, as in PyTorch.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype, shapes that broadcast.
    p : float
        Order of the norm, as of `norm`.
    eps : float
        Keeps the gradient of equal vectors finite in PyTorch; here it only gives equal values.
    """
    return norm(subtract(x, y) + float(eps), p, -1, keepdims)


@returns("Node of shape (rows (rows - 1) / 2,): of rows 0 and 1, 0 and 2, ..., 1 and 2, ...")
@raises(shapes="`x` is no matrix, or only a run knows its rows.")
def pdist(x: Node, p: float = 2.0) -> Node:
    """Return the distances between all pairs of rows of a matrix, as ``torch.pdist``.

    Parameters
    ----------
    x : node
        Float, shape (rows, features) with a known number of rows.
    p : float
        Order of the norm.
    """
    if x.ndim != 2 or isinstance(x.dims[0], Dim):
        raise ShapeError(f"takes a matrix of a known number of rows, got {x!r}")
    first, second = np.triu_indices(x.dims[0], 1)
    return norm(take(x, first, 0) - take(x, second, 0), p, -1)


@returns("Node of shape (..., n, m)")
def cdist(x: Node, y: Any, p: float = 2.0) -> Node:
    """Return the distance of each row of x from each of y, as ``torch.cdist``.

    Parameters
    ----------
    x, y : node or array
        Float, shapes (..., n, features) and (..., m, features).
    p : float
        Order of the norm.
    """
    return norm(expand_dims(x, -2) - expand_dims(x.graph.lift(y), -3), p, -1)


def normalize(x: Node, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Node:
    """Divide vectors along an axis by their p-norm, or by `eps` where that is larger.

    Parameters
    ----------
    x : node
        Float or complex.
    p : float
        Order of the norm.
    """
    return x / astype(maximum(norm(x, p, axis, keepdims=True), float(eps)), x.dtype)
