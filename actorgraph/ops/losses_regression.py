"""Losses between arrays, and those with a margin.  All built of other ops."""

from __future__ import annotations

import math
from math import pi
from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, is_weak
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import DIFFERENT, NO_REDUCTION, raises
from actorgraph.ops.activations import logsigmoid, relu, softplus
from actorgraph.ops.arithmetic import abs, neg, square, subtract  # noqa: A004
from actorgraph.ops.broadcasting import expand_dims, sum  # noqa: A004
from actorgraph.ops.cumulative import cumprod
from actorgraph.ops.distances import cosine_similarity, pairwise_distance
from actorgraph.ops.exponential import exp, log
from actorgraph.ops.gathering import take_along_axis
from actorgraph.ops.indexing import one_hot, take
from actorgraph.ops.losses import REDUCTIONS, check_reduction, reduced, same_shape
from actorgraph.ops.reductions import divide_by_size, mean
from actorgraph.ops.reductions import max as maximum_over
from actorgraph.ops.selection import maximum, minimum, where
from actorgraph.types import Dim

__all__ = [
    "cosine_embedding_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber", "huber_loss",
    "kl_div", "l1", "l1_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "poisson_nll_loss", "smooth_l1",
    "smooth_l1_loss", "soft_margin_loss", "triplet", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip

_HALF_LOG_2PI = math.log(2 * pi) / 2


def l1_loss(x: Any, y: Any, *, reduction: str = "mean") -> Node:
    """Return ``abs(x - y)``, reduced; the slope is 0 where x = y.

    Parameters and errors are those of `mse_loss`.
    """
    check_reduction(reduction, "l1_loss")
    first, other = same_shape(x, y, "l1_loss")
    return reduced(abs(first - other), reduction)


l1 = l1_loss


def _bent(x: Any, y: Any, delta: float, what: str) -> Node:
    """Return Huber's loss of each element: half a square up to delta, then a line."""
    first, other = same_shape(x, y, what)
    distance = abs(first - other)
    near = minimum(distance, delta)
    # Nothing is squared that is above delta, so nothing overflows.
    return 0.5 * near * near + delta * (distance - near)


def above_zero(value: Any, what: str, least: float) -> float:
    """Return an option as a float, or raise `GraphTypeError` where it is below `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise GraphTypeError(f"{what} is a float {'>=' if least == 0 else '>'} 0, got {value!r}")
    return float(value)


@raises(
    types="Dtypes differ, `delta` is not above 0, or there is no such reduction.", shapes=DIFFERENT,
)  # fmt: skip
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
    """
    check_reduction(reduction, "huber_loss")
    return reduced(
        _bent(x, y, above_zero(delta, "huber_loss: delta", 1e-300), "huber_loss"), reduction
    )


huber = huber_loss


@raises(types="Dtypes differ, `beta` is negative, or there is no such reduction.", shapes=DIFFERENT)
def smooth_l1_loss(x: Any, y: Any, *, reduction: str = "mean", beta: float = 1.0) -> Node:
    """Return ``d^2 / (2 beta)`` up to ``d = abs(x - y) = beta``, then ``d - beta / 2``, reduced.

    Huber's loss divided by beta; with ``beta = 0`` it is `l1_loss`.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape.
    reduction : {"mean", "sum", "none"}
    beta : float
    """
    check_reduction(reduction, "smooth_l1_loss")
    width = above_zero(beta, "smooth_l1_loss: beta", 0)
    if not width:
        return l1_loss(x, y, reduction=reduction)
    return reduced(_bent(x, y, width, "smooth_l1_loss") / width, reduction)


smooth_l1 = smooth_l1_loss


@raises(types=NO_REDUCTION, shapes=DIFFERENT)
def kl_div(
    log_probs: Any, targets: Any, *, reduction: str = "mean", log_target: bool = False
) -> Node:
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


def poisson_nll_loss(
    x: Any,
    targets: Any,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Node:
    """Return ``exp(x) - target x``: minus the log likelihood of counts, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype and one shape.
    log_input : bool
        False takes x as the rate itself: ``x - target log(x + eps)``.
    full : bool
        Add Stirling's approximation of ``log(target!)`` for targets above 1.
    eps : float
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "poisson_nll_loss")
    x, t = same_shape(x, targets, "poisson_nll_loss")
    losses = exp(x) - t * x if log_input else x - t * log(x + float(eps))
    if full:
        many = where(t > 1, t, 1)
        losses = losses + where(t > 1, many * log(many) - many + 0.5 * log(2 * pi * many), 0)
    return reduced(losses, reduction)


def gaussian_nll_loss(
    x: Any,
    targets: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    *,
    reduction: str = "mean",
) -> Node:
    """Return ``(log(v) + (x - target)^2 / v) / 2`` for ``v = max(var, eps)``, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype, shapes that broadcast.
    var : node, array or scalar
        Variances: of the shape of `x`, of the same without its last axis, or what broadcasts.
    full : bool
        Add ``log(2 pi) / 2``.
    eps : float
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "gaussian_nll_loss")
    difference = square(subtract(x, targets))
    graph = difference.graph
    spread = graph.constant(var, dtype=difference.dtype) if is_weak(var) else graph.lift(var)
    if spread.ndim and spread.ndim == difference.ndim - 1 and spread.dims == difference.dims[:-1]:
        spread = expand_dims(spread, -1)
    spread = maximum(spread, float(eps))
    losses = 0.5 * (log(spread) + difference / spread) + (_HALF_LOG_2PI if full else 0.0)
    return reduced(losses, reduction)


# -- losses margin ----------------------------------------------------------------------------


def margin_ranking_loss(
    x1: Node, x2: Any, targets: Any, margin: float = 0.0, *, reduction: str = "mean"
) -> Node:
    """Return ``max(0, margin - target (x1 - x2))``, reduced; a target of 1 wants x1 above x2.

    Parameters
    ----------
    x1, x2, targets : node or array
        Of one float dtype, shapes that broadcast; targets are 1 or -1.
    margin : float
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "margin_ranking_loss")
    return reduced(relu(margin - (x1 - x2) * targets), reduction)


def soft_margin_loss(x: Any, targets: Any, *, reduction: str = "mean") -> Node:
    """Return ``log(1 + exp(-target x))``, reduced, for targets 1 and -1 of the shape of `x`."""
    check_reduction(reduction, "soft_margin_loss")
    x, targets = same_shape(x, targets, "soft_margin_loss")
    return reduced(softplus(neg(x * targets)), reduction)


def hinge_embedding_loss(
    x: Any, targets: Any, margin: float = 1.0, *, reduction: str = "mean"
) -> Node:
    """Return distances x where the target is 1, and ``max(0, margin - x)`` where it is -1, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype and one shape.
    margin : float
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "hinge_embedding_loss")
    x, targets = same_shape(x, targets, "hinge_embedding_loss")
    alike = where(targets != -1, x, 0)
    return reduced(alike + where(targets != 1, relu(margin - x), 0), reduction)


