"""Losses with a margin, and those of several labels a row.  All built of other ops."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import DIFFERENT, NO_REDUCTION, raises
from actorgraph.ops.activations import logsigmoid, relu, softplus
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import expand_dims, sum  # noqa: A004 - NumPy's name
from actorgraph.ops.cumulative import cumprod
from actorgraph.ops.distances import cosine_similarity, pairwise_distance
from actorgraph.ops.gathering import take_along_axis
from actorgraph.ops.indexing import one_hot, take
from actorgraph.ops.losses import check_reduction, reduced, same_shape
from actorgraph.ops.losses_regression import positive as above_zero
from actorgraph.ops.reductions import max as maximum_over
from actorgraph.ops.reductions import mean
from actorgraph.ops.selection import minimum, where
from actorgraph.types import Dim

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss", "triplet",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


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
