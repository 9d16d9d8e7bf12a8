"""Convolutions over one, two and three axes, and transposed ones; channels come first.

The ops stand in `_convolution`; here their arguments are read and a bias is added.
"""

from __future__ import annotations

from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.ops._convolution import CONV, TRANSPOSE
from actorgraph.ops.broadcasting import expand_dims
from actorgraph.ops.windows import per_axis, read_padding, static_kernel

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"]

Ints = tuple[int, ...]


def _kernel_of(weight: Any, axes: int, what: str) -> Ints:
    shape = weight.dims if isinstance(weight, Node) else tuple(getattr(weight, "shape", ()))
    if len(shape) != axes + 2:
        raise ShapeError(f"{what}: the weight has to have rank {axes + 2}, got shape {shape}")
    return static_kernel(shape[2:], what)


def _geometry(
    weight: Any, stride: Any, padding: Any, dilation: Any, groups: Any, axes: int, what: str
) -> dict[str, Any]:
    kernel = _kernel_of(weight, axes, what)
    steps = per_axis(stride, axes, f"{what}: stride")
    gaps = per_axis(dilation, axes, f"{what}: dilation")
    return {
        "stride": steps,
        "padding": read_padding(padding, kernel, steps, gaps, what),
        "dilation": gaps,
        "groups": per_axis(groups, 1, f"{what}: groups")[0],
    }


def _with_bias(y: Node, bias: Any, axes: int) -> Node:
    if bias is None:
        return y
    bias = y.graph.lift(bias)
    if bias.ndim != 1:
        raise ShapeError(f"the bias of a convolution has rank 1, got {bias!r}")
    return y + expand_dims(bias, tuple(range(1, axes + 1)))


def _conv_of(
    x: Node,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    axes: int,
) -> Node:
    geometry = _geometry(weight, stride, padding, dilation, groups, axes, f"conv{axes}d")
    return _with_bias(build(CONV, x, weight, size=None, **geometry), bias, axes)


def conv1d(
    x: Node,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """Convolution over one axis; see `conv2d`, with shapes (batch, channels, size)."""
    return _conv_of(x, weight, bias, stride, padding, dilation, groups, 1)


def conv2d(
    x: Node,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """Convolution over two axes, as ``torch.nn.functional.conv2d``.

    ``y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, stride p + dilation k - pad]``
    with ``(size + pads - dilation (kernel - 1) - 1) // stride + 1`` entries along each axis.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width).
    weight : node or array
        Shape (features, channels / groups, kernel height, kernel width), of the dtype of `x`.
    bias : node or array, optional
        Shape (features,).
    stride, dilation : int or pair of int
    padding : int, pair of int, pair of pairs, "same" or "valid"
        Zeros before and after each axis.  "same" gives ``ceil(size / stride)`` entries, for every
        stride; where the padding is odd, one more stands at the end.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.

    Returns
    -------
    Node
        Shape (batch, features, height, width) of the result; linear in each of the operands.

    Raises
    ------
    GraphTypeError
        The dtypes differ, or the padding is an unknown word.
    ShapeError
        Ranks, channels or groups do not fit, or the kernel is larger than the padded input.

    Examples
    --------
    >>> import numpy as np
    >>> from actorgraph.graph import Graph
    >>> x = Graph().input("x", ("batch", 3, 8, 8))
    >>> conv2d(x, np.zeros((16, 3, 3, 3), "float32"), stride=2, padding=1).shape
    (batch, 16, 4, 4)
    """
    return _conv_of(x, weight, bias, stride, padding, dilation, groups, 2)


def conv3d(
    x: Node,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Node:
    """Convolution over three axes; see `conv2d`, with (batch, channels, depth, height, width)."""
    return _conv_of(x, weight, bias, stride, padding, dilation, groups, 3)


def _transpose_of(
    x: Node,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
    axes: int,
) -> Node:
    what = f"conv_transpose{axes}d"
    if isinstance(padding, str) and padding != "valid":
        raise GraphTypeError(f"{what}: padding is ints or pairs of ints, got {padding!r}")
    geometry = _geometry(weight, stride, padding, dilation, groups, axes, what)
    extra = per_axis(output_padding, axes, f"{what}: output_padding", 0)
    if any(more >= step for more, step in zip(extra, geometry["stride"], strict=True)):
        raise ShapeError(
            f"{what}: output_padding {extra} has to be below the stride {geometry['stride']}"
        )
    return _with_bias(build(TRANSPOSE, x, weight, size=None, extra=extra, **geometry), bias, axes)


def conv_transpose1d(
    x: Node,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Node:
    """Transposed convolution over one axis; see `conv_transpose2d`."""
    return _transpose_of(x, weight, bias, stride, padding, output_padding, groups, dilation, 1)


def conv_transpose2d(
    x: Node,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Node:
    """Transposed convolution over two axes, as ``torch.nn.functional.conv_transpose2d``.

    The adjoint, in its input, of `conv2d` with the same weight: along each axis it gives
    ``(size - 1) stride - pads + dilation (kernel - 1) + output_padding + 1`` entries.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width).
    weight : node or array
        Shape (channels, features / groups, kernel height, kernel width).
    bias : node or array, optional
        Shape (features,).
    stride, dilation : int or pair of int
    padding : int, pair of int or pair of pairs
        How much is cut off the result at each end.
    output_padding : int or pair of int
        Entries more at the end of the result, fewer than the stride.
    groups : int
        Channels and features are divided into so many independent groups.

    Returns
    -------
    Node
        Shape (batch, features, height, width) of the result.

    Raises
    ------
    GraphTypeError
        The dtypes differ, or the padding is a word.
    ShapeError
        Ranks, channels or groups do not fit, or `output_padding` reaches the stride.
    """
    return _transpose_of(x, weight, bias, stride, padding, output_padding, groups, dilation, 2)
