"""Softmax and the losses that training needs, in their stable forms.

Cross entropy is one op forward and one op backward; both subtract the row's maximum before `exp`,
so no finite logits overflow.  Source of the gradient: d loss / d logits = softmax - onehot.

An empty batch: the mean of no losses is NaN, without a warning, and gradients are empty.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample, register
from actorgraph.ops._half import through_float32
from actorgraph.ops.arithmetic import multiply, subtract
from actorgraph.ops.broadcasting import broadcast_like, expand_dims, sum  # noqa: A004
from actorgraph.ops.exponential import exp
from actorgraph.ops.indexing import check_classes
from actorgraph.ops.reductions import divide_by_size, mean
from actorgraph.ops.shaping import one_axis
from actorgraph.types import shapes_differ

__all__ = [
    "REDUCTIONS", "check_reduction", "log_softmax", "mse_loss", "plain_cross_entropy", "reduced",
    "same_shape", "softmax",
]  # fmt: skip

_AXIS_SAMPLES = (
    Sample(((3, 4),), {"axis": 1}),
    Sample(((3, 4),), {"axis": 0}),
    Sample(((2, 3, 4),), {"axis": 1}),
    Sample(((0, 2),), {"axis": 1}),
    Sample(((2, 0),), {"axis": 1}),
)


# -- softmax ----------------------------------------------------------------------------------


def _shifted(xp: Any, x: Any, axis: int, **more: Any) -> Any:
    """Return x minus its maximum along the axis; empty axes are allowed."""
    top = xp.maximum.reduce(x, axis=axis, keepdims=True, initial=-xp.inf)
    return xp.subtract(x, top, **more)


@through_float32
def _softmax_forward(xp: Any, x: Any, axis: int, out: Any = None) -> Any:
    e = _shifted(xp, x, axis, out=out)
    xp.exp(e, out=e)
    e /= xp.add.reduce(e, axis=axis, keepdims=True)
    return e


def _softmax_derivative(t: Node, y: Node, axis: int) -> Node:
    """Apply the Jacobian of softmax, which is symmetric, so that it serves both modes."""
    return y * (t - sum(t * y, axis, keepdims=True))


_SOFTMAX = register(
    Op(
        "softmax",
        "f[*s] -> f[*s]",
        _softmax_forward,
        vjp=(lambda ct, y, x, axis: _softmax_derivative(ct, y, axis),),
        jvp=lambda tans, y, x, axis: _softmax_derivative(tans[0], y, axis),
        cost=lambda shapes, result, attrs: 25.0 * _size(result),
        samples=_AXIS_SAMPLES,
        layout="kept",
        takes_out=True,
        in_place=(0,),
        doc="Exponentials that sum to 1 along an axis.",
    )
)


@through_float32
def _log_softmax_forward(xp: Any, x: Any, axis: int, out: Any = None) -> Any:
    shifted = _shifted(xp, x, axis, out=out)
    if shifted.size:  # The log of an empty sum would warn.
        shifted -= xp.log(xp.add.reduce(xp.exp(shifted), axis=axis, keepdims=True))
    return shifted


_LOG_SOFTMAX = register(
    Op(
        "log_softmax",
        "f[*s] -> f[*s]",
        _log_softmax_forward,
        vjp=(lambda ct, y, x, axis: ct - exp(y) * sum(ct, axis, keepdims=True),),
        jvp=lambda tans, y, x, axis: tans[0] - sum(exp(y) * tans[0], axis, keepdims=True),
        cost=lambda shapes, result, attrs: 25.0 * _size(result),
        samples=_AXIS_SAMPLES,
        layout="kept",
        takes_out=True,
        in_place=(0,),
        doc="Logarithm of softmax.",
    )
)


def _size(shape: tuple[int, ...]) -> float:
    size = 1.0
    for dim in shape:
        size *= dim
    return size


def softmax(x: Node, axis: int = -1) -> Node:
    """Return ``exp(x) / sum(exp(x))`` along an axis, computed from ``x - max(x)``.

    Parameters
    ----------
    x : node
        Float, rank 1 or more.
    axis : int
        Along which the result sums to 1.

    Raises
    ------
    GraphTypeError
        `x` is no float.
    ShapeError
        There is no such axis.
    """
    return build(_SOFTMAX, x, axis=one_axis(axis, x.ndim, "softmax"))


def log_softmax(x: Node, axis: int = -1) -> Node:
    """Return ``x - log(sum(exp(x)))`` along an axis, computed from ``x - max(x)``.

    Parameters and errors are those of `softmax`.
    """
    return build(_LOG_SOFTMAX, x, axis=one_axis(axis, x.ndim, "log_softmax"))


# -- cross entropy ----------------------------------------------------------------------------

REDUCTIONS = ("mean", "sum", "none")
"""What becomes of the losses of all targets or elements."""


def _loss_type(attrs: Attrs) -> str:
    return "f[*s]" if attrs["reduction"] == "none" else "f[]"


def _entropy_scheme(arity: int, attrs: Attrs) -> str:
    return f"f[*s, c] -> i[*s] -> {_loss_type(attrs)}"


def _pull_scheme(arity: int, attrs: Attrs) -> str:
    return f"{_loss_type(attrs)} -> f[*s, c] -> i[*s] -> f[*s, c]"


def _places(xp: Any, targets: Any, rows: int, classes: int) -> Any:
    """Return where each row's target stands in the flattened logits."""
    check_classes(xp, targets, classes)
    starts = _row_starts(rows, classes) if xp is np and rows <= _MANY_ROWS else None
    starts = xp.arange(rows) * classes if starts is None else starts
    return starts + targets.reshape(-1).astype(xp.int64, copy=False)


