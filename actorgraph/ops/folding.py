"""Images as columns of windows, and back, as PyTorch lays them out."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.ops._docs import raises
from actorgraph.ops.broadcasting import expand_dims, squeeze
from actorgraph.ops.reshaping import flatten, reshape
from actorgraph.ops.shaping import swap_last
from actorgraph.ops.windows import col2im, im2col, out_sizes, per_axis

__all__ = ["fold", "unfold"]


@raises(shapes="The rank is neither 3 nor 4, or no window fits.")
def unfold(x: Node, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Node:
    """Return the windows of images as columns, as ``torch.nn.functional.unfold``.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, height, width) or without the batch.
    kernel_size, dilation, padding, stride : int or pair of int

    Returns
    -------
    Node
        Shape (batch, channels * product of the kernel, windows); `im2col` gives rows.
    """
    if x.ndim not in (3, 4):
        raise ShapeError(f"unfold takes rank 3 or 4, got {x!r}")
    rows = im2col(x if x.ndim == 4 else expand_dims(x, 0), kernel_size, stride, padding, dilation)
    columns = swap_last(flatten(rows, 1, 2))
    return columns if x.ndim == 4 else squeeze(columns, 0)


@raises(shapes="The rank is neither 2 nor 3, or the number of windows is not that of such images.")
def fold(
    x: Node,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Node:
    """Add columns of windows into images, as ``torch.nn.functional.fold``: `unfold`'s adjoint.

    Parameters
    ----------
    x : node
        Shape (batch, channels * product of the kernel, windows) or without the batch.
    output_size : int or pair of int
        Height and width of the images.
    kernel_size, dilation, padding, stride : int or pair of int

    Returns
    -------
    Node
        Shape (batch, channels, height, width).
    """
    if x.ndim not in (2, 3):
        raise ShapeError(f"fold takes rank 2 or 3, got {x!r}")
    sizes = per_axis(output_size, 2, "fold: output_size")
    kernel = per_axis(kernel_size, 2, "fold: kernel_size")
    steps = per_axis(stride, 2, "fold: stride")
    gaps = per_axis(dilation, 2, "fold: dilation")
    pads = tuple((one, one) for one in per_axis(padding, 2, "fold: padding", 0))
    windows = out_sizes(sizes, kernel, steps, gaps, pads)
    rows = swap_last(x if x.ndim == 3 else expand_dims(x, 0))
    rows = reshape(rows, (rows.dims[0], *windows, rows.dims[2]))
    image = col2im(rows, sizes, kernel, steps, pads, gaps)
    return image if x.ndim == 3 else squeeze(image, 0)
