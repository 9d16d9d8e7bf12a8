"""Normalisation: batch, layer, group, instance, root mean square and local response.

All but the last stand on one op, `standardize`: values minus their mean, divided by their standard
deviation, over some axes.  With ``y = (x - mean) r`` and ``r = 1 / sqrt(var + eps)`` its gradient
is ``r (ct - mean(ct) - y mean(ct y))``, an op of its own with its own rules.  Source: J. L. Ba et
al., Layer normalization, 2016, and S. Ioffe, C. Szegedy, Batch normalization, 2015.  The variance
is computed from centred values; floats of two bytes are computed in float32.
"""

from __future__ import annotations

import sys
from math import nan, prod
from typing import Any, NamedTuple

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.node import Buffer
from actorgraph.op import IN_PLACE, KEPT, KEPT_OUT, MEAN, SPREAD, Along, Op
from actorgraph.ops import _foreign, reductions
from actorgraph.ops._arrays import machine_epsilon, through_float32
from actorgraph.ops._pooling import AVERAGE
from actorgraph.ops._rules import NO_EPS, as_of, declare, each, on, raises, returns, tangents
from actorgraph.ops.arithmetic import multiply, power, sqrt, square
from actorgraph.ops.broadcasting import add, expand_dims, reduced_shape, sum
from actorgraph.ops.reductions import divide_by_size, mean
from actorgraph.ops.reshaping import group_dim, reshape_like
from actorgraph.ops.statistics import var as variance
from actorgraph.scratch import scratch_like
from actorgraph.types import Checks, shape_from

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm",
    "running_batch_norm",
]  # fmt: skip

Axes = tuple[int, ...]


def _mean(xp: Any, x: Any, axis: Axes) -> Any:
    total = xp.add.reduce(x, axis=axis, keepdims=True)
    # A mean over nothing is NaN without the warning of 0 / 0.
    total /= x.dtype.type(prod([x.shape[i] for i in axis]) or nan)
    return total


def _centred(xp: Any, x: Any, axis: Axes, out: Any = None) -> Any:
    return xp.subtract(x, _mean(xp, x, axis), out=out)


def _inverse_of(xp: Any, x: Any, axis: Axes, eps: float, room: Any = None) -> Any:
    """Return one over the standard deviation of centred values."""
    room = scratch_like(xp, x) if room is None else room
    deviation = _mean(xp, xp.multiply(x, x, out=room), axis)
    deviation += x.dtype.type(eps)
    xp.sqrt(deviation, out=deviation)
    return xp.reciprocal(deviation)


@through_float32
def _normalize_forward(
    xp: Any, x: Any, axis: Axes, eps: float, centred: bool, out: Any = None
) -> Any:
    values = _centred(xp, x, axis, out) if centred else x
    return xp.multiply(values, _inverse_of(xp, values, axis, eps), out=out)


@through_float32
def _inverse_forward(xp: Any, x: Any, axis: Axes, eps: float, centred: bool) -> Any:
    values = _centred(xp, x, axis, scratch_like(xp, x)) if centred else x
    return _inverse_of(xp, values, axis, eps, values if centred else None)


@through_float32
def _pull_forward(
    xp: Any, ct: Any, y: Any, inverse: Any, axis: Axes, centred: bool, out: Any = None
) -> Any:
    scratch = xp.multiply(ct, y, out=out)
    share = _mean(xp, scratch, axis)
    xp.multiply(y, share, out=scratch)
    result = xp.subtract(ct, scratch, out=scratch)
    if centred:
        result -= _mean(xp, ct, axis)
    result *= inverse
    return result


def _normalize_derivative(t: Node, y: Node, x: Node, axis: Axes, eps: float, centred: bool) -> Node:
    """Apply the Jacobian, which is symmetric, so that it serves both modes."""
    inverse = build(_INVERSE, x, axis=axis, eps=eps, centred=centred)
    return build(_PULL, t, y, inverse, axis=axis, centred=centred)


def _inverse_vjp(ct: Node, r: Node, x: Node, **attrs: Any) -> Node:
    y = build(_NORMALIZE, x, **attrs)
    return divide_by_size(ct * -(r * r), x, attrs["axis"]) * y


def _inverse_push(t: Node, r: Node, x: Node, **attrs: Any) -> Node:
    y = build(_NORMALIZE, x, **attrs)
    return -(r * r) * mean(t * y, attrs["axis"], keepdims=True)