_MANY_ROWS = 4096


@lru_cache(maxsize=64)
def _row_starts(rows: int, classes: int) -> Any:
    """Return where rows begin: making it anew costs 1.5 us, three times the sum with it."""
    starts = np.arange(rows) * classes
    starts.flags.writeable = False
    return starts


@through_float32
def _entropy_forward(xp: Any, logits: Any, targets: Any, reduction: str) -> Any:
    places = _places(xp, targets, targets.size, logits.shape[-1])
    shifted = _shifted(xp, logits, -1, order="C")
    chosen = shifted.reshape(-1)[places].reshape(targets.shape)
    xp.exp(shifted, out=shifted)
    losses = xp.log(xp.add.reduce(shifted, axis=-1))
    losses -= chosen
    if reduction == "none":
        return losses
    total = xp.add.reduce(losses, axis=None)
    if reduction == "sum":
        return total
    return total / losses.size if losses.size else xp.full((), xp.nan, losses.dtype)


@through_float32
def _entropy_pull(xp: Any, ct: Any, logits: Any, targets: Any, reduction: str) -> Any:
    places = _places(xp, targets, targets.size, logits.shape[-1])
    out = _shifted(xp, logits, -1, order="C")
    xp.exp(out, out=out)
    out /= xp.add.reduce(out, axis=-1, keepdims=True)
    out.reshape(-1)[places] -= 1
    if reduction == "none":
        out *= ct[..., None]
    else:
        out *= ct / max(targets.size, 1) if reduction == "mean" else ct
    return out


def _entropy_vjp(ct: Node, y: Node, logits: Node, targets: Node, reduction: str) -> Node:
    return build(_ENTROPY_PULL, ct, logits, targets, reduction=reduction)


def _slope(logits: Node, targets: Node, like: Node) -> Node:
    """Return ``softmax - onehot``; `like` is any node of the losses' shape and dtype."""
    ones = broadcast_like(like.graph.constant(1, dtype=like.dtype), like)
    return build(_ENTROPY_PULL, ones, logits, targets, reduction="none")


def reduced(losses: Node, reduction: str) -> Node:
    """Return losses, their sum or their mean."""
    if reduction == "none":
        return losses
    return mean(losses) if reduction == "mean" else sum(losses)


def _rows(logits: Node) -> tuple[int, ...]:
    """Return the axes along which targets are counted."""
    return tuple(range(logits.ndim - 1))


def _along(u: Node, logits: Node, targets: Node, reduction: str) -> Node:
    """Return the derivative of the loss along a direction `u` of the logits."""
    row = sum(u, -1)
    return reduced(sum(u * _slope(logits, targets, row), -1), reduction)