def cosine_embedding_loss(
    x1: Node, x2: Any, targets: Any, margin: float = 0.0, *, reduction: str = "mean"
) -> Node:
    """Return ``1 - cos`` where the target is 1, and ``max(0, cos - margin)`` where it is -1.

    ``cos`` is the cosine of the angle between two vectors along the last axis; reduced over the
    vectors.

    Parameters
    ----------
    x1, x2 : node or array
        Float, shape (batch, features) or (features,).
    targets : node or array
        1 or -1, shape (batch,) or ().
    margin : float
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "cosine_embedding_loss")
    cos = cosine_similarity(x1, x2, -1)
    targets = x1.graph.lift(targets)
    losses = where(targets == 1, 1 - cos, 0) + where(targets == -1, relu(cos - margin), 0)
    return reduced(losses, reduction)


def multilabel_soft_margin_loss(
    x: Any, targets: Any, weight: Any = None, *, reduction: str = "mean"
) -> Node:
    """Return the mean over classes, the last axis, of a binary cross entropy with logits, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype, shape (..., classes); targets are 0 or 1.
    weight : node or array, optional
        One factor per class.
    reduction : {"mean", "sum", "none"}
        Over the rows.
    """
    check_reduction(reduction, "multilabel_soft_margin_loss")
    x, targets = same_shape(x, targets, "multilabel_soft_margin_loss")
    losses = neg(targets * logsigmoid(x) + (1 - targets) * logsigmoid(neg(x)))
    losses = losses if weight is None else losses * weight
    return reduced(mean(losses, -1), reduction)


def _classes(x: Node, what: str) -> int:
    if x.ndim not in (1, 2) or isinstance(x.dims[-1], Dim):
        raise ShapeError(f"{what} takes (batch, classes) with known classes, got {x!r}")
    return x.dims[-1]


def multi_margin_loss(
    x: Node,
    targets: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    *,
    reduction: str = "mean",
) -> Node:
    """Return ``sum over c != t of max(0, margin - x[t] + x[c])^p / classes``, reduced.

    Parameters
    ----------
    x : node
        Float, shape (batch, classes) or (classes,).
    targets : node or array
        Integers in ``[0, classes)``, shape (batch,) or ().
    p : {1, 2}
    margin : float
    weight : node or array, optional
        One factor per class, for the rows of that target.
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "multi_margin_loss")
    if p not in (1, 2):
        raise GraphTypeError(f"multi_margin_loss: p is 1 or 2, got {p!r}")
    count = _classes(x, "multi_margin_loss")
    targets = x.graph.lift(targets)
    if targets.ndim == x.ndim:  # PyTorch takes one target for one row as a vector, too
        targets = targets.reshape(targets.dims[:-1])
    own = expand_dims(targets, -1)
    losses = relu(margin - take_along_axis(x, own, -1) + x)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * expand_dims(take(x.graph.lift(weight), targets), -1)
    others = own != x.graph.constant(range(count), dtype=targets.dtype)
    return reduced(sum(where(others, losses, 0), -1) / count, reduction)


