"""Batching rules of the ops whose type does not imply one: shapes, products, indices, images.

Rows are the first axis.  An operand without rows is broadcast to rows (a view) if an op cannot take
it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from actorgraph.control.batching import AllRows, Rule, Value, along_axis, in_turn, rule, shifted
from actorgraph.control.in_blocks import IN_BLOCKS
from actorgraph.graph import Node
from actorgraph.op import REGISTRY, Attrs
from actorgraph.ops.arithmetic import multiply
from actorgraph.ops.broadcasting import broadcast_to, expand_dims, squeeze
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.comparison import equal
from actorgraph.ops.counting import all as all_of
from actorgraph.ops.indexing import ALONG, ARRAY
from actorgraph.ops.rearranging import moveaxis
from actorgraph.ops.reductions import divide_by_size
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import swap_last, transpose
from actorgraph.types import shapes_differ, size_of

__all__: list[str] = []

_FULL = slice(None)
_Args = list[Node]
_Flags = list[bool]


def _apply(rows: AllRows, name: str, args: Sequence[Node], **attrs: Any) -> Node:
    return rows.apply(REGISTRY[name], args, attrs)


# -- ops that keep leading axes, and ops that only look at shapes ---------------------------------


def _with_attrs(changed: Callable[[AllRows, Attrs], Attrs]) -> Rule:
    """Return the rule of an op that is applied to all rows with changed attributes."""

    def applied(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
        return rows.apply(node.op, rows.all_spread(args, flags), changed(rows, node.attrs))

    return applied


rule(
    "adaptive_max_places", "adaptive_max_pool", "avg_pool", "avg_pool_adjoint", "max_pool",
    "max_pool_places", "one_hot", "pick_adjoint", "place_diagonal", "pool_put", "pool_take",
    "reshape_like", "resample", "resample_adjoint",
)(_with_attrs(lambda rows, at: at))  # fmt: skip


@rule("causal_mask")
def _of_shape(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    """The result is the same for all rows."""
    return rows.apply(node.op, args, node.attrs), False


@rule("size_along", "size_of")
def _size(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    axis = node.attrs["axis"]
    if axis is not None:
        return rows.apply(node.op, args, {"axis": shifted(axis)}), False
    result = rows.graph.constant(np.int64(1))
    for place in range(1, args[0].ndim):
        result = result * rows.apply(node.op, args, {"axis": place})
    return result, False


@rule("concatenate_starts")
def _starts(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    attrs = {"axis": shifted(node.attrs["axis"])}
    return rows.apply(node.op, rows.all_spread(args, flags), attrs), False


@rule("concatenate_part", "concatenate_part_adjoint")
def _part(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    if flags[1]:
        return in_turn(rows, node, args, flags)
    x, starts, like = args
    given = [rows.spread(x, flags[0]), starts, rows.spread(like, flags[2])]
    return rows.apply(node.op, given, {**node.attrs, "axis": shifted(node.attrs["axis"])}), True


@rule("checkpoint", "recompute")
def _mark(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    """The first operand is the value; the others are starts of the part, or waited for."""
    return rows.apply(node.op, args, node.attrs), flags[0]


@rule("argmax", "argmin")
def _place(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    if node.attrs["axis"] is not None:
        return along_axis(rows, node, args, flags)
    (x,), keeps = args, node.attrs["keepdims"]
    lead = (1,) * (x.ndim - 2) if keeps else ()
    flat = reshape(x, (rows.known_size(), *lead, size_of(x.dims[1:])))
    attrs = {"axis": len(lead) + 1, "keepdims": keeps and x.ndim > 1}
    return rows.apply(node.op, [flat], attrs), True


# -- shapes ---------------------------------------------------------------------------------------


rule("reshape")(_with_attrs(lambda rows, at: {"shape": (rows.known_size(), *at["shape"])}))
rule("transpose")(_with_attrs(lambda rows, at: {"axes": (0, *shifted(at["axes"]))}))
rule("flatten")(_with_attrs(lambda rows, at: {name: shifted(at[name]) for name in at}))
rule("merge_dims")(_with_attrs(lambda rows, at: {"groups": (1, *at["groups"])}))
rule("pad_own", "pad_own_adjoint")(
    _with_attrs(lambda rows, at: {**at, "widths": ((0, 0), *at["widths"])})
)


@rule("broadcast_to")
def _broadcast(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    shape = node.attrs["shape"]
    return broadcast_to(_of_rank(args[0], len(shape)), (rows.known_size(), *shape))


@rule("broadcast_like")
def _broadcast_like(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    x, like = rows.all_spread(args, flags)
    return rows.apply(node.op, [_of_rank(x, node.ndim), like], {})


@rule("sum_like", "tile_adjoint")
def _to_lower_rank(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    """The second operand, whose shape the result has, may have a lower rank."""
    x, like = rows.all_spread(args, flags)
    missing = tuple(range(1, 1 + x.ndim - like.ndim))
    wide = expand_dims(like, missing) if missing else like
    result = rows.apply(node.op, [x, wide], node.attrs)
    return squeeze(result, missing) if missing else result


def _of_rank(x: Node, rank: int) -> Node:
    """Insert dims of 1 behind the rows, so that each row has that rank."""
    missing = rank + 1 - x.ndim
    return expand_dims(x, tuple(range(1, 1 + missing))) if missing > 0 else x


@rule("tile")
def _tile(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    reps = node.attrs["reps"]
    return rows.apply(node.op, [_of_rank(args[0], len(reps))], node.attrs)


@rule("pad")
def _pad(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    if flags[1]:
        return in_turn(rows, node, args, flags)
    return rows.apply(node.op, args, {"widths": ((0, 0), *node.attrs["widths"])}), True


# -- products -------------------------------------------------------------------------------------


@rule("matmul", IN_BLOCKS.name)
def _matmul(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    (x, y), ranks = args, [part.ndim for part in node.inputs]
    if ranks == [1, 2] and not flags[1]:
        return rows.apply(node.op, [x, y], {})  # one product of matrices
    if ranks == [2, 1] and not flags[0]:
        return rows.apply(node.op, [y, swap_last(x)], {})
    if ranks[0] == 1:
        x = expand_dims(x, -2)
    if ranks[1] == 1:
        y = expand_dims(y, -1)
    most = max(*ranks, 2)
    x, y = [_of_rank(one, most) if flag else one for one, flag in zip((x, y), flags, strict=True)]
    product = _apply(rows, "matmul", [x, y])
    if ranks[1] == 1:
        product = squeeze(product, -1)
    return squeeze(product, -1 if ranks[1] == 1 else -2) if ranks[0] == 1 else product


@rule("outer")
def _outer(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    return multiply(expand_dims(args[0], -1), expand_dims(args[1], -2))


@rule("tensordot")
def _tensordot(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    (x, y), x_axes, y_axes = args, node.attrs["x_axes"], node.attrs["y_axes"]
    if not all(flags):
        axes = [
            shifted(axes_of) if flag else axes_of
            for axes_of, flag in zip((x_axes, y_axes), flags, strict=True)
        ]
        product = rows.apply(node.op, args, {"x_axes": axes[0], "y_axes": axes[1]})
        return product if flags[0] else moveaxis(product, x.ndim - len(x_axes), 0)
    left, right = shifted(x_axes), shifted(y_axes)
    x_free = tuple([axis for axis in range(1, x.ndim) if axis not in left])
    y_free = tuple([axis for axis in range(1, y.ndim) if axis not in right])
    size = rows.known_size()
    summed = size_of(tuple([x.dims[axis] for axis in left]))
    left_matrix = reshape(
        transpose(x, (0, *x_free, *left)),
        (size, size_of(tuple([x.dims[a] for a in x_free])), summed),
    )
    right_matrix = reshape(
        transpose(y, (0, *right, *y_free)),
        (size, summed, size_of(tuple([y.dims[a] for a in y_free]))),
    )
    return reshape(_apply(rows, "matmul", [left_matrix, right_matrix]), (size, *node.dims))


@rule("array_equal")
def _array_equal(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    if shapes_differ(*[part.dims for part in node.inputs]):
        return rows.spread(rows.graph.constant(np.False_))
    x, y = rows.all_spread(args, flags)
    same = equal(x, y)
    if node.attrs["equal_nan"] and x.dtype.kind in "fcV":
        same = same | ((x != x) & (y != y))
    return all_of(same, tuple(range(1, same.ndim))) if same.ndim > 1 else same


# -- indices --------------------------------------------------------------------------------------


@rule("embedding")
def _embedding(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    if flags[0]:
        return in_turn(rows, node, args, flags)
    return rows.apply(node.op, args, node.attrs), True


def _advanced(index: tuple[Any, ...], arrays: _Args, flags: _Flags) -> tuple[int, int, bool, _Args]:
    """Return rank and place of the index dims, if the arrays are adjacent, and padded arrays."""
    places = [i for i, part in enumerate(index) if isinstance(part, (str, int))]
    width = max([array.ndim - flag for array, flag in zip(arrays, flags, strict=True)], default=0)
    beside = bool(arrays) and places[-1] - places[0] == len(places) - 1
    padded = [
        _of_rank(array, width) if flag else array for array, flag in zip(arrays, flags, strict=True)
    ]
    return width, places[0] if beside else 0, beside, padded


class _Index:
    """The index of an op for all rows.

    `index` is the op's attribute for one row, `rank` the rank of its result; `arrays` are the index
    operands, and `flags` say which of these have rows.
    """

    def __init__(
        self, rows: AllRows, index: tuple[Any, ...], arrays: _Args, flags: _Flags, rank: int
    ) -> None:
        if index[:1] == (ALONG,):
            self.index: tuple[Any, ...] = (ALONG, index[1] + 1)
            self.arrays, self.order = rows.all_spread(arrays, flags), tuple(range(rank + 1))
            return
        width, at, beside, padded = _advanced(index, arrays, flags)
        if not any(flags):
            self.index, self.arrays = (_FULL, *index), arrays
            front = bool(arrays) and not beside
            moved = (width, *range(width), *range(width + 1, rank + 1))
            self.order = moved if front else tuple(range(rank + 1))
            return
        self.index, self.arrays = (ARRAY, *index), [_of_rank(rows.numbers(), width), *padded]
        # Index arrays that are not adjacent put their dims in front.
        others = [*range(1 + width, rank + 1)]
        self.order = (0, *others[:at], *range(1, 1 + width), *others[at:])

    def read(self, node: Node) -> Node:
        """Return the result of a read, with rows first."""
        return transpose(node, self.order)

    def written(self, node: Node) -> Node:
        """Return values with rows first in the axis order of the index."""
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return transpose(node, tuple(back))


@rule("getitem")
def _getitem(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    x, index = args[0], node.attrs["index"]
    if not flags[0] and index[:1] != (ALONG,):  # the rows are one more dim of the index arrays
        _, place, _, padded = _advanced(index, args[1:], flags[1:])
        return moveaxis(rows.apply(node.op, [x, *padded], node.attrs), place, 0)
    at = _Index(rows, index, args[1:], flags[1:], node.ndim)
    result = rows.apply(node.op, [rows.spread(x, flags[0]), *at.arrays], {"index": at.index})
    return at.read(result)


def _written(
    rows: AllRows, node: Node, args: _Args, flags: _Flags, values: int, first: int
) -> Node:
    """Write operand number `values` at an index, whose operands begin at `first`."""
    given = rows.all_spread(args[:first], flags[:first])
    rank = given[values].ndim - 1
    at = _Index(rows, node.attrs["index"], args[first:], flags[first:], rank)
    given[values] = at.written(given[values])
    attrs = {**node.attrs, "index": at.index}
    if "shape" in attrs:
        attrs["shape"] = (rows.known_size(), *attrs["shape"])
    return rows.apply(node.op, [*given, *at.arrays], attrs)


rule("getitem_adjoint")(partial(_written, values=0, first=1))
rule("getitem_adjoint_like")(partial(_written, values=0, first=2))
rule("index_put", "index_put_add")(partial(_written, values=1, first=2))


@rule("last_writes")
def _last_writes(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    x, *arrays = args
    at = _Index(rows, node.attrs["index"], arrays, flags[1:], node.ndim)
    given = [rows.spread(x, flags[0]), *at.arrays]
    return at.read(rows.apply(node.op, given, {"index": at.index}))


# -- images ---------------------------------------------------------------------------------------


def _merged(x: Node, axis: int) -> Node:
    """Merge the rows into an axis of one row."""
    moved = moveaxis(x, 0, axis)
    return reshape(
        moved,
        (*moved.dims[:axis], moved.dims[axis] * moved.dims[axis + 1], *moved.dims[axis + 2 :]),
    )


def _parted(rows: AllRows, x: Node, axis: int, dims: Sequence[Any]) -> Node:
    """Undo `_merged`; `dims` are those of one row."""
    wide = reshape(x, (*dims[:axis], rows.known_size(), *dims[axis:]))
    return moveaxis(wide, axis, 0)


@rule("im2col", "col2im")
def _columns(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    """Rows become more images."""
    rows.known_size()
    folded = [_merged(one, 0) for one in rows.all_spread(args, flags)]
    return _parted(rows, rows.apply(node.op, folded, node.attrs), 0, node.dims)


@rule("conv", "conv_transpose")
def _conv(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    """Rows become more images, or more groups if weights have rows."""
    size = rows.known_size()
    if not flags[1]:
        x, w, *like = args[0], args[1], *rows.all_spread(args[2:], flags[2:])
        images = [_merged(rows.spread(x, flags[0]), 0), w, *[_merged(one, 0) for one in like]]
        return _parted(rows, rows.apply(node.op, images, node.attrs), 0, node.dims), True
    if len(args) > 2 or not isinstance(size, int) or not size:
        return in_turn(rows, node, args, flags)
    x, w = rows.all_spread(args, flags)
    attrs = {**node.attrs, "groups": node.attrs["groups"] * size}
    result = rows.apply(node.op, [_merged(x, 1), _merged(w, 0)], attrs)
    return _parted(rows, result, 1, node.dims), True


@rule("conv_weight")
def _conv_weight(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Value:
    """A gradient by the weights for each row: rows become more groups."""
    size = rows.known_size()
    if not isinstance(size, int) or not size:
        return in_turn(rows, node, args, flags)
    grouped = [_merged(one, 1) for one in rows.all_spread(args, flags)]
    attrs = {**node.attrs, "groups": node.attrs["groups"] * size}
    return _parted(rows, rows.apply(node.op, grouped, attrs), 0, node.dims), True


# -- losses ---------------------------------------------------------------------------------------


@rule("cross_entropy")
def _cross_entropy(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    logits, targets = rows.all_spread(args, flags)
    losses = _apply(rows, "cross_entropy", [logits, targets], reduction="none")
    how, axes = node.attrs["reduction"], tuple(range(1, losses.ndim))
    if how == "none" or not axes:
        return losses
    total = sum_of(losses, axes)
    return divide_by_size(total, losses, axes) if how == "mean" else total


@rule("cross_entropy_pull")
def _cross_entropy_pull(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    ct, logits, targets = rows.all_spread(args, flags)
    how, axes = node.attrs["reduction"], tuple(range(1, targets.ndim))
    if how != "none" and axes:
        if how == "mean":
            ct = divide_by_size(ct, targets, axes)
        ct = broadcast_to(expand_dims(ct, axes), targets.dims)
    return _apply(rows, "cross_entropy_pull", [ct, logits, targets], reduction="none")


@rule("ctc_curvature", "ctc_loss", "ctc_pull")
def _ctc(rows: AllRows, node: Node, args: _Args, flags: _Flags) -> Node:
    """Rows become more sequences."""
    signature: Any = node.op.signature(len(args), node.attrs)

    def place(term: Any) -> int:
        return [str(dim) for dim in term.row.dims].index("n")

    spread = rows.all_spread(args, flags)
    folded = [_merged(one, place(term)) for one, term in zip(spread, signature.args, strict=True)]
    return _parted(
        rows, rows.apply(node.op, folded, node.attrs), place(signature.result), node.dims
    )