def _pull_vjp_y(u: Node, g: Node, ct: Node, y: Node, r: Node, axis: Axes, centred: bool) -> Node:
    along_ct, along_u = (mean(part * y, axis, keepdims=True) for part in (ct, u))
    return -r * (u * along_ct + ct * along_u)


def _pull_push_y(t: Node, g: Node, ct: Node, y: Node, r: Node, axis: Axes, centred: bool) -> Node:
    along_ct, along_t = (mean(ct * part, axis, keepdims=True) for part in (y, t))
    return -r * (t * along_ct + y * along_t)


def _without_scale(ct: Node, y: Node, axis: Axes, centred: bool) -> Node:
    result = ct - y * mean(ct * y, axis, keepdims=True)
    return result - mean(ct, axis, keepdims=True) if centred else result


_SAMPLES = (
    on((3, 4), axis=(1,), eps=1e-3, centred=True),
    on((2, 3, 4), axis=(0, 2), eps=1e-5, centred=True),
    on((3, 4), axis=(0, 1), eps=1e-5, centred=False),
    on((0, 4), axis=(1,), eps=1e-5, centred=True),
)

_STAGES = (MEAN, (SPREAD, (("r", "divide(1, sqrt(add(multiply(v, n), eps)))"),)))

_NORMALIZE: Op = declare(
    "standardize", "f[*s] -> f[*s]", _normalize_forward, vjp=(_normalize_derivative,),
    jvp=tangents(_normalize_derivative), cost=each(6), samples=_SAMPLES,
    memory=IN_PLACE._replace(scratch=True),
    doc="Values without their mean over axes, divided by their standard deviation.", traced=True,
    along=Along(_STAGES, "multiply(subtract(x, m), r)", (False, False)),
)  # fmt: skip

_INVERSE: Op = declare(
    "inverse_deviation", "f[*s] -> f[*out]", _inverse_forward,
    shape=lambda checks, x, *, axis, **attrs: reduced_shape(checks, x, axis=axis, keepdims=True),
    vjp=(_inverse_vjp,), jvp=tangents(_inverse_push), cost=each(4, 0), samples=_SAMPLES,
    memory=KEPT, traced=True, along=Along(_STAGES, "r", (False, True)),
    doc="1 / sqrt(variance + eps) over axes, which stay as dims of size 1.",
)  # fmt: skip

_PULL: Op = declare(
    "standardize_pull", "f[*s] -> f[*s] -> f[*t] -> f[*s]", _pull_forward,
    vjp=(
        lambda u, g, ct, y, r, **attrs: build(_PULL, u, y, r, **attrs), _pull_vjp_y,
        lambda u, g, ct, y, r, axis, centred: sum(
            u * _without_scale(ct, y, axis, centred), axis, keepdims=True),
    ),
    jvp=tangents(
        lambda t, g, ct, y, r, **attrs: build(_PULL, t, y, r, **attrs), _pull_push_y,
        lambda t, g, ct, y, r, axis, centred: t * _without_scale(ct, y, axis, centred),
    ),
    cost=each(6), samples=(
        on((3, 4), (3, 4), (3, 1), axis=(1,), centred=True),
        on((2, 3, 4), (2, 3, 4), (1, 3, 1), axis=(0, 2), centred=False),
    ),
    memory=KEPT_OUT, doc="Gradient of standardize: r (ct - mean(ct) - y mean(ct y)).", traced=True,
    along=Along(
        (((("s", "add", "multiply(x, y)"), ("t", "add", "x")),
          (("a", "multiply(s, n)"), ("b", "multiply(t, n)"))),),
        "multiply(subtract(subtract(x, multiply(y, a)), b), z)", (False, False, True, False),
    ),
)  # fmt: skip


def _normalized(x: Node, axis: Axes, eps: float, centred: bool = True) -> Node:
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or eps < 0:
        raise GraphTypeError(f"eps is a float >= 0, got {eps!r}")
    return build(_NORMALIZE, x, axis=axis, eps=float(eps), centred=centred)