def multilabel_margin_loss(x: Node, targets: Any, *, reduction: str = "mean") -> Node:
    """Return ``sum over t, c of max(0, 1 - x[t] + x[c]) / classes`` for labels t and others c.

    Parameters
    ----------
    x : node
        Float, shape (batch, classes) or (classes,).
    targets : node or array
        Integers of the same shape: the labels of each row, ended by the first -1.
    reduction : {"mean", "sum", "none"}
        Over the rows.
    """
    check_reduction(reduction, "multilabel_margin_loss")
    count = _classes(x, "multilabel_margin_loss")
    targets = x.graph.lift(targets)
    counts = cumprod((targets >= 0).astype(x.dtype), -1)
    labels = where(counts > 0, targets, 0)
    marked = maximum_over(one_hot(labels, count, x.dtype) * expand_dims(counts, -1), -2)
    lead = expand_dims(take_along_axis(x, labels, -1), -1)
    losses = relu(1 - lead + expand_dims(x, -2))
    losses = losses * expand_dims(counts, -1) * expand_dims(1 - marked, -2)
    return reduced(sum(losses, (-2, -1)) / count, reduction)


@raises(types=NO_REDUCTION, shapes=DIFFERENT)
@naming_itself
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Node:
    """Return ``max(0, margin + d(anchor, positive) - d(anchor, negative))``, reduced.

    ``d`` is `pairwise_distance`.  Source: V. Balntas et al., Learning shallow convolutional feature
    descriptors with triplet losses, 2016.

    Parameters
    ----------
    anchor, positive, negative : node or array
        Float, of one dtype and one shape.
    margin : float
    p : float
        Order of the norm, above 0.
    eps : float
    swap : bool
        Take the distance from positive to negative where it is smaller.
    reduction : {"mean", "sum", "none"}
    """
    order = above_zero(p, "triplet_margin_loss: p", 1e-300)

    def distance(x: Node, y: Node) -> Node:
        return pairwise_distance(x, y, order, eps)

    return _triplet(
        anchor, positive, negative, distance, margin, swap, reduction, "triplet_margin_loss"
    )


triplet = triplet_margin_loss


def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Node:
    """Return `triplet_margin_loss` for any distance of two nodes, `pairwise_distance` if none."""
    return _triplet(
        anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction,
        "triplet_margin_with_distance_loss",
    )  # fmt: skip


def _triplet(
    anchor: Any,
    positive: Any,
    negative: Any,
    distance: Any,
    margin: float,
    swap: bool,
    reduction: str,
    what: str,
) -> Node:
    check_reduction(reduction, what)
    first, near = same_shape(anchor, positive, what, negative)
    _, far = same_shape(first, negative, what)
    apart = distance(first, far)
    if swap:
        apart = minimum(apart, distance(near, far))
    return reduced(relu(margin + distance(first, near) - apart), reduction)
