"""Losses against classes: cross entropy, negative log-likelihood, binary cross entropy, hinge.

Classes stand in the last axis unless told otherwise.  Built of other ops, but for the logarithms of
binary cross entropy, which are finite at 0.  Definitions are PyTorch's, except that no class is
ignored unless asked.
"""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import unary
from actorgraph.ops._docs import DIFFERENT, NO_REDUCTION, raises
from actorgraph.ops._half import tiny
from actorgraph.ops.activations import logsigmoid, relu, softplus
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import broadcast_like, sum  # noqa: A004
from actorgraph.ops.convolution import linear
from actorgraph.ops.exponential import exp
from actorgraph.ops.gathering import pick
from actorgraph.ops.indexing import take
from actorgraph.ops.losses import (
    check_reduction,
    log_softmax,
    plain_cross_entropy,
    reduced,
    same_shape,
)
from actorgraph.ops.rearranging import moveaxis
from actorgraph.ops.reductions import mean
from actorgraph.ops.selection import maximum, where
from actorgraph.ops.shaping import one_axis
from actorgraph.types import shapes_differ

__all__ = [
    "bce_with_logits", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy",
    "hinge", "hinge_loss", "linear_cross_entropy", "nll", "nll_loss", "pick_neg_log_sigmoid",
    "pick_neg_log_softmax", "pick_softmax",
]  # fmt: skip

# -- classes ----------------------------------------------------------------------------------


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
        given = scores.graph.lift(weight)
        if given.ndim != 1:
            raise ShapeError(f"class weights have rank 1, one per class, got {given!r}")
        weights = take(given, targets, 0)
    if valid is not None:
        weights = where(valid, weights, 0)
    return chosen, weights, valid


def _classes_last(x: Node, axis: int, what: str) -> Node:
    place = one_axis(axis, x.ndim, what)
    return x if place == x.ndim - 1 else moveaxis(x, place, -1)


def _averaged(losses: Node, weights: Node, reduction: str) -> Node:
    if reduction != "mean":
        return reduced(losses, reduction)
    total = sum(weights)
    # Nothing that counts: NaN without the warning of 0 / 0.
    return sum(losses) / where(total == 0, nan, total)


def _check_options(reduction: str, weight: Any, what: str) -> None:
    check_reduction(reduction, what)
    if isinstance(weight, str):
        raise GraphTypeError(
            f"{what}: the third argument is the weight of the classes; write reduction={weight!r}"
        )