def _entropy_jvp(
    tans: tuple[Node | None, ...], y: Node, logits: Node, targets: Node, reduction: str
) -> Node | None:
    return None if tans[0] is None else _along(tans[0], logits, targets, reduction)


def _curvature(u: Node, ct: Node, logits: Node, targets: Node, reduction: str) -> Node:
    """Return the Hessian of the loss, which is symmetric, times `u`, weighted with `ct`."""
    probability = softmax(logits)
    if reduction == "none":
        u = u * expand_dims(ct, -1)
    else:
        u = u * (ct if reduction == "sum" else divide_by_size(ct, logits, _rows(logits)))
    return _softmax_derivative(u, probability, -1)


def _entropy_pull_jvp(
    tans: tuple[Node | None, ...], y: Node, ct: Node, logits: Node, targets: Node, reduction: str
) -> Node | None:
    result = None
    if tans[0] is not None:
        result = build(_ENTROPY_PULL, tans[0], logits, targets, reduction=reduction)
    if tans[1] is not None:
        bent = _curvature(tans[1], ct, logits, targets, reduction)
        result = bent if result is None else result + bent
    return result


_ENTROPY_PULL = register(
    Op(
        "cross_entropy_pull",
        _pull_scheme,
        _entropy_pull,
        vjp=(
            lambda u, g, ct, logits, targets, reduction: _along(u, logits, targets, reduction),
            lambda u, g, ct, logits, targets, reduction: _curvature(
                u, ct, logits, targets, reduction
            ),
            None,
        ),
        jvp=_entropy_pull_jvp,
        cost=lambda shapes, result, attrs: 25.0 * _size(result),
        samples=tuple(
            Sample((ct, (*rows, 4), rows), {"reduction": reduction}, ints={2: 4})
            for reduction, ct, rows in (
                ("mean", (), (3,)),
                ("sum", (), (2, 3)),
                ("none", (3,), (3,)),
                ("none", (), ()),
            )
        ),
        layout="kept",
        doc="Gradient of cross_entropy: (softmax - onehot) times the cotangent.",
    )
)

_ENTROPY = register(
    Op(
        "cross_entropy",
        _entropy_scheme,
        _entropy_forward,
        vjp=(_entropy_vjp, None),
        jvp=_entropy_jvp,
        cost=lambda shapes, result, attrs: 25.0 * _size(shapes[0]),
        samples=tuple(
            Sample(((*rows, 4), rows), {"reduction": reduction}, ints={1: 4})
            for reduction in REDUCTIONS
            for rows in ((3,), (2, 3), ())
        ),
        layout="kept",
        doc="Negative log of the softmax at the target class.",
    )
)


def plain_cross_entropy(logits: Node, targets: Any, reduction: str) -> Node:
    """Return cross entropy without options, in one op."""
    return build(_ENTROPY, logits, targets, reduction=reduction)


def check_reduction(reduction: str, what: str) -> None:
    """Raise `GraphTypeError` where there is no such reduction."""
    if reduction not in REDUCTIONS:
        raise GraphTypeError(f"{what}: reduction is one of {REDUCTIONS}, got {reduction!r}")


# -- squared error ----------------------------------------------------------------------------


def mse_loss(x: Any, y: Any, reduction: str = "mean") -> Node:
    """Return ``(x - y) ** 2``, reduced.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.

    Raises
    ------
    GraphTypeError
        The dtypes differ, or there is no such reduction.
    ShapeError
        The shapes differ.
    """
    check_reduction(reduction, "mse_loss")
    difference = subtract(*same_shape(x, y, "mse_loss"))
    return reduced(multiply(difference, difference), reduction)


def same_shape(x: Any, y: Any, what: str, witness: Any = None) -> tuple[Node, Node]:
    """Return both as nodes of one graph, where one of them (or the witness) is a node.

    Raises
    ------
    ShapeError
        Their shapes can be shown to differ.
    """
    node = next((part for part in (x, y, witness) if isinstance(part, Node)), None)
    if node is None:
        raise GraphTypeError(f"{what} needs at least one node, got {type(x).__name__}")
    first, other = node.graph.lift(x), node.graph.lift(y)
    if shapes_differ(first.dims, other.dims):
        raise ShapeError(f"{what}: shapes {first.shape} and {other.shape} differ")
    return first, other
