"""What PyTorch has a name for and is a line or two of other ops: filling, copying, selecting.

Each takes nodes, ``axis`` where PyTorch says ``dim``, and raises as the ops that it is built of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.operands import as_node, naming_itself
from actorgraph.ops.assignment import INDEX_PUT, index_put, of_slices
from actorgraph.ops.broadcasting import along_axis, broadcast_like, expand_dims, squeeze
from actorgraph.ops.casting import astype
from actorgraph.ops.counting import histogram
from actorgraph.ops.creation import full_like, meshgrid
from actorgraph.ops.gathering import gather
from actorgraph.ops.indexing import getitem, take
from actorgraph.ops.padding import pad
from actorgraph.ops.reductions import max as max_of
from actorgraph.ops.reductions import min as min_of
from actorgraph.ops.reshaping import ravel
from actorgraph.ops.selection import where
from actorgraph.ops.shaping import concatenate, one_axis, stack
from actorgraph.ops.sorting import argsort, searchsorted
from actorgraph.ops.statistics import norm

__all__ = [
    "aminmax", "block_diag", "bucketize", "cartesian_prod", "dist", "histc", "index_copy",
    "index_fill", "index_select", "kthvalue", "lerp", "masked_fill", "masked_select", "narrow",
    "renorm", "select_scatter", "slice_scatter",
]  # fmt: skip


def _at(x: Node, axis: int, part: Any, what: str) -> tuple[Any, ...]:
    return (*[slice(None)] * one_axis(axis, x.ndim, what), part)


# -- filling and copying ----------------------------------------------------------------------


@naming_itself
def masked_fill(x: Node, mask: Any, value: Any) -> Node:
    """Return `x` with a value where a mask, which broadcasts to `x`, holds."""
    return where(mask, value, x)


@naming_itself
@along_axis("x")
def index_fill(x: Node, axis: int, index: Any, value: Any) -> Node:
    """Return `x` with a value in the slices along an axis that an index of one dim names."""
    values, arrays, static = of_slices("index_fill", x, axis, index, value)
    return build(INDEX_PUT, x, values, *arrays, index=static)


@naming_itself
@along_axis("x")
def index_copy(x: Node, axis: int, index: Any, source: Any) -> Node:
    """Return `x` with the slices of `source` in its own along an axis; the last one stays."""
    values, arrays, static = of_slices("index_copy", x, axis, index, source)
    return build(INDEX_PUT, x, values, *arrays, index=static)


@naming_itself
def select_scatter(x: Node, src: Any, axis: int, index: int) -> Node:
    """Return `x` with `src` as its slice at one place along an axis."""
    return index_put(x, _at(x, axis, index, "select_scatter"), src)


@naming_itself
def slice_scatter(
    x: Node, src: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Node:
    """Return `x` with `src` in place of ``x[start:end:step]`` along an axis."""
    return index_put(x, _at(x, axis, slice(start, end, step), "slice_scatter"), src)


# -- selecting --------------------------------------------------------------------------------


@naming_itself
def masked_select(x: Node, mask: Any) -> Node:
    """Return the elements where a mask holds, in one dim; the two broadcast."""
    held = as_node(mask, x)
    whole = full_like(x, True, "bool") & held
    return getitem(ravel(broadcast_like(x, whole)), ravel(whole))


@naming_itself
@along_axis("x")
def index_select(x: Node, axis: int, index: Any) -> Node:
    """Return the slices along an axis that an index of one dim names."""
    return take(x, index, axis)


@naming_itself
def narrow(x: Node, axis: int, start: int, length: int) -> Node:
    """Return so many entries along an axis from a place on."""
    dim, stop = x.dims[one_axis(axis, x.ndim, "narrow")], start + length
    if length < 0 or (isinstance(dim, int) and not -dim <= start <= stop <= dim * (start >= 0)):
        raise ShapeError(f"{length} entries from {start} on are not all in dim {dim} of {x!r}")
    return getitem(x, _at(x, axis, slice(start, None if start < 0 == stop else stop), "narrow"))


@naming_itself
@along_axis("x")
def kthvalue(x: Node, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the k-th smallest value along an axis, from 1 on, and its position."""
    place = one_axis(axis, x.ndim, "kthvalue")
    dim = x.dims[place]
    if k < 1 or (isinstance(dim, int) and k > dim):
        raise ShapeError(f"k is between 1 and the dim {dim} of {x!r}, got {k}")
    position = getitem(argsort(x, place), _at(x, place, slice(k - 1, k), "kthvalue"))
    found = gather(x, place, position), position
    return found if keepdims else (squeeze(found[0], place), squeeze(position, place))


def aminmax(x: Node, axis: Any = None, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the minimum and the maximum over axes."""
    return min_of(x, axis, keepdims), max_of(x, axis, keepdims)


# -- joining ----------------------------------------------------------------------------------


@naming_itself
def block_diag(*nodes: Node) -> Node:
    """Return the matrix of which matrices, or rows, are the diagonal blocks; zeros elsewhere."""
    blocks = [expand_dims(x, tuple(range(2 - x.ndim))) if x.ndim < 2 else x for x in nodes]
    widths = [x.dims[1] for x in blocks]
    if not all(isinstance(width, int) for width in widths):
        raise ShapeError(f"the number of columns of each block is a known int, got {widths}")
    ends: Any = np.cumsum([0, *widths]).tolist()
    rows = [
        pad(x, ((0, 0), (start, ends[-1] - stop)))
        for x, start, stop in zip(blocks, ends, ends[1:], strict=False)
    ]
    return concatenate(rows, 0)


@naming_itself
def cartesian_prod(*nodes: Node) -> Node:
    """Return all tuples of an entry of each vector, as rows; of one vector that vector."""
    if len(nodes) == 1:
        return nodes[0]
    return stack([ravel(grid) for grid in meshgrid(*nodes, indexing="ij")], 1)


# -- distances, mixtures and bins -------------------------------------------------------------


@naming_itself
def dist(x: Node, y: Any, p: float = 2) -> Node:
    """Return the p-norm of all elements of ``x - y``."""
    return norm(x - y, p)


@naming_itself
def renorm(x: Node, p: float, axis: int, maxnorm: float) -> Node:
    """Return `x` with its slices along an axis scaled down to a p-norm of at most `maxnorm`."""
    place = one_axis(axis, x.ndim, "renorm")
    others = tuple(i for i in range(x.ndim) if i != place)
    size = norm(x, p, others, keepdims=True)
    return x * astype(where(size > maxnorm, maxnorm / (size + 1e-7), 1), x.dtype)


@naming_itself
def lerp(x: Node, end: Any, weight: Any) -> Node:
    """Return ``x + weight * (end - x)``."""
    moved: Node = x + weight * (end - x)
    return moved


@naming_itself
def bucketize(x: Node, boundaries: Any, *, right: bool = False) -> Node:
    """Tell where each element would be inserted in sorted boundaries; `right`: behind equals."""
    return searchsorted(as_node(boundaries, x), x, "right" if right else "left")


@naming_itself
def histc(x: Node, bins: int = 100, low: float = 0, high: float = 0) -> Node:
    """Count in bins of one width, in the dtype of `x`; of all elements where low == high."""
    limits = None if low == high else (low, high)
    return histogram(x, bins, limits)[0].astype(x.dtype)
