"""Losses built of other ops: against classes, against numbers, and by margins.

Classes are along the last axis by default.  Definitions are PyTorch's, except that no class is
ignored by default.  The logarithms of binary cross entropy are ops, which are finite at 0.
"""

from __future__ import annotations

import math
from functools import partial
from math import nan, pi
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, is_weak
from actorgraph.ops._arrays import tiny
from actorgraph.ops._declare import unary
from actorgraph.ops._rules import NO_REDUCTION, as_of, raises, returns
from actorgraph.ops.activations import logsigmoid, relu, softplus
from actorgraph.ops.arithmetic import neg, square, subtract
from actorgraph.ops.broadcasting import broadcast_like, expand_dims, sum
from actorgraph.ops.convolution import linear
from actorgraph.ops.elementwise import exp, log, maximum, minimum, where
from actorgraph.ops.gathering import pick, take_along_axis
from actorgraph.ops.indexing import one_hot, take
from actorgraph.ops.losses import (
    REDUCTIONS,
    above_zero,
    check_reduction,
    cosine_similarity,
    log_softmax,
    minus_at,
    mse_loss,
    pairwise_distance,
    plain_cross_entropy,
    reduced,
    same_shape,
)
from actorgraph.ops.rearranging import moveaxis
from actorgraph.ops.reductions import cumprod, divide_by_size, mean
from actorgraph.ops.reductions import max as maximum_over
from actorgraph.ops.shaping import one_axis
from actorgraph.types import Dim, shapes_differ

