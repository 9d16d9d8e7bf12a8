"""Convolutions over one to three axes, transposed ones, and the three bilinear ops behind them.

Channels come first.  Convolution as in machine learning: ``y[o, p] = sum over c, k of w[o, c, k]
x[c, s p + d k]``. It is linear in x and in w, so three ops are closed under differentiation:
`conv`, its adjoint in x (which is transposed convolution) and its adjoint in w.  Each is im2col, or
col2im, and a matrix product per group, in blocks of the batch that fit in a cache.  Source: V.
Dumoulin, F. Visin, A guide to convolution arithmetic for deep learning, 2016.

Idle workers take blocks of long convolutions (`tiles`).  The blocks and the order of sums over them
follow from the shapes alone, so results have the same bits whoever computes a block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH_BY_SCRATCH, Attrs, Op
from actorgraph.ops._arrays import through_float32
from actorgraph.ops._declare import over_axes
from actorgraph.ops._rules import as_of, declare, on, raises, returns
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze
from actorgraph.ops.einsum import einsum
from actorgraph.ops.linalg import matmul
from actorgraph.ops.shaping import swap_last
from actorgraph.ops.windows import (
    Frame,
    build_sized,
    frame_of,
    from_columns,
    known,
    out_sizes,
    per_axis,
    read_padding,
    static_kernel,
    to_columns,
)
from actorgraph.scratch import scratch
from actorgraph.tiles import CUT_FLOPS, compute_parts, evenly
from actorgraph.types import Checks, Shape

__all__ = [
    "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "linear",
]  # fmt: skip

Ints = tuple[int, ...]

# Elements of the columns of a block.  Their memory is reused for the next block, and they stay in
# a core's cache until they are used.  If no worker can take blocks, a block is four times as large:
# fewer and longer calls are faster, by up to a fifth.
_BLOCK = 1 << 17
# A block has at least so many elements per entry of the kernel, each of which costs a call.
_LEAST = 3 << 12


def _rows(batch: int, entries: int, size_of_one: int, flops: float = CUT_FLOPS) -> int:
    """Return how many rows of the batch make a block; the order of sums follows from it."""
    block = _BLOCK if flops >= CUT_FLOPS else 4 * _BLOCK
    return max(1, min(batch, max(block, _LEAST * entries) // max(1, size_of_one)))


def _for_each_block(
    xp: Any, batch: int, rows: int, flops: float, compute: Callable[[slice, Any], object],
    room: Callable[[], Any],
) -> None:  # fmt: skip
    """Call ``compute(block, room())`` for each block; a thread reuses its array for all of them."""
    free: list[Any] = []

    def part(index: int) -> None:
        try:
            array = free.pop()
        except IndexError:
            array = room()
        compute(slice(index * rows, (index + 1) * rows), array)
        free.append(array)

    count = -(-batch // rows)
    if xp is np and flops >= CUT_FLOPS and count > 1:
        compute_parts(part, count)
    else:
        for index in range(count):
            part(index)


def _is_pointwise(frame: Frame) -> bool:
    """Return whether the columns are the input itself."""
    if prod(frame.kernel) > 1 or frame.sizes != frame.outs or any(frame.lows):
        return False
    # A stride with padding at the end can give the same number of entries, but other entries.
    return all(step == 1 or size <= 1 for step, size in zip(frame.stride, frame.sizes, strict=True))


@through_float32
def _conv_forward(
    xp: Any, x: Any, w: Any, stride: Ints, padding: Any, dilation: Ints, groups: int, size: Any,
    out: Any = None,
) -> Any:  # fmt: skip
    frame = frame_of(x.shape[2:], w.shape[2:], stride, dilation, padding, size)
    (batch, channels), features = x.shape[:2], w.shape[0]
    entries, places = prod(frame.kernel), prod(frame.outs)
    rows = channels // groups * entries
    matrix = w.reshape(groups, features // groups, rows)
    if out is None:
        out = xp.empty((batch, features, *frame.outs), x.dtype)
    result = out.reshape(batch, groups, features // groups, places)
    at_a_time = _rows(batch, entries, channels * entries * places, _flops(w.shape, out.shape))
    pointwise = _is_pointwise(frame)

    def room() -> Any:
        # Each block overwrites all but the zeros of the padding.
        shape = at_a_time, channels, entries, *frame.outs
        return None if pointwise else scratch(xp, shape, x.dtype, cleared=True)

    def compute(part: slice, columns: Any) -> None:
        block = x[part]
        if columns is not None:
            block = to_columns(xp, block, frame, columns[: len(block)])
        xp.matmul(matrix, block.reshape(len(block), groups, rows, places), out=result[part])

    _for_each_block(xp, batch, at_a_time, _flops(w.shape, out.shape), compute, room)
    return out


def sizes_of(cts: Any, kernel: Ints, like: Any, attrs: Attrs) -> Any:
    """Return the sizes of what a transposed convolution gives."""
    if like:
        return like[0][2:]
    if attrs["size"] is not None:
        return attrs["size"]
    geometry = zip(
        cts, kernel, attrs["stride"], attrs["dilation"], attrs["padding"], attrs["extra"],
        strict=True,
    )  # fmt: skip
    return tuple(
        (ct - 1) * step + gap * (width - 1) + 1 - low - high + extra
        for ct, width, step, gap, (low, high), extra in geometry
    )


@through_float32
def _transpose_forward(xp: Any, ct: Any, w: Any, *like: Any, out: Any = None, **attrs: Any) -> Any:
    groups, kernel, outs = attrs["groups"], w.shape[2:], ct.shape[2:]
    sizes = sizes_of(outs, kernel, [one.shape for one in like], attrs)
    frame = frame_of(sizes, kernel, attrs["stride"], attrs["dilation"], attrs["padding"], outs)
    (batch, features), channels = ct.shape[:2], w.shape[1] * groups
    entries, places = prod(kernel), prod(outs)
    rows = w.shape[1] * entries
    matrix = w.reshape(groups, features // groups, rows).swapaxes(1, 2)
    flops = _flops(w.shape, ct.shape)
    ct = ct.reshape(batch, groups, features // groups, places)
    if out is None:
        out = xp.empty((batch, channels, *sizes), ct.dtype)
    at_a_time = _rows(batch, entries, channels * entries * places, flops)
    # One feature a group leaves an outer product, for which matmul is slow.
    product = xp.multiply if features == groups else xp.matmul

    def compute(part: slice, columns: Any) -> None:
        block = ct[part]
        filled = product(matrix, block, out=columns[: len(block)])
        from_columns(xp, filled.reshape(len(block), channels, entries, *outs), frame, out[part])

    room = partial(scratch, xp, (at_a_time, groups, rows, places), ct.dtype)
    _for_each_block(xp, batch, at_a_time, flops, compute, room)
    return out


@through_float32
def _weight_forward(
    xp: Any, x: Any, ct: Any, stride: Ints, padding: Any, dilation: Ints, groups: int, size: Ints,
    out: Any = None,
) -> Any:  # fmt: skip
    frame = frame_of(x.shape[2:], size, stride, dilation, padding, ct.shape[2:])
    (batch, channels), features, axes = x.shape[:2], ct.shape[1], len(size)
    entries, places = prod(size), prod(frame.outs)
    rows = channels // groups * entries
    if out is None:
        out = xp.empty((features, channels // groups, *size), x.dtype)
    out.fill(0)
    total = out.reshape(groups, features // groups, rows)
    # Batch and places side by side: one product per group sums over both.
    flops = _flops(out.shape, ct.shape)
    copied = xp is np and batch > 1 < features and ct.flags.c_contiguous
    ct = xp.swapaxes(ct, 0, 1)
    at_a_time = _rows(batch, entries, (channels * entries + features) * places)
    chunks = _chunks(-(-batch // at_a_time), flops, out.size)
    totals = [total, *(xp.zeros_like(total) for _ in chunks[1:])]

    made = channels * entries * at_a_time * places
    most = features * at_a_time * places

    def room() -> Any:
        found = scratch(xp, (made + most + out.size,), x.dtype, cleared=True)
        return found[:made], found[made : made + most], found[made + most :].reshape(total.shape)

    def compute(part: slice, rooms: Any) -> None:
        whole, pulled, product = rooms
        chunk = chunks[part.start]
        for index in range(chunk.start, chunk.stop):
            block = x[index * at_a_time : (index + 1) * at_a_time]
            count = len(block)
            columns = whole[: channels * entries * count * places]
            columns = columns.reshape(channels, entries, count, *frame.outs)
            if count < at_a_time:
                columns.fill(0)
            to_columns(xp, block, frame, xp.transpose(columns, (2, 0, 1, *range(3, 3 + axes))))
            columns = columns.reshape(groups, rows, count * places)
            given = ct[:, index * at_a_time : index * at_a_time + count]
            if copied:  # not by reshape, into an array of its own
                seen, given = given, pulled[: given.size].reshape(given.shape)
                xp.copyto(given, seen)
            given = given.reshape(groups, features // groups, count * places)
            totals[part.start] += xp.matmul(given, xp.swapaxes(columns, 1, 2), out=product)

    _for_each_block(xp, len(chunks), 1, flops, compute, room)
    for more in totals[1:]:
        total += more
    return out


def _chunks(blocks: int, flops: float, size: int) -> tuple[slice, ...]:
    """Return chunks of blocks; each is summed by one thread, into its own `size` numbers."""
    count = min(4 if size <= _BLOCK else 2, max(1, blocks // 2)) if flops >= CUT_FLOPS else 1
    return evenly(blocks, count)


def _check_ranks(left: Shape, right: Shape, axes: int) -> None:
    if not len(left) == len(right) == axes + 2:
        what = f"convolution over {axes} axes takes arrays of rank {axes + 2}"
        raise ShapeError(f"{what}, got {left} and {right}")


def _conv_shape(
    checks: Checks, x: Shape, w: Shape, *, stride: Ints, padding: Any, dilation: Ints, groups: int,
    size: Any,
) -> Shape:  # fmt: skip
    _check_ranks(x, w, len(stride))
    checks.equal(x[1], w[1] * groups, "channels of the input and of the weight (times groups)")
    if isinstance(w[0], int) and w[0] % groups:
        raise ShapeError(f"{w[0]} features cannot be divided into {groups} groups")
    kernel = static_kernel(w[2:])
    outs = out_sizes(x[2:], kernel, stride, dilation, padding) if size is None else size
    return (x[0], w[0], *outs)


def _transpose_shape(checks: Checks, ct: Shape, w: Shape, *like: Shape, **attrs: Any) -> Shape:
    _check_ranks(ct, w, len(attrs["stride"]))
    checks.equal(ct[1], w[0], "channels of the input and of the weight")
    if isinstance(w[0], int) and w[0] % attrs["groups"]:
        raise ShapeError(f"{w[0]} channels cannot be divided into {attrs['groups']} groups")
    kernel = static_kernel(w[2:])
    sizes = sizes_of(ct[2:], kernel, like, attrs)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ShapeError(f"padding leaves a result of the sizes {sizes}")
    return (ct[0], w[1] * attrs["groups"], *sizes)


def _weight_shape(
    checks: Checks, x: Shape, ct: Shape, *, stride: Ints, padding: Any, dilation: Ints, groups: int,
    size: Ints,
) -> Shape:  # fmt: skip
    _check_ranks(x, ct, len(stride))
    checks.equal(x[0], ct[0], "batches")
    return (ct[1], x[1] // groups, *size)


def _conv(x: Node, w: Node, like: Node, geometry: Attrs) -> Node:
    outs = like.dims[2:]
    return build(CONV, x, w, size=outs if known(outs) else None, **geometry)


def _transposed(ct: Node, w: Node, like: Node, geometry: Attrs) -> Node:
    axes = len(geometry["stride"])
    return build_sized(TRANSPOSE, (ct, w), like, axes, extra=(0,) * axes, **geometry)


def _weight(x: Node, ct: Node, kernel: Shape, geometry: Attrs) -> Node:
    return build(_WEIGHT, x, ct, size=kernel, **geometry)


def _transpose_vjp(
    argnum: int, u: Node, y: Node, ct: Node, w: Node, *like: Node, size: Any, extra: Any,
    **geometry: Any,
) -> Node | None:  # fmt: skip
    if argnum == 0:
        return _conv(u, conj(w), ct, geometry)
    return _weight(u, conj(ct), w.dims[2:], geometry) if argnum == 1 else None


def _flops(w: tuple[int, ...], places: tuple[int, ...]) -> float:
    return float(2 * prod(w) * places[0] * prod(places[2:]))


def _as_geometry(*values: Any) -> Attrs:
    return dict(zip(("stride", "padding", "dilation", "groups"), values, strict=True))


_CASES: tuple[tuple[Any, Any, Any, Attrs], ...] = (
    # input, weight, result, geometry
    ((2, 4, 4, 3), (2, 2, 2, 3), (2, 2, 2, 3),
     _as_geometry((2, 1), ((1, 0), (1, 1)), (1, 1), 2)),
    ((1, 2, 5), (2, 2, 2), (1, 2, 2), _as_geometry((2,), ((0, 0),), (2,), 1)),
    ((2, 3, 4), (2, 3, 1), (2, 2, 4), _as_geometry((1,), ((0, 0),), (1,), 1)),
    ((1, 2, 5), (2, 1, 2), (1, 2, 3), _as_geometry((2,), "same", (1,), 2)),
)  # fmt: skip

CONV: Op = declare(
    "conv", "x[*s] -> x[*t] -> x[*out]", _conv_forward, shape=_conv_shape,
    vjp=(
        lambda ct, y, x, w, size, **geometry: _transposed(ct, conj(w), x, geometry),
        lambda ct, y, x, w, size, **geometry: _weight(conj(x), ct, w.dims[2:], geometry),
    ),
    linear=(0, 1), cost=lambda shapes, result, attrs: _flops(shapes[1], result),
    samples=(
        *(on(x, w, **attrs, size=None) for x, w, _, attrs in _CASES),
        on((0, 3, 4), (2, 3, 1), **_CASES[2][3], size=None),
    ),
    memory=FRESH_BY_SCRATCH, in_blas=True, doc="Convolution over trailing axes.",
    traced=True, convolves="forward", moves_windows=True,
)  # fmt: skip
"""Convolution, linear in the input and in the weight."""

TRANSPOSE: Op = declare(
    "conv_transpose",
    lambda arity, attrs: f"x[*s] -> x[*t]{' -> a[*u]' if arity == 3 else ''} -> x[*out]",
    _transpose_forward, shape=_transpose_shape, vjp=_transpose_vjp, linear=(0, 1),
    cost=lambda shapes, result, attrs: _flops(shapes[1], shapes[0]),
    samples=(
        *(on(y, w, **attrs, size=x[2:], extra=(0,) * (len(x) - 2)) for x, w, y, attrs in _CASES),
        on((1, 2, 2), (2, 2, 2), (1, 2, 5), **_CASES[1][3], size=None, extra=(0,)),
        on((1, 2, 2), (2, 2, 2), **_CASES[1][3], size=None, extra=(1,)),
    ),
    memory=FRESH_BY_SCRATCH, in_blas=True, traced=True, convolves="backward", moves_windows=True,
    doc="Transposed convolution: the adjoint of convolution in its input.",
)  # fmt: skip
"""The adjoint of convolution in its input."""

_WEIGHT: Op = declare(
    "conv_weight", "x[*s] -> x[*t] -> x[*out]", _weight_forward, shape=_weight_shape,
    vjp=(
        lambda u, g, x, ct, size, **geometry: _transposed(conj(ct), u, x, geometry),
        lambda u, g, x, ct, size, **geometry: _conv(conj(x), u, ct, geometry),
    ),
    linear=(0, 1), cost=lambda shapes, result, attrs: _flops(result, shapes[1]),
    samples=tuple(on(x, y, **attrs, size=w[2:]) for x, w, y, attrs in _CASES),
    memory=FRESH_BY_SCRATCH, in_blas=True, doc="Adjoint of convolution in its weight.",
    traced=True, convolves="weight", moves_windows=True,
)  # fmt: skip


def _geometry(
    weight: Any, stride: Any, padding: Any, dilation: Any, groups: Any, axes: int
) -> Attrs:
    shape = weight.dims if isinstance(weight, Node) else tuple(getattr(weight, "shape", ()))
    if len(shape) != axes + 2:
        raise ShapeError(f"the weight has to have rank {axes + 2}, got shape {shape}")
    kernel = static_kernel(shape[2:])
    steps, gaps = per_axis(stride, axes, "stride"), per_axis(dilation, axes, "dilation")
    pads, (parts,) = read_padding(padding, kernel, steps, gaps), per_axis(groups, 1, "groups")
    return _as_geometry(steps, pads, gaps, parts)


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


@returns("Node of shape (batch, features, {places}) of the result; linear in each of the operands")
@raises(
    types="The dtypes differ, or the padding is an unknown word.",
    shapes="Ranks, channels or groups do not fit, or the kernel is larger than the padded input.",
)  # fmt: skip
def _convolve(
    axes: int, x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Node:  # fmt: skip
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

    Examples
    --------
    >>> import actorgraph as ag, numpy as np
    >>> x = ag.Graph().input("x", ("batch", 3, 8, 8))
    >>> ag.ops.conv2d(x, np.zeros((16, 3, 3, 3), "float32"), stride=2, padding=1).shape
    (batch, 16, 4, 4)
    """
    geometry = _geometry(weight, stride, padding, dilation, groups, axes)
    return _applied(CONV, x, weight, bias, axes, **geometry)