def _trailing(x: Node, normalized_shape: Any) -> Axes:
    """Return the trailing axes that `normalized_shape` names, checked against `x`."""
    wanted = shape_from(normalized_shape)
    lead = x.ndim - len(wanted)
    if not wanted or lead < 0:
        raise ShapeError(f"normalized_shape {wanted} does not fit {x!r}")
    for dim, got in zip(wanted, x.dims[lead:], strict=True):
        Checks().equal(dim, got, f"normalized_shape {wanted} and the last dims of {x!r}")
    return tuple(range(lead, x.ndim))


def _affine(y: Node, scale: Any, bias: Any, axes: Axes = ()) -> Node:
    """Multiply and add parameters; `axes` are the trailing axes that they lack."""
    for parameter, join in ((scale, multiply), (bias, add)):
        if parameter is not None:
            y = join(y, expand_dims(y.graph.lift(parameter), axes))
    return y


def _behind_channels(x: Node) -> Axes:
    """Return the axes to add to a parameter of one entry per channel: those behind the channels."""
    if x.ndim < 2:
        raise ShapeError(f"takes (batch, channels, ...), got {x!r}")
    return tuple(range(1, x.ndim - 1))


@returns("Node of the shape of `x`")
@raises(NO_EPS, "`x` does not end in `normalized_shape`.")
def layer_norm(
    x: Node, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Node:
    """Normalise over the trailing axes, as ``torch.nn.functional.layer_norm``.

    ``(x - mean) / sqrt(var + eps) * weight + bias`` with the biased variance.

    Parameters
    ----------
    x : node
        Float.
    normalized_shape : int or tuple
        The last dims of `x`, over which mean and variance are taken.
    weight, bias : node or array, optional
        Of that shape.
    eps : float
        Added to the variance.
    """
    axes = _trailing(x, normalized_shape)
    return _affine(_normalized(x, axes, eps), weight, bias)


@returns("Node of the shape of `x`")
@as_of(layer_norm)
def rms_norm(x: Node, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Node:
    """Divide by the root mean square over the trailing axes, as ``torch.nn.functional.rms_norm``.

    ``x / sqrt(mean(x^2) + eps) * weight``; otherwise as `layer_norm`.

    Parameters
    ----------
    eps : float, optional
        Default: the machine epsilon of the dtype.
    """
    axes = _trailing(x, normalized_shape)
    if eps is None:
        eps = machine_epsilon(x.dtype) if x.dtype.kind in "fV" else 0.0
    return _affine(_normalized(x, axes, eps, centred=False), weight, None)


@raises(NO_EPS, "`num_groups` does not divide the channels.")
@as_of(layer_norm)
def group_norm(
    x: Node, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Node:
    """Normalise groups of channels of each sample, as ``torch.nn.functional.group_norm``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...).
    num_groups : int
        Divides the channels.
    weight, bias : node or array, optional
        One entry per channel, where `layer_norm` has one per place.
    """
    axes = _behind_channels(x)
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 1:
        raise ShapeError(f"num_groups is an int >= 1, got {num_groups!r}")
    if isinstance(x.dims[1], int) and x.dims[1] % num_groups:
        raise ShapeError(f"{x.dims[1]} channels do not make {num_groups} groups")
    grouped = group_dim(x, 1, num_groups)
    y = _normalized(grouped, tuple(range(2, grouped.ndim)), eps)
    return _affine(reshape_like(y, x), weight, bias, axes)


@raises(NO_EPS, "There is no axis behind the channels.")
@as_of(group_norm)
def instance_norm(x: Node, *, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Node:
    """Normalise each channel of each sample over its places.

    PyTorch's ``instance_norm`` without running statistics: `group_norm` of groups of one.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...), rank 3 or more.
    """
    if x.ndim < 3:
        raise ShapeError(f"takes (batch, channels, axes), got {x!r}")
    y = _normalized(x, tuple(range(2, x.ndim)), eps)
    return _affine(y, weight, bias, _behind_channels(x))


class BatchNorm(NamedTuple):
    """What `batch_norm` returns."""

    y: Node
    mean: Node
    var: Node


@returns("BatchNorm: ``(y, mean, var)``: `y` of the shape of `x`, the others of shape (channels,)")
@raises(
    types="`x` is no float, one of `mean` and `var` is missing, or `eps` is no float >= 0.",
    shapes="A parameter's shape is not (channels,), or there is one known value per channel.",
)  # fmt: skip
@as_of(group_norm)
def batch_norm(
    x: Node, *, scale: Any = None, bias: Any = None, mean: Any = None, var: Any = None,
    eps: float = 1e-5,
) -> BatchNorm:  # fmt: skip
    """Normalise each channel over batch and places; a pure function of the statistics.

    Training: without `mean` and `var`, those of the batch are used (the biased variance, as in
    PyTorch) and returned for running statistics, the variance unbiased.  Evaluation: the given
    `mean` and `var` are used and returned; gradients flow to them if they are nodes.  `group_norm`
    normalises each sample by itself.

    Parameters
    ----------
    scale, bias : node or array, optional
        One entry per channel.
    mean, var : node or array, optional
        One entry per channel; both or neither.
    """
    axes = _behind_channels(x)
    if (mean is None) != (var is None):
        raise GraphTypeError("takes both mean and var, or neither")
    if mean is not None:
        centre, spread = x.graph.lift(mean), x.graph.lift(var)
        factor = expand_dims(1 / sqrt(spread + float(eps)), axes)
        y = (x - expand_dims(centre, axes)) * factor
        return BatchNorm(_affine(y, scale, bias, axes), centre, spread)
    over = (0, *range(2, x.ndim))
    if all(x.dims[i] == 1 for i in over):
        raise ShapeError(f"{x!r} has one value per channel, so there is no variance")
    y = _affine(_normalized(x, over, eps), scale, bias, axes)
    return BatchNorm(y, reductions.mean(x, over), variance(x, over, ddof=1))


@raises(shapes="`x` has no channels, or `size` is below 1.")
@as_of(group_norm)
def local_response_norm(
    x: Node, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Node:
    """Divide by a power of the mean square over neighbouring channels, as PyTorch does.

    ``x / (k + alpha mean)^beta``, the mean over `size` channels around each, zeros beyond the
    ends; `x` as of `group_norm`.  Source: A. Krizhevsky et al., ImageNet classification, 2012.

    Parameters
    ----------
    size : int
        Channels in a window.
    """
    axes = _behind_channels(x)
    if size < 1:
        raise ShapeError(f"size is an int >= 1, got {size!r}")
    if 0 in x.dims:
        return x  # no window fits, and there is nothing to divide
    ones, pads = (1,) * len(axes), ((size // 2, (size - 1) // 2), *[(0, 0)] * len(axes))
    average = build(
        AVERAGE, square(x), kernel=(size, *ones), stride=(1, *ones), dilation=(1, *ones),
        padding=pads, ceil=False, divisor="all",
    )  # fmt: skip
    return x / power(average * float(alpha) + float(k), float(beta))


@returns("Node of the shape of `x`")
@raises(types="The statistics are no buffers, or `momentum` is outside of [0, 1].")
@as_of(batch_norm)
def running_batch_norm(
    x: Node, scale: Any, bias: Any, running_mean: Node, running_var: Node, *, training: bool,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Node:  # fmt: skip
    """Do `batch_norm` by the batch in training, by running statistics in evaluation.

    In training every run that computes the result ends by moving the buffers towards the batch's
    mean and unbiased variance, ``running = (1 - momentum) running + momentum batch``, as PyTorch
    does.  Runs commit in the order of their numbers; each has read the statistics at its start,
    so of runs in flight together the last one's counts.  A failed run changes nothing.

    Parameters
    ----------
    scale, bias : node, array or None
        One entry per channel.
    running_mean, running_var : Buffer
        One entry per channel; usually zeros and ones at first.
    training : bool
        Build two nodes, one for each, where both are wanted.
    """
    for buffer in (running_mean, running_var):
        if not isinstance(buffer, Buffer) and x.graph is x.graph.outermost:
            raise GraphTypeError(
                f"running statistics are buffers, got {buffer!r}; make them with graph.buffer(...)"
            )
    if not 0 <= momentum <= 1:
        raise GraphTypeError(f"momentum is in [0, 1], got {momentum!r}")
    if not training:
        return batch_norm(x, scale=scale, bias=bias, mean=running_mean, var=running_var, eps=eps).y
    y, mean, var = batch_norm(x, scale=scale, bias=bias, eps=eps)
    for buffer, batch in ((running_mean, mean), (running_var, var)):
        x.graph.assign(buffer, buffer * (1 - momentum) + batch * momentum, on=y)
    return y


_foreign.install_late(sys.modules[__name__])
