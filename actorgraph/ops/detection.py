"""Boxes of object detectors: the decoding of YOLO v3.  Built of other ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.ops._docs import raises
from actorgraph.ops.activations import sigmoid
from actorgraph.ops.exponential import exp
from actorgraph.ops.grouping import group_dim, ungroup_dims
from actorgraph.ops.shaping import concatenate, transpose
from actorgraph.ops.windows import per_axis
from actorgraph.types import Dim

__all__ = ["yolo_decode"]


@raises(
    types="`anchors` are no pairs, or the mask names one that is not there.",
    shapes="The channels do not fit, or only a run knows the cells.",
)  # fmt: skip
def yolo_decode(
    x: Node,
    anchors: Any,
    net_size: Any,
    classes: int,
    mask: Sequence[int] | None = None,
) -> Node:
    """Turn the output of a YOLO v3 head into boxes in pixels of the network's input.

    Per cell and anchor: the centre ``(sigmoid(t) + cell) stride``, the size ``exp(t) anchor``, then
    the sigmoids of objectness and classes.  Source: J. Redmon, A. Farhadi, YOLOv3, 2018.

    Parameters
    ----------
    x : node
        Float, shape (batch, anchors * (5 + classes), height, width); per anchor the channels are
        x, y, width, height, objectness and the classes.
    anchors : array
        Shape (count, 2): width and height in pixels.
    net_size : int or pair of int
        Height and width of the network's input in pixels; a stride is that over the cells.
    classes : int
    mask : sequence of int, optional
        Which anchors this head uses, in the order of its channels; default: all.

    Returns
    -------
    Node
        Shape (batch, height * width * anchors, 5 + classes): cells row by row, the anchors of a
        cell side by side.
    """
    boxes = np.asarray(anchors, np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 2:
        raise GraphTypeError(f"yolo_decode: anchors are pairs (width, height), got {anchors!r}")
    chosen = range(len(boxes)) if mask is None else mask
    if any(not 0 <= index < len(boxes) for index in chosen):
        raise GraphTypeError(f"yolo_decode: mask {mask!r} names none of {len(boxes)} anchors")
    boxes = boxes[list(chosen)]
    if x.ndim != 4 or any(isinstance(dim, Dim) for dim in x.dims[1:]):
        raise ShapeError(
            f"yolo_decode takes (batch, channels, height, width), all but the batch known; got "
            f"{x!r}"
        )
    _, channels, height, width = x.dims
    if channels != len(boxes) * (5 + classes):
        raise ShapeError(
            f"yolo_decode: {len(boxes)} anchors and {classes} classes need "
            f"{len(boxes) * (5 + classes)} channels, got {channels}"
        )
    assert isinstance(height, int)
    assert isinstance(width, int)
    sizes = per_axis(net_size, 2, "yolo_decode: net_size")
    cells, strides, areas = _constants(boxes, height, width, sizes, x.dtype)
    # (batch, anchor, entry, height, width) to (batch, height, width, anchor, entry)
    t = transpose(group_dim(x, 1, len(boxes)), (0, 3, 4, 1, 2))
    t = ungroup_dims(ungroup_dims(t, 1), 1)
    centre = (sigmoid(t[:, :, :2]) + cells) * strides
    return concatenate([centre, exp(t[:, :, 2:4]) * areas, sigmoid(t[:, :, 4:])], -1)


def _constants(
    boxes: Any, height: int, width: int, sizes: tuple[int, ...], dtype: Any
) -> tuple[Any, Any, Any]:
    """Return each row's cell, the strides, and each row's anchor; x before y."""
    rows, columns = np.divmod(np.arange(height * width), width)
    cells = np.repeat(np.stack([columns, rows], 1), len(boxes), 0)
    strides = np.array([sizes[1] / width, sizes[0] / height])
    areas = np.tile(boxes, (height * width, 1))
    return cells.astype(dtype), strides.astype(dtype), areas.astype(dtype)