@returns("Node of shape (batch, features, {places}) of the result")
@raises(
    types="The dtypes differ, or the padding is a word.",
    shapes="Ranks, channels or groups do not fit, or `output_padding` reaches stride and dilation.",
)  # fmt: skip
@as_of(_convolve)
def _conv_transpose(
    axes: int, x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Node:  # fmt: skip
    """Transposed convolution over {axes}, as ``torch.nn.functional.conv_transpose{n}d``.

    The adjoint, in its input, of `conv{n}d` with the same weight: along each axis it gives
    ``(size - 1) stride - pads + dilation (kernel - 1) + output_padding + 1`` entries.

    Parameters
    ----------
    weight : node or array
        Shape (channels, features / groups, *kernel).
    padding : {ints}, or pairs of int
        How much is cut off the result at each end.
    output_padding : {ints}
        Entries more at the end of the result, fewer than the stride or the dilation.
    """
    if isinstance(padding, str) and padding != "valid":
        raise GraphTypeError(f"padding is ints or pairs of ints, got {padding!r}")
    geometry = _geometry(weight, stride, padding, dilation, groups, axes)
    extra = per_axis(output_padding, axes, "output_padding", 0)
    limits = map(max, geometry["stride"], geometry["dilation"])
    if any(more >= limit for more, limit in zip(extra, limits, strict=True)):
        raise ShapeError(
            f"output_padding {extra} has to be below the stride {geometry['stride']} "
            f"or the dilation {geometry['dilation']}"
        )
    return _applied(TRANSPOSE, x, weight, bias, axes, extra=extra, **geometry)


conv1d, conv2d, conv3d = over_axes(_convolve, "conv{n}d")
conv_transpose1d, conv_transpose2d, conv_transpose3d = over_axes(
    _conv_transpose, "conv_transpose{n}d"
)


@returns("Node of shape (..., outputs)")
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
    """
    weight = x.graph.lift(weight)
    y = matmul(x, swap_last(weight) if weight.ndim > 1 else weight)
    return y if bias is None else y + bias


@returns("Node of shape (..., outputs)")
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
    """
    y = einsum("...n,knm,...m->...k", x1, x1.graph.lift(weight), x1.graph.lift(x2))
    return y if bias is None else y + bias
