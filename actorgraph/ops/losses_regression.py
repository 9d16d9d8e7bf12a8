"""Losses between arrays: absolute, Huber, divergence, likelihood.  All built of other ops."""

from __future__ import annotations

import math
from math import pi
from typing import Any

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, is_weak
from actorgraph.ops._docs import DIFFERENT, NO_REDUCTION, raises
from actorgraph.ops.arithmetic import abs, square, subtract  # noqa: A004
from actorgraph.ops.broadcasting import expand_dims, sum  # noqa: A004
from actorgraph.ops.exponential import exp, log
from actorgraph.ops.losses import REDUCTIONS, check_reduction, reduced, same_shape
from actorgraph.ops.reductions import divide_by_size
from actorgraph.ops.selection import maximum, minimum, where

__all__ = [
    "gaussian_nll_loss", "huber", "huber_loss", "kl_div", "l1", "l1_loss", "poisson_nll_loss",
    "smooth_l1", "smooth_l1_loss",
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


def positive(value: Any, what: str, least: float) -> float:
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
        _bent(x, y, positive(delta, "huber_loss: delta", 1e-300), "huber_loss"), reduction
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
    width = positive(beta, "smooth_l1_loss: beta", 0)
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