@raises(
    types="A dtype does not fit, or there is no such reduction.",
    shapes="The shape of `targets` is not that of `log_probs` without the classes.",
)  # fmt: skip
@naming_itself
def nll_loss(
    log_probs: Node,
    targets: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    axis: int = -1,
) -> Node:
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
    reduction : {"mean", "sum", "none"}
    axis : int
        Where the classes stand; 1 in PyTorch.

    Returns
    -------
    Node
        A scalar, or of the shape of `targets`.  The mean over nothing is NaN, with gradient NaN or
        0 and no warning.
    """
    _check_options(reduction, weight, "nll_loss")
    log_probs = _classes_last(log_probs, axis, "nll_loss")
    chosen, weights, valid = _picked(log_probs, targets, weight, ignore_index)
    if weight is None and valid is None:
        return reduced(neg(chosen), reduction)
    losses = neg(weights * (chosen if valid is None else where(valid, chosen, 0)))
    return _averaged(losses, weights, reduction)


nll = nll_loss


@raises(
    types="A dtype does not fit, the smoothing is not in [0, 1], there is no such reduction, or "
    "`ignore_index` is given with probabilities.",
    shapes="The shape of `targets` does not fit, or there is no such axis.",
)  # fmt: skip
def cross_entropy(
    logits: Node,
    targets: Any,
    weight: Any = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Node:
    """Return ``logsumexp(logits) - logits[target]``, stable; in one op where no option is given.

    With probabilities q of classes as targets: ``-sum over c of w[c] q[c] log p[c]``, and a mean
    divides by the number of rows.  With options of the others:
    ``(1 - s) w[t] (-log p[t]) + s / classes * sum over c of w[c] (-log p[c])`` for the smoothing s
    and the weights w; a mean divides by the sum of ``w[t]`` over the targets that count, as
    PyTorch does.

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
    ignore_index : int, optional
        Targets that do not count; PyTorch's default is -100, here none is ignored.
    label_smoothing : float
        In [0, 1]: the share of the target that is spread over all classes.
    axis : int
        Where the classes stand in `logits` (and in probabilities); 1 in PyTorch.

    Returns
    -------
    Node
        A scalar, or of the shape of `logits` without the classes; the dtype of `logits`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> z, t = g.input("z", ("batch", 10)), g.input("t", ("batch",), "int64")
    >>> ag.ops.cross_entropy(z, t, label_smoothing=0.1).shape
    ()
    """
    _check_options(reduction, weight, "cross_entropy")
    if not 0 <= label_smoothing <= 1:
        raise GraphTypeError(f"cross_entropy: label_smoothing is in [0, 1], got {label_smoothing}")
    targets = logits.graph.lift(targets)
    logits = _classes_last(logits, axis, "cross_entropy")
    if targets.dtype.kind in "fV":
        if ignore_index is not None:
            raise GraphTypeError(
                "cross_entropy: probabilities have no index to ignore; give rows of zeros instead"
            )
        soft = targets if targets.ndim < logits.ndim else _classes_last(targets, axis, "targets")
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
    return cross_entropy(linear(x, linear_weight, linear_bias), targets, **options)


def _soft_losses(logits: Node, targets: Node, weight: Any, share: float) -> Node:
    if shapes_differ(logits.dims, targets.dims):
        raise ShapeError(
            f"cross_entropy: float targets are probabilities of the shape of the logits, "
            f"{logits.shape} with the classes last, got {targets.shape}; classes are integers"
        )
    log_probs = log_softmax(logits)
    weighted = log_probs if weight is None else log_probs * weight
    losses = sum(weighted * targets, -1)
    if share:
        losses = losses * (1 - share) + mean(weighted, -1) * share
    return neg(losses)


def pick_neg_log_softmax(logits: Node, index: Any) -> Node:
    """Return ``-log(softmax(logits))`` at the index of each row; the gradient is softmax - onehot.

    Parameters and errors are those of `cross_entropy`, of which it is the unreduced form.
    """
    return plain_cross_entropy(logits, index, "none")


def pick_softmax(logits: Node, index: Any) -> Node:
    """Return ``softmax(logits)`` at the index of each row, without the other entries.

    ``exp(-cross_entropy)``, so that small probabilities keep their digits.

    Parameters and errors are those of `cross_entropy`.
    """
    return exp(neg(plain_cross_entropy(logits, index, "none")))


@naming_itself
def pick_neg_log_sigmoid(logits: Node, index: Any) -> Node:
    """Return ``-log(sigmoid(logits))`` at the index of each row; Ginn's `PickNegLogSigmoid`.

    Parameters and errors are those of `pick`.
    """
    return neg(logsigmoid(pick(logits, index)))


# -- two classes ------------------------------------------------------------------------------

_FLOOR = -100.0
_SMALLEST = 1e-12


def _log_forward(xp: Any, x: Any) -> Any:
    with np.errstate(divide="ignore"):
        return xp.maximum(xp.log(x), x.dtype.type(_FLOOR))


def _log_of_rest_forward(xp: Any, x: Any) -> Any:
    with np.errstate(divide="ignore"):
        return xp.maximum(xp.log1p(xp.negative(x)), x.dtype.type(_FLOOR))


def _least(dtype: Any) -> float:
    """Return the smallest divisor; in half precision 1e-12 would be 0."""
    return max(_SMALLEST, tiny(dtype))


_log_floored = unary(
    "log_floored", _log_forward, lambda t, y, x: t / maximum(x, _least(x.dtype)),
    "max(log(x), -100).", scheme="f[*s] -> f[*s]", low=0.05, high=3, flops=12,
    notes="The slope is 1 / max(x, 1e-12).",
)  # fmt: skip
_log_of_rest_floored = unary(
    "log_of_rest_floored", _log_of_rest_forward,
    lambda t, y, x: -t / maximum(1 - x, _least(x.dtype)), "max(log(1 - x), -100).",
    scheme="f[*s] -> f[*s]", low=-2, high=0.95, flops=12,
    notes="The slope is -1 / max(1 - x, 1e-12).",
)  # fmt: skip


def _weighted(losses: Node, weight: Any, reduction: str) -> Node:
    return reduced(losses if weight is None else losses * weight, reduction)


@raises(types=NO_REDUCTION, shapes=DIFFERENT)
def binary_cross_entropy(
    probabilities: Any, targets: Any, weight: Any = None, *, reduction: str = "mean"
) -> Node:
    """Return ``-t log(p) - (1 - t) log(1 - p)``, reduced.

    Logarithms end at -100, and divisors of gradients at 1e-12, so p = 0 and p = 1 are finite.

    Parameters
    ----------
    probabilities : node or array
        Float in [0, 1]; outside, logarithms are NaN and NumPy warns.
    targets : node or array
        Of the same dtype and shape, in [0, 1].
    weight : node or array, optional
        Factor of each loss; broadcasts.
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "binary_cross_entropy")
    p, t = same_shape(probabilities, targets, "binary_cross_entropy")
    return _weighted(
        neg(t * _log_floored(p) + (1 - t) * _log_of_rest_floored(p)), weight, reduction
    )


@raises(types=NO_REDUCTION, shapes=DIFFERENT)
def bce_with_logits(
    logits: Any,
    targets: Any,
    weight: Any = None,
    *,
    pos_weight: Any = None,
    reduction: str = "mean",
) -> Node:
    """Return binary cross entropy of ``sigmoid(logits)``, without overflow or cancellation.

    ``w t softplus(-x) + (1 - t) softplus(x)`` for the weight w of positive targets; PyTorch's
    ``binary_cross_entropy_with_logits``.

    Parameters
    ----------
    logits : node or array
        Float.
    targets : node or array
        Of the same dtype and shape, in [0, 1].
    weight, pos_weight : node or array, optional
        Factor of each loss, and of its part with a positive target; they broadcast.
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "bce_with_logits")
    x, t = same_shape(logits, targets, "bce_with_logits")
    positive = t if pos_weight is None else t * pos_weight
    return _weighted(positive * softplus(neg(x)) + (1 - t) * softplus(x), weight, reduction)


binary_cross_entropy_with_logits = bce_with_logits


@raises(types=NO_REDUCTION, shapes=DIFFERENT)
def hinge_loss(scores: Any, targets: Any, margin: float = 1.0, reduction: str = "mean") -> Node:
    """Return ``max(0, margin - targets * scores)``, reduced; the slope at the corner is 0.

    Parameters
    ----------
    scores : node or array
        Float.
    targets : node or array
        -1 or 1, of the dtype and shape of `scores`.
    margin : float
    reduction : {"mean", "sum", "none"}
    """
    check_reduction(reduction, "hinge_loss")
    x, t = same_shape(scores, targets, "hinge_loss")
    return reduced(relu(float(margin) - t * x), reduction)


hinge = hinge_loss
