"""Maximum and average over windows, and global pools, for arrays (batch, channels, ...).

The gradient of a maximum goes to the first largest entry of its window in row-major order, as in
PyTorch; where the maximum is NaN, to the first NaN.  An average divides by the entries of its own
window, whatever the size of the input.  The ops stand in `_pooling`.
"""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.ops._pooling import AVERAGE, MAX
from actorgraph.ops.reductions import max as maximum_over
from actorgraph.ops.reductions import mean
from actorgraph.ops.windows import per_axis, read_padding

__all__ = [
    "avg_pool1d", "avg_pool2d", "global_avg_pool", "global_max_pool", "max_pool1d", "max_pool2d",
]  # fmt: skip


def _pool_geometry(
    x: Node,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    axes: int,
    what: str,
) -> dict[str, Any]:
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{what} takes rank {axes + 1} or {axes + 2}, got {x!r}")
    kernel = per_axis(kernel_size, axes, f"{what}: kernel_size")
    steps = kernel if stride is None else per_axis(stride, axes, f"{what}: stride")
    gaps = per_axis(dilation, axes, f"{what}: dilation")
    pads = read_padding(padding, kernel, steps, gaps, what)
    for width, gap, pair in zip(kernel, gaps, pads, strict=False):
        if not isinstance(pads, str) and max(pair) > (gap * (width - 1) + 1) // 2:
            raise ShapeError(
                f"{what}: padding {pair} is more than half of the kernel ({width} entries, {gap} "
                "apart), so that a window could lie outside of the input"
            )
    return {
        "kernel": kernel, "stride": steps, "padding": pads, "dilation": gaps,
        "ceil": bool(ceil_mode),
    }  # fmt: skip


def max_pool1d(
    x: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Node:
    """Maximum over windows of one axis; see `max_pool2d`, with shapes (batch, channels, size)."""
    return build(
        MAX,
        x,
        **_pool_geometry(x, kernel_size, stride, padding, dilation, ceil_mode, 1, "max_pool1d"),
    )


def max_pool2d(
    x: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Node:
    """Maximum over windows of two axes, as ``torch.nn.functional.max_pool2d``.

    The gradient goes to the first largest entry of a window in row-major order.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, height, width) or without the batch.
    kernel_size, dilation : int or pair of int
    stride : int or pair of int, optional
        Default: the kernel's size.
    padding : int, pair of int, pair of pairs, "same" or "valid"
        Before and after each axis (north and south, west and east), at most half of the kernel;
        never chosen.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.

    Returns
    -------
    Node
        Shape (batch, channels, windows, windows), of the dtype of `x`.

    Raises
    ------
    ShapeError
        Ranks do not fit, the padding is too large, or no window fits.
    """
    return build(
        MAX,
        x,
        **_pool_geometry(x, kernel_size, stride, padding, dilation, ceil_mode, 2, "max_pool2d"),
    )


def _average(
    x: Node,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    axes: int,
) -> Node:
    what = f"avg_pool{axes}d"
    geometry = _pool_geometry(x, kernel_size, stride, padding, 1, ceil_mode, axes, what)
    return build(AVERAGE, x, count_include_pad=bool(count_include_pad), **geometry)


def avg_pool1d(
    x: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Node:
    """Average over windows of one axis; see `avg_pool2d`, with shapes (batch, channels, size)."""
    return _average(x, kernel_size, stride, padding, ceil_mode, count_include_pad, 1)


def avg_pool2d(
    x: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Node:
    """Average over windows of two axes, as ``torch.nn.functional.avg_pool2d``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width) or without the batch.
    kernel_size, stride, padding, ceil_mode
        As of `max_pool2d`; padding is zeros.
    count_include_pad : bool
        Whether padding counts as entries; False divides by the entries of the input alone.

    Returns
    -------
    Node
        Shape (batch, channels, windows, windows).

    Raises
    ------
    GraphTypeError
        `x` is no float.
    ShapeError
        Ranks do not fit, the padding is too large, or no window fits.
    """
    return _average(x, kernel_size, stride, padding, ceil_mode, count_include_pad, 2)


def _all_places(x: Node, what: str) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ShapeError(f"{what} takes (batch, channels, axes), got {x!r}")
    return tuple(range(2, x.ndim))


def global_avg_pool(x: Node) -> Node:
    """Mean over all axes behind batch and channels, which stay as dims of size 1."""
    return mean(x, _all_places(x, "global_avg_pool"), keepdims=True)


def global_max_pool(x: Node) -> Node:
    """Maximum over all axes behind batch and channels, which stay as dims of size 1.

    Entries that tie share the gradient equally, as in `max`.
    """
    return maximum_over(x, _all_places(x, "global_max_pool"), keepdims=True)