__all__ = [
    "bce_with_logits", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "cosine_embedding_loss", "cross_entropy", "gaussian_nll_loss", "hinge",
    "hinge_embedding_loss", "hinge_loss", "kl_div", "linear_cross_entropy", "margin_ranking_loss",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll",
    "nll_loss", "pick_neg_log_sigmoid", "pick_neg_log_softmax", "pick_softmax",
    "poisson_nll_loss", "soft_margin_loss", "triplet", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip

_HALF_LOG_2PI = math.log(2 * pi) / 2


@as_of(mse_loss)
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
    """
    if reduction not in (known := (*REDUCTIONS, "batchmean")):
        raise GraphTypeError(f"reduction is one of {known}, got {reduction!r}")
    x, t = same_shape(log_probs, targets)
    if log_target:
        losses = exp(t) * (t - x)
    else:
        losses = t * log(where(t > 0, t, 1)) - t * x
    if reduction == "batchmean":
        return divide_by_size(sum(losses), x, (0,) if x.ndim else ())
    return reduced(losses, reduction)


@as_of(mse_loss)
def poisson_nll_loss(
    x: Any, targets: Any, log_input: bool = True, full: bool = False, *, eps: float = 1e-8,
    reduction: str = "mean",
) -> Node:  # fmt: skip
    """Return ``exp(x) - target x``: minus the log likelihood of counts, reduced as `mse_loss`.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype and one shape.
    log_input : bool
        False takes x as the rate itself: ``x - target log(x + eps)``.
    full : bool
        Add Stirling's approximation of ``log(target!)`` for targets above 1.
    """
    check_reduction(reduction)
    x, t = same_shape(x, targets)
    losses = exp(x) - t * x if log_input else x - t * log(x + float(eps))
    if full:
        many = where(t > 1, t, 1)
        losses = losses + where(t > 1, many * log(many) - many + 0.5 * log(2 * pi * many), 0)
    return reduced(losses, reduction)


def gaussian_nll_loss(
    x: Any, targets: Any, var: Any, full: bool = False, eps: float = 1e-6, *,
    reduction: str = "mean",
) -> Node:  # fmt: skip
    """Return ``(log(v) + (x - target)^2 / v) / 2`` for ``v = max(var, eps)``, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype, shapes that broadcast.
    var : node, array or scalar
        Variances: of the shape of `x`, of the same without its last axis, or what broadcasts.
    full : bool
        Add ``log(2 pi) / 2``.
    """
    check_reduction(reduction)
    difference = square(subtract(x, targets))
    graph = difference.graph
    spread = graph.constant(var, dtype=difference.dtype) if is_weak(var) else graph.lift(var)
    if spread.ndim and spread.ndim == difference.ndim - 1 and spread.dims == difference.dims[:-1]:
        spread = expand_dims(spread, -1)
    spread = maximum(spread, float(eps))
    losses = 0.5 * (log(spread) + difference / spread) + (_HALF_LOG_2PI if full else 0.0)
    return reduced(losses, reduction)


def margin_ranking_loss(
    x1: Node, x2: Any, targets: Any, margin: float = 0.0, *, reduction: str = "mean"
) -> Node:
    """Return ``max(0, margin - target (x1 - x2))``, reduced; a target of 1 wants x1 above x2.

    Parameters
    ----------
    x1, x2, targets : node or array
        Of one float dtype, shapes that broadcast; targets are 1 or -1.
    """
    check_reduction(reduction)
    return reduced(relu(margin - (x1 - x2) * targets), reduction)


@as_of(poisson_nll_loss)
def soft_margin_loss(x: Any, targets: Any, *, reduction: str = "mean") -> Node:
    """Return ``log(1 + exp(-target x))`` of targets 1 and -1, otherwise as `poisson_nll_loss`."""
    check_reduction(reduction)
    x, targets = same_shape(x, targets)
    return reduced(softplus(neg(x * targets)), reduction)


@as_of(poisson_nll_loss)
def hinge_embedding_loss(
    x: Any, targets: Any, margin: float = 1.0, *, reduction: str = "mean"
) -> Node:
    """Return x where the target is 1 and ``max(0, margin - x)`` where it is -1, reduced.

    Takes `x` and `targets` as `poisson_nll_loss`.
    """
    check_reduction(reduction)
    x, targets = same_shape(x, targets)
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
    """
    check_reduction(reduction)
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
    check_reduction(reduction)
    x, targets = same_shape(x, targets)
    losses = neg(targets * logsigmoid(x) + (1 - targets) * logsigmoid(neg(x)))
    losses = losses if weight is None else losses * weight
    return reduced(mean(losses, -1), reduction)


def _classes(x: Node) -> int:
    if x.ndim not in (1, 2) or isinstance(x.dims[-1], Dim):
        raise ShapeError(f"takes (batch, classes) with known classes, got {x!r}")
    return x.dims[-1]


def multi_margin_loss(
    x: Node, targets: Any, p: int = 1, margin: float = 1.0, weight: Any = None, *,
    reduction: str = "mean",
) -> Node:  # fmt: skip
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
    """
    check_reduction(reduction)
    if p not in (1, 2):
        raise GraphTypeError(f"p is 1 or 2, got {p!r}")
    count = _classes(x)
    targets = x.graph.lift(targets)
    if targets.ndim == x.ndim:  # PyTorch takes one target for one row as a vector, too
        targets = targets.reshape(targets.dims[:-1])
    own = expand_dims(targets, -1)
    losses = relu(margin - take_along_axis(x, own, -1) + x)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * expand_dims(take(_class_weights(x, weight), targets), -1)
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
    check_reduction(reduction)
    count = _classes(x)
    targets = x.graph.lift(targets)
    counts = cumprod((targets >= 0).astype(x.dtype), -1)
    labels = where(counts > 0, targets, 0)
    marked = maximum_over(one_hot(labels, count, x.dtype) * expand_dims(counts, -1), -2)
    lead = expand_dims(take_along_axis(x, labels, -1), -1)
    losses = relu(1 - lead + expand_dims(x, -2))
    losses = losses * expand_dims(counts, -1) * expand_dims(1 - marked, -2)
    return reduced(sum(losses, (-2, -1)) / count, reduction)


@as_of(mse_loss)
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean",
) -> Node:  # fmt: skip
    """Return ``max(0, margin + d(anchor, positive) - d(anchor, negative))``, reduced.

    ``d`` is `pairwise_distance`, and the reduction as of `mse_loss`.  Source: V. Balntas et al.,
    Learning shallow convolutional feature descriptors with triplet losses, 2016.

    Parameters
    ----------
    anchor, positive, negative : node or array
        Float, of one dtype and one shape.
    p : float
        Order of the norm, above 0.
    swap : bool
        Take the distance from positive to negative where it is smaller.
    """
    distance = partial(pairwise_distance, p=above_zero(p, "p", 1e-300), eps=eps)
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


triplet = triplet_margin_loss


@as_of(triplet_margin_loss)
def triplet_margin_with_distance_loss(
    anchor: Any, positive: Any, negative: Any, *, distance_function: Any = None,
    margin: float = 1.0, swap: bool = False, reduction: str = "mean",
) -> Node:  # fmt: skip
    """Return `triplet_margin_loss` for any distance of two nodes.

    Parameters
    ----------
    distance_function : callable, optional
        Default: `pairwise_distance`.
    """
    distance = distance_function or pairwise_distance
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    anchor: Any, positive: Any, negative: Any, distance: Any, margin: float, swap: bool,
    reduction: str,
) -> Node:  # fmt: skip
    check_reduction(reduction)
    first, near = same_shape(anchor, positive, negative)
    _, far = same_shape(first, negative)
    apart = distance(first, far)
    if swap:
        apart = minimum(apart, distance(near, far))
    return reduced(relu(margin + distance(first, near) - apart), reduction)


def _class_weights(scores: Node, weight: Any) -> Node:
    given, classes = scores.graph.lift(weight), scores.dims[-1]
    if shapes_differ(given.dims, (classes,)):
        raise ShapeError(f"class weights have rank 1, {classes} for {scores!r}, got {given!r}")
    return given


def _picked(
    scores: Node, targets: Any, weight: Any, ignore_index: int | None
) -> tuple[Node, Node, Node | None]:
    """Return the score at each target, each target's weight, and which targets count."""
    targets = scores.graph.lift(targets)
    valid = None
    if ignore_index is not None:
        valid = targets != ignore_index
        targets = where(valid, targets, 0)
    chosen = pick(scores, targets)
    if weight is None:
        weights = broadcast_like(scores.graph.constant(1, dtype=scores.dtype), chosen)
    else:
        weights = take(_class_weights(scores, weight), targets, 0)
    if valid is not None:
        weights = where(valid, weights, 0)
    return chosen, weights, valid


def _classes_last(x: Node, axis: int) -> Node:
    place = one_axis(axis, x.ndim)
    return x if place == x.ndim - 1 else moveaxis(x, place, -1)


def _averaged(losses: Node, weights: Node, reduction: str) -> Node:
    if reduction != "mean":
        return reduced(losses, reduction)
    total = sum(weights)
    # Nothing that counts: NaN without the warning of 0 / 0.
    return sum(losses) / where(total == 0, nan, total)


def _check_options(reduction: str, weight: Any) -> None:
    check_reduction(reduction)
    if isinstance(weight, str):
        raise GraphTypeError(
            f"the third argument is the weight of the classes; write reduction={weight!r}"
        )


@raises(NO_REDUCTION, "The shape of `targets` is not that of `log_probs` without the classes.")
def nll_loss(
    log_probs: Node, targets: Any, weight: Any = None, *, ignore_index: int | None = None,
    reduction: str = "mean", axis: int = -1,
) -> Node:  # fmt: skip
    """Return ``-weight[target] log_probs[target]``, reduced.

    Parameters
    ----------
    log_probs : node
        Float, shape (..., classes).
    targets : node or array
        Integers of the shape of `log_probs` without the classes, in ``[0, classes)`` or equal to
        `ignore_index`; others raise in the run.
    weight : node or array, optional
        One entry per class; a mean divides by the sum of the weights of the targets.
    ignore_index : int, optional
        Targets that do not count; PyTorch's default is -100, here none is ignored.
    axis : int
        That of the classes; 1 in PyTorch.

    Returns
    -------
    Node
        A scalar, or of the shape of `targets`.  The mean over nothing is NaN, with gradient NaN or
        0 and no warning.
    """
    _check_options(reduction, weight)
    log_probs = _classes_last(log_probs, axis)
    if weight is None and ignore_index is None:
        return minus_at(log_probs, targets, reduction)
    chosen, weights, valid = _picked(log_probs, targets, weight, ignore_index)
    losses = neg(weights * (chosen if valid is None else where(valid, chosen, 0)))
    return _averaged(losses, weights, reduction)


nll = nll_loss


@returns("Node: a scalar, or of the shape of `logits` without the classes; the dtype of `logits`")
@raises(
    types="A dtype does not fit, the smoothing is not in [0, 1], there is no such reduction, or "
    "`ignore_index` is given with probabilities.",
    shapes="The shape of `targets` does not fit, or there is no such axis.",
)  # fmt: skip
@as_of(nll_loss)
def cross_entropy(
    logits: Node, targets: Any, weight: Any = None, *, reduction: str = "mean",
    ignore_index: int | None = None, label_smoothing: float = 0.0, axis: int = -1,
) -> Node:  # fmt: skip
    """Return ``logsumexp(logits) - logits[target]``, as `nll_loss` of `log_softmax`.

    With the probabilities q of classes as targets: ``-sum over c of w[c] q[c] log p[c]``, and a
    mean divides by the number of rows.  With integer targets, smoothing s and weights w:
    ``(1 - s) w[t] (-log p[t]) + s / classes * sum over c of w[c] (-log p[c])``; a mean divides by
    the sum of ``w[t]`` over the targets that count, as in PyTorch.

    Parameters
    ----------
    logits : node
        Float, shape (..., classes).
    targets : node or array
        Integers in ``[0, classes)``, or equal to `ignore_index`, of the shape of `logits` without
        the classes; others raise in the run.  Or floats of the shape of `logits`: probabilities of
        the classes, which get a gradient, too.
    weight : node or array, optional
        One entry per class.
    reduction : {"mean", "sum", "none"}
        Over all targets; "none" gives one loss per target.
    label_smoothing : float
        In [0, 1]: the share of the target that is spread over all classes.
    """
    _check_options(reduction, weight)
    if not 0 <= label_smoothing <= 1:
        raise GraphTypeError(f"label_smoothing is in [0, 1], got {label_smoothing}")
    targets = logits.graph.lift(targets)
    logits = _classes_last(logits, axis)
    if targets.dtype.kind in "fV":
        if ignore_index is not None:
            raise GraphTypeError(
                "probabilities have no index to ignore; give rows of zeros instead"
            )
        soft = targets if targets.ndim < logits.ndim else _classes_last(targets, axis)
        losses = _soft_losses(logits, soft, weight, float(label_smoothing))
        return reduced(losses, reduction)
    if weight is None and ignore_index is None and not label_smoothing:
        return plain_cross_entropy(logits, targets, reduction)
    log_probs = log_softmax(logits)
    if not label_smoothing:
        return nll_loss(log_probs, targets, weight, ignore_index=ignore_index, reduction=reduction)
    chosen, weights, valid = _picked(log_probs, targets, weight, ignore_index)
    spread = mean(log_probs if weight is None else log_probs * weight, -1)
    if valid is not None:
        chosen, spread = where(valid, chosen, 0), where(valid, spread, 0)
    share = float(label_smoothing)
    losses = neg(weights * chosen * (1 - share) + spread * share)
    return _averaged(losses, weights, reduction)


def linear_cross_entropy(
    x: Node, linear_weight: Any, targets: Any, *, linear_bias: Any = None, **options: Any
) -> Node:
    """Return `cross_entropy` of ``linear(x, linear_weight, linear_bias)``.

    Parameters
    ----------
    x : node
        Float, shape (..., features).
    linear_weight, linear_bias : node or array
        Shapes (classes, features) and, optional, (classes,).
    targets, **options
        As of `cross_entropy`.
    """
    check_reduction(options.get("reduction", "mean"))
    return cross_entropy(linear(x, linear_weight, linear_bias), targets, **options)


def _soft_losses(logits: Node, targets: Node, weight: Any, share: float) -> Node:
    if shapes_differ(logits.dims, targets.dims):
        raise ShapeError(
            f"cross_entropy: float targets are probabilities of the shape of the logits, "
            f"{logits.shape} with the classes last, got {targets.shape}; classes are integers"
        )
    log_probs = log_softmax(logits)
    weighted = log_probs if weight is None else log_probs * _class_weights(logits, weight)
    losses = sum(weighted * targets, -1)
    if share:
        losses = losses * (1 - share) + mean(weighted, -1) * share
    return neg(losses)


@raises(
    "`logits` are no floats, or `index` no integers.",
    "`index` does not have the shape of `logits` without the classes.",
)  # fmt: skip
def pick_neg_log_softmax(logits: Node, index: Any) -> Node:
    """Return ``-log(softmax(logits))`` at the index of each row; the gradient is softmax - onehot.

    Parameters
    ----------
    logits : node
        Float, shape (..., classes).
    index : node or array
        Integers in ``[0, classes)``, of the shape of `logits` without the classes; others raise in
        the run.
    """
    return plain_cross_entropy(logits, index, "none")


@as_of(pick_neg_log_softmax)
def pick_softmax(logits: Node, index: Any) -> Node:
    """Return ``softmax(logits)`` at the index of each row, without the other entries.

    ``exp`` of minus `pick_neg_log_softmax`, so that small probabilities keep their digits.
    """
    return exp(neg(plain_cross_entropy(logits, index, "none")))


@as_of(pick_neg_log_softmax)
def pick_neg_log_sigmoid(logits: Node, index: Any) -> Node:
    """Return ``-log(sigmoid(logits))`` at the index of each row, else as `pick_neg_log_softmax`.

    Ginn's ``PickNegLogSigmoid``.
    """
    return neg(logsigmoid(pick(logits, index)))


_FLOOR = -100.0
_SMALLEST = 1e-12


@np.errstate(divide="ignore")
def _floored(xp: Any, log: Any, x: Any) -> Any:
    return xp.maximum(log(x), x.dtype.type(_FLOOR))


def _least(dtype: Any) -> float:
    """Return the smallest divisor; in half precision 1e-12 would be 0."""
    return max(_SMALLEST, tiny(dtype))


_log_floored = unary(
    "log_floored", lambda t, y, x: t / maximum(x, _least(x.dtype)), "max(log(x), -100).",
    forward=lambda xp, x: _floored(xp, xp.log, x), scheme="f[*s] -> f[*s]", low=0.05, high=3,
    flops=12, notes="The slope is 1 / max(x, 1e-12).",
)  # fmt: skip
_log_of_rest_floored = unary(
    "log_of_rest_floored", lambda t, y, x: -t / maximum(1 - x, _least(x.dtype)),
    "max(log(1 - x), -100).", forward=lambda xp, x: _floored(xp, xp.log1p, xp.negative(x)),
    scheme="f[*s] -> f[*s]", low=-2, high=0.95, flops=12,
    notes="The slope is -1 / max(1 - x, 1e-12).",
)  # fmt: skip


def _weighted(losses: Node, weight: Any, reduction: str) -> Node:
    return reduced(losses if weight is None else losses * weight, reduction)


@as_of(mse_loss)
def binary_cross_entropy(
    probabilities: Any, targets: Any, weight: Any = None, *, reduction: str = "mean"
) -> Node:
    """Return ``-t log(p) - (1 - t) log(1 - p)``, reduced as `mse_loss`.

    Logarithms end at -100, and divisors of gradients at 1e-12, so p = 0 and p = 1 are finite.

    Parameters
    ----------
    probabilities : node or array
        Float in [0, 1]; outside, logarithms are NaN and NumPy warns.
    targets : node or array
        Of the same dtype and shape, in [0, 1].
    weight : node or array, optional
        Factor of each loss; broadcasts.
    """
    check_reduction(reduction)
    p, t = same_shape(probabilities, targets)
    losses = neg(t * _log_floored(p) + (1 - t) * _log_of_rest_floored(p))
    return _weighted(losses, weight, reduction)


@as_of(binary_cross_entropy)
def bce_with_logits(
    logits: Any, targets: Any, weight: Any = None, *, pos_weight: Any = None,
    reduction: str = "mean",
) -> Node:  # fmt: skip
    """Return `binary_cross_entropy` of ``sigmoid(logits)``, without overflow or cancellation.

    ``w t softplus(-x) + (1 - t) softplus(x)`` for the weight w of positive targets; PyTorch's
    ``binary_cross_entropy_with_logits``.

    Parameters
    ----------
    logits : node or array
        Float.
    pos_weight : node or array, optional
        Factor of the part of each loss with a positive target; broadcasts.
    """
    check_reduction(reduction)
    x, t = same_shape(logits, targets)
    positive = t if pos_weight is None else t * pos_weight
    return _weighted(positive * softplus(neg(x)) + (1 - t) * softplus(x), weight, reduction)


binary_cross_entropy_with_logits = bce_with_logits


@as_of(mse_loss)
def hinge_loss(scores: Any, targets: Any, margin: float = 1.0, reduction: str = "mean") -> Node:
    """Return ``max(0, margin - targets * scores)``, reduced as `mse_loss`; slope 0 at the corner.

    Parameters
    ----------
    scores : node or array
        Float.
    targets : node or array
        -1 or 1, of the dtype and shape of `scores`.
    """
    check_reduction(reduction)
    x, t = same_shape(scores, targets)
    return reduced(relu(float(margin) - t * x), reduction)


hinge = hinge_loss
