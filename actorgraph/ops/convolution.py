"""Convolutions over one, two and three axes, and transposed ones; channels come first.

The ops stand in `_convolution`; here their arguments are read and a bias is added.
"""

from __future__ import annotations

from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.ops._convolution import CONV, TRANSPOSE
from actorgraph.ops._declare import over_axes
from actorgraph.ops._docs import raises
from actorgraph.ops.broadcasting import expand_dims, squeeze
from actorgraph.ops.einsum import einsum
from actorgraph.ops.linalg import matmul
from actorgraph.ops.shaping import swap_last
from actorgraph.ops.windows import per_axis, read_padding, static_kernel

__all__ = [
    "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "linear",
]  # fmt: skip


def _geometry(
    weight: Any, stride: Any, padding: Any, dilation: Any, groups: Any, axes: int, what: str
) -> dict[str, Any]:
    shape = weight.dims if isinstance(weight, Node) else tuple(getattr(weight, "shape", ()))
    if len(shape) != axes + 2:
        raise ShapeError(f"{what}: the weight has to have rank {axes + 2}, got shape {shape}")
    kernel = static_kernel(shape[2:], what)
    steps = per_axis(stride, axes, f"{what}: stride")
    gaps = per_axis(dilation, axes, f"{what}: dilation")
    return {
        "stride": steps,
        "padding": read_padding(padding, kernel, steps, gaps, what),
        "dilation": gaps,
        "groups": per_axis(groups, 1, f"{what}: groups")[0],
    }


def _applied(op: Any, x: Node, weight: Any, bias: Any, axes: int, **attrs: Any) -> Node:
    """Apply the op to a batch, or to one image as to a batch of one, and add the bias."""
    single = x.ndim == axes + 1
    y = build(op, expand_dims(x, 0) if single else x, weight, size=None, **attrs)
    if bias is not None:
        bias = y.graph.lift(bias)
        if bias.ndim != 1:
            raise ShapeError(f"the bias of a convolution has rank 1, got {bias!r}")
        y = y + expand_dims(bias, tuple(range(1, axes + 1)))
    return squeeze(y, 0) if single else y


@raises(
    types="The dtypes differ, or the padding is an unknown word.",
    shapes="Ranks, channels or groups do not fit, or the kernel is larger than the padded input.",
)  # fmt: skip
def _conv(
    axes: int,
    x: Node,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """Convolution over {axes}, as ``torch.nn.functional.conv{n}d``.

    ``y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, stride p + dilation k - pad]``
    with ``(size + pads - dilation (kernel - 1) - 1) // stride + 1`` entries along each axis.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, {places}) or without the batch.
    weight : node or array
        Shape (features, channels / groups, *kernel), of the dtype of `x`.
    bias : node or array, optional
        Shape (features,).
    stride, dilation : {ints}
    padding : {ints}, pairs of int, "same" or "valid"
        Zeros before and after each axis.  "same" gives ``ceil(size / stride)`` entries, for every
        stride; where the padding is odd, one more stands at the end.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.

    Returns
    -------
    Node
        Shape (batch, features, {places}) of the result; linear in each of the operands.

    Examples
    --------
    >>> import actorgraph as ag, numpy as np
    >>> x = ag.Graph().input("x", ("batch", 3, 8, 8))
    >>> ag.ops.conv2d(x, np.zeros((16, 3, 3, 3), "float32"), stride=2, padding=1).shape
    (batch, 16, 4, 4)
    """
    geometry = _geometry(weight, stride, padding, dilation, groups, axes, f"conv{axes}d")
    return _applied(CONV, x, weight, bias, axes, **geometry)


@raises(
    types="The dtypes differ, or the padding is a word.",
    shapes="Ranks, channels or groups do not fit, or `output_padding` reaches stride and dilation.",
)  # fmt: skip
def _conv_transpose(
    axes: int,
    x: Node,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Node:
    """Transposed convolution over {axes}, as ``torch.nn.functional.conv_transpose{n}d``.

    The adjoint, in its input, of `conv{n}d` with the same weight: along each axis it gives
    ``(size - 1) stride - pads + dilation (kernel - 1) + output_padding + 1`` entries.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, {places}) or without the batch.
    weight : node or array
        Shape (channels, features / groups, *kernel).
    bias : node or array, optional
        Shape (features,).
    stride, dilation : {ints}
    padding : {ints}, or pairs of int
        How much is cut off the result at each end.
    output_padding : {ints}
        Entries more at the end of the result, fewer than the stride or the dilation.
    groups : int
        Channels and features are divided into so many independent groups.

    Returns
    -------
    Node
        Shape (batch, features, {places}) of the result.
    """
    what = f"conv_transpose{axes}d"
    if isinstance(padding, str) and padding != "valid":
        raise GraphTypeError(f"{what}: padding is ints or pairs of ints, got {padding!r}")
    geometry = _geometry(weight, stride, padding, dilation, groups, axes, what)
    extra = per_axis(output_padding, axes, f"{what}: output_padding", 0)
    limits = map(max, geometry["stride"], geometry["dilation"])
    if any(more >= limit for more, limit in zip(extra, limits, strict=True)):
        raise ShapeError(
            f"{what}: output_padding {extra} has to be below the stride {geometry['stride']} "
            f"or the dilation {geometry['dilation']}"
        )
    return _applied(TRANSPOSE, x, weight, bias, axes, extra=extra, **geometry)


conv1d, conv2d, conv3d = over_axes(_conv, "conv{n}d")
conv_transpose1d, conv_transpose2d, conv_transpose3d = over_axes(
    _conv_transpose, "conv_transpose{n}d"
)


# -- linear -----------------------------------------------------------------------------------


def linear(x: Node, weight: Any, bias: Any = None) -> Node:
    """Return ``x weight^T + bias``, as ``torch.nn.functional.linear``.

    Parameters
    ----------
    x : node
        Shape (..., features).
    weight : node or array
        Shape (outputs, features), or (features,) for one output without an axis.
    bias : node or array, optional
        Shape (outputs,).

    Returns
    -------
    Node
        Shape (..., outputs).
    """
    weight = x.graph.lift(weight)
    y = matmul(x, swap_last(weight) if weight.ndim > 1 else weight)
    return y if bias is None else y + bias


def bilinear(x1: Node, x2: Any, weight: Any, bias: Any = None) -> Node:
    """Return ``x1^T weight[k] x2 + bias[k]`` for each k, as ``torch.nn.functional.bilinear``.

    Parameters
    ----------
    x1, x2 : node or array
        Shapes (..., n) and (..., m).
    weight : node or array
        Shape (outputs, n, m).
    bias : node or array, optional
        Shape (outputs,).

    Returns
    -------
    Node
        Shape (..., outputs).
    """
    y = einsum("...n,knm,...m->...k", x1, x1.graph.lift(weight), x1.graph.lift(x2))
    return y if bias is None else y + bias
