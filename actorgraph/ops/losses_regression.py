"""Losses between arrays: absolute, Huber, divergence, cosine, triplet.  All built of other ops."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._half import tiny
from actorgraph.ops.activations import relu
from actorgraph.ops.arithmetic import abs, multiply, power, sqrt, square  # noqa: A004
from actorgraph.ops.broadcasting import broadcast_like, sum  # noqa: A004
from actorgraph.ops.exponential import exp, log
from actorgraph.ops.losses import REDUCTIONS, check_reduction, reduced, same_shape
from actorgraph.ops.reductions import divide_by_size
from actorgraph.ops.selection import maximum, minimum, where
from actorgraph.ops.shaping import one_axis

__all__ = [
    "cosine_similarity", "huber_loss", "kl_div", "l1_loss", "smooth_l1_loss", "triplet_margin_loss",
]  # fmt: skip


def l1_loss(x: Any, y: Any, reduction: str = "mean") -> Node:
    """Return ``abs(x - y)``, reduced; the slope is 0 where x = y.

    Parameters and errors are those of `mse_loss`.
    """
    check_reduction(reduction, "l1_loss")
    first, other = same_shape(x, y, "l1_loss")
    return reduced(abs(first - other), reduction)


def _bent(x: Any, y: Any, delta: float, what: str) -> Node:
    """Return Huber's loss of each element: half a square up to delta, then a line."""
    first, other = same_shape(x, y, what)
    distance = abs(first - other)
    near = minimum(distance, delta)
    # Nothing is squared that is above delta, so nothing overflows.
    return 0.5 * near * near + delta * (distance - near)


def _positive(value: Any, what: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise GraphTypeError(f"{what} is a float {'>=' if least == 0 else '>'} 0, got {value!r}")
    return float(value)


def huber_loss(x: Any, y: Any, reduction: str = "mean", delta: float = 1.0) -> Node:
    """Return ``d^2 / 2`` up to ``d = abs(x - y) = delta``, then ``delta (d - delta / 2)``, reduced.

    Source: P. J. Huber, Robust estimation of a location parameter, 1964.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape.
    reduction : {"mean", "sum", "none"}
    delta : float
        Above 0.

    Raises
    ------
    GraphTypeError
        Dtypes differ, `delta` is not above 0, or there is no such reduction.
    ShapeError
        Shapes differ.
    """
    check_reduction(reduction, "huber_loss")
    return reduced(
        _bent(x, y, _positive(delta, "huber_loss: delta", 1e-300), "huber_loss"), reduction
    )


def smooth_l1_loss(x: Any, y: Any, reduction: str = "mean", beta: float = 1.0) -> Node:
    """Return ``d^2 / (2 beta)`` up to ``d = abs(x - y) = beta``, then ``d - beta / 2``, reduced.

    Huber's loss divided by beta; with ``beta = 0`` it is `l1_loss`.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape.
    reduction : {"mean", "sum", "none"}
    beta : float

    Raises
    ------
    GraphTypeError
        Dtypes differ, `beta` is negative, or there is no such reduction.
    ShapeError
        Shapes differ.
    """
    check_reduction(reduction, "smooth_l1_loss")
    width = _positive(beta, "smooth_l1_loss: beta", 0)
    if not width:
        return l1_loss(x, y, reduction)
    return reduced(_bent(x, y, width, "smooth_l1_loss") / width, reduction)


def kl_div(log_probs: Any, targets: Any, reduction: str = "mean", log_target: bool = False) -> Node:
    """Return ``target (log(target) - log_probs)``, reduced; 0 where the target is 0.

    As in PyTorch the mean divides by all elements; "batchmean", which divides by the first dim, is
    the Kullback-Leibler divergence.

    Parameters
    ----------
    log_probs : node or array
        Float logarithms of probabilities.
    targets : node or array
        Probabilities, or their logarithms with `log_target`; of the same dtype and shape.
    reduction : {"mean", "sum", "none", "batchmean"}
    log_target : bool

    Raises
    ------
    GraphTypeError
        Dtypes differ, or there is no such reduction.
    ShapeError
        Shapes differ.
    """
    if reduction not in (*REDUCTIONS, "batchmean"):
        known = (*REDUCTIONS, "batchmean")
        raise GraphTypeError(f"kl_div: reduction is one of {known}, got {reduction!r}")
    x, t = same_shape(log_probs, targets, "kl_div")
    if log_target:
        losses = exp(t) * (t - x)
    else:
        losses = t * log(where(t > 0, t, 1)) - t * x
    if reduction == "batchmean":
        return divide_by_size(sum(losses), x, (0,) if x.ndim else ())
    return reduced(losses, reduction)


@naming_itself
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

    Raises
    ------
    GraphTypeError
        Dtypes differ or are no floats.
    ShapeError
        Shapes do not broadcast, or there is no such axis.
    """
    product = multiply(x, y)
    place = one_axis(axis, product.ndim, "cosine_similarity")
    if product.dtype.kind not in "fV":
        raise GraphTypeError(
            f"cosine_similarity: {product.dtype} is not a float; convert with .astype('float32')"
        )
    # In half precision the square of eps would be 0.
    least = max(float(eps) ** 2, tiny(product.dtype))
    for part in product.inputs:
        square_norm = sum(square(broadcast_like(part, product)), place, keepdims=True)
        product = product / sqrt(maximum(square_norm, least))
    return sum(product, place)


def _distance(x: Node, y: Node, p: float, eps: float) -> Node:
    difference = x - y + eps
    if p == 2:
        return sqrt(sum(square(difference), -1))
    if p == 1:
        return sum(abs(difference), -1)
    return power(sum(power(abs(difference), p), -1), 1 / p)


@naming_itself
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Node:
    """Return ``max(0, margin + d(anchor, positive) - d(anchor, negative))``, reduced.

    ``d`` is the p-norm of the difference plus `eps` along the last axis, as in PyTorch.  Source: V.
    Balntas et al., Learning shallow convolutional feature descriptors with triplet losses, 2016.

    Parameters
    ----------
    anchor, positive, negative : node or array
        Float, of one dtype and one shape (..., features).
    margin, eps : float
    p : float
        Above 0.
    swap : bool
        Take the smaller of the distances of anchor and positive from the negative.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    GraphTypeError
        Dtypes differ, `p` is not above 0, or there is no such reduction.
    ShapeError
        Shapes differ.
    """
    check_reduction(reduction, "triplet_margin_loss")
    order = _positive(p, "triplet_margin_loss: p", 1e-300)
    near, far = same_shape(positive, negative, "triplet_margin_loss", anchor)
    middle, near = same_shape(anchor, near, "triplet_margin_loss")
    shift = float(eps)
    away = _distance(middle, far, order, shift)
    if swap:
        away = minimum(away, _distance(near, far, order, shift))
    return reduced(relu(_distance(middle, near, order, shift) - away + float(margin)), reduction)
